"""Decides what the driver's answer to CreateVolume means."""

from typing import Final

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Done, MaybeRunning, NeverSent, NoSpaceHere, Outcome, Refused
from sidecar.model.objects import IMMEDIATE
from sidecar.model.packed import PackedVolume
from sidecar.provisioning.decisions import Clash, Conclusion, Create, Remember, Reschedule, Retry, Store, Undo
from sidecar.provisioning.progress import NOT_BEGUN, Progress, Unsaved, asked, created_for, refusals_of
from sidecar.provisioning.requests import sources
from sidecar.provisioning.requests import volume as volumes
from sidecar.provisioning.requests.volume import Unusable
from sidecar.provisioning.view import ClaimView
from sidecar.rights.rights import FinalizerWrites

_OCCUPIED: Final = (
    "the driver has a volume of that name which was made with other arguments, as when the class of the claim was made anew meanwhile;"
    " delete the claim and create it again: it gets a volume of another name"
)


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
            return asked(view.progress, claim), Remember(claim, why)
        case Done(created) if view.holder:
            return NOT_BEGUN, Clash(claim, created.volume_id, _clash(view, created))
        case Done(created):
            effect = _judge(view, attempt, created)
            return Unsaved.of(claim, effect.body, refusals_of(view.progress)) if isinstance(effect, Store) else NOT_BEGUN, effect
        case NoSpaceHere(why):
            return NOT_BEGUN, Reschedule(claim, view.giving_back(), why)
        case Refused(why, not_found=True) if _may_be_elsewhere(view, attempt):
            return NOT_BEGUN, Reschedule(claim, view.giving_back(), f"{why}; the source may be on another node")
        case Refused(why, infeasible, occupied=occupied):
            return NOT_BEGUN, Retry(claim, f"{why}; {_OCCUPIED}" if occupied else why, infeasible=infeasible)


def _may_be_elsewhere(view: ClaimView, attempt: Create) -> bool:
    """Whether the driver of another node may know the source. Nothing told where it lies, so this node took the claim to ask its driver.
    Where an earlier attempt may still be running, the claim stays."""
    guessed = bool(attempt.request.source_volume) and not view.source_here and attempt.class_.binding_mode == IMMEDIATE
    return guessed and view.record is None and created_for(view.progress) is None


def _clash(view: ClaimView, created: CreatedVolume) -> str:
    return (
        f"CSI driver {view.here.driver.name} answered with volume {created.volume_id!r}, which is {view.holder};"
        " two claims cannot have one volume, so this one gets none until the driver makes it another"
    )


def _judge(view: ClaimView, attempt: Create, created: CreatedVolume) -> Store | Undo:
    here, claim = view.here, attempt.claim
    finalizer = view.finalizers is not FinalizerWrites.NEVER
    body = volumes.build(here, claim, attempt.class_, attempt.request, created, refs=attempt.refs, finalizer=finalizer)
    if isinstance(body, Unusable):
        return Undo(claim, created.volume_id, attempt.refs.provisioner, body.why, body.elsewhere)
    # A driver that does not support sources may ignore them and create an empty volume; only the answer shows it.
    if sources.wants_source(claim, cross_namespace=here.options.cross_namespace_sources) and not created.has_source:
        why = f"CSI driver {here.driver.name} created volume {created.volume_id!r} and did not confirm what it was filled from"
        return Undo(claim, created.volume_id, attempt.refs.provisioner, f"{why}, so it may be empty")
    return Store(claim, PackedVolume(body), f"the driver created volume {created.volume_id!r}")
