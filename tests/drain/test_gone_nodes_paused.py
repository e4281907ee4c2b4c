"""A process that clears up is stopped for a while, or its answers come late: what it was told before is not what it acts on."""

import asyncio
from collections.abc import Callable
from typing import Any

from hack.sim.cluster import Call
from sidecar.kube.api import CLAIMS, CSI_NODES, LEASES, NODES, PODS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.errors import NotFound
from tests.harness.drain.simulated import Story, wait
from tests.harness.gone_nodes import CLEANING, Watchman, announce, holder, one_replica, play, there, told, vanish


class Pause:
    """Once, while it is judged for the last time whether a claim that is marked is deleted: the process does not go on until that many
    seconds later. Meanwhile n0 registers, as a kubelet does first: its CSINode comes once a driver has registered."""

    def __init__(self, bench: Story, what: tuple[str, Resource], seconds: float, *, registers: bool = True) -> None:
        self._bench, self._api, self._what, self._seconds, self._registers = bench, bench.api, what, seconds, registers
        self._marked = self._armed = self.done = False
        self._before, self._ask = self._api.before, self._api.ask

    def on_the_way(self) -> None:
        """Before the server has the request."""

        async def before(call: Call) -> None:
            await self._notice(call)
            if (call.verb, call.resource) == self._what:
                await self._take()

        self._api.before = before

    def on_the_way_back(self) -> None:
        """The server has said that there is no such thing, and nobody has read that yet."""

        async def ask(call: Call, act: Callable[[], Any]) -> Any:
            try:
                return await self._ask(call, act)
            except NotFound:
                if (call.verb, call.resource) == self._what and call.name == "n0":
                    await self._take()
                raise

        self._api.ask = ask  # type: ignore[method-assign]
        self._api.before = self._notice

    async def _take(self) -> None:
        if not self._armed or self.done:
            return
        self.done = True
        await asyncio.sleep(0.5)
        if self._registers:
            self._bench.cluster.create(NODES, {"metadata": {"name": "n0"}, "spec": {}}, namespace="")
        await asyncio.sleep(self._seconds)

    async def _notice(self, call: Call) -> None:
        await self._before(call)
        self._armed = self._armed or (self._marked and (call.verb, call.resource) == ("get", VOLUMES))
        self._marked = self._marked or (call.verb, call.resource) == ("patch", CLAIMS)


async def about_to_lose(bench: Story) -> None:
    await one_replica(bench)
    await announce(bench)
    await vanish(bench)


READS = [("get", VOLUMES), ("list", CLAIMS), ("list", PODS), ("list", STATEFUL_SETS), ("get", NODES), ("get", CSI_NODES)]


def paused(what: tuple[str, Resource], seconds: float, *, back: bool) -> list[str]:
    """The claims that are left. `back`: the answer is late, and not the request."""
    left: list[str] = []

    async def story(bench: Story) -> None:
        await about_to_lose(bench)
        pause = Pause(bench, what, seconds)
        if back:
            pause.on_the_way_back()
        else:
            pause.on_the_way()
        await wait(bench, 300 + seconds)
        assert pause.done
        left.extend(await there(bench, CLAIMS))

    play(story, args=CLEANING)
    return left


def test_G1_a_node_that_is_back_while_its_claim_is_judged_keeps_it() -> None:
    for what, seconds in [*((what, 1.0) for what in READS), (("list", PODS), 1800.0)]:
        assert paused(what, seconds, back=False) == ["data-db-0"]


def test_an_answer_that_is_read_too_late_counts_no_more() -> None:
    for what, seconds in [(("get", NODES), 30.0), (("get", CSI_NODES), 30.0), (("get", NODES), 1800.0)]:
        assert paused(what, seconds, back=True) == ["data-db-0"]


def test_one_that_goes_on_after_another_has_taken_its_turn_does_nothing_twice() -> None:
    """Both believe to have the turn for a moment."""

    def case(what: tuple[str, Resource]) -> None:
        seen = Watchman()

        async def story(bench: Story) -> None:
            await about_to_lose(bench)
            pause = Pause(bench, what, 1800.0, registers=False)
            pause.on_the_way()
            await wait(bench, 2600)
            assert pause.done
            volume, claim = sorted(await told(bench), reverse=True)
            assert (claim, volume[:4]) == ("data-db-0", "pvc-")
            assert await there(bench, CLAIMS) == await there(bench, VOLUMES) == []
            assert await holder(bench)

        play(story, seen, args=CLEANING)
        assert len(seen.of("delete", CLAIMS)) <= 2, "one of them refused, for it is not what was judged"

    for what in [("list", PODS), ("get", NODES), ("delete", CLAIMS), ("update", LEASES)]:
        case(what)
