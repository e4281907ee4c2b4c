"""Which trace a claim belongs to. Tenants write the annotation, so whatever is not exactly a traceparent is none."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.tracing.parents import ANNOTATION, Parent, annotated, parent_of, trace_id_of
from tests.harness import samples

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("ff", True), ("02", False)])
def test_a_traceparent_is_read(flags: str, sampled: bool) -> None:
    assert parent_of(f"00-{TRACE}-{SPAN}-{flags}") == Parent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"01-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0A",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        "0" * 1_000_000,
    ],
)
def test_whatever_else_is_none(text: str) -> None:
    assert parent_of(text) is None


@given(st.text(max_size=60))
@example(f"00-{TRACE}-{SPAN}-0\x00")
def test_what_is_read_has_ids_of_hexadecimal_digits_only(text: str) -> None:
    found = parent_of(text)
    assert found is None or set(found.trace_id + found.span_id) <= set("0123456789abcdef")


def test_the_annotation_is_found_where_the_claim_is_kept_whole() -> None:
    assert annotated(samples.claim().whole) is None
    assert annotated(samples.claim(annotations={ANNOTATION: "x"}).whole) == "x"
    assert annotated(b"") is None
    assert annotated(samples.claim(annotations={"note": json.dumps({ANNOTATION: "x"})}).whole) is None


def test_the_trace_of_a_claim_is_its_uid() -> None:
    assert trace_id_of("0af76519-16cd-43dd-8448-eb211c80319c") == TRACE


@given(st.text(max_size=50))
@example("00000000-0000-0000-0000-000000000000")
@example("0AF76519-16CD-43DD-8448-EB211C80319C")
def test_every_uid_has_one_trace(uid: str) -> None:
    found = trace_id_of(uid)
    assert found == trace_id_of(uid)
    assert len(found) == 32 and set(found) <= set("0123456789abcdef") and set(found) != {"0"}
