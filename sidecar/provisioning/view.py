"""The frozen pictures that rules decide on: one for a claim, one for a volume, each with its own now."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sidecar.csi.api import TOPOLOGY, CapacityAnswer, DriverInfo
from sidecar.csi.outcome import Unmeasured
from sidecar.model import names
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.standing import OPEN, Standing
from sidecar.model.topology import Segment
from sidecar.ownership.placement import Placement, RandomDelay
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import OwnershipView, Race
from sidecar.provisioning.begun import Begun
from sidecar.provisioning.needs import NO_FACTS, Facts


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
    placement: Placement = field(default_factory=lambda: RandomDelay(20.0, 60.0))


@dataclass(frozen=True, slots=True)
class Here:
    """This node and its driver."""

    node: str
    driver: DriverInfo
    options: Options
    identity: str
    """Written into each volume: which process made it. New at every start."""

    @property
    def with_topology(self) -> bool:
        return self.options.topology_gate and TOPOLOGY in self.driver.plugin

    @property
    def segment(self) -> Segment:
        return self.driver.segment if self.with_topology else Segment()

    def volume_name(self, uid: str) -> str:
        """What a claim's volume is called, by the driver and as PersistentVolume."""
        return names.volume_name(self.options.volume_name_prefix, uid, self.options.volume_name_uuid_length)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The driver will not be asked before that time, unless the class becomes another one."""

    until: float
    class_uid: str


@dataclass(frozen=True, slots=True)
class ClaimView:
    """One claim, as this node sees it at one moment."""

    now: float
    here: Here
    chance: float
    claim: Claim | None
    """From the cache; or, when a creation may still be running for a claim that was deleted, as it was remembered."""
    gone: bool = False
    """The claim is not in the cache: it is as it was remembered, and nobody waits for it."""
    class_: Class | None = None
    volume: Volume | None = None
    """The volume that bears the claim's volume name, if the cache has one."""
    race: Race | None = None
    free: CapacityAnswer | Unmeasured | None = None
    promised: int = 0
    """Bytes of that space that other claims of this node will take."""
    roster: Roster | None = None
    """Who may bid for the claim besides; None when that is not known."""
    lag: float = 0.0
    """How late things are on this node."""
    deaf: bool = False
    """The watch of claims is down."""
    begun: Begun | None = None
    """A creation whose end is not known, by this process or one before it."""
    remembered: bool = False
    """An earlier attempt may still be running in the driver."""
    unsaved: dict[str, Any] | None = None
    """A PersistentVolume whose volume exists but that the API server has not taken yet."""
    refusals: int = 0
    """How often it has said that it will not take that as it is."""
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    """What was fetched in this look because a decision needed it."""
    volume_here: Volume | None = None
    """The volume it is bound to, if that lies on this node."""
    clones: tuple[str, ...] = ()
    """Claims that are to be cloned from it and have no volume yet, as far as the cache has them."""
    stands_by: float | None = None
    """When it may release the claim in place of the node that has the volume; None while no turn is drawn."""
    source_here: bool = True
    """False: the claim that this one is to be cloned from has no volume on this node."""
    unprotected: bool = False
    """Our finalizer may not be put on the source, and that is known."""
    infeasible: Infeasible | None = None
    stored: bool = False
    """This process has seen the claim's PersistentVolume stored; the watch only has to say so too."""
    returning: str = ""
    """The resourceVersion with which the claim was given back, while no answer to that is known."""
    standing: Standing = OPEN
    kept: str = ""
    """Why the API server did not let a closed node hand the claim back; empty if it was not tried."""

    def race_view(self, claim: Claim) -> OwnershipView:
        return OwnershipView(
            now=self.now,
            node=self.here.node,
            segment=self.here.segment,
            with_topology=self.here.with_topology,
            bids=self.here.options.bids,
            placement=self.here.options.placement,
            chance=self.chance,
            claim=claim,
            class_=self.class_,
            race=self.race,
            free=self.free,
            promised=self.promised,
            roster=self.roster,
            lag=self.lag,
            deaf=self.deaf,
            source_here=self.source_here,
            standing=self.standing,
        )


class Leaving(Enum):
    """The steps of a volume's end."""

    NOT_YET = 0
    EMPTIED = 1
    """The driver has said that what is behind it is gone."""
    REMOVED = 2
    """The API server has taken the deletion of the object."""
    UNFINALIZED = 3
    """It has taken the removal of our finalizer too."""


@dataclass(frozen=True, slots=True)
class VolumeView:
    """One volume, as this node sees it at one moment."""

    here: Here
    volume: Volume | None
    class_: Class | None = None
    progress: Leaving = Leaving.NOT_YET
    """How far this process has come with it, of which the watch may not have heard yet."""
    attachments_known: bool = True
    """False: the driver attaches volumes, and the VolumeAttachments could not be read."""
    attached_to: tuple[str, ...] = ()
    """Nodes named by VolumeAttachments of this volume, whatever their state."""
