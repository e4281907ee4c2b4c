"""Which acknowledgements are void because a pod began to use their volume since, be it for a moment, or may have while nobody watched.

What pods a look finds is judged by `acknowledged`; this is about those that came and went.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.drain.facts.begun_uses import BegunUses
from sidecar.drain.judgement.acknowledged import MOST, Acknowledgement, acknowledgement_of
from sidecar.model.objects import Volume

_ALWAYS: Final = float("-inf")


class NewUses:
    """One per process."""

    def __init__(self, begun: BegunUses, *, clock: Callable[[], float]) -> None:
        self.begun = begun
        self._clock = clock
        self._found_at: dict[tuple[str, str], float] = {}
        """When this process found an acknowledgement; those of an earlier one have always been there."""

    def void(self, remembered: Iterable[Acknowledgement], volumes: Iterable[Volume]) -> frozenset[str]:
        """Uids of volumes."""
        known, now, found = {item.identity: item for item in remembered}, self._clock(), set[str]()
        volumes = tuple(volumes)
        for volume in volumes:
            given = acknowledgement_of(volume)
            if given is None:
                continue
            prior = known.get(given.identity)
            at = self._found_at.setdefault(given.identity, _ALWAYS if prior else now)
            unseen = self.begun.lost_at > at and not (prior is not None and prior.released)
            if unseen or (volume.claim is not None and self.begun.last(volume.claim.full_name) > at):
                found.add(volume.uid)
        if len(self._found_at) > 2 * MOST:
            self._found_at = {key: at for key, at in self._found_at.items() if key in known}
        self.begun.keep({volume.claim_name for volume in volumes})
        return frozenset(found)
