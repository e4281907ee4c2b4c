"""Remembers which new volumes no pod has ever used: they have no data, so nothing is lost with them and they block nothing.

It is not stored: after a restart nobody knows whether a volume was used meanwhile, so it counts as used.
"""

from dataclasses import dataclass, field
from typing import Final

from sidecar.model.nodes import Pod
from sidecar.model.objects import Volume

_MOST: Final = 20_000
"""Names that are remembered, so that memory is bounded; after that no volume counts as new any more."""


@dataclass(slots=True)
class NeverUsed:
    """Volumes that this process has made and that no pod has used since. While pods cannot be watched no volume is added."""

    _fresh: dict[str, str] = field(default_factory=dict)
    """The claim's full name, by volume."""
    _known: set[str] = field(default_factory=set)
    """All volumes that were ever added, and all claims that pods were seen with: what comes again under such a name may have been used."""

    def made(self, volume: Volume) -> None:
        if volume.claim is None or len(self._known) >= _MOST:
            return
        claim = volume.claim.full_name
        if volume.name not in self._known and claim not in self._known:
            self._fresh[volume.name] = claim
        self._known.add(volume.name)

    def gone(self, volume: str) -> None:
        self._fresh.pop(volume, None)

    def seen(self, pod: Pod) -> None:
        mounted = set(pod.claim_names)
        if len(self._known) < _MOST:
            self._known |= mounted
        self._fresh = {volume: claim for volume, claim in self._fresh.items() if claim not in mounted}

    def overlooked(self) -> None:
        """The watch of pods broke: pods may have come and gone unseen."""
        self._fresh.clear()

    def names(self) -> frozenset[str]:
        return frozenset(self._fresh)
