"""What rooms hold of the driver: a Protocol and plain values. The docstrings of the Protocol are what the contract tests prove.

No value here holds a secret: secrets are handed beside the request, live as long as the call, and have no field to leak from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

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
    """What the driver said of itself and of this node when it was last probed."""

    name: str
    version: str
    plugin: frozenset[str]
    controller: frozenset[str]
    node_id: str
    segment: Segment
    """The node's topology as reported by NodeGetInfo; empty when it reported none."""


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
    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    requisite: tuple[Segment, ...] = ()
    preferred: tuple[Segment, ...] = ()
    """Both empty: no accessibility requirements are sent at all."""
    mutable_parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    source_snapshot: str = ""
    source_volume: str = ""


@dataclass(frozen=True, slots=True)
class CreatedVolume:
    """The driver's answer to CreateVolume. An answer without a volume is a DriverError, so `volume_id` is never empty."""

    volume_id: str
    capacity_bytes: int = 0
    context: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    topologies: tuple[Segment, ...] = ()
    """As the driver listed them; one without any pair is an empty Segment."""
    has_source: bool = False


@dataclass(frozen=True, slots=True)
class CapacityQuery:
    """GetCapacity. A segment of None asks without accessible_topology."""

    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    segment: Segment | None = None
    capabilities: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """Bytes as the driver gave them; None where it gave no maximum or minimum."""

    available: int
    maximum: int | None = None
    minimum: int | None = None


class Driver(Protocol):
    """The CSI driver of this node.

    Every call ends: with its answer, or with `csi.outcome.DriverError`, within the configured deadline. No call retries.
    While the driver is away every call fails at once with UNAVAILABLE, so that the queue, not a blocked worker, waits for it.
    """

    @property
    def info(self) -> DriverInfo:
        """The last complete answer of the driver about itself. Valid from the first time it was ready, and then for ever."""
        ...

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        """Idempotent by name: asking again for the same name gives the same volume."""
        ...

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        """Idempotent: a volume that is not there counts as deleted."""
        ...

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        """Free bytes for volumes of these parameters."""
        ...

    async def list_volumes(self) -> tuple[str, ...]:
        """The handles of all volumes, but for those of which the driver says that this node does not reach them.

        Page by page; the deadline is each page's.
        """
        ...
