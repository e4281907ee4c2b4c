"""What can be decided about a claim, and what can be concluded from the driver's answer to CreateVolume.

A decision is a value. Its class name is the metric label; its `why` is the text in the log and the event; its other fields say
what to do, and `controller` has it done. To wait is a decision too: it occupies no worker.
"""

from dataclasses import dataclass, field

from sidecar.csi.api import CapacityQuery, CreateRequest
from sidecar.model.objects import Claim, Class, Json
from sidecar.model.packed import PackedVolume
from sidecar.ownership.rules import Race
from sidecar.ownership.selected_node_body import GiveBack, Take
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.needs import Ref
from sidecar.provisioning.requests.secrets import SecretRef, SecretRefs


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing to do, now or later; the next change of the object asks again."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at that time, or earlier when something changes."""

    until: float
    race: Race | None = field(repr=False)
    """Where this node stands in the race for the claim; None if there is no race."""
    why: str
    release_turn: bool = False
    """`until` is this node's next turn to release the claim in place of the node that has its volume."""
    doubts_then: bool = False
    """`until` is when to doubt again that the PersistentVolume which this process has stored is still there."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the claim's user why no node takes the claim; the race goes on."""

    claim: Claim = field(repr=False)
    race: Race
    why: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """These objects have to be known first; then decide again."""

    refs: frozenset[Ref]
    why: str


@dataclass(frozen=True, slots=True)
class Protect:
    """Put our finalizer on the source, so that it does not go while the volume is filled from it."""

    claim: Claim = field(repr=False)
    source: Ref
    body: Json = field(repr=False)
    optional: bool
    """Go on without the finalizer if the API server forbids to write it."""
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Take our finalizer off a claim that is being deleted: nothing is cloned from it any more."""

    claim: Claim = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the claim to somebody else, who fills its volume, and tell its user so."""

    claim: Claim = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver for free space, and decide again with the answer."""

    query: CapacityQuery
    why: str


@dataclass(frozen=True, slots=True)
class Bid:
    """Write this node into the claim, guarded by its resourceVersion."""

    claim: Claim = field(repr=False)
    edit: Take = field(repr=False)
    why: str
    out_of_turn: bool = False
    """Write only if the API server itself says that no node has the claim."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The claim cannot be provisioned as it is. Its user is told; it is tried again with back-off."""

    claim: Claim = field(repr=False)
    why: str
    settles: bool = False
    """The cause may go away by itself in a moment; the user is told only if it does not."""
    rarely: bool = False
    """Nothing on this node can remove the cause, so the claim is looked at again as seldom as possible."""


@dataclass(frozen=True, slots=True)
class Create:
    """Call CreateVolume of the driver."""

    claim: Claim = field(repr=False)
    class_: Class = field(repr=False)
    request: CreateRequest
    refs: SecretRefs
    why: str


@dataclass(frozen=True, slots=True)
class CleanUp:
    """A volume may have been created for a claim that no longer needs it: find it and delete it."""

    record: CreationRecord = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """A volume may be left behind, and this program does not look for it any more: tell it, and write down for people what it is."""

    record: CreationRecord = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class DeleteAgain:
    """The deletion of the volume was begun and may still happen. Ask for it again until the driver has said how it ended, for until then
    nobody may be given the volume."""

    record: CreationRecord = field(repr=False)
    deletion: BegunDeletion
    why: str


@dataclass(frozen=True, slots=True)
class Store:
    """The volume exists: write its PersistentVolume."""

    claim: Claim = field(repr=False)
    body: PackedVolume = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """The driver created a volume that nobody can use: delete it, then try again."""

    claim: Claim = field(repr=False)
    volume_id: str
    secret: SecretRef | None
    why: str
    elsewhere: bool = False
    """The driver says that the volume is on another node."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing is running and nothing was created: try again with back-off."""

    claim: Claim = field(repr=False)
    why: str
    infeasible: bool = False


@dataclass(frozen=True, slots=True)
class Remember:
    """The creation may still be running: keep asking the driver, even if the claim is deleted meanwhile. Otherwise a volume that it creates
    late would belong to nobody."""

    claim: Claim = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Clash:
    """The driver has answered with a volume that is another's. Nobody is given it twice, and it is not deleted: try again with back-off."""

    claim: Claim = field(repr=False)
    handle: str
    why: str


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Give the claim back, so that another node is chosen."""

    claim: Claim = field(repr=False)
    edit: GiveBack = field(repr=False)
    why: str
    closed: bool = False
    """Nothing has failed: the node is closed and takes no volumes."""


ClaimDecision = (
    Ignore
    | Wait
    | Tell
    | Measure
    | Bid
    | Refuse
    | Fetch
    | Protect
    | Release
    | Leave
    | Create
    | Store
    | Reschedule
    | CleanUp
    | Suspect
    | DeleteAgain
)
Conclusion = Store | Undo | Retry | Remember | Reschedule | Clash
