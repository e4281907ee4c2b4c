"""A Lease on the API server: who has it, for how long, what its record says, and what happens where two write at the same moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.cluster import Call, InProcessApi
from sidecar.drain.course import Answer, Held, NotKnown, TakenBy
from sidecar.drain.lease_io import DURATION, HeldLease, Holder, held_by
from sidecar.kube.api import LEASES, MERGE_PATCH
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from tests.harness.clock import Clock
from tests.harness.cluster_tools import new_cluster

LABEL, KEY = "example.com/for", "example.com/record"


class Scene:
    """A Lease named one, as processes of several nodes see it. `refuse`: what is answered with an error, `lose`: which answer is lost."""

    def __init__(self) -> None:
        self.clock, self.calls = Clock(1000.0), list[str]()
        self.refuse: Callable[[Call], ApiError | None] = lambda _: None
        self.lose: Callable[[Call], bool] = lambda _: False

        async def before(call: Call) -> None:
            self.calls.append(call.verb)
            await asyncio.sleep(0)
            if error := self.refuse(call):
                raise error

        async def after(call: Call) -> None:
            if self.lose(call):
                raise Unavailable("the answer is lost")

        self.cluster = new_cluster(clock=self.clock)
        self.api = InProcessApi(self.cluster, before=before, after=after)

    def process(self, node: str = "n1", uid: str = "") -> HeldLease:
        holder = Holder(node, uid or f"uid-{node}", "driver", "default")
        return HeldLease(self.api, "one", holder, label=LABEL, clock=self.clock, wall=self.clock, record_key=KEY)

    def stored(self) -> Any:
        return self.cluster.get(LEASES, "one", namespace="default").obj

    def patch(self, change: Any) -> None:
        self.cluster.patch(LEASES, "one", change, namespace="default", content_type=MERGE_PATCH)


Story = Callable[[Scene], Awaitable[None]]


def play(story: Story) -> None:
    asyncio.run(story(Scene()))


def test_it_is_taken_kept_without_a_request_for_five_minutes_and_renewed_then() -> None:
    async def story(scene: Scene) -> None:
        mine = scene.process()
        assert await mine.hold(record="a") == Held("a")
        meta = scene.stored()["metadata"]
        assert (meta["labels"], meta["annotations"]) == ({LABEL: "driver"}, {KEY: "a"})
        assert [(ref["name"], ref["uid"]) for ref in meta["ownerReferences"]] == [("n1", "uid-n1")], "it goes with the Node"
        scene.calls.clear()
        scene.clock.now += DURATION / 3 - 1
        assert await mine.hold() == await mine.hold(record="a") == Held("a")
        assert scene.calls == []
        assert await mine.hold(now=True) == Held("a")
        scene.clock.now += DURATION / 3
        assert await mine.hold() == Held("a")
        assert await mine.hold(record="b") == Held("b")
        assert scene.calls == ["update"] * 3

    play(story)


@pytest.mark.parametrize("said", [1, DURATION, 2**31 - 1, None], ids=["a second", "as it is written", "decades", "nothing"])
def test_drain_G8_another_holders_is_taken_once_it_was_seen_unchanged_for_a_quarter_of_an_hour(said: Any) -> None:
    """By this process's own clock, whatever stands in it; and its record is not taken over."""

    async def story(scene: Scene) -> None:
        theirs, mine = scene.process("n2"), scene.process()
        await theirs.hold(record="theirs")
        scene.patch({"spec": {"leaseDurationSeconds": said, "renewTime": "2020-01-01T00:00:00.000000Z"}})
        assert await mine.hold() == TakenBy("n2")
        assert mine.was_anothers
        scene.clock.now += DURATION - 1
        assert await mine.hold() == TakenBy("n2")
        scene.clock.now += 1
        assert await mine.hold() == Held("")
        assert not mine.was_anothers
        assert isinstance(await theirs.hold(now=True), TakenBy)
        assert await theirs.hold() == TakenBy("n1")

    play(story)


def test_one_that_is_renewed_meanwhile_is_not_taken() -> None:
    async def story(scene: Scene) -> None:
        theirs, mine = scene.process("n2"), scene.process()
        for _ in range(10):
            assert isinstance(await theirs.hold(now=True), Held)
            assert await mine.hold() == TakenBy("n2")
            scene.clock.now += DURATION - 1

    play(story)


def test_one_that_nobody_has_is_taken_at_once_and_a_former_machine_of_the_name_is_somebody() -> None:
    async def story(scene: Scene) -> None:
        await scene.process("n1", "uid-former").hold()
        assert await scene.process().hold() == TakenBy("n1")
        scene.patch({"spec": {"holderIdentity": ""}})
        assert await scene.process().hold() == Held("")

    play(story)


def test_a_later_process_of_the_same_machine_has_it_with_its_record() -> None:
    async def story(scene: Scene) -> None:
        await scene.process().hold(record="begun")
        assert await scene.process().hold() == Held("begun")
        assert list(await held_by(scene.api, Holder("n1", "uid-n1", "driver", "default"), label=LABEL)) == ["one"]
        assert not await held_by(scene.api, Holder("n1", "uid-later", "driver", "default"), label=LABEL)

    play(story)


def test_of_two_that_write_at_the_same_moment_one_has_it() -> None:
    async def story(scene: Scene) -> None:
        answers: list[Answer] = await asyncio.gather(*(scene.process(f"n{number}").hold() for number in range(5)))
        assert [type(answer) for answer in answers].count(Held) == 1
        both = scene.process("n1"), scene.process("n1")
        scene.patch({"spec": {"holderIdentity": ""}})
        assert {type(answer) for answer in await asyncio.gather(*(each.hold() for each in both))} == {Held, TakenBy}

    play(story)


def test_what_somebody_has_changed_is_not_written_over_unread() -> None:
    async def story(scene: Scene) -> None:
        mine = scene.process()
        await mine.hold(record="a")
        scene.patch({"metadata": {"annotations": {KEY: "edited"}}})
        assert isinstance(await mine.hold(record="b", now=True), TakenBy)
        assert not mine.is_held
        assert await mine.hold() == Held("edited")

    play(story)


@pytest.mark.parametrize("error", [Forbidden("no such right", status=403), Unavailable("no answer")], ids=["forbidden", "no answer"])
def test_what_cannot_be_read_or_written_is_not_known_until_it_can(error: ApiError) -> None:
    async def story(scene: Scene) -> None:
        mine = scene.process()
        for verb in ("get", "create"):
            scene.refuse = lambda call, verb=verb: error if call.verb == verb else None  # type: ignore[misc]
            assert isinstance(await mine.hold(), NotKnown)
        scene.refuse = lambda _: None
        assert isinstance(await mine.hold(), Held)
        scene.refuse = lambda call: error if call.verb == "update" else None
        assert isinstance(await mine.hold(now=True), NotKnown)
        assert not mine.is_held

    play(story)


def test_one_that_was_made_without_an_answer_is_found_again() -> None:
    async def story(scene: Scene) -> None:
        mine = scene.process()
        scene.lose = lambda call: call.verb == "create"
        assert isinstance(await mine.hold(record="a"), NotKnown)
        scene.lose = lambda _: False
        assert await mine.hold() == Held("a")

    play(story)


def test_it_is_given_back_if_it_is_ours_whatever_was_written_into_it() -> None:
    async def story(scene: Scene) -> None:
        mine, theirs = scene.process(), scene.process("n2")
        await mine.give_back()
        await mine.hold()
        scene.patch({"metadata": {"annotations": {"example.com/note": "what is this?"}}})
        await mine.give_back()
        assert await theirs.hold() == Held("")
        await mine.give_back()
        assert await scene.process("n2").hold() == Held(""), "another's stays"

    play(story)


def test_one_that_could_not_be_given_back_is_given_back_later() -> None:
    async def story(scene: Scene) -> None:
        mine = scene.process()
        await mine.hold()
        scene.refuse = lambda call: Unavailable("no answer") if call.verb == "delete" else None
        with pytest.raises(Unavailable):
            await mine.give_back()
        scene.refuse = lambda _: None
        await mine.give_back()
        assert await scene.process("n2").hold() == Held("")

    play(story)
