"""What the driver of this node said last of its volumes. `untracked` asks it; `lookups` judges by it where volumes are."""

from dataclasses import dataclass, field
from types import MappingProxyType

from sidecar.drain.facts.locations import Listed
from sidecar.model.objects import Volume


@dataclass(frozen=True, slots=True)
class DriverList:
    """Empty for a driver that cannot list its volumes."""

    handles: Listed = field(default_factory=lambda: MappingProxyType({}))
    volumes: tuple[Volume, ...] = ()
    """PersistentVolumes of these handles that name other nodes, so that no watch of this node keeps them."""
    not_asked: str = ""
    """Why it has not been asked yet; empty if it has, and if it never will be."""
    answered: bool = False
    """It has, so that what it does not list it did not have then."""


NOTHING_LISTED = DriverList()
