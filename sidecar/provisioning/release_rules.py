"""Decides when our finalizer may come off a claim from which others are cloned."""

from typing import Final

from sidecar.model.objects import Claim
from sidecar.provisioning.decisions import Fetch, Release, Wait
from sidecar.provisioning.needs import Need
from sidecar.provisioning.requests.cloning import clones_of
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.view import ClaimView

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


def release(view: ClaimView, claim: Claim) -> Release | Wait | Fetch:
    """Whether our finalizer may come off a source of clones. The API server's answer decides and not the cache, because a clone that waits
    for its first consumer has no provisioner yet and is in no cache."""
    if view.volume_here is None and (turn := _turn(view, claim)):
        return turn
    match view.clones or clones_of(claim, view.facts, everywhere=view.here.options.cross_namespace_sources):
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
