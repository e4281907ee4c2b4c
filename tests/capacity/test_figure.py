"""The driver's answer becomes a figure that the scheduler can go by, whatever the answer is."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.capacity.figure import figure_of
from sidecar.csi.api import CapacityAnswer

GI = 2**30


def figure(answer: CapacityAnswer, *, promised: int = 0, reserve: bool = True) -> tuple[int, int | None]:
    found = figure_of(answer, promised=promised, reserve=reserve)
    return found.capacity, found.maximum


def test_answers() -> None:
    for answer, wanted in [
        (CapacityAnswer(10 * GI), (10 * GI, None)),
        (CapacityAnswer(10 * GI, maximum=GI), (10 * GI, GI)),
        (CapacityAnswer(10 * GI, maximum=0), (10 * GI, 0)),
        (CapacityAnswer(10 * GI, maximum=20 * GI), (10 * GI, 10 * GI)),
        (CapacityAnswer(10 * GI, maximum=-1), (10 * GI, None)),
        (CapacityAnswer(-5), (0, None)),
        (CapacityAnswer(2**63 - 1), (2**63 - 1, None)),
        (CapacityAnswer(GI, minimum=2 * GI), (0, None)),
        (CapacityAnswer(GI, minimum=GI), (GI, None)),
    ]:
        assert figure(answer) == wanted


def test_what_is_promised_is_not_free_and_no_volume_is_larger_than_what_is_left() -> None:
    assert figure(CapacityAnswer(10 * GI, maximum=8 * GI), promised=3 * GI) == (7 * GI, 7 * GI)
    assert figure(CapacityAnswer(10 * GI), promised=11 * GI) == (0, None)
    assert figure(CapacityAnswer(10 * GI, minimum=2 * GI), promised=9 * GI) == (0, None)


def test_without_reservation_the_figure_is_the_drivers_alone() -> None:
    answer = CapacityAnswer(10 * GI, maximum=20 * GI, minimum=11 * GI)
    assert figure(answer, promised=3 * GI, reserve=False) == (10 * GI, 20 * GI)


def test_every_oddity_has_a_name() -> None:
    why = figure_of(CapacityAnswer(-5, maximum=-1), promised=0, reserve=True).why
    assert "negative answer is published as 0" in why and "negative largest volume (-1) is left out" in why
    why = figure_of(CapacityAnswer(5, minimum=9), promised=1, reserve=True).why
    assert "1 of them reserved" in why and "published as 0, since the smallest volume has 9" in why


sizes = st.integers(-5, 2**63 - 1)


@given(available=sizes, maximum=st.none() | sizes, minimum=st.none() | sizes, held=st.integers(0, 2**63), reserve=st.booleans())
def test_a_figure_is_never_negative_and_a_promise_never_raises_it(
    available: int, maximum: int | None, minimum: int | None, held: int, reserve: bool
) -> None:
    answer = CapacityAnswer(available, maximum, minimum)
    without, held_back = figure(answer, reserve=reserve), figure(answer, promised=held, reserve=reserve)
    assert 0 <= held_back[0] <= without[0]
    assert held_back[1] is None or 0 <= held_back[1] <= (without[1] or 0)
    assert (held_back[1] is None) == (without[1] is None)
