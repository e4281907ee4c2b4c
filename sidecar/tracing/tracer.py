"""Keeps the span of each claim and volume that is worked on, and makes child spans of the calls and requests that are told of.

Which span a call belongs to is known by `CURRENT`: a look at a claim is one task, and the doors tell of a call in the task that made it.
What is made in tasks of their own, as events are, has no span. Nothing here waits or raises.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec

from sidecar.csi.outcome import Code
from sidecar.model import names
from sidecar.model.objects import Claim, Volume
from sidecar.tracing.encoding import CLIENT, ERROR, INTERNAL, LONGEST_TEXT, OK, UNSET, Attributes, Span, SpanEvent, encoded
from sidecar.tracing.open_span import Identity, OpenSpan
from sidecar.tracing.parents import annotated, parent_of, trace_id_of
from sidecar.tracing.places import Places
from sidecar.tracing.sampling import Sampling

CLAIMS: Final = "claims"
VOLUMES: Final = "volumes"
"""The queues whose keys have spans. The keys of the first are UIDs, those of the second names."""

OURS: Final = "csi_node_sidecar."
# A claim that is not provisioned after so long is told of all the same.
LONGEST_SPAN: Final = 600.0
# Claims and volumes at a time. Most of them wait for their turn.
MOST_OPEN: Final = 4096
# Bytes of the events of all open spans.
MOST_HELD: Final = 8 * 2**20
# Characters of a reason or a failure that are kept beside the events.
_SHORT: Final = 256

CURRENT: Final[ContextVar[OpenSpan | None]] = ContextVar("CURRENT", default=None)

_GRPC_NUMBERS: Final = {code.value: number for number, code in enumerate(Code)}
_SUCCEEDS: Final = names.PROVISIONING_SUCCEEDED
_DELETES: Final = frozenset({"Empty", "Remove"})
_DELETED: Final = "Remove"

P = ParamSpec("P")


def harmless(method: Callable[P, None]) -> Callable[P, None]:
    """A fault in telling must not become one in what is told."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:  # noqa: BLE001
            tracer: Tracer = args[0]  # type: ignore[assignment]
            tracer.faults += 1

    return called


class Tracer:
    """`put` is given each span that has ended, as bytes."""

    def __init__(
        self,
        sampling: Sampling,
        *,
        put: Callable[[bytes], None],
        new_id: Callable[[], str],
        clock: Callable[[], float],
        wall: Callable[[], float],
        reads_parents: bool = True,
        most_open: int = MOST_OPEN,
        most_held: int = MOST_HELD,
    ) -> None:
        """`new_id` makes the id of a span: sixteen hexadecimal digits, not all 0."""
        self._sampling = sampling
        self._put = put
        self._new_id = new_id
        self._clock = clock
        self._wall = wall
        self._reads_parents = reads_parents
        self._places = Places(most_open)
        self._most_held = most_held
        self._held = 0
        self._open: dict[tuple[str, str], OpenSpan] = {}
        self.claim: Callable[[str], Claim | None] = lambda uid: None
        self.volume: Callable[[str], Volume | None] = lambda name: None
        self.driver: Callable[[], str] = lambda: ""
        self.not_traced = 0
        """Looks at what found no place among the open spans. See `places`."""
        self.faults = 0

    # --- what the loops tell ------------------------------------------------------------------------------------------

    @harmless
    def started(self, kind: str, key: str, queued: float) -> None:
        """A look begins."""
        span = self._open.get((kind, key))
        if span is None:
            if not self._places.take((kind, key), self._namespace(kind, key)):
                self.not_traced += 1
                return
            now = self._clock()
            span = self._open[kind, key] = OpenSpan(kind, key, begun=now - queued, epoch=self._wall() - now)
        span.looks += 1
        span.queued += queued

    @harmless
    def finished(self, kind: str, key: str, ending: str) -> None:
        """A look has ended. `settled`: nothing more is to be done."""
        span = self._open.get((kind, key))
        if span is None:
            return
        if ending in ("crashed", "overdue"):
            span.failure, span.changed = f"the look at it {'crashed' if ending == 'crashed' else 'was overdue'}; the log says more", True
        now = self._clock()
        if ending == "settled":
            self._places.give_back((kind, key))
            self._end(self._open.pop((kind, key)), now)
        elif span.changed and now - span.begun >= LONGEST_SPAN:
            self._end(span, now)
            self._open[kind, key] = span.goes_on(now)

    @contextlib.contextmanager
    def within(self, kind: str, key: str, *, works: bool) -> Iterator[None]:
        """While it is looked at. `works`: more than a glance, so what failed before is tried again."""
        span = self._open.get((kind, key))
        if span is not None and works:
            span.failure = ""
        token = CURRENT.set(span)
        try:
            yield
        finally:
            CURRENT.reset(token)

    @harmless
    def end_all(self) -> None:
        """The process ends."""
        now, spans = self._clock(), list(self._open.values())
        for key in self._open:
            self._places.give_back(key)
        self._open.clear()
        for span in spans:
            self._note(span, "process stops", {})
            self._end(span, now)

    def _namespace(self, kind: str, key: str) -> str:
        """Whose claim or volume it is; empty: nobody's that is known."""
        if kind == CLAIMS:
            claim = self.claim(key)
            return claim.namespace if claim else ""
        volume = self.volume(key)
        return volume.claim.namespace if volume and volume.claim else ""

    # --- what the doors tell ------------------------------------------------------------------------------------------

    @harmless
    def called(self, method: str, code: str, seconds: float) -> None:
        """Of the driver. `method` is the full gRPC path."""
        span = CURRENT.get()
        if span is None or not self._may_have_child(span):
            return
        service, _, name = method.strip("/").partition("/")
        number = _GRPC_NUMBERS.get(code)
        attributes: dict[str, str | int] = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        if number is not None:
            attributes["rpc.grpc.status_code"] = number
        self._child(span, f"{service}/{name}", attributes, seconds, error="" if number == 0 else code)

    @harmless
    def requested(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """Of the API server. Status 0: there was no answer."""
        span = CURRENT.get()
        if span is None or not self._may_have_child(span):
            return
        attributes: dict[str, str | int] = {f"{OURS}verb": verb, f"{OURS}resource": resource}
        if status:
            attributes["http.response.status_code"] = status
        error = "" if 200 <= status < 400 else f"HTTP {status}" if status else "no answer"
        self._child(span, f"{verb} {resource}", attributes, seconds, error=error)

    @harmless
    def throttled(self, seconds: float) -> None:
        span = CURRENT.get()
        if span is not None:
            span.throttled += seconds

    # --- what the rooms tell ------------------------------------------------------------------------------------------

    @harmless
    def decided(self, key: str, decision: str, why: str) -> None:
        span = CURRENT.get()
        if span is None or span.key != key or (decision, why[:_SHORT]) == (span.decision, span.why):
            return
        span.decision, span.why = decision, why[:_SHORT]
        if decision in _DELETES and span.kind == VOLUMES:
            span.removes = True
        self._note(span, decision, {"why": why[:LONGEST_TEXT]} if why else {})

    @harmless
    def recorded(self, uid: str, name: str, type_: str, reason: str, message: str) -> None:
        """An Event for people, as Kubernetes keeps it."""
        span = CURRENT.get()
        if span is None or span.key != (uid if span.kind == CLAIMS else name):
            return
        span.changed = True
        if reason == _SUCCEEDS:
            span.succeeded, span.failure = True, ""
        elif type_ == names.WARNING:
            span.failure = f"{reason}: {message[:_SHORT]}"
        self._note(span, reason, {"type": type_, "message": message[:LONGEST_TEXT]})

    # --- what logs ask ------------------------------------------------------------------------------------------------

    def ids(self, fields: Mapping[str, object]) -> dict[str, str]:
        """For a log line with these fields: the trace of the claim it is about. Most lines in the course of a look are about its claim."""
        try:
            span = CURRENT.get()
            about = fields.get("uid")
            if isinstance(about, str) and (span is None or span.kind != CLAIMS or span.key != about):
                span = self._open.get((CLAIMS, about))
            if span is None:
                return {}
            identity = self._identity(span)
            return {"trace_id": identity.trace_id, "span_id": span.span_id, "trace_flags": "01" if identity.sampled else "00"}
        except Exception:  # noqa: BLE001
            self.faults += 1
            return {}

    # --- spans --------------------------------------------------------------------------------------------------------

    def _note(self, span: OpenSpan, name: str, attributes: Attributes) -> None:
        before = span.held
        span.note(SpanEvent(span.at(self._clock()), name, attributes), room=self._most_held - self._held)
        self._held += span.held - before

    def _may_have_child(self, span: OpenSpan) -> bool:
        return not span.closed and self._identity(span).sampled and span.may_have_child()

    def _child(self, span: OpenSpan, name: str, attributes: Attributes, seconds: float, *, error: str) -> None:
        identity, now = self._identity(span), self._clock()
        child = Span(
            trace_id=identity.trace_id,
            span_id=self._new_id(),
            parent_id=span.span_id,
            name=name,
            kind=CLIENT,
            start=span.at(now - seconds),
            end=span.at(now),
            attributes=attributes,
            status=ERROR if error else UNSET,
            status_text=error,
        )
        self._put(encoded(child))

    def _end(self, span: OpenSpan, now: float) -> None:
        """One for which nothing was done is not told: each node hears of every claim that has no node yet."""
        span.closed = True
        self._held -= span.held
        if not span.changed or not self._identity(span).sampled:
            return
        if span.kind == VOLUMES and span.decision == _DELETED:
            span.succeeded = True
        identity, ended = self._identity(span), span.ended
        whole = Span(
            trace_id=identity.trace_id,
            span_id=span.span_id,
            parent_id=identity.parent_id,
            is_remote=bool(identity.parent_id),
            name="provision claim" if span.kind == CLAIMS else "delete volume" if span.removes else "keep volume",
            kind=INTERNAL,
            start=span.at(span.begun),
            end=span.at(now),
            attributes={**identity.attributes, **_told(span)},
            status={"failed": ERROR, "succeeded": OK, "": UNSET}[ended],
            status_text=span.failure,
            events=tuple(span.events),
            events_left_out=span.events_left_out,
        )
        self._put(encoded(whole))

    def _identity(self, span: OpenSpan) -> Identity:
        if span.identity is None:
            span.identity = self._of_claim(span.key) if span.kind == CLAIMS else self._of_volume(span.key)
        if not span.span_id:
            span.span_id = self._new_id()
        return span.identity

    def _of_claim(self, uid: str) -> Identity:
        claim, own = self.claim(uid), trace_id_of(uid)
        attributes: dict[str, Any] = {"csi.driver": self.driver(), "k8s.persistentvolumeclaim.uid": uid}
        parent = None
        if claim is not None:
            attributes["k8s.namespace.name"] = claim.namespace
            attributes["k8s.persistentvolumeclaim.name"] = claim.name
            attributes["k8s.storageclass.name"] = claim.class_name
            if self._reads_parents and (text := annotated(claim.whole)) is not None:
                parent = parent_of(text)
                attributes[f"{OURS}traceparent"] = "ignored: it is not valid" if parent is None else "used"
        sampled = self._sampling.takes(own, parent, now=self._clock())
        if parent is None:
            return Identity(own, "", sampled, attributes)
        return Identity(parent.trace_id, parent.span_id, sampled, attributes)

    def _of_volume(self, name: str) -> Identity:
        volume = self.volume(name)
        attributes: dict[str, Any] = {"csi.driver": self.driver(), "k8s.persistentvolume.name": name}
        own = trace_id_of(volume.uid if volume is not None and volume.uid else name)
        if volume is not None:
            attributes["k8s.storageclass.name"] = volume.class_name
            if volume.claim is not None:
                attributes["k8s.namespace.name"] = volume.claim.namespace
                attributes["k8s.persistentvolumeclaim.name"] = volume.claim.name
                attributes["k8s.persistentvolumeclaim.uid"] = volume.claim.uid
        return Identity(own, "", self._sampling.takes(own, None, now=self._clock()), attributes)


def _told(span: OpenSpan) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {
        f"{OURS}decision": span.decision,
        f"{OURS}looks": span.looks,
        f"{OURS}queued_seconds": round(span.queued, 6),
        f"{OURS}throttled_seconds": round(span.throttled, 6),
    }
    if span.children_left_out:
        found[f"{OURS}spans_left_out"] = span.children_left_out
    if span.number > 1:
        found[f"{OURS}part"] = span.number
    return found
