"""Answers are kept for a while, refusals too, and what could not be learnt is told in every look."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable


class Scene:
    def __init__(self, answer: Any) -> None:
        self.answer, self.now, self.count = answer, 0.0, 0
        self.asking = Asking(clock=lambda: self.now)

    async def question(self) -> Any:
        self.count += 1
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer

    def look(self, **how: Any) -> Any:
        self.asking.begin()
        return asyncio.run(self.asking.ask("it", self.question, **how))


def test_an_answer_is_kept_for_a_minute_or_as_long_as_the_question_says() -> None:
    scene = Scene(7)
    assert [scene.look(), scene.look(), scene.count, scene.asking.asked] == [7, 7, 1, 0]
    scene.now = 60.0
    assert (scene.asking.age("it"), scene.look(), scene.count) == (60.0, 7, 2)
    scene = Scene(7)
    for scene.now in (0.0, 599.0, 600.0):
        scene.look(trusted=600.0)
    assert scene.count == 2
    scene = Scene(7)
    for _ in range(2):
        scene.look(trusted=0.0)
    assert scene.count == 2


def test_an_answer_that_is_too_old_for_the_question_is_not_good_enough() -> None:
    scene = Scene(7)
    scene.look()
    scene.now = 10.0
    scene.look(not_before=5.0)
    assert scene.count == 2
    scene.look(not_before=10.0)
    assert scene.count == 2


def test_a_refusal_is_told_in_each_look_and_kept_for_a_minute_at_most() -> None:
    scene = Scene(Forbidden("no", status=403))
    for _ in range(2):
        assert scene.look(trusted=600.0) is None
        assert (scene.asking.ignorance, scene.asking.unread) == (["it: no"], {"it"})
        assert scene.asking.forbidden == {"it": "no"}
    assert scene.count == 1
    scene.now = 60.0
    scene.look(trusted=600.0)
    assert scene.count == 2


def test_what_is_not_there_is_known() -> None:
    scene = Scene(NotFound("none", status=404))
    assert (scene.look(), scene.asking.ignorance, scene.asking.knows("it")) == (None, [], True)


def test_what_comes_by_itself_is_not_forbidden() -> None:
    for answer in (7, NotFound("gone", status=404), Unavailable("away")):
        scene = Scene(answer)
        scene.look()
        assert scene.asking.forbidden == {}
