"""What kind of local driver this is: its node, its pools, its sizes, and what it does not claim."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from sidecar import __version__
from sidecar.csi import api
from sidecar.csi.api import NOTHING
from sidecar.frozen import frozen
from sidecar.model.topology import Segment

GET_VOLUME_STATS: Final = "GET_VOLUME_STATS"
DEFAULT_NAME: Final = "local.csi-node-sidecar.io"
DEFAULT_POOLS: Final[Mapping[str, int]] = MappingProxyType({"standard": 100 * 2**30})
MIB: Final = 2**20

FEATURES: Final = {
    "controller": api.CONTROLLER_SERVICE,
    "topology": api.TOPOLOGY,
    "create": api.CREATE_DELETE_VOLUME,
    "capacity": api.GET_CAPACITY,
    "list": api.LIST_VOLUMES,
    "multi-writer": api.SINGLE_NODE_MULTI_WRITER,
}
"""What can be switched off, and the capability that then is not claimed."""

_LONGEST_NODE_ID: Final = 100


@frozen(kw_only=True)
class Spec:
    """What kind of driver this is. Sizes are bytes; every volume is a whole number of units."""

    node_id: str
    pools: Mapping[str, int] = field(default_factory=lambda: DEFAULT_POOLS)
    topology: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Empty: one key of the driver's own, whose value is the node id."""
    name: str = DEFAULT_NAME
    version: str = __version__
    unit: int = MIB
    minimum: int = 0
    maximum: int | None = None
    measured: bool = False
    """The pool's size is what the file system under the volumes says, and the number in `pools` means nothing."""
    without: frozenset[str] = frozenset()
    """Names from FEATURES."""

    def __post_init__(self) -> None:
        faults = [
            *([] if 0 < len(self.node_id) <= _LONGEST_NODE_ID else [f"a node id has 1 to {_LONGEST_NODE_ID} characters"]),
            *([] if self.pools else ["there must be at least one pool"]),
            *([] if self.unit > 0 else ["a unit has at least one byte"]),
            *([] if self.maximum is None or self.smallest <= self.maximum else ["the maximum size is below the minimum"]),
            *(f"no such feature: {name}" for name in sorted(self.without - FEATURES.keys())),
        ]
        if faults:
            raise ValueError("; ".join(faults))

    @property
    def segment(self) -> Segment:
        return Segment.of(self.topology or {f"topology.{self.name}/node": self.node_id})

    @property
    def smallest(self) -> int:
        return max(self.unit, round_up(self.minimum, self.unit))

    def largest_within(self, available: int) -> int:
        """The largest volume that could be made; 0 if not even the smallest could."""
        size = min(available, self.maximum or available)
        size -= size % self.unit
        return size if size >= self.smallest else 0


def round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
