"""Computes the node's standing from its marks: whether it takes volumes now; and finds out who asks for it to be emptied.

A node that takes none is called closed. The closing is noted on the node, so that a restarted process knows it for the same one.
"""

from typing import Final

from sidecar.drain.facts.announcement import Source
from sidecar.drain.facts.node_marks import NodePolicy, Signals
from sidecar.model import names, timestamps
from sidecar.model.nodes import Taint
from sidecar.model.standing import OPEN, Standing

# A cordon that is lifted within this time closes nothing.
DEBOUNCE: Final = 10.0
_CORDON: Final = Taint(names.CORDON_TAINT, "", names.NO_SCHEDULE)


def standing(
    signals: Signals,
    *,
    policy: NodePolicy,
    zero_when_closed: bool,
    cordon_stable_since: float | None,
    now: float,
    debounce: float = DEBOUNCE,
    before: Standing = OPEN,
) -> tuple[Standing, float | None]:
    """The standing, and when to look again although nothing changes.

    `policy` is the flag's; the node's annotation overrides it. With Ignore the node stays open whatever is on it, the evacuation
    taint included. With any other policy
    - that taint, or an intent that somebody has declared, closes it at once;
    - so does an autoscaler's taint, and a cordon of which is known what it is for;
    - any other cordon closes it after `debounce` seconds, or at once if the closing is noted on the node already;
    - an uncordon opens it at once.

    `cordon_stable_since`: when this process first saw the cordon that it still sees; the same wall clock as `now`. `before` is what
    this function returned last time: it keeps `since` the same until the closing is noted on the node (`on_node.wanted`).
    """
    if effective(signals, policy) is NodePolicy.IGNORE:
        return OPEN, None
    if not signals.evacuate and signals.declared is None:
        if not signals.shut:
            return OPEN, None
        until = _steady_at(signals, cordon_stable_since, now=now, debounce=debounce)
        if until is not None and signals.intent is None:
            return OPEN, until
    return _closed(signals, before, zero=zero_when_closed, now=now), None


def without_node(before: Standing, *, uid: str, policy: NodePolicy, zero_when_closed: bool, now: float) -> Standing:
    """The standing when there is no Node object. `uid` is the one it had; empty: it was never seen, and may only not be listed yet."""
    if not before.closed and (not uid or policy is NodePolicy.IGNORE):
        return OPEN
    since = before.since if before.closed else f"{uid}/{timestamps.to_text(now)}"
    return Standing(closed=True, publishes_zero=zero_when_closed, why="its Node object is gone", since=since)


def effective(signals: Signals, policy: NodePolicy) -> NodePolicy:
    """The policy of the node's annotation, or that of the flag."""
    return signals.policy or policy


def asked(signals: Signals, *, policy: NodePolicy, standing: Standing) -> str:
    """Who asks for the node to be emptied; empty: nobody.

    The evacuation taint asks, and the intent's annotation, unless the policy is Ignore. With Evacuate an autoscaler's taint asks too,
    a cordon that kured has explained, and one that nobody explains once it has lasted (`node_marks.CORDON_DELAY`).
    """
    return asked_by_marks(signals, policy) if standing.closed else ""


_SPEAKERS: Final = {Source.AUTOSCALER: "an autoscaler's taint", Source.KURED: "kured's annotation"}


def asked_by_marks(signals: Signals, policy: NodePolicy) -> str:
    """The same for a node of which nobody here knows the standing: a mark that asks also closes it."""
    if effective(signals, policy) is NodePolicy.IGNORE:
        return ""
    if signals.evacuate:
        return f"the taint {signals.evacuate[0]} asks for it"
    if signals.declared is not None:
        return f"the annotation {names.DRAIN_INTENT}: {signals.declared} asks for it"
    if effective(signals, policy) is not NodePolicy.EVACUATE or signals.intent is None or not signals.shut:
        return ""
    if signals.source is Source.CORDON:
        return f"the node has been cordoned for a while, nobody says what for, and the node drain policy is {NodePolicy.EVACUATE}"
    return f"{_SPEAKERS.get(signals.source, signals.source)} says what the node is emptied for: {signals.intent}"


def noted_at(standing: Standing) -> str:
    """When the node was closed, as it is noted on it; empty for a node that is open."""
    return standing.since.rpartition("/")[2]


def _steady_at(signals: Signals, since: float | None, *, now: float, debounce: float) -> float | None:
    """When the cordon will have lasted long enough; None: it has. A clock that was set back does not make it wait again."""
    if signals.closed_at is not None:
        return None
    begun = now if since is None else since
    until = begun + debounce
    return until if begun <= now < until else None


def _closed(signals: Signals, before: Standing, *, zero: bool, now: float) -> Standing:
    noted = timestamps.to_text(now if signals.closed_at is None else signals.closed_at)
    same = before.closed and signals.closed_at is None and before.since.startswith(f"{signals.uid}/")
    since = before.since if same else f"{signals.uid}/{noted}"
    cordon = (_CORDON,) if signals.cordoned else ()
    why = _why(signals)
    return Standing(closed=True, publishes_zero=zero, why=why, since=since, taints=(*cordon, *signals.retiring, *signals.evacuate))


def _why(signals: Signals) -> str:
    if signals.evacuate:
        return f"the taint {signals.evacuate[0]} asks for its evacuation"
    if signals.declared is not None:
        return f"the annotation {names.DRAIN_INTENT}: {signals.declared} asks for its evacuation"
    return "it is cordoned" if signals.cordoned else f"the taint {signals.retiring[0]} says that it is to be removed"
