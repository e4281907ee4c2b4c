"""Puts the tracer around the looks of a loop, and beside what they tell to narrator and recorder."""

from collections.abc import Awaitable, Callable

from sidecar.engine.loop import Ending, NeedsWork, Observer
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.observe.narrator import Narrator
from sidecar.tracing.tracer import Tracer

Handle = Callable[[str], Awaitable[float | None]]
Glance = Callable[[str], float | NeedsWork | None]


Looks = tuple[Handle, Glance, Observer]
"""What a loop is made of."""


def traced(tracer: Tracer, kind: str, looks: Looks) -> Looks:
    given, given_glance, observer = looks

    async def handle(key: str) -> float | None:
        with tracer.within(kind, key, works=True):
            return await given(key)

    def glance(key: str) -> float | NeedsWork | None:
        with tracer.within(kind, key, works=False):
            return given_glance(key)

    return handle, glance, _Told(tracer, kind, observer)


class _Told:
    """The loop's observer, and the tracer beside it."""

    def __init__(self, tracer: Tracer, kind: str, observer: Observer) -> None:
        self._tracer = tracer
        self._kind = kind
        self._observer = observer

    def added(self, key: object) -> None:
        self._observer.added(key)

    def started(self, key: object, *, queued: float) -> None:
        self._observer.started(key, queued=queued)
        self._tracer.started(self._kind, str(key), queued)

    def finished(self, key: object, *, worked: float, ending: Ending) -> None:
        self._observer.finished(key, worked=worked, ending=ending)
        self._tracer.finished(self._kind, str(key), ending)


class TracedNarrator(Narrator):
    """Tells the tracer what the given one is told."""

    def __init__(self, narrator: Narrator, tracer: Tracer) -> None:
        self._narrator = narrator
        self._tracer = tracer

    def note(self, room: str, key: str, name: str, decision: object) -> None:
        self._narrator.note(room, key, name, decision)
        self._tracer.decided(key, type(decision).__name__, str(getattr(decision, "why", "")))


class TracedRecorder:
    """The same of Events."""

    def __init__(self, recorder: Recorder, tracer: Tracer) -> None:
        self._recorder = recorder
        self._tracer = tracer

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        self._recorder.record(ref, type_, reason, message, once=once)
        self._tracer.recorded(ref.uid, ref.name, type_, reason, message)
