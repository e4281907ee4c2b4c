"""Decides what to do with a claim next, and what the driver's answer to CreateVolume means.

A decision is a value. Its class name is the metric label; its `why` is the text in the log, the event and `explain`; its other fields say
what to do, and `controller` has it done. To wait is a decision too: it occupies no worker.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.csi.api import NOTHING, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Done, MaybeRunning, NeverSent, NoSpaceHere, Outcome, Refused
from sidecar.local.here import Here
from sidecar.model.objects import IMMEDIATE, Claim, Class, Json
from sidecar.ownership import rules as ownership
from sidecar.ownership.rules import Race
from sidecar.ownership.selected_node_body import GiveBack, Take, closing
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.needs import Need, Ref
from sidecar.provisioning.progress import NOT_BEGUN, Creating, HandedBack, Progress, Stored, Unsaved, created_for
from sidecar.provisioning.requests import request as requests
from sidecar.provisioning.requests import sources
from sidecar.provisioning.requests import volume as volumes
from sidecar.provisioning.requests.consumers import why_here
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.secrets import NO_SECRETS, SecretRef, SecretRefs, secret_refs
from sidecar.provisioning.requests.sources import Content, Elsewhere, LeftToPopulator
from sidecar.provisioning.requests.volume import Unusable
from sidecar.provisioning.view import ClaimView


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


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the claim's user why no node takes the claim; the race goes on."""

    claim: Claim
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

    claim: Claim
    source: Ref
    body: Json = field(repr=False)
    optional: bool
    """Go on without the finalizer if the API server forbids to write it."""
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Take our finalizer off a claim that is being deleted: nothing is cloned from it any more."""

    claim: Claim
    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the claim to somebody else, who fills its volume, and tell its user so."""

    claim: Claim
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver for free space, and decide again with the answer."""

    query: CapacityQuery
    why: str


@dataclass(frozen=True, slots=True)
class Bid:
    """Write this node into the claim, guarded by its resourceVersion."""

    claim: Claim
    edit: Take = field(repr=False)
    why: str
    out_of_turn: bool = False
    """Write only if the API server itself says that no node has the claim."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The claim cannot be provisioned as it is. Its user is told; it is tried again with back-off."""

    claim: Claim
    why: str
    settles: bool = False
    """The cause may go away by itself in a moment; the user is told only if it does not."""
    rarely: bool = False
    """Nothing on this node can remove the cause, so the claim is looked at again as seldom as possible."""


@dataclass(frozen=True, slots=True)
class Create:
    """Call CreateVolume of the driver."""

    claim: Claim
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
class DeleteAgain:
    """The deletion of the volume was begun and may still happen. Ask for it again until the driver has said how it ended, for until then
    nobody may be given the volume."""

    record: CreationRecord = field(repr=False)
    deletion: BegunDeletion
    why: str


@dataclass(frozen=True, slots=True)
class Store:
    """The volume exists: write its PersistentVolume."""

    claim: Claim
    body: Json = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """The driver created a volume that nobody can use: delete it, then try again."""

    claim: Claim
    volume_id: str
    secret: SecretRef | None
    why: str
    elsewhere: bool = False
    """The driver says that the volume is on another node."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing is running and nothing was created: try again with back-off."""

    claim: Claim
    why: str
    infeasible: bool = False


@dataclass(frozen=True, slots=True)
class Remember:
    """The creation may still be running: keep asking the driver, even if the claim is deleted meanwhile. Otherwise a volume that it creates
    late would belong to nobody."""

    claim: Claim
    why: str


@dataclass(frozen=True, slots=True)
class Clash:
    """The driver has answered with a volume that is another's. Nobody is given it twice, and it is not deleted: try again with back-off."""

    claim: Claim
    handle: str
    why: str


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Give the claim back, so that another node is chosen."""

    claim: Claim
    edit: GiveBack = field(repr=False)
    why: str
    closed: bool = False
    """Nothing has failed: the node is closed and takes no volumes."""


# In seconds. The end of a cloning wakes nobody here: the clone is another claim, and it may end by just being deleted.
_CLONES_RECHECK: Final = 15.0
# In seconds. Clones that are in no cache are found by listing a namespace. That costs more, and they may wait for their consumers for days.
_CLONES_ASKED: Final = 120.0
# In seconds. The node that has the volume releases the claim within seconds, or within minutes if it reboots; so it has this long to do it.
# If no node has the volume, any other may release the claim. The turns of thousands of nodes are spread so far that few of them ask before
# all have seen that it is done.
_FIRST_TURN: Final = 300.0
_TURNS: Final = 1800.0
_NEXT_TURN: Final = 43_200.0

# One refusal proves nothing: a server that has just started may forbid everything for a moment.
_ENOUGH_REFUSALS: Final = 3

ClaimDecision = (
    Ignore | Wait | Tell | Measure | Bid | Refuse | Fetch | Protect | Release | Leave | Create | Store | Reschedule | CleanUp | DeleteAgain
)
Conclusion = Store | Undo | Retry | Remember | Reschedule | Clash


def decide(view: ClaimView) -> ClaimDecision:
    """What to do with a claim next."""
    claim = view.claim
    progress = view.progress
    if view.record is not None and view.record.deletion is not None:
        return _delete_again(view.here, view.record, view.record.deletion)
    if claim is not None and isinstance(progress, Unsaved):
        if view.gone and progress.refusals >= _ENOUGH_REFUSALS and view.record is not None:
            return CleanUp(view.record, f"the claim is gone, and its PersistentVolume was refused {progress.refusals} times")
        return Store(claim, progress.body, "the volume exists and its PersistentVolume is not stored yet")
    if claim is None or _is_elsewhere(view, claim):
        return _after_all(view, claim)
    if claim.deleting and claim.is_source and claim.volume_name:
        return _release(view, claim)
    if done := _done(view, claim):
        return _cleared_up_if_gone(view, done)
    if isinstance(progress, HandedBack) and (progress.resource_version, view.here.node) == (claim.resource_version, claim.selected_node):
        # The write may still succeed and send the claim to another node. If this node created a volume now, there could be two.
        return _give_back(view, claim, "whether the claim was given back is not known: it is done again")
    if created_for(progress) is not None and claim.selected_node == view.here.node:
        return _cleared_up_if_gone(view, _create(view, claim, "an earlier attempt may still be running in the driver"))
    return _by_owner(view, claim)


def _delete_again(here: Here, record: CreationRecord, deletion: BegunDeletion) -> DeleteAgain:
    why = f"the deletion of volume {deletion.handle!r} was begun, and CSI driver {here.driver.name} has not said how it ended"
    return DeleteAgain(record, deletion, why)


def _cleared_up_if_gone(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """A claim that is gone has no user to tell and cannot be given to another node: only its volume can be cleaned up."""
    if view.gone and view.record is not None and isinstance(decision, Refuse | Leave | Reschedule):
        return CleanUp(view.record, f"the claim is gone, and its volume cannot be created any more: {decision.why}")
    return decision


def conclude(view: ClaimView, attempt: Create, outcome: Outcome) -> tuple[Progress, Conclusion]:
    """What the driver's answer to CreateVolume means: how far the claim has come, and what to do next.

    `view` is the view on which the creation was decided. It says whether an earlier creation may still be running.
    """
    claim = attempt.claim
    match outcome:
        case NeverSent(why) if created_for(view.progress) is None:
            return NOT_BEGUN, Retry(claim, why)
        # That this call never reached the driver says nothing about an earlier one, which may still be running.
        case NeverSent(why) | MaybeRunning(why):
            return Creating(claim), Remember(claim, why)
        case Done(created) if view.holder:
            return NOT_BEGUN, Clash(claim, created.volume_id, _clash(view, created))
        case Done(created):
            effect = _judge(view, attempt, created)
            return Unsaved(claim, effect.body) if isinstance(effect, Store) else NOT_BEGUN, effect
        case NoSpaceHere(why):
            return NOT_BEGUN, Reschedule(claim, GiveBack(), why)
        case Refused(why, infeasible):
            return NOT_BEGUN, Retry(claim, why, infeasible=infeasible)


def _release(view: ClaimView, claim: Claim) -> Release | Wait | Fetch | Ignore:
    """Whether our finalizer may come off a source of clones. The API server's answer decides and not the cache, because a clone that waits
    for its first consumer has no provisioner yet and is in no cache."""
    if view.volume_here is None:
        if view.here.options.cross_namespace_sources:
            return Ignore(f"bound to volume {claim.volume_name}: only the node of that volume looks for clones in other namespaces")
        if turn := _turn(view, claim):
            return turn
    match view.clones or sources.clones_of(claim, view.facts):
        case Need(wanted):
            return Fetch(wanted, "it is being deleted: whether anything is still to be cloned from it")
        case Unfit(why):
            return _hold(view, f"it is being deleted, and whether anything is still to be cloned from it is not known: {why}")
        case ():
            return Release(claim, "it is being deleted, and nothing is cloned from it")
        case clones:
            return _hold(view, f"it is being deleted, and {', '.join(clones)} are still to be cloned from it")


def _turn(view: ClaimView, claim: Claim) -> Wait | None:
    """Waits for this node's turn; None once it has come."""
    turn = view.findings.release_turn
    if turn is not None and turn <= view.now:
        return None
    drawn = view.now + _FIRST_TURN + _TURNS * view.chance
    why = f"it is being deleted; the node that has volume {claim.volume_name} releases it, this one only if no other does"
    return Wait(drawn if turn is None else turn, None, why, release_turn=True)


def next_turn(view: ClaimView) -> float:
    """When this node's turn comes again after one that led to nothing. It takes hours, or thousands of nodes would ask again and again."""
    return view.now + _NEXT_TURN * (0.5 + view.chance)


def _hold(view: ClaimView, why: str) -> Wait:
    if view.volume_here is None:
        return Wait(next_turn(view), None, why, release_turn=True)
    return Wait(view.now + (_CLONES_RECHECK if view.clones else _CLONES_ASKED), None, why)


def _is_elsewhere(view: ClaimView, claim: Claim) -> bool:
    """Whether a creation that was begun here is no longer needed: the claim is bound, or it names no node or another node."""
    return view.record is not None and (bool(claim.volume_name) or claim.selected_node != view.here.node)


def _after_all(view: ClaimView, claim: Claim | None) -> Ignore | CleanUp:
    """What is left to do if nothing is to be created: a volume may exist that no PersistentVolume leads to."""
    whose = "the claim is gone, bound, or another node's" if claim is None else f"the claim is {_whereabouts(claim)}"
    if view.record is None:
        return Ignore(whose)
    volume = view.volume
    if isinstance(view.progress, Stored) or (volume is not None and volume.claim is not None and volume.claim.uid == view.record.uid):
        return Ignore(f"volume {view.record.request.name} exists for it")
    return CleanUp(view.record, f"{whose}, and a volume may have been made for it here")


def _whereabouts(claim: Claim) -> str:
    return f"bound to {claim.volume_name}" if claim.volume_name else f"selected for node {claim.selected_node or '(none)'}"


def _done(view: ClaimView, claim: Claim) -> Ignore | Refuse | None:
    if claim.volume_name:
        return Ignore(f"bound to volume {claim.volume_name}")
    if isinstance(view.progress, Stored):
        return Ignore("its PersistentVolume is stored; the volume controller binds it")
    if view.volume is None or view.volume.claim is None:
        return None
    if view.volume.claim.uid == claim.uid:
        return Ignore(f"volume {view.volume.name} exists for it")
    # Drivers are idempotent by name: asked for a volume of this name, they would return the other claim's volume.
    return Refuse(claim, f"PersistentVolume {view.volume.name} is another claim's; a longer --volume-name-uuid-length avoids this")


def _by_owner(view: ClaimView, claim: Claim) -> ClaimDecision:
    match ownership.decide(view.race_view(claim)):
        case ownership.NotForUs(why):
            return Ignore(why)
        case ownership.LostTo() as lost:
            return Ignore(lost.why)
        case ownership.Wait(until, race, why):
            return Wait(until, race, why)
        case ownership.Tell(race, why):
            return Tell(claim, race, why)
        case ownership.Measure(why):
            return _measure(view, claim, why)
        case ownership.Bid(why, out_of_turn):
            return Bid(claim, Take(view.here.node), why, out_of_turn)
        case ownership.Ours(why):
            return _unless_closed(view, claim, _create(view, claim, why))


def _unless_closed(view: ClaimView, claim: Claim, decision: ClaimDecision) -> ClaimDecision:
    """A closed node gives the claim back before it begins anything for it, but not if the claim would only come back, and not if a volume
    of it may already exist here."""
    if not view.standing.closed or not isinstance(decision, Create | Fetch | Protect):
        return decision
    closed = f"node {view.here.node} takes no volumes: {view.standing.why}"
    earlier = "a creation of it was begun here before" if view.record else ""
    match earlier or view.findings.hand_back_refused or why_here(view.here.node, view.standing, claim, view.facts):
        case Need(wanted):
            return Fetch(wanted, f"{closed}, but a pod that uses the claim may come here all the same")
        case "":
            return _give_back(view, claim, closed)
        case str(reason):
            return replace(decision, why=f"{closed}, but {reason}") if isinstance(decision, Create) else decision


def _give_back(view: ClaimView, claim: Claim, why: str) -> Reschedule:
    if not view.standing.closed:
        return Reschedule(claim, GiveBack(), why)
    return Reschedule(claim, GiveBack(closing(view.here.node, view.standing.since)), why, closed=True)


def _measure(view: ClaimView, claim: Claim, why: str) -> ClaimDecision:
    """Asks for free space, or bids at once if no such question can be built for the claim: some node must own the claim to tell its user
    what is wrong."""
    request = requests.build(view.here, claim, view.class_) if view.class_ else Unfit(f"StorageClass {claim.class_name!r} does not exist")
    if isinstance(request, Unfit):
        return Bid(claim, Take(view.here.node), request.why)
    return Measure(requests.capacity_query(view.here, request), why)


def _create(view: ClaimView, claim: Claim, why: str) -> ClaimDecision:
    class_, here = view.class_, view.here
    if class_ is None:
        # Claims and classes come over two watches: a class that was created right before its claim may be seen right after it.
        return Refuse(claim, f"StorageClass {claim.class_name!r} does not exist, or is not for driver {here.driver.name}", settles=True)
    infeasible = view.findings.infeasible
    if infeasible is not None and infeasible.class_uid == class_.uid and view.now < infeasible.until:
        return Wait(
            infeasible.until,
            None,
            "the driver refused these arguments as invalid; it is asked again later, or when the StorageClass is replaced",
        )
    content = _content(view, claim)
    if isinstance(content, Leave):
        return content
    # Checks that need only the claim and the class come before those that need a fetch: a claim that is wrong anyway costs no request.
    if isinstance(unfit := requests.build(here, claim, class_), Unfit):
        return Refuse(claim, unfit.why)
    refs = _secret_refs(view, claim, class_)
    if isinstance(refs, Fetch):
        return refs
    if isinstance(refs, Unfit):
        return Refuse(claim, refs.why)
    if not isinstance(content, Content):
        return content
    attributes = sources.attributes_of(here, claim, view.facts, enabled=here.options.attributes_classes)
    match attributes:
        case Need(wanted):
            return Fetch(wanted, "the VolumeAttributesClass of the claim")
        case Unfit():
            return Refuse(claim, attributes.why)
        case _:
            pass
    request = requests.build(here, claim, class_, snapshot=content.snapshot, source_volume=content.volume, attributes=attributes or NOTHING)
    return Refuse(claim, request.why) if isinstance(request, Unfit) else Create(claim, class_, request, refs, why)


def _content(view: ClaimView, claim: Claim) -> Content | Refuse | Fetch | Protect | Leave | Reschedule:
    """What the volume is filled from (an empty `Content` if from nothing), or the decision that has to come first."""
    options = view.here.options
    found = sources.content_of(
        view.here, claim, view.facts, cross_namespace=options.cross_namespace_sources, keep_mode=options.keeps_volume_mode
    )
    match found:
        case None:
            return Content()
        case Need(wanted):
            return Fetch(wanted, "what the claim is to be filled from")
        case Unfit(why):
            return Refuse(claim, why)
        case Elsewhere(why) if view.class_ is not None and view.class_.binding_mode == IMMEDIATE:
            return Reschedule(claim, GiveBack(), why)
        case Elsewhere(why):
            return Refuse(claim, why, rarely=True)
        case LeftToPopulator(why):
            return Leave(claim, why)
        case Content(protect=None):
            return found
        case Content(protect=source) if source is not None and not (view.findings.source.forbidden and found.protection_optional):
            body = view.facts[source]
            assert isinstance(body, dict)
            return Protect(claim, source, body, found.protection_optional, f"{source} must not go while the volume is filled from it")
        case _:
            return found


def _secret_refs(view: ClaimView, claim: Claim, class_: Class) -> SecretRefs | Unfit | Fetch:
    if not requests.secret_parameters(class_):
        return NO_SECRETS
    notes = sources.annotations_of(claim, view.facts)
    if isinstance(notes, Need):
        return Fetch(notes.refs, "its annotations, which may name its Secret: it is too large to be held")
    name = view.here.volume_name(claim.uid)
    return secret_refs(class_, volume_name=name, claim_namespace=claim.namespace, claim_name=claim.name, annotations=notes)


def _clash(view: ClaimView, created: CreatedVolume) -> str:
    return (
        f"CSI driver {view.here.driver.name} answered with volume {created.volume_id!r}, which is {view.holder};"
        " two claims cannot have one volume, so this one gets none until the driver makes it another"
    )


def _judge(view: ClaimView, attempt: Create, created: CreatedVolume) -> Store | Undo:
    here, claim = view.here, attempt.claim
    body = volumes.build(here, claim, attempt.class_, attempt.request, created, refs=attempt.refs)
    if isinstance(body, Unusable):
        return Undo(claim, created.volume_id, attempt.refs.provisioner, body.why, body.elsewhere)
    # A driver that does not support sources may ignore them and create an empty volume; only the answer shows it.
    if sources.wants_source(claim, cross_namespace=here.options.cross_namespace_sources) and not created.has_source:
        why = f"CSI driver {here.driver.name} created volume {created.volume_id!r} and did not confirm what it was filled from"
        return Undo(claim, created.volume_id, attempt.refs.provisioner, f"{why}, so it may be empty")
    return Store(claim, body, f"the driver created volume {created.volume_id!r}")
