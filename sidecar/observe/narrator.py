"""Reports each decision by the same name in three places: the metric, the log and the debug page."""

import logging
from collections.abc import Callable

from sidecar.observe.decisions import Decisions
from sidecar.observe.logs import V
from sidecar.observe.metrics import Metrics

log = logging.getLogger(__name__)


class Narrator:
    """Every room calls `note` for every decision, also for one to do nothing."""

    def __init__(self, decisions: Decisions, metrics: Metrics, wall: Callable[[], float]) -> None:
        self._decisions = decisions
        self._metrics = metrics
        self._wall = wall

    def note(self, room: str, key: str, name: str, decision: object) -> None:
        summary = self._decisions.note(decision, at=self._wall(), room=room, key=key, name=name)
        self._metrics.decision(room, summary.decision)
        if log.isEnabledFor(V(4)):
            fields = {"room": room, "key": key, "object": name, "decision": summary.decision, "why": summary.why}
            log.log(V(4), "Decided", extra={"fields": fields})
