"""What to do with a claim or a volume next: one look, one decision; and what to conclude from how it went.

A decision is a value. Its class name is the metric label, its `why` is what log, event and `explain` say, its other fields
are the effect, which `controller` performs. Waiting for anything is a decision too; it holds no worker.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.csi.api import NOTHING, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Done, MaybeRunning, NeverSent, NoSpaceHere, Outcome, Refused
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Claim, Class, Json
from sidecar.ownership import rules as ownership
from sidecar.ownership.claim_write import closing, handed_back, with_selected_node, without_selected_node
from sidecar.ownership.rules import Race
from sidecar.provisioning import request as requests
from sidecar.provisioning import sources
from sidecar.provisioning import volume as volumes
from sidecar.provisioning.begun import Begun
from sidecar.provisioning.consumers import why_here
from sidecar.provisioning.needs import Need, Ref
from sidecar.provisioning.request import Unfit
from sidecar.provisioning.secrets import NO_SECRETS, SecretRef, SecretRefs, secret_refs
from sidecar.provisioning.sources import Content, Elsewhere, LeftToPopulator
from sidecar.provisioning.view import ClaimView, Here
from sidecar.provisioning.volume import Unusable


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing to do, now or later; the next change of the object asks again."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at that time, or earlier when something changes."""

    until: float
    race: Race | None = field(repr=False)
    """Where this node stands in the race for the claim; None where there is none."""
    why: str
    stands_by: bool = False
    """That is this node's next turn to release the claim in place of the one that has its volume."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the claim's user why nobody takes it; the race goes on."""

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
    """Go on without where it may not be written."""
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Take our finalizer off a claim that is being deleted: nothing is cloned from it any more."""

    claim: Claim
    body: bytes = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Somebody else fills the volume of this claim; its user is told so."""

    claim: Claim
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver for free space and decide again with the answer."""

    query: CapacityQuery
    why: str


@dataclass(frozen=True, slots=True)
class Bid:
    """Write this node into the claim, guarded by its resourceVersion."""

    claim: Claim
    body: bytes = field(repr=False)
    why: str
    out_of_turn: bool = False
    """Only if the API server itself says that nobody has it."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The claim cannot be provisioned as it is. Its user is told; it is tried again with back-off."""

    claim: Claim
    why: str
    settles: bool = False
    """It may come right in a moment by itself: its user is told only if it does not."""
    rarely: bool = False
    """Nothing that happens here can mend it, so it is looked at again as seldom as may be."""


@dataclass(frozen=True, slots=True)
class Create:
    """Call the driver."""

    claim: Claim
    class_: Class = field(repr=False)
    request: CreateRequest
    refs: SecretRefs
    why: str


@dataclass(frozen=True, slots=True)
class CleanUp:
    """A volume may have been made for a claim that has no use for it any more: find it and delete it."""

    begun: Begun = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Store:
    """The volume exists: write its PersistentVolume."""

    claim: Claim
    body: Json = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """The driver made a volume that nobody can use: delete it, then try again."""

    claim: Claim
    volume_id: str
    secret: SecretRef | None
    why: str
    elsewhere: bool = False
    """The driver says that it is on another node."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing is running and nothing was made: try again with back-off."""

    claim: Claim
    why: str
    infeasible: bool = False


@dataclass(frozen=True, slots=True)
class Remember:
    """The creation may still be running: keep asking, even if the claim is deleted meanwhile."""

    claim: Claim
    why: str


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Give the claim back, so that another node is chosen."""

    claim: Claim
    body: bytes = field(repr=False)
    why: str
    closed: bool = False
    """Nothing has failed: the node takes no volumes."""


# A clone that ends wakes nobody: it may be of another name, or only be deleted.
_CLONES_RECHECK: Final = 15.0
# Those that no cache has are asked for by listing a namespace, and may wait for their consumers for days.
_CLONES_ASKED: Final = 120.0
# The node that has the volume releases its claim in seconds; a reboot takes it minutes. Where no node has it any other may, and the
# turns of thousands lie so far apart that few of them ask before all have heard that it is done.
_FIRST_TURN: Final = 300.0
_TURNS: Final = 1800.0
_NEXT_TURN: Final = 43_200.0

# A server that has just started may forbid everything for a moment.
_ENOUGH_REFUSALS: Final = 3

ClaimDecision = Ignore | Wait | Tell | Measure | Bid | Refuse | Fetch | Protect | Release | Leave | Create | Store | Reschedule | CleanUp
Conclusion = Store | Undo | Retry | Remember | Reschedule


def decide(view: ClaimView) -> ClaimDecision:
    """What to do with a claim next."""
    claim = view.claim
    if claim is not None and view.unsaved is not None:
        if view.gone and view.refusals >= _ENOUGH_REFUSALS and view.begun is not None:
            return CleanUp(view.begun, f"the claim is gone, and its PersistentVolume was refused {view.refusals} times")
        return Store(claim, view.unsaved, "the volume exists and its PersistentVolume is not stored yet")
    if claim is None or _is_elsewhere(view, claim):
        return _after_all(view, claim)
    if claim.deleting and claim.is_source and claim.volume_name:
        return _release(view, claim)
    if done := _done(view, claim):
        return _cleared_up_if_gone(view, done)
    if view.returning and view.returning == claim.resource_version and claim.selected_node == view.here.node:
        # To create now could make a second volume: the write may land yet and send the claim elsewhere.
        return _give_back(view, claim, "whether the claim was given back is not known: it is done again")
    if view.remembered and claim.selected_node == view.here.node:
        return _cleared_up_if_gone(view, _create(view, claim, "an earlier attempt may still be running in the driver"))
    return _by_owner(view, claim)


def _cleared_up_if_gone(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """A claim that is gone can be told nothing, and given to nobody."""
    if view.gone and view.begun is not None and isinstance(decision, Refuse | Leave | Reschedule):
        return CleanUp(view.begun, f"the claim is gone, and cannot be created any more: {decision.why}")
    return decision


def conclude(view: ClaimView, attempt: Create, outcome: Outcome) -> Conclusion:
    """What the driver's answer to CreateVolume means."""
    claim = attempt.claim
    match outcome:
        case NeverSent(why):
            return Remember(claim, why) if view.remembered else Retry(claim, why)
        case Done(created):
            return _judge(view, attempt, created)
        case MaybeRunning(why):
            return Remember(claim, why)
        case NoSpaceHere(why):
            return Reschedule(claim, without_selected_node(claim.whole), why)
        case Refused(why, infeasible):
            return Retry(claim, why, infeasible=infeasible)


def _release(view: ClaimView, claim: Claim) -> Release | Wait | Fetch | Ignore:
    """What the API server says counts: a claim that waits for its first consumer has no provisioner yet, and is in no cache."""
    body = sources.without_finalizer(json.loads(claim.whole), names.CLONE_FINALIZER) if claim.whole else None
    if body is None:
        return Ignore("nothing protects it any more")
    if view.volume_here is None:
        if view.here.options.cross_namespace_sources:
            return Ignore(f"bound to volume {claim.volume_name}, whose node alone hears of clones in other namespaces")
        if turn := _turn(view, claim):
            return turn
    match view.clones or sources.clones_of(claim, view.facts):
        case Need(wanted):
            return Fetch(wanted, "it is being deleted: whether anything is still to be cloned from it")
        case Unfit(why):
            return _hold(view, f"it is being deleted, and whether anything is still to be cloned from it is not known: {why}")
        case ():
            return Release(claim, body, "it is being deleted, and nothing is cloned from it")
        case clones:
            return _hold(view, f"it is being deleted, and {', '.join(clones)} are still to be cloned from it")


def _turn(view: ClaimView, claim: Claim) -> Wait | None:
    """None once this node's turn has come."""
    if view.stands_by is not None and view.stands_by <= view.now:
        return None
    drawn = view.now + _FIRST_TURN + _TURNS * view.chance
    why = f"it is being deleted; it is for the node that has volume {claim.volume_name} to release it, and for this one only if none does"
    return Wait(drawn if view.stands_by is None else view.stands_by, None, why, stands_by=True)


def next_turn(view: ClaimView) -> float:
    """A turn that came to nothing is for hours: thousands of nodes would ask again and again."""
    return view.now + _NEXT_TURN * (0.5 + view.chance)


def _hold(view: ClaimView, why: str) -> Wait:
    if view.volume_here is None:
        return Wait(next_turn(view), None, why, stands_by=True)
    return Wait(view.now + (_CLONES_RECHECK if view.clones else _CLONES_ASKED), None, why)


def _is_elsewhere(view: ClaimView, claim: Claim) -> bool:
    """Whether a creation that was begun here has lost its use: the claim is bound, or was given to nobody or to another node."""
    return view.begun is not None and (bool(claim.volume_name) or claim.selected_node != view.here.node)


def _after_all(view: ClaimView, claim: Claim | None) -> Ignore | CleanUp:
    """What is left to do where nothing is to be created."""
    whose = "the claim is gone, bound, or another node's" if claim is None else f"the claim is {_whereabouts(claim)}"
    if view.begun is None:
        return Ignore(whose)
    if view.stored or (view.volume is not None and view.volume.claim is not None and view.volume.claim.uid == view.begun.uid):
        return Ignore(f"volume {view.begun.request.name} exists for it")
    return CleanUp(view.begun, f"{whose}, and a volume may have been made for it here")


def _whereabouts(claim: Claim) -> str:
    return f"bound to {claim.volume_name}" if claim.volume_name else f"selected for node {claim.selected_node or '(none)'}"


def _done(view: ClaimView, claim: Claim) -> Ignore | Refuse | None:
    if claim.volume_name:
        return Ignore(f"bound to volume {claim.volume_name}")
    if view.stored:
        return Ignore("its PersistentVolume is stored; binding it is the volume controller's work")
    if view.volume is None or view.volume.claim is None:
        return None
    if view.volume.claim.uid == claim.uid:
        return Ignore(f"volume {view.volume.name} exists for it")
    # Drivers are idempotent by name: asked for this one they would hand over the other claim's volume.
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
            return Bid(claim, with_selected_node(claim.whole, view.here.node), why, out_of_turn)
        case ownership.Ours(why):
            return _unless_closed(view, claim, _create(view, claim, why))


def _unless_closed(view: ClaimView, claim: Claim, decision: ClaimDecision) -> ClaimDecision:
    """A closed node gives the claim back before it begins anything for it, but only where that leads somewhere."""
    if not view.standing.closed or not isinstance(decision, Create | Fetch | Protect):
        return decision
    closed = f"node {view.here.node} takes no volumes: {view.standing.why}"
    begun = "a creation of it was begun here before" if view.begun else ""
    match begun or view.kept or why_here(view.here.node, view.standing, claim, view.facts):
        case Need(wanted):
            return Fetch(wanted, f"{closed}, but a pod that uses the claim may come here all the same")
        case "":
            return _give_back(view, claim, closed)
        case str(reason):
            return replace(decision, why=f"{closed}, but {reason}") if isinstance(decision, Create) else decision


def _give_back(view: ClaimView, claim: Claim, why: str) -> Reschedule:
    if not view.standing.closed:
        return Reschedule(claim, without_selected_node(claim.whole), why)
    return Reschedule(claim, handed_back(claim.whole, closing(view.here.node, view.standing.since)), why, closed=True)


def _measure(view: ClaimView, claim: Claim, why: str) -> ClaimDecision:
    """A claim that cannot be asked about is taken all the same: somebody must own it to tell its user what is wrong."""
    request = requests.build(view.here, claim, view.class_) if view.class_ else Unfit(f"StorageClass {claim.class_name!r} does not exist")
    if isinstance(request, Unfit):
        return Bid(claim, with_selected_node(claim.whole, view.here.node), request.why)
    return Measure(requests.capacity_query(view.here, request), why)


def _create(view: ClaimView, claim: Claim, why: str) -> ClaimDecision:
    class_, here = view.class_, view.here
    if class_ is None:
        # Claims and classes come over two watches: one made right before its claim may be heard of right after it.
        return Refuse(claim, f"StorageClass {claim.class_name!r} does not exist, or is not for driver {here.driver.name}", settles=True)
    if view.infeasible is not None and view.infeasible.class_uid == class_.uid and view.now < view.infeasible.until:
        return Wait(view.infeasible.until, None, "the driver has said that it can never be made with these arguments")
    content = _content(view, claim)
    if isinstance(content, Leave):
        return content
    # What needs nothing but claim and class comes before what must be fetched: a claim that is wrong anyway costs no request.
    if isinstance(unfit := requests.build(here, claim, class_), Unfit):
        return Refuse(claim, unfit.why)
    refs = _secret_refs(here, claim, class_)
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
    """What the volume is filled from, an empty content for nothing; or what comes before."""
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
            return Reschedule(claim, without_selected_node(claim.whole), why)
        case Elsewhere(why):
            return Refuse(claim, why, rarely=True)
        case LeftToPopulator(why):
            return Leave(claim, why)
        case Content(protect=None):
            return found
        case Content(protect=source) if source is not None and not (view.unprotected and found.protection_optional):
            body = view.facts[source]
            assert isinstance(body, dict)
            return Protect(claim, source, body, found.protection_optional, f"{source} must not go while the volume is filled from it")
        case _:
            return found


def _secret_refs(here: Here, claim: Claim, class_: Class) -> SecretRefs | Unfit:
    if not requests.secret_parameters(class_):
        return NO_SECRETS
    notes = (json.loads(claim.whole)["metadata"].get("annotations") or {}) if claim.whole else {}
    name = here.volume_name(claim.uid)
    return secret_refs(class_, volume_name=name, claim_namespace=claim.namespace, claim_name=claim.name, annotations=notes)


def _judge(view: ClaimView, attempt: Create, created: CreatedVolume) -> Store | Undo:
    here, claim = view.here, attempt.claim
    body = volumes.build(here, claim, attempt.class_, attempt.request, created, refs=attempt.refs)
    if isinstance(body, Unusable):
        return Undo(claim, created.volume_id, attempt.refs.provisioner, body.why, body.elsewhere)
    if sources.wants_source(claim, cross_namespace=here.options.cross_namespace_sources) and not created.has_source:
        why = f"CSI driver {here.driver.name} created volume {created.volume_id!r} without a word of what it was to be filled from"
        return Undo(claim, created.volume_id, attempt.refs.provisioner, f"{why}, so it may be empty")
    return Store(claim, body, f"the driver created volume {created.volume_id!r}")
