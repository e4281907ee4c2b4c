"""Describes this node, its driver and the command line's options about volumes, as one frozen value for all rooms."""

from dataclasses import dataclass, field

from sidecar.csi.api import TOPOLOGY, DriverInfo
from sidecar.model import names
from sidecar.model.topology import Segment
from sidecar.ownership.placement import Placement, RandomDelay


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about provisioning."""

    volume_name_prefix: str = "pvc"
    volume_name_uuid_length: int = -1
    default_fstype: str = ""
    extra_create_metadata: bool = False
    strict_topology: bool = False
    topology_gate: bool = True
    controller_publish_readonly: bool = False
    cross_namespace_sources: bool = False
    attributes_classes: bool = True
    keeps_volume_mode: bool = True
    bids: bool = True
    driver_timeout: float = 10.0
    """Seconds that a call of the driver may take."""
    placement: Placement = field(default_factory=lambda: RandomDelay(20.0, 60.0))


@dataclass(frozen=True, slots=True)
class Here:
    """This node and its driver."""

    node: str
    driver: DriverInfo
    options: Options
    identity: str
    """Written into each volume to tell which process created it. It is new at every start; only its driver and node stay the same."""
    machine: str = ""
    """This machine as `node/uid of its Node`, written on each volume where drain decisions are made: by its name alone a node may be
    another machine once this one is gone. Empty: it is not known."""

    @property
    def with_topology(self) -> bool:
        return self.options.topology_gate and TOPOLOGY in self.driver.plugin

    @property
    def segment(self) -> Segment:
        return self.driver.segment if self.with_topology else Segment()

    def volume_name(self, uid: str) -> str:
        """The name of a claim's volume, for the driver and as PersistentVolume. It depends only on flags and the uid, so a creation that is
        repeated, even by another process, asks the driver for the same volume."""
        return names.volume_name(self.options.volume_name_prefix, uid, self.options.volume_name_uuid_length)
