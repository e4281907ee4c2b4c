"""What drivers and servers say is cut where it enters."""

import pytest

from sidecar.csi.outcome import BadAnswer, Code, DriverError, NotSent
from sidecar.errors import LONGEST, SidecarError, shortened
from sidecar.kube.errors import Forbidden, Invalid, TooManyRequests, Unavailable

LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "error",
    [
        DriverError(Code.INTERNAL, LONG),
        NotSent(Code.UNAVAILABLE, LONG),
        BadAnswer(LONG),
        Invalid(LONG, status=422, reason=LONG),
        Forbidden(LONG),
        Unavailable(LONG),
        TooManyRequests(LONG, retry_after=1.0, reason=LONG),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_failure_keeps_a_text_of_any_length(error: SidecarError) -> None:
    texts = [str(error), repr(error), *error.args, *vars(error).values()]
    assert max(len(text) for text in texts if isinstance(text, str)) < LONGEST + 200
    assert "(1000000 characters)" in str(error)


def test_what_is_short_stays_as_it_is() -> None:
    assert shortened("no space left") == "no space left"
    assert shortened("x" * LONGEST) == "x" * LONGEST
    assert str(DriverError(Code.INTERNAL, "no")) == "rpc error: code = Internal desc = no"
