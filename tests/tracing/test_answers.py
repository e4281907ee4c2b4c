"""What the collector's answer means, as the OTLP specification says. A hostile one gains nothing."""

import pytest

from sidecar.tracing.answers import Lost, Taken, TryAgain, outcome_of


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_these_are_tried_again(status: int) -> None:
    assert outcome_of(status, {}, b"") == TryAgain(f"it answers {status}")
    assert outcome_of(status, {"retry-after": "7"}, b"") == TryAgain(f"it answers {status}", 7.0)


@pytest.mark.parametrize("said", ["-1", "1e9", "inf", "nan", "soon", "٣", "9" * 400, "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_a_strange_retry_after_is_none(said: str) -> None:
    assert outcome_of(503, {"retry-after": said}, b"") == TryAgain("it answers 503")


def test_a_long_retry_after_is_cut() -> None:
    assert outcome_of(503, {"retry-after": "99999999"}, b"") == TryAgain("it answers 503", 300.0)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 415, 500, 501, 505])
def test_the_others_are_not(status: int) -> None:
    found = outcome_of(status, {"location": "http://elsewhere", "retry-after": "5"}, b"{}")
    assert isinstance(found, Lost) and str(status) in found.why and "elsewhere" not in found.why


@pytest.mark.parametrize(
    ("body", "rejected"),
    [
        (b"{}", 0),
        (b"", 0),
        (b'{"partialSuccess":{}}', 0),
        (b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}', 3),
        (b'{"partialSuccess":{"rejectedSpans":3}}', 3),
        (b'{"partialSuccess":{"rejectedSpans":-3}}', 0),
        (b'{"partialSuccess":{"rejectedSpans":null}}', 0),
        (b'{"partialSuccess":3}', 0),
        (b"[" * 16_000, 0),
        (b'{"partialSuccess":{"rejectedSpans":"' + b"9" * 16_000, 0),
        (b'{"partialSuccess":{"rejectedSpans":Infinity}}', 0),
        (b"\xff\xfe", 0),
    ],
)
def test_what_was_taken(body: bytes, rejected: int) -> None:
    assert outcome_of(200, {}, body) == Taken(rejected)
