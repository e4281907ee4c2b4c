"""The frozen picture of one class: what should be published for it, and what is."""

from dataclasses import dataclass

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import CapacityRecord, Class, Owner
from sidecar.model.standing import OPEN, Standing
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who publishes, and how. The same for every object of this process."""

    driver: str
    manager: str
    owner: Owner | None
    for_immediate: bool
    poll_interval: float
    reserve_pending: bool = False
    stale_after: float = 0.0
    """0: a figure is never withdrawn because it is old."""


@dataclass(frozen=True, slots=True)
class CapacityView:
    """One class at one moment."""

    now: float
    publisher: Publisher
    segment: Segment
    """Where the driver says that this node is, whether or not volumes follow it: an object without a place speaks for all nodes."""
    class_name: str
    class_: Class | None
    records: tuple[CapacityRecord, ...]
    """Objects with this program's labels for this class, whatever segment they are for."""
    answer: CapacityAnswer | Unmeasured | None = None
    """None: not asked yet in this look."""
    leaving: frozenset[str] = frozenset()
    """UIDs of objects that were told to go: they are about to, or may not and are told again at the next poll."""
    settling_until: float = 0.0
    """An object was created a moment ago and the watch may not have brought it yet."""
    promised: int = 0
    """Bytes that claims of this node will take of the same space, and that the driver may not know of."""
    standing: Standing = OPEN
    wall: float = 0.0
    failing_since: float | None = None
    """On the wall clock: when the driver first failed to answer, if it has not answered since."""
