"""Holds the frozen views on which the rules decide: one for a claim and one for a volume, each of one moment."""

from dataclasses import dataclass, field

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.losses import NO_LOSS, Loss
from sidecar.csi.outcome import Unmeasured
from sidecar.local.here import Here
from sidecar.model.objects import IMMEDIATE, Claim, Class, Volume
from sidecar.model.standing import OPEN, Standing
from sidecar.ownership.placement import Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import OwnershipView
from sidecar.ownership.selected_node_body import GiveBack
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.findings import NOTHING_FOUND, Findings
from sidecar.provisioning.needs import NO_FACTS, Facts
from sidecar.provisioning.pace import NO_PACE, Pace
from sidecar.provisioning.progress import NOT_BEGUN, Progress, RemovalStep, race_of
from sidecar.rights.rights import FinalizerWrites


@dataclass(frozen=True, slots=True)
class ClaimView:
    """One claim, as this node sees it at one moment."""

    now: float
    here: Here
    chance: float
    claim: Claim | None
    """The claim from the cache. If it was deleted and a creation for it may still be running, the claim as it was remembered."""
    gone: bool = False
    """The claim is not in the cache, so `claim` is the remembered one, and nobody waits for the volume."""
    class_: Class | None = None
    volume: Volume | None = None
    """The PersistentVolume with the name that was begun, or else that the claim's volume gets, if the cache has one. It may be another
    claim's. If there is none, the one that the claim has here under another name."""
    progress: Progress = NOT_BEGUN
    findings: Findings = NOTHING_FOUND
    free: CapacityAnswer | Unmeasured | None = None
    promised: int = 0
    """Bytes of `free` that other claims of this node will take."""
    roster: Roster | None = None
    """The nodes that may bid for the claim; None if they are not known."""
    local_delay: float = 0.0
    """Seconds by which this node lags behind: how late its writes or its turns lately were."""
    watch_down: bool = False
    """The watch of claims is down."""
    holder: str = ""
    """Who else has the handle with which the driver has answered."""
    record: CreationRecord | None = None
    """A creation whose end is not known, begun by this process or by one before it."""
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    """What was fetched in this look because a decision needed it."""
    volume_here: Volume | None = None
    """The volume that the claim is bound to, if that volume lies on this node."""
    clones: tuple[str, ...] = ()
    """Claims that are to be cloned from this one and have no volume yet, as far as they are in the cache."""
    source_here: bool = True
    """False: the claim that this one is to be cloned from has no volume that is known to lie on this node."""
    source_elsewhere: str = ""
    """Why a driver on this node cannot fill the volume from the claim's source."""
    source_unfit: str = ""
    """Why no driver can fill it as things are now."""
    standing: Standing = OPEN
    loss: Loss = NO_LOSS
    """Whether the driver was lost while it was asked for the claim's volume."""
    sent_until: float = 0.0
    """Until then a PersistentVolume may arrive that was sent for the claim by this process or by one that is gone."""
    pace: Pace = NO_PACE
    """How often it has failed here, and when it may be tried again."""
    finalizers: FinalizerWrites = FinalizerWrites.BY_PATCH

    def giving_back(self) -> GiveBack:
        """How the claim is given back after a try. The try is noted if the nodes choose who is next in an order that they all know; else
        the scheduler does, or chance."""
        immediate = self.class_ is not None and self.class_.binding_mode == IMMEDIATE
        ordered = immediate and isinstance(self.here.options.placement, Ranked)
        return GiveBack(tried_by=self.here.node if ordered else "")

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
            race=race_of(self.progress),
            free=self.free,
            promised=self.promised,
            roster=self.roster,
            local_delay=self.local_delay,
            watch_down=self.watch_down,
            source_here=self.source_here,
            source_elsewhere=self.source_elsewhere,
            source_unfit=self.source_unfit,
            standing=self.standing,
        )


@dataclass(frozen=True, slots=True)
class VolumeView:
    """One volume, as this node sees it at one moment."""

    here: Here
    volume: Volume | None
    class_: Class | None = None
    progress: RemovalStep = RemovalStep.NOT_YET
    """How far this process has come with the removal. The watch may not have shown it yet."""
    attachments_known: bool = True
    """False: the driver attaches volumes, and the VolumeAttachments could not be read."""
    now: float = 0.0
    pace: Pace = NO_PACE
    """How often work on it has failed, and when it may be tried again."""
    attached_to: tuple[str, ...] = ()
    """Nodes that VolumeAttachments of this volume name, whatever their state: one that is being deleted may still be attached."""
    finalizers: FinalizerWrites = FinalizerWrites.BY_PATCH
