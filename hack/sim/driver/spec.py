"""What kind of local driver this is: its node, its pools, its sizes, and what it does not claim."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar import __version__
from sidecar.csi import api
from sidecar.csi.api import NOTHING
from sidecar.model.topology import Segment

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What kind of driver this is. Sizes are bytes; every volume is a whole number of units."""

    node_id: str
    pools: Mapping[str, int] = field(default_factory=lambda: DEFAULT_POOLS)
    topology: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Empty: one key of the driver's own, whose value is the node id."""
    name: str = DEFAULT_NAME
    version: str = __version__
    unit: int = MIB
    measured: bool = False
    """The pool's size is what the file system under the volumes says, and the number in `pools` means nothing."""
    without: frozenset[str] = frozenset()
    """Names from FEATURES."""

    def __post_init__(self) -> None:
        if not self.node_id or len(self.node_id) > _LONGEST_NODE_ID:
            raise ValueError(f"a node id has 1 to {_LONGEST_NODE_ID} characters")

    @property
    def segment(self) -> Segment:
        return Segment.of(self.topology or {f"topology.{self.name}/node": self.node_id})

    def rounded(self, size: int) -> int:
        """The size of a volume of at least so many bytes."""
        return max(self.unit, -(-size // self.unit) * self.unit)
