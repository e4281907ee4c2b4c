"""The span of one claim, or of one volume, while it is worked on: from the event that made it due until nothing is left to be done."""

import sys
from dataclasses import dataclass
from typing import Final, Literal

from sidecar.tracing.encoding import Attributes, SpanEvent

Ended = Literal["", "succeeded", "failed"]

MOST_EVENTS: Final = 32
MOST_CHILDREN: Final = 128


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of the object, and where in which trace its span stands."""

    trace_id: str
    parent_id: str
    sampled: bool
    attributes: Attributes


_EVENT: Final = 512
"""Bytes of one without its texts, roughly."""


def size_of(event: SpanEvent) -> int:
    """In memory, where one character takes up to four bytes."""
    return _EVENT + sum(map(sys.getsizeof, event.attributes.values()))


class OpenSpan:
    """`begun` is on the monotonic clock, and `epoch` leads from there to the time of day."""

    __slots__ = (
        "begun",
        "changed",
        "children",
        "children_left_out",
        "closed",
        "decision",
        "epoch",
        "events",
        "events_left_out",
        "failure",
        "held",
        "identity",
        "key",
        "kind",
        "looks",
        "number",
        "queued",
        "removes",
        "span_id",
        "succeeded",
        "throttled",
        "why",
    )

    def __init__(self, kind: str, key: str, *, begun: float, epoch: float) -> None:
        self.kind, self.key = kind, key
        self.begun, self.epoch = begun, epoch
        self.identity: Identity | None = None
        self.span_id = ""
        self.number = 1
        """Of the spans of this object in a row: one that lasts is told in parts."""
        self.events: list[SpanEvent] = []
        self.events_left_out = self.held = 0
        """Events that were left out, and bytes of those that are kept."""
        self.children = self.children_left_out = 0
        self.looks = 0
        self.queued = self.throttled = 0.0
        """Seconds that it waited for a worker, and its requests for the client's own rate limit."""
        self.decision = self.why = ""
        self.removes = False
        """Whether something is or was deleted."""
        self.succeeded = False
        self.failure = ""
        """Of the last look, if it failed."""
        self.changed = False
        """Whether anything was done that is worth to be told."""
        self.closed = False

    @property
    def ended(self) -> Ended:
        if self.failure:
            return "failed"
        return "succeeded" if self.succeeded else ""

    def at(self, now: float) -> int:
        """In nanoseconds since 1970."""
        return int((self.epoch + now) * 1_000_000_000)

    def note(self, event: SpanEvent, *, room: int) -> None:
        """The first ones are kept, and the last one: how it began, and how it stands. `room`: bytes that it may take."""
        if len(self.events) >= MOST_EVENTS:
            self.held -= size_of(self.events.pop())
            self.events_left_out += 1
        if (size := size_of(event)) > room:
            self.events_left_out += 1
            return
        self.held += size
        self.events.append(event)

    def may_have_child(self) -> bool:
        self.changed = True
        if self.children >= MOST_CHILDREN:
            self.children_left_out += 1
            return False
        self.children += 1
        return True

    def goes_on(self, now: float) -> "OpenSpan":
        """A new span, in the same trace, for what is still to come."""
        found = OpenSpan(self.kind, self.key, begun=now, epoch=self.epoch)
        found.identity, found.number = self.identity, self.number + 1
        found.decision, found.why, found.removes, found.failure = self.decision, self.why, self.removes, self.failure
        return found
