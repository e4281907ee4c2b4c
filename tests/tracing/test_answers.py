"""What the collector's answer means, as the OTLP specification says. A hostile one gains nothing."""

import pytest

from sidecar.tracing.answers import Lost, TryAgain, outcome_of


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_these_are_tried_again(status: int) -> None:
    assert outcome_of(status, {}, b"") == TryAgain(f"it answers {status}")
    assert outcome_of(status, {"retry-after": "7"}, b"") == TryAgain(f"it answers {status}", 7.0)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 415, 500, 501, 505])
def test_the_others_are_not(status: int) -> None:
    found = outcome_of(status, {"location": "http://elsewhere", "retry-after": "5"}, b"{}")
    assert isinstance(found, Lost) and str(status) in found.why and "elsewhere" not in found.why
