"""From the node's marks to its standing: does it take volumes now, and does anybody ask for it to be emptied."""

from typing import Final

from sidecar.drain import instants
from sidecar.drain.signals import NodePolicy, Signals, Source
from sidecar.model import names
from sidecar.model.nodes import NO_SCHEDULE, Taint
from sidecar.model.standing import OPEN, Standing

DEBOUNCE: Final = 10.0
_CORDON: Final = Taint(names.CORDON_TAINT, "", NO_SCHEDULE)


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

    `policy` is that of the flag; the node's annotation overrides it. With Ignore the node stays open whatever is on it, the
    evacuation taint included. Otherwise that taint closes it at once, as does an intent that somebody has declared, and a cordon,
    or the taint of an autoscaler that removes it, when it has stood for `debounce` seconds, or was noted before this process came.
    An uncordon opens it at once.

    `cordon_stable_since`: when this process first saw the cordon that it still sees; the same wall clock as `now`. `before` is
    what was returned last time: until the closing is noted on the node (`marks.wanted` says how), it keeps `since` the same.
    """
    if effective(signals, policy) is NodePolicy.IGNORE:
        return OPEN, None
    if not signals.evacuate and signals.declared is None:
        if not signals.shut:
            return OPEN, None
        until = _steady_at(signals, cordon_stable_since, now=now, debounce=debounce)
        if until is not None:
            return OPEN, until
    return _closed(signals, before, zero=zero_when_closed, now=now), None


def without_node(before: Standing, *, uid: str, policy: NodePolicy, zero_when_closed: bool, now: float) -> Standing:
    """Where the Node object is gone. `uid` is the one it had, empty if it was never seen: perhaps it is only not known yet."""
    if not before.closed and (not uid or policy is NodePolicy.IGNORE):
        return OPEN
    since = before.since if before.closed else f"{uid}/{instants.to_text(now)}"
    return Standing(closed=True, publishes_zero=zero_when_closed, why="its Node object is gone", since=since)


def effective(signals: Signals, policy: NodePolicy) -> NodePolicy:
    """The node's own policy, or that of the flag."""
    return signals.policy or policy


def asked(signals: Signals, *, policy: NodePolicy, standing: Standing) -> str:
    """Who asks for the node to be emptied; empty: nobody.

    The taint does, and the intent's annotation, unless the policy is Ignore. With Evacuate a cordon that has become steady does
    too, if a program says what it is for: an autoscaler by its taint, or kured. Neither of these asks by itself.
    """
    if not standing.closed:
        return ""
    if signals.evacuate:
        return f"the taint {signals.evacuate[0]} asks for it"
    if signals.declared is not None:
        return f"the annotation {names.DRAIN_INTENT}: {signals.declared} asks for it"
    if effective(signals, policy) is NodePolicy.EVACUATE and signals.cordoned and signals.source is not Source.NONE:
        return f"the node is cordoned, and by {signals.source} it is to {signals.intent}"
    return ""


def noted_at(standing: Standing) -> str:
    """When it was closed, as it is to be noted on the node; empty for a node that is open."""
    return standing.since.rpartition("/")[2]


def _steady_at(signals: Signals, since: float | None, *, now: float, debounce: float) -> float | None:
    """When the cordon will have stood long enough; None: it has. A clock that was set back does not make it wait again."""
    if signals.closed_at is not None:
        return None
    begun = now if since is None else since
    until = begun + debounce
    return until if begun <= now < until else None


def _closed(signals: Signals, before: Standing, *, zero: bool, now: float) -> Standing:
    noted = instants.to_text(now if signals.closed_at is None else signals.closed_at)
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
