"""The room's door: `open_tracing` makes a `Tracing`, or says in one line why there is none."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import sidecar
from sidecar.engine.loop import Observer
from sidecar.model.objects import Claim, Volume
from sidecar.observe import logs
from sidecar.observe.metrics import Metrics
from sidecar.tools import Tools
from sidecar.tracing.collector_io import Collector
from sidecar.tracing.encoding import Value, head_of
from sidecar.tracing.exporter_io import Exporter
from sidecar.tracing.looks_io import Glance, Handle, Looks, TracedNarrator, TracedRecorder, traced
from sidecar.tracing.numbers import SpanNumbers, Spans
from sidecar.tracing.sampling import Sampling
from sidecar.tracing.tracer import CLAIMS, VOLUMES, Tracer
from sidecar.tracing.variables import Off, Settings, read
from sidecar.tracing.waiting_spans import WaitingSpans

log = logging.getLogger(__name__)

NAME: Final = "csi-node-sidecar"
# What is left is sent when all else is done, before kubelet's patience ends.
_LAST_SECONDS: Final = 1.0

OnRequest = Callable[[str, str, int, float], None]


class Clocks(Protocol):
    """What is used of `doors.Instruments`."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def wall(self) -> Callable[[], float]: ...
    @property
    def rng(self) -> Callable[[], float]: ...


class Tracing:
    """What others hold of this room. Each method is a hook of one line."""

    def __init__(self, settings: Settings, collector: Collector, resource: Mapping[str, Value], clocks: Clocks) -> None:
        head = head_of(resource, scope=NAME, version=sidecar.__version__)
        waiting = WaitingSpans(settings.bounds)
        self._collector = collector
        self._exporter = Exporter(collector, waiting, head, delay=settings.delay, rng=clocks.rng, clock=clocks.clock)
        self._tracer = Tracer(
            Sampling(settings.sampler),
            put=self._exporter.put,
            new_id=_span_id,
            clock=clocks.clock,
            wall=clocks.wall,
            reads_parents=settings.reads_parents,
        )
        clocks.metrics.watch_more(Spans(self._numbers))
        logs.name_traces(self._tracer.ids)

    def _numbers(self) -> SpanNumbers:
        numbers = self._exporter.numbers()
        own = {"too-many-open": self._tracer.not_traced, "fault": self._tracer.faults}
        return replace(numbers, dropped={**numbers.dropped, **own})

    # --- for the doors ------------------------------------------------------------------------------------------------

    def on_call(self, told: Callable[[str, str, float], None]) -> Callable[[str, str, float], None]:
        def called(method: str, code: str, seconds: float) -> None:
            told(method, code, seconds)
            self._tracer.called(method, code, seconds)

        return called

    def on_request(self, told: OnRequest) -> OnRequest:
        def requested(verb: str, resource: str, status: int, seconds: float) -> None:
            told(verb, resource, status, seconds)
            self._tracer.requested(verb, resource, status, seconds)

        return requested

    def on_throttled(self, told: Callable[[float], None]) -> Callable[[float], None]:
        def throttled(seconds: float) -> None:
            told(seconds)
            self._tracer.throttled(seconds)

        return throttled

    # --- for the rooms ------------------------------------------------------------------------------------------------

    def tools(self, tools: Tools) -> Tools:
        """These, telling what they are told."""
        recorder, narrator = TracedRecorder(tools.recorder, self._tracer), TracedNarrator(tools.narrator, self._tracer)
        return replace(tools, recorder=recorder, narrator=narrator)

    def sees(self, *, claim: Callable[[str], Claim | None], volume: Callable[[str], Volume | None], driver: Callable[[], str]) -> None:
        """What is known of a claim by its UID, and of a volume by its name."""
        self._tracer.claim, self._tracer.volume, self._tracer.driver = claim, volume, driver

    def looks(self, name: str, handle: Handle, glance: Glance, observer: Observer) -> Looks:
        """What the loop of that name is made of."""
        looks = handle, glance, observer
        return traced(self._tracer, name, looks) if name in (CLAIMS, VOLUMES) else looks

    # --- for the process ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sends spans until cancelled, and then what is left, for a moment."""
        try:
            await self._exporter.run()
        finally:
            self._tracer.end_all()
            await self._exporter.flush(_LAST_SECONDS)
            await self._collector.close()


def open_tracing(environ: Mapping[str, str], clocks: Clocks) -> Tracing | None:
    """Whatever is wrong, the program starts."""
    settings, remarks = read(environ)
    try:
        collector = None if isinstance(settings, Off) else Collector(settings, environ, clock=clocks.clock)
    except (OSError, ValueError) as error:
        # Not its text, which may have what was given for a path.
        settings, collector = Off(f"the certificates for the collector cannot be read: {type(error).__name__}"), None
    if isinstance(settings, Off) or collector is None:
        if isinstance(settings, Off) and settings.why:
            log.warning("Tracing is off", extra={"fields": {"why": settings.why}})
        return None
    if remarks:
        log.warning("Tracing is not all as it is set", extra={"fields": {"why": "; ".join(remarks)}})
    found = Tracing(settings, collector, resource_of(settings, environ), clocks)
    log.info("Tracing is on", extra={"fields": {"collector": settings.where, "sampler": str(settings.sampler)}})
    return found


def resource_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, Value]:
    """What the environment says wins over what is known here, and OTEL_SERVICE_NAME over all."""
    known = {
        "service.version": sidecar.__version__,
        "service.instance.id": environ.get("POD_NAME", "") or os.uname().nodename,
        "k8s.node.name": environ.get("NODE_NAME", ""),
        "k8s.pod.name": environ.get("POD_NAME", ""),
        "k8s.namespace.name": environ.get("NAMESPACE", ""),
        "telemetry.sdk.name": NAME,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": sidecar.__version__,
    }
    found: dict[str, Value] = {"service.name": NAME}
    found |= {key: value for key, value in known.items() if value}
    return found | dict(settings.resource) | ({"service.name": settings.service} if settings.service else {})


def _span_id() -> str:
    return os.urandom(8).hex()
