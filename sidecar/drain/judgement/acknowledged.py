"""Whether what people have acknowledged as dispensable still is. Once a pod runs with the volume an acknowledgement is void.

Who remembers acknowledgements from one judgement to the next: `publish/stored`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sidecar.model import names
from sidecar.model.objects import Notes, Volume

MOST: Final = 1000
"""Acknowledgements of one node that count: what cannot be remembered must not be believed."""

_DIGITS: Final = 16
FORGOTTEN: Final = (
    f"the stored report could not be read, so it is not known whether volumes were used since they were annotated with {names.ACKNOWLEDGED}"
)
NOT_KNOWN_YET: Final = (
    f"whether volumes that are annotated with {names.ACKNOWLEDGED} were used while the sidecar was away is not known yet: "
    "the API server is asked, which takes about a minute"
)
NOT_REMEMBERED: Final = (
    f"whether volumes that are annotated with {names.ACKNOWLEDGED} are used after that cannot be remembered, because no report can be "
    "stored that has room for it: apply crd.yaml and rbac.yaml of this release's deploy/components/drain"
)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What the annotation of a volume says. With another text it is another acknowledgement."""

    uid: str
    """Of the PersistentVolume."""
    digest: str
    """Of the text."""
    claim: str
    """Uid of the claim that the volume is bound to; empty for none."""
    void: bool = False
    """A pod ran with the volume when it was found, or later."""
    rested: bool = False
    """Nobody used the volume at some moment since. Before that, what shows a use may be what is left of an earlier one."""
    released: bool = False
    """The claim was gone when it was found last. No pod can have used the volume since: another claim makes the acknowledgement void."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.uid, self.digest

    @property
    def may_be_used(self) -> bool:
        """It counts, and would not any more if a pod used the volume."""
        return not (self.void or self.released)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledgement as a judgement has found it."""

    given: Acknowledgement
    runs: bool
    """A pod of this node uses the volume."""
    used: bool
    """Somebody was seen to use it, be it a pod that waits or one that is gone."""
    at_rest: bool
    """Nobody uses it. Neither is true as long as it is not known."""


def is_acknowledged(notes: Notes) -> bool:
    return bool(_text(notes))


def acknowledgement_of(volume: Volume) -> Acknowledgement | None:
    """None if there is none."""
    text = _text(volume.notes)
    if not text:
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
    released = volume.phase in ("Released", "Failed")
    return Acknowledgement(volume.uid, digest, volume.claim.uid if volume.claim else "", released=released)


def void_now(remembered: Iterable[Acknowledgement], volumes: Iterable[Volume]) -> frozenset[str]:
    """Uids of volumes whose acknowledgement counts no more; for `Snapshot.void_acknowledgements`."""
    before = _by_identity(remembered)
    given = filter(None, map(acknowledgement_of, volumes))
    return frozenset(item.uid for item in given if _is_void(item, before.get(item.identity)))


def remember(before: Iterable[Acknowledgement], found: Iterable[Acknowledged], *, complete: bool) -> tuple[Acknowledgement, ...]:
    """What is to be remembered now."""
    known = _by_identity(before)
    after = {} if complete else dict(known)
    for item in found:
        given = item.given
        prior = known.get(given.identity)
        rested = prior is not None and prior.rested
        void = given.void or _is_void(given, prior) or item.runs or (rested and item.used)
        claim = given.claim or (prior.claim if prior else "")
        after[given.identity] = replace(given, claim=claim, void=void, rested=rested or item.at_rest)
    return tuple(sorted(after.values(), key=lambda item: (not item.void, item.uid, item.digest))[: 2 * MOST])


def _is_void(now: Acknowledgement, before: Acknowledgement | None) -> bool:
    return before is not None and (before.void or now.claim not in ("", before.claim))


def _by_identity(remembered: Iterable[Acknowledgement]) -> Mapping[tuple[str, str], Acknowledgement]:
    return {item.identity: item for item in remembered}


def _text(notes: Notes) -> str:
    return next((text.strip() for key, text in notes if key == names.ACKNOWLEDGED), "")
