"""Tells one decision to everyone who counts or keeps decisions, in the same words: metric, log line, debug page."""

import logging
from collections.abc import Callable

from sidecar.observe.decisions import Decisions
from sidecar.observe.logs import V
from sidecar.observe.metrics import Metrics

log = logging.getLogger(__name__)


class Narrator:
    """`note` is called by every room for every decision, also for the decision to do nothing."""

    def __init__(self, decisions: Decisions, metrics: Metrics, wall: Callable[[], float]) -> None:
        self._decisions = decisions
        self._metrics = metrics
        self._wall = wall

    def note(self, room: str, key: str, name: str, decision: object) -> None:
        told = self._decisions.note(decision, at=self._wall(), room=room, key=key, name=name)
        self._metrics.decision(room, told.decision)
        if log.isEnabledFor(V(4)):
            fields = {"room": room, "key": key, "object": name, "decision": told.decision, "why": told.why}
            log.log(V(4), "Decided", extra={"fields": fields})
