"""Decides what to do with a claim next. What can be decided: `decisions`. What the driver's answer means: `conclusions`."""

from dataclasses import replace
from typing import Final

from sidecar.csi.api import NOTHING
from sidecar.local.here import Here
from sidecar.model.objects import IMMEDIATE, Claim, Class, Json, selected_node
from sidecar.ownership import rules as ownership
from sidecar.ownership.selected_node_body import GiveBack, Take, closing
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.decisions import (
    Bid,
    ClaimDecision,
    CleanUp,
    Create,
    DeleteAgain,
    Fetch,
    Ignore,
    Leave,
    Measure,
    Protect,
    Refuse,
    Reschedule,
    Store,
    Suspect,
    Tell,
    Wait,
)
from sidecar.provisioning.needs import CLAIM, SNAPSHOT, VOLUME, Absent, Need, Ref, text
from sidecar.provisioning.progress import HandedBack, Stored, Unsaved, created_for, refusals_of, volume_exists
from sidecar.provisioning.release_rules import release
from sidecar.provisioning.requests import request as requests
from sidecar.provisioning.requests import sources
from sidecar.provisioning.requests.annotations import annotations_of
from sidecar.provisioning.requests.attributes import attributes_of
from sidecar.provisioning.requests.consumers import why_here
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.secrets import NO_SECRETS, SecretRefs, secret_refs
from sidecar.provisioning.requests.source_facts import Content, Elsewhere, LeftToPopulator
from sidecar.provisioning.view import ClaimView

# One refusal proves nothing: a server that has just started may forbid everything for a moment.
_ENOUGH_REFUSALS: Final = 3


# A leftover that the driver does not survive being asked for so often is nothing that this program can see to.
_MOST_LOSSES: Final = 10
# In seconds. The event that shows the claim bound comes sooner; this is for one that never does.
_BINDING: Final = 60.0
# A claim does not wait longer for what was begun under another name. With back-off these take about as many minutes.
_MOST_FAILURES: Final = 10


def decide(view: ClaimView) -> ClaimDecision:
    """What to do with a claim next."""
    decision = _unless_in_vain(view, _decide(view))
    return _in_turn(view, decision if view.loss.count == 0 else _after_a_loss(view, decision))


def is_try(decision: ClaimDecision) -> bool:
    """Whether it asks anything of the driver or the API server, events apart."""
    return not isinstance(decision, Ignore | Wait | Tell | Suspect)


def _unless_in_vain(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """What was begun under another name, and can be neither found nor deleted, holds up the claim for a while and not for ever."""
    record, claim = view.record, view.claim
    if record is None or claim is None or view.gone or record.denials < _MOST_FAILURES or not isinstance(decision, CleanUp | DeleteAgain):
        return decision
    if claim.volume_name or claim.selected_node != view.here.node or not record.is_renamed(view.here):
        return decision
    return Suspect(record, f"{decision.why}; but that has failed {record.denials} times, and the claim waits for another volume")


def _after_a_loss(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """A driver that died of a call is not sent to its death again at once; of a call for what nobody waits for, not for ever."""
    if not isinstance(decision, Create | CleanUp | DeleteAgain):
        return decision
    is_waited_for = view.claim is not None and not view.gone and not _is_elsewhere(view, view.claim)
    if view.record is not None and not is_waited_for and view.loss.count >= _MOST_LOSSES:
        return Suspect(view.record, f"{decision.why}; but {view.loss}")
    if view.loss.until > view.now:
        return Wait(view.loss.until, None, f"{view.loss}; it is asked again later ({decision.why})")
    return decision


def _in_turn(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """What has failed waits for the end of its pause, or for the next try before that, whatever has led to this look."""
    turn = view.pace.turn()
    if turn <= view.now or not is_try(decision):
        return decision
    return Wait(turn, None, view.pace.why_later(decision.why))


def _decide(view: ClaimView) -> ClaimDecision:
    claim = view.claim
    progress = view.progress
    if view.record is not None and view.record.deletion is not None:
        return _delete_again(view.here, view.record, view.record.deletion)
    if claim is not None and view.gone and refusals_of(progress) >= _ENOUGH_REFUSALS and view.record is not None:
        return _clean_up(view, view.record, f"the claim is gone, and its PersistentVolume was refused {refusals_of(progress)} times")
    if claim is not None and isinstance(progress, Unsaved):
        return Store(claim, progress.body, "the volume exists and its PersistentVolume is not stored yet")
    if claim is None or _is_elsewhere(view, claim):
        return _after_all(view, claim)
    if claim.deleting and claim.is_source and claim.volume_name:
        return release(view, claim)
    if done := _done(view, claim):
        return _cleared_up_if_gone(view, done)
    if isinstance(progress, HandedBack) and (progress.resource_version, view.here.node) == (claim.resource_version, claim.selected_node):
        # The write may still succeed and send the claim to another node. If this node created a volume now, there could be two.
        return _give_back(view, claim, "whether the claim was given back is not known: it is done again")
    if created_for(progress) is not None and claim.selected_node == view.here.node:
        again = "the volume exists, and its PersistentVolume was not stored and was too much to keep"
        why = again if volume_exists(progress) else "an earlier attempt may still be running in the driver"
        return _cleared_up_if_gone(view, _create(view, claim, why))
    return _by_owner(view, claim)


def _delete_again(here: Here, record: CreationRecord, deletion: BegunDeletion) -> DeleteAgain:
    why = f"the deletion of volume {deletion.handle!r} was begun, and CSI driver {here.driver.name} has not said how it ended"
    return DeleteAgain(record, deletion, why)


def _cleared_up_if_gone(view: ClaimView, decision: ClaimDecision) -> ClaimDecision:
    """A claim that is gone has no user to tell and cannot be given to another node: only its volume can be cleaned up."""
    if view.gone and view.record is not None and isinstance(decision, Refuse | Leave | Reschedule):
        return _clean_up(view, view.record, f"the claim is gone, and its volume cannot be created any more: {decision.why}")
    return decision


def _clean_up(view: ClaimView, record: CreationRecord, why: str) -> CleanUp | Wait:
    is_open = view.claim is not None and not view.gone and not view.claim.volume_name
    if is_open and view.now < view.sent_until:
        # Though the claim has gone elsewhere, it would be bound to what arrives.
        return Wait(view.sent_until, None, f"{why}; its PersistentVolume may have been sent, and may still arrive")
    open_call = record.open_call
    if open_call is None or view.now >= open_call.not_before:
        return CleanUp(record, why)
    return Wait(open_call.not_before, None, f"{why}; what was begun may still be under way, so the driver is asked later")


def _is_elsewhere(view: ClaimView, claim: Claim) -> bool:
    """Whether a creation that was begun here is no longer needed: the claim is bound, or it names no node or another node, or its volume
    gets another name now."""
    record = view.record
    return record is not None and (bool(claim.volume_name) or claim.selected_node != view.here.node or record.is_renamed(view.here))


def _after_all(view: ClaimView, claim: Claim | None) -> Ignore | CleanUp | Wait:
    """What is left to do if nothing is to be created: a volume may exist that no PersistentVolume leads to."""
    whose = "the claim is gone, bound, or another node's" if claim is None else f"the claim is {_whereabouts(view, claim)}"
    if view.record is None:
        return Ignore(whose)
    name, volume = view.record.request.name, view.volume
    is_stored = volume is not None and volume.name == name and volume.claim is not None and volume.claim.uid == view.record.uid
    if is_stored and view.record.seeks:
        return _clean_up(view, view.record, f"volume {name} exists for it, and another may have been made since that one was deleted")
    if is_stored or (isinstance(view.progress, Stored) and not view.record.is_renamed(view.here)):
        return Ignore(f"volume {name} exists for it")
    return _clean_up(view, view.record, f"{whose}, and a volume may have been made for it here")


def _whereabouts(view: ClaimView, claim: Claim) -> str:
    if claim.volume_name:
        return f"bound to {claim.volume_name}"
    renamed = f", where its volume is called {view.here.volume_name(claim.uid)} now" if claim.selected_node == view.here.node else ""
    return f"selected for node {claim.selected_node or '(none)'}{renamed}"


def _done(view: ClaimView, claim: Claim) -> ClaimDecision | None:
    if claim.volume_name:
        return Ignore(f"bound to volume {claim.volume_name}")
    if isinstance(view.progress, Stored):
        return _stored(view, claim, view.progress)
    if view.volume is None or view.volume.claim is None:
        return None
    if view.volume.claim.uid == claim.uid:
        return _beside(view, view.volume.name) or Ignore(f"volume {view.volume.name} exists for it")
    # Drivers are idempotent by name: asked for a volume of this name, they would return the other claim's volume.
    return Refuse(claim, f"PersistentVolume {view.volume.name} is another claim's; a longer --volume-name-uuid-length avoids this")


def _beside(view: ClaimView, name: str) -> CleanUp | Wait | None:
    """The claim has a volume here that another process has made, as its flags were. It is not the one that was begun."""
    record = view.record
    if record is None or record.request.name == name:
        return None
    why = f"volume {name} exists for it, and volume {record.request.name} may have been made for it too"
    if view.gone:
        return _clean_up(view, record, why)
    return Wait(view.now + _BINDING, None, f"{why}, which is seen to when the claim is bound")


def _stored(view: ClaimView, claim: Claim, stored: Stored) -> ClaimDecision:
    """What this process has stored and no watch has shown may have come and gone unseen. Then nobody would ever bind the claim."""
    binds = "its PersistentVolume is stored; the volume controller binds it"
    shown = view.volume is not None and view.volume.claim is not None and view.volume.claim.uid == claim.uid
    if shown or view.now < stored.doubt_from:
        return Ignore(binds)
    volume = Ref(VOLUME, view.here.volume_name(claim.uid))
    of_claim = Ref(CLAIM, claim.name, claim.namespace)
    if (made := view.facts.get(volume)) is None:
        return Fetch(frozenset({volume}), f"{binds}; but the watch of volumes has not shown {volume}, which may be gone")
    if not _is_gone(made, claim):
        return Wait(stored.found(view.now), None, binds, doubts_then=True)
    if (now := view.facts.get(of_claim)) is None:
        return Fetch(frozenset({of_claim}), f"{volume} is gone, and the claim may be too")
    if not _is_open(now, claim):
        changed = f"{volume} is gone; the watch of claims is yet to show how the claim has changed"
        return Wait(stored.found(view.now), None, changed, doubts_then=True)
    return _create(view, claim, f"{volume} was stored and is gone, and the claim is not bound")


def _is_gone(found: Json | Absent, claim: Claim) -> bool:
    if isinstance(found, Absent):
        return found.exists is False
    return text(found, "spec", "claimRef", "uid") not in ("", claim.uid)


def _is_open(found: Json | Absent, claim: Claim) -> bool:
    """The claim waits for a volume of this node, as the API server has it."""
    if isinstance(found, Absent) or text(found, "metadata", "uid") != claim.uid or text(found, "metadata", "deletionTimestamp"):
        return False
    return not text(found, "spec", "volumeName") and selected_node(found) == claim.selected_node


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
            return _source_first(view, claim) or _measure(view, claim, why)
        case ownership.Bid(why, out_of_turn):
            return _source_first(view, claim) or Bid(claim, Take(view.here.node), why, out_of_turn)
        case ownership.Ours(why):
            return _unless_closed(view, claim, _create(view, claim, why))


def _source_first(view: ClaimView, claim: Claim) -> ClaimDecision | None:
    """Where a source lies is known before the claim is taken. No cache tells of a snapshot, nor of a volume that no node counts as its own:
    so it is looked up. What else may be wrong with a snapshot is told by the node that takes the claim; a clone is taken by none before its
    source can be cloned, for only then it shows who can do it."""
    kind = claim.source.kind if claim.source is not None else ""
    if kind not in (SNAPSHOT, CLAIM) or (kind == CLAIM and view.source_here) or view.source_elsewhere or view.source_unfit:
        return None
    match _source(view, claim):
        case Need(wanted):
            return Fetch(wanted, "on which node the source lies from which the claim is to be filled")
        case Elsewhere(why):
            return _by_owner(replace(view, source_elsewhere=why), claim)
        case Unfit(why) if kind == CLAIM:
            return _by_owner(replace(view, source_unfit=why), claim)
        case Content() if kind == CLAIM and (why := sources.with_another_node(view.here, claim, view.facts)):
            return _by_owner(replace(view, source_elsewhere=why), claim)
        case _:
            return None


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
        return Reschedule(claim, view.giving_back(), why)
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
    empty = requests.build(here, claim, class_)
    if isinstance(empty, Unfit):
        return Refuse(claim, empty.why)
    refs = _secret_refs(view, claim, class_)
    if isinstance(refs, Fetch):
        return refs
    if isinstance(refs, Unfit):
        return Refuse(claim, refs.why)
    if not isinstance(content, Content):
        return content
    attributes = attributes_of(here, claim, view.facts, enabled=here.options.attributes_classes)
    match attributes:
        case Need(wanted):
            return Fetch(wanted, "the VolumeAttributesClass of the claim")
        case Unfit():
            return Refuse(claim, attributes.why)
        case _:
            pass
    request = empty
    if content.snapshot or content.volume or attributes:
        its = attributes or NOTHING
        request = replace(empty, source_snapshot=content.snapshot, source_volume=content.volume, mutable_parameters=its)
    return Create(claim, class_, request, refs, why)


def _source(view: ClaimView, claim: Claim) -> Content | Need | Unfit | Elsewhere | LeftToPopulator | None:
    options = view.here.options
    return sources.content_of(
        view.here, claim, view.facts, cross_namespace=options.cross_namespace_sources, keep_mode=options.keeps_volume_mode
    )


def _content(view: ClaimView, claim: Claim) -> Content | Refuse | Fetch | Protect | Leave | Reschedule:
    """What the volume is filled from (an empty `Content` if from nothing), or the decision that has to come first."""
    match found := _source(view, claim):
        case None:
            return Content()
        case Need(wanted):
            return Fetch(wanted, "what the claim is to be filled from")
        case Unfit(why):
            return Refuse(claim, why)
        case Elsewhere(why) if view.class_ is not None and view.class_.binding_mode == IMMEDIATE:
            return Reschedule(claim, view.giving_back(), why)
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
    notes = annotations_of(claim, view.facts)
    if isinstance(notes, Need):
        return Fetch(notes.refs, "its annotations, which may name its Secret: it is too large to be held")
    name = view.here.volume_name(claim.uid)
    return secret_refs(class_, volume_name=name, claim_namespace=claim.namespace, claim_name=claim.name, annotations=notes)
