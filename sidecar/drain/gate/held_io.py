"""Writes which pods must not be evicted as soon as the node's marks show a drain: the drainer evicts a moment after its cordon.

It waits for no look: what was judged last says what blocks, and a patch of a few fields of the report follows at once. What fails is left
to the next look, which writes the whole report.
"""

import asyncio
import logging

from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.gate import held
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.controller import ReportWriter
from sidecar.drain.publish.stored import Held, held_of, of_this_node, status_of
from sidecar.drain.settings import Settings
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Pod

log = logging.getLogger(__name__)


class HeldPods:
    """One per process; `run` is a task. Without --drain-gate nothing is held."""

    def __init__(self, settings: Settings, reports: ReportWriter, pods: Store[Pod], recorder: Recorder) -> None:
        self._settings = settings
        self._reports = reports
        self._pods = pods
        self._recorder = recorder
        self._signals: Signals | None = None
        self._judged: Assessment | None = None
        self._let_go = False
        """The deadline of an evacuation is over and lets the node go, whatever its marks say."""
        self._changed = asyncio.Event()
        self._told: str | None = None
        """For what a drain was told to be held; None: what an earlier process has told is not known yet."""

    def marked(self, signals: Signals) -> None:
        """The node's marks are these now."""
        self._signals = signals
        self._renew()

    def judged(self, judged: Assessment, *, let_go: bool) -> None:
        self._judged, self._let_go = judged, let_go
        self._renew()

    def _renew(self) -> None:
        """Until this process has judged the node, what an earlier one has written stays."""
        judged, signals = self._judged, self._signals
        if not self._settings.gate or judged is None or signals is None or judged.node_uid != signals.uid:
            return
        overridden = self._let_go or bool(signals.override)
        found = held.held(judged, signals, self._pods.values(), assumed=self._settings.gate_assumes, overridden=overridden)
        if found != self._reports.held:
            self._reports.held = found
            self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            before = self._told if self._told is not None else self._told_before()
            try:
                await self._reports.write_held()
            except ApiError as error:
                log.info("Which pods must not be evicted could not be written at once", extra={"fields": {"err": str(error)}})
            self._tell(before)

    def _told_before(self) -> str | None:
        if not self._reports.recalled:
            return None
        status = of_this_node(status_of(self._reports.previous), self._signals.uid if self._signals else "")
        return _key(held_of(status))

    def _tell(self, before: str | None) -> None:
        found, signals = self._reports.held, self._signals
        if before is None or signals is None or self._settings.dry_run:
            return
        self._told = _key(found)
        if found.because and self._told != before:
            ref = ObjectRef("v1", names.NODE, "", signals.node, signals.uid)
            self._recorder.record(ref, names.WARNING, names.DRAIN_HELD, found.because)


def _key(found: Held) -> str:
    return found.purpose if found.because else ""
