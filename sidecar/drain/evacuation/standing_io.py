"""Keeps the node's standing up to date, and tells others when it changes; how it is computed: `closing`."""

import logging
from collections.abc import Callable

from sidecar.drain.evacuation.closing import standing, without_node
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.settings import Settings
from sidecar.model.standing import OPEN, Standing

log = logging.getLogger(__name__)


class StandingKeeper:
    """It remembers since when a cordon is there, and the Node's uid for when the Node is gone."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._on_change = on_change
        self._cordoned_since: float | None = None
        self._uid = ""
        """Of the Node that was seen last."""
        self.current: Standing = OPEN
        self.again: float | None = None
        """When to look at the node again although it does not change: a cordon has to last before it counts."""

    def renew(self, signals: Signals) -> None:
        now, self._uid = self._wall(), signals.uid
        self._cordoned_since = (self._cordoned_since or now) if signals.shut else None
        found, until = standing(
            signals,
            policy=self._settings.policy,
            zero_when_closed=self._settings.zero_when_closed,
            cordon_stable_since=self._cordoned_since,
            now=now,
            before=self.current,
        )
        again = min((at for at in (until, signals.cordon_counts_at) if at is not None), default=None)
        self._change(found, None if again is None else self._clock() + again - now)

    def renew_without_node(self) -> None:
        policy, zero = self._settings.policy, self._settings.zero_when_closed
        self._cordoned_since = None
        self._change(without_node(self.current, uid=self._uid, policy=policy, zero_when_closed=zero, now=self._wall()), None)

    def _change(self, found: Standing, again: float | None) -> None:
        before, self.current, self.again = self.current, found, again
        if (before.closed, before.publishes_zero) != (found.closed, found.publishes_zero):
            fields = {"node": self._settings.node, "why": found.why or "it is not closed any more"}
            log.info(_message(found, provisions=self._settings.provisions), extra={"fields": fields})
        if before != found:
            self._on_change()


def _message(found: Standing, *, provisions: bool) -> str:
    if provisions:
        return "The node takes no volumes" if found.closed else "The node takes volumes"
    return "The node is marked for a drain" if found.closed else "The node is not marked for a drain any more"
