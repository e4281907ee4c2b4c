"""What is known stays known, and what was taken is given back, at moments that are easily overlooked."""

import asyncio
import logging

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.store import Store
from sidecar.kube.transport import Limiter
from sidecar.model.objects import Json
from tests.harness.labelled_volumes import MINE, Scene


def test_a_request_that_is_cancelled_in_line_gives_its_token_back() -> None:
    async def main() -> float:
        clock = asyncio.get_running_loop().time
        limiter = Limiter(TokenBucket(5.0, 1), clock=clock, sleep=asyncio.sleep, rng=lambda: 0.0, on_throttled=lambda _: None)
        await limiter.admit()
        for _ in range(10):
            waiting = asyncio.create_task(limiter.admit())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        begun = clock()
        await limiter.admit()
        return clock() - begun

    assert run_virtual(main()) == pytest.approx(0.1)


@pytest.mark.parametrize("later", [False, True], ids=["in the watch", "in a list"])
def test_an_object_that_cannot_be_read_any_more_is_not_told_as_gone(later: bool, caplog: pytest.LogCaptureFixture) -> None:
    def project(obj: Json) -> str:
        if "n" in obj["metadata"].get("annotations", {}):
            raise TypeError("nobody has thought of that")
        return str(obj["metadata"]["uid"])

    async def main() -> None:
        scene = Scene(project=project, store=Store[str]())
        await scene.make("mine", MINE)
        running = asyncio.create_task(scene.reflector.run())
        await asyncio.sleep(1.0)
        assert scene.held == {"mine"}
        await scene.edit("mine", "x")
        if later:
            scene.reflector.resource_version = ""
        await asyncio.sleep(1.0)
        assert scene.held == {"mine"}
        assert scene.changes == [("mine", True)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    assert "An object cannot be read and is ignored" in caplog.text


@pytest.mark.parametrize("turns", range(-6, 7))
def test_what_departs_just_when_the_last_question_has_been_answered_is_asked_about(turns: int) -> None:
    """Four questions are asked at a time. All answers come in one turn of the loop; `turns` of it later, or before, something departs."""

    async def main() -> None:
        scene = Scene()
        names = [f"v{number}" for number in range(5)]
        for name in names:
            await scene.make(name, MINE)
        running = asyncio.create_task(scene.reflector.run())
        await asyncio.sleep(1.0)
        answers = asyncio.Event()
        find = scene.api.get

        async def get(*args: object, **options: object) -> Json:
            try:
                return await find(*args, **options)  # type: ignore[arg-type]
            finally:
                if not answers.is_set():
                    await answers.wait()

        scene.api.get = get  # type: ignore[method-assign,assignment]
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await scene.people.patch(VOLUMES, names[4], held, content_type=MERGE_PATCH)
        await scene.people.delete(VOLUMES, names[4])
        for name in names[:4]:
            await scene.delete(name)
        await asyncio.sleep(1.0)
        gone = {"metadata": {"finalizers": None}}
        steps = [lambda: scene.cluster.patch(VOLUMES, names[4], gone, content_type=MERGE_PATCH), answers.set]
        first, second = steps if turns < 0 else steps[::-1]
        first()
        for _ in range(abs(turns)):
            await asyncio.sleep(0)
        second()
        await asyncio.sleep(30.0)
        assert scene.held == set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())
