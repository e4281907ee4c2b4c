"""Remembers which new volumes no pod has ever used: they have no data, so nothing is lost with them and they block nothing.

It is not stored: after a restart nobody knows whether a volume was used meanwhile, so it counts as used.
"""

from dataclasses import dataclass, field
from typing import Final

from sidecar.model.nodes import Pod
from sidecar.model.objects import Volume

_MOST: Final = 20_000
"""Names and handles that are remembered, so that memory is bounded; after that no volume counts as new any more."""


@dataclass(slots=True, eq=False, repr=False)
class NeverUsed:
    """Volumes that this process has made and that no pod has used since. While pods cannot be watched no volume is added."""

    _fresh: dict[str, Volume] = field(default_factory=dict)
    """By handle, as they were made."""
    _handles: dict[str, str] = field(default_factory=dict)
    """Theirs, by name."""
    _known: set[str] = field(default_factory=set)
    """Names and handles of all volumes that were ever seen, and all claims that pods were seen with: what comes again under such a name
    may have been used."""

    def made(self, volume: Volume) -> None:
        """It is there for the first time, and was made empty."""
        new = not self._known.intersection((volume.name, volume.handle))
        full = len(self._known) >= _MOST
        self.noticed(volume)
        if new and not full and volume.claim is not None and volume.claim.full_name not in self._known:
            self._fresh[volume.handle] = volume
            self._handles[volume.name] = volume.handle

    def noticed(self, volume: Volume) -> None:
        """It is there. If another claim has it now, or another PersistentVolume its handle, pods may use it under a name that nobody
        looks for."""
        self._learn(volume.name, volume.handle)
        for handle in (volume.handle, self._handles.get(volume.name, "")):
            made = self._fresh.get(handle)
            if made is not None and (made.name, made.handle, made.claim) != (volume.name, volume.handle, volume.claim):
                self.gone(made.name)

    def gone(self, volume: str) -> None:
        self._fresh.pop(self._handles.pop(volume, ""), None)

    def seen(self, pod: Pod) -> None:
        mounted = set(pod.claim_names)
        self._learn(*mounted)
        for made in [made for made in self._fresh.values() if made.claim is not None and made.claim.full_name in mounted]:
            self.gone(made.name)

    def overlooked(self) -> None:
        """The watch of pods broke: pods may have come and gone unseen."""
        self._fresh.clear()
        self._handles.clear()

    def names(self) -> frozenset[str]:
        return frozenset(self._handles)

    def _learn(self, *names: str) -> None:
        if len(self._known) < _MOST:
            self._known.update(names)
