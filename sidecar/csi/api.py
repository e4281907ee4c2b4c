"""The CSI driver as rooms see it: the Protocol `Driver` and plain values. The contract tests prove what the Protocol's docstrings say.

No value here has a field for secrets, so none can leak: secrets are a parameter beside the request and live as long as the call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from sidecar.model.by_key import BY_KEY
from sidecar.model.topology import Segment

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

# plugin capabilities
CONTROLLER_SERVICE: Final = "CONTROLLER_SERVICE"
TOPOLOGY: Final = "VOLUME_ACCESSIBILITY_CONSTRAINTS"
# controller capabilities
CREATE_DELETE_VOLUME: Final = "CREATE_DELETE_VOLUME"
PUBLISH_UNPUBLISH_VOLUME: Final = "PUBLISH_UNPUBLISH_VOLUME"
CREATE_DELETE_SNAPSHOT: Final = "CREATE_DELETE_SNAPSHOT"
CLONE_VOLUME: Final = "CLONE_VOLUME"
MODIFY_VOLUME: Final = "MODIFY_VOLUME"
GET_CAPACITY: Final = "GET_CAPACITY"
LIST_VOLUMES: Final = "LIST_VOLUMES"
SINGLE_NODE_MULTI_WRITER: Final = "SINGLE_NODE_MULTI_WRITER"


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What the driver last reported about itself and about this node."""

    name: str
    version: str
    plugin: frozenset[str]
    controller: frozenset[str]
    node_id: str
    segment: Segment
    """The node's topology as reported by NodeGetInfo; empty if it reported none."""


@dataclass(frozen=True, slots=True)
class Capability:
    """How the volume will be used: one per access mode of the claim."""

    access_mode: str
    """The enum's name in the CSI proto, e.g. SINGLE_NODE_WRITER."""
    block: bool = False
    fs_type: str = ""
    mount_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """CreateVolume without its secrets."""

    name: str
    required_bytes: int
    capabilities: tuple[Capability, ...]
    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False, metadata=BY_KEY)
    requisite: tuple[Segment, ...] = ()
    preferred: tuple[Segment, ...] = ()
    """If both are empty, the request has no accessibility_requirements."""
    mutable_parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False, metadata=BY_KEY)
    source_snapshot: str = ""
    source_volume: str = ""


@dataclass(frozen=True, slots=True)
class CreatedVolume:
    """The driver's answer to CreateVolume. An answer without a volume is a DriverError, so `volume_id` is never empty."""

    volume_id: str
    capacity_bytes: int = 0
    context: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False, metadata=BY_KEY)
    topologies: tuple[Segment, ...] = ()
    """As the driver listed them; a topology without any key is an empty Segment."""
    has_source: bool = False


@dataclass(frozen=True, slots=True)
class CapacityQuery:
    """GetCapacity. With a segment of None the request has no accessible_topology."""

    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False, metadata=BY_KEY)
    segment: Segment | None = None
    capabilities: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """Bytes as the driver reported them; None if it reported no maximum or minimum."""

    available: int
    maximum: int | None = None
    minimum: int | None = None


class Driver(Protocol):
    """The CSI driver of this node.

    Every call ends within the configured deadline, by its answer or by a `csi.outcome.DriverError`. No call is repeated.
    While the driver is away every call fails at once with UNAVAILABLE: its key then waits in the queue and blocks no worker.
    """

    @property
    def info(self) -> DriverInfo:
        """What the driver last reported about itself. Available from the first time it was ready, also while it is away."""
        ...

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        """Idempotent by name: a second call with the same name returns the same volume."""
        ...

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        """Idempotent: deleting a volume that does not exist succeeds."""
        ...

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        """The free space for volumes with these parameters."""
        ...

    async def list_volumes(self) -> Mapping[str, bool]:
        """By handle, all volumes but those that, as the driver says, this node cannot reach. True: it says that no other node can.

        It asks page by page, and each page has the deadline of a call.
        """
        ...
