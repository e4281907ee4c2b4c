import asyncio

from hack.sim.clock import run_virtual
from sidecar.observe.turns import Turns


class Costly:
    """What takes a while, on a clock that it moves by itself."""

    def __init__(self, seconds: float) -> None:
        self.turns = Turns()
        self.made: list[tuple[str, float]] = []
        self._seconds = seconds
        self._spent = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + self._spent  # type: ignore[method-assign]

    def make(self, who: str) -> None:
        self.made.append((who, asyncio.get_running_loop().time()))
        self._spent += self._seconds


def test_each_in_the_order_of_coming_with_pauses_between() -> None:
    async def main() -> list[tuple[str, float]]:
        costly = Costly(1.0)
        began = asyncio.get_running_loop().time()
        for who in "abc":
            costly.turns.wait(who, lambda who=who: costly.make(who))  # type: ignore[misc]
        costly.turns.forget("b")
        await asyncio.sleep(20)
        costly.turns.wait("d", lambda: costly.make("d"))
        await asyncio.sleep(1)
        return [(who, at - began) for who, at in costly.made]

    order = run_virtual(main())
    assert [who for who, _ in order] == ["a", "c", "d"]
    assert order[0][1] == 0.0
    assert order[1][1] >= 4.0, "three quarters of the time are for others"
    assert order[2][1] == 22.0, "who comes later does not wait"


def test_one_that_fails_costs_the_others_nothing() -> None:
    async def main() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        turns, made = Turns(), []
        turns.wait("a", lambda: 1 // 0)  # type: ignore[arg-type,return-value]
        turns.wait("b", lambda: made.append("b"))
        await asyncio.sleep(1)
        return made

    assert run_virtual(main()) == ["b"]
