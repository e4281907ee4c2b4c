"""Whether the node takes volumes now. Other rooms only read it (`model/standing`); what stands on the Node decides it (`marks`).

A node whose storage is lost takes none. With the policy Ignore it stays open whatever else is on it. With any other one the evacuation
taint, or an intent that somebody has declared, closes it at once; so does an autoscaler's taint, and a cordon of which is known what it is
for. Any other cordon closes it after some seconds, or at once if the closing is noted on the node already. An uncordon opens it at once.
"""

import logging
from collections.abc import Callable
from typing import Final

from sidecar.drain.marks import Marks, NodePolicy
from sidecar.drain.settings import Settings
from sidecar.model import names, timestamps
from sidecar.model.nodes import Taint
from sidecar.model.standing import OPEN, Standing

log = logging.getLogger(__name__)

DEBOUNCE: Final = 10.0  # seconds: a cordon that is lifted within this time closes nothing
_CORDON: Final = Taint(names.CORDON_TAINT, "", names.NO_SCHEDULE)


class StandingKeeper:
    """It remembers since when a cordon is there, and the Node's uid for when the Node is gone."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._settings, self._clock, self._wall, self._on_change = settings, clock, wall, on_change
        self._shut_since: float | None = None
        self._uid = ""  # of the Node that was seen last
        self.current: Standing = OPEN
        self.again: float | None = None  # when to look at the node again although it does not change: a cordon has to last before it counts

    def renew(self, marks: Marks) -> None:
        now, self._uid = self._wall(), marks.uid
        self._shut_since = (self._shut_since or now) if marks.shut else None
        found, until = standing(marks, shut_since=self._shut_since, now=now, before=self.current)
        again = min((at for at in (until, marks.cordon_counts_at) if at is not None), default=None)
        self._change(found, None if again is None else self._clock() + again - now)

    def renew_without_node(self) -> None:
        """Its Node is gone, or, where none was ever seen, may only not be listed yet."""
        self._shut_since, before = None, self.current
        if not before.closed and (not self._uid or self._settings.policy is NodePolicy.IGNORE):
            self._change(OPEN, None)
            return
        since = before.since if before.closed else f"{self._uid}/{timestamps.to_text(self._wall())}"
        self._change(Standing(closed=True, why="its Node object is gone", since=since), None)

    def _change(self, found: Standing, again: float | None) -> None:
        before, self.current, self.again = self.current, found, again
        if before.closed != found.closed:
            takes = "takes volumes" if self._settings.provisions else "is not marked for a drain any more"
            takes_none = "takes no volumes" if self._settings.provisions else "is marked for a drain"
            fields = {"node": self._settings.node, "why": found.why or "it is not closed any more"}
            log.info(f"The node {takes_none if found.closed else takes}", extra={"fields": fields})
        if before != found:
            self._on_change()


def standing(marks: Marks, *, shut_since: float | None, now: float, before: Standing = OPEN) -> tuple[Standing, float | None]:
    """And when to look again although nothing changes. `before` keeps `since` the same until the closing is noted on the node."""
    if marks.policy is NodePolicy.IGNORE and marks.lost is None:
        return OPEN, None
    if not marks.evacuate and marks.declared is None and marks.lost is None:
        if not marks.shut:
            return OPEN, None
        begun = now if shut_since is None else shut_since
        # A clock that was set back does not make it wait again.
        if marks.record.closed_at is None and marks.intent is None and begun <= now < begun + DEBOUNCE:
            return OPEN, begun + DEBOUNCE
    noted = marks.record.closed_at
    same = before.closed and noted is None and before.since.startswith(f"{marks.uid}/")
    since = before.since if same else f"{marks.uid}/{timestamps.to_text(now if noted is None else noted)}"
    cordon = (_CORDON,) if marks.cordoned else ()
    lost = (marks.lost,) if marks.lost is not None else ()
    return Standing(True, _why(marks), since, (*cordon, *marks.retiring, *marks.evacuate, *lost)), None


def closed_at(found: Standing) -> float | None:
    """Since when, for the record on the Node; None: the node is open."""
    return timestamps.to_seconds(found.since.rpartition("/")[2])


def _why(marks: Marks) -> str:
    if marks.lost is not None:
        return f"the taint {marks.lost} says that its storage is lost"
    if marks.evacuate:
        return f"the taint {marks.evacuate[0]} asks for its evacuation"
    if marks.declared is not None:
        return f"the annotation {names.DRAIN_INTENT}: {marks.declared} asks for its evacuation"
    return "it is cordoned" if marks.cordoned else f"the taint {marks.retiring[0]} says that it is to be removed"
