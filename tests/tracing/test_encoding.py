"""The JSON encoding of OTLP, as a strict reader reads it: whatever a tenant or a driver writes, no batch is refused for it."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.tracing.encoding import ERROR, Span, SpanEvent, encoded
from tests.harness.collector import checked, values

TEXTS = st.text(st.characters(codec=None), max_size=40)  # lone surrogates too


def span(**changes: object) -> Span:
    usual = {"trace_id": "1" * 32, "span_id": "2" * 16, "parent_id": "", "name": "n", "kind": 1, "start": 5, "end": 9, "attributes": {}}
    return Span(**(usual | changes))  # type: ignore[arg-type]


@given(TEXTS, TEXTS)
@example("\ud800", "\u0000\n")
@example('"', "x" * 5000)
def test_any_text_can_be_sent(text: str, other: str) -> None:
    made = span(attributes={"a": text}, status=ERROR, status_text=other, events=(SpanEvent(7, text, {"why": other}),))
    read = checked(json.loads(encoded(made).decode("utf-8", errors="strict")))
    shown = values(read)["a"]
    shown.encode()  # a lone surrogate cannot be
    assert shown.isprintable() and len(shown) <= 4 * len(text) + 1100


def test_no_span_ends_before_it_begins() -> None:
    checked(json.loads(encoded(span(start=9, end=5))))
