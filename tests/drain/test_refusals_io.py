"""What is refused in one look: it keeps nothing else from being tried, and is told in one sentence."""

import asyncio

import pytest

from sidecar.drain.refusals_io import Refusals
from sidecar.kube.errors import Forbidden, Unavailable


async def answer() -> str:
    return "done"


async def refused(error: Exception) -> str:
    raise error


def test_what_is_refused_is_remembered_until_the_next_look() -> None:
    refusals = Refusals()
    assert not refusals and str(refusals) == ""
    assert asyncio.run(refusals.attempt("the gate", refused(Forbidden("no right")))) is None
    assert asyncio.run(refusals.attempt("a report", refused(Unavailable("no answer")))) is None
    assert asyncio.run(refusals.attempt("marks", answer())) == "done"
    assert refusals and (refusals.of("the gate"), refusals.of("marks")) == ("no right", "")
    assert str(refusals) == "a report could not be written or read: no answer; the gate could not be written or read: no right"
    refusals.begin()
    assert not refusals and refusals.of("the gate") == ""


def test_what_may_not_be_read_is_told_and_has_nothing_tried_again() -> None:
    refusals = Refusals()
    refusals.left_unread({"namespace b": "no right", "class a": "no right either"})
    refusals.note("the gate", "no")
    assert str(refusals) == (
        "the gate could not be written or read: no; class a could not be read, so that a verdict may be Unknown: no right either;"
        " namespace b could not be read, so that a verdict may be Unknown: no right"
    )
    refusals.begin()
    assert str(refusals) == ""
    refusals.left_unread({"class a": "no right"})
    assert str(refusals) and not refusals


def test_a_fault_of_the_program_is_no_refusal() -> None:
    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(Refusals().attempt("the gate", refused(ValueError("a bug"))))
