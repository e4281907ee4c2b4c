"""Writes spans in the JSON encoding of OTLP: ids in hexadecimal, integers of 64 bits as text, enumerations as numbers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.observe.sanitize import clipped, visible

Value = str | bool | int | float
Attributes = Mapping[str, Value]

INTERNAL: Final = 1
CLIENT: Final = 3
UNSET: Final = 0
OK: Final = 1
ERROR: Final = 2

LONGEST_TEXT: Final = 1024
"""Characters of one value. Drivers and tenants have a part in some."""

# Sampled, and it is known whether the parent is of another process; it is.
_FLAGS: Final = 0x101
_FLAGS_OF_REMOTE: Final = 0x301
_TAIL: Final = b"]}]}]}"
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class SpanEvent:
    at: int
    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Times are nanoseconds since 1970. `parent_id` is empty for a root."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    start: int
    end: int
    attributes: Attributes
    is_remote: bool = False
    """Whether its parent is a span of another process."""
    status: int = UNSET
    status_text: str = ""
    events: tuple[SpanEvent, ...] = ()
    events_left_out: int = 0


def encoded(span: Span) -> bytes:
    shown: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(max(span.start, span.end)),
        "attributes": _attributes(span.attributes),
        "flags": _FLAGS_OF_REMOTE if span.is_remote else _FLAGS,
    }
    if span.parent_id:
        shown["parentSpanId"] = span.parent_id
    if span.events:
        shown["events"] = [
            {"timeUnixNano": str(event.at), "name": _text(event.name), "attributes": _attributes(event.attributes)} for event in span.events
        ]
    if span.events_left_out:
        shown["droppedEventsCount"] = span.events_left_out
    if span.status:
        shown["status"] = {"code": span.status} | ({"message": _text(span.status_text)} if span.status_text else {})
    return _TO_JSON(shown).encode()


def head_of(resource: Attributes, *, scope: str, version: str) -> bytes:
    """The part of every request that stands before the spans."""
    first = _TO_JSON({"attributes": _attributes(resource)})
    second = _TO_JSON({"name": scope, "version": version})
    return f'{{"resourceSpans":[{{"resource":{first},"scopeSpans":[{{"scope":{second},"spans":['.encode()


def body_of(head: bytes, spans: Iterable[bytes]) -> bytes:
    return head + b",".join(spans) + _TAIL


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": _text(value)}


def _text(text: str) -> str:
    """Without what one decoder or another refuses, a lone surrogate for instance: it would refuse the spans of all other claims too."""
    return visible(clipped(text, LONGEST_TEXT))
