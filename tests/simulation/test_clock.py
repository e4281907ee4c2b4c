import asyncio
import itertools
import math

import pytest

from hack.sim.clock import Deadlock, Runaway, run_virtual


def test_a_deadlock_says_who_waits_and_where():
    async def main() -> None:
        asyncio.current_task().set_name("the sleeper")
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"at 0 s .* the sleeper at .*:\d+"):
        run_virtual(main())


def test_what_never_ends_is_given_up():
    async def ticks() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1.0)

    with pytest.raises(Runaway, match="past the limit of 60 s"):
        run_virtual(ticks(), limit=60.0)


def test_time_that_stands_still_is_noticed(monkeypatch):
    monkeypatch.setattr("hack.sim.clock.MAX_ROUNDS_PER_INSTANT", 100)

    async def spins() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Runaway, match="stands still at 0 s"):
        run_virtual(spins())


def test_a_seed_draws_the_order_and_always_the_same():
    orders = {tuple(order(seed=seed)) for seed in range(10)}
    assert len(orders) > 5
    assert all(sorted(each) == list(range(8)) for each in orders)
    assert order(seed=3) == order(seed=3)
    assert order(seed=None) == list(range(8)), "first come, first served"


def order(*, seed: int | None) -> list[int]:
    ran: list[int] = []

    async def step(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        await asyncio.gather(*(step(number) for number in range(8)))

    run_virtual(main(), seed=seed)
    return ran


def test_sets_of_tasks_are_walked_by_their_numbers():
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(1.0), name=str(number)) for number in range(20)]
        return [task.get_name() for task in set(tasks)]

    assert run_virtual(main()) == run_virtual(main())


def test_nobody_is_woken_a_hair_before_its_time() -> None:
    """While others are ready, the clock stands still. Whoever then looks at it again and again would never see it move."""

    async def waits_for(at: float, turns: int) -> int:
        loop, woken = asyncio.get_running_loop(), 0
        for _ in range(turns):
            await asyncio.sleep(0)
        while loop.time() < at:
            wake = asyncio.Event()
            loop.call_at(at, wake.set)
            await wake.wait()
            woken += 1
        return woken

    async def main() -> list[int]:
        await asyncio.sleep(72.32)
        at = asyncio.get_running_loop().time()
        return list(await asyncio.gather(*[waits_for(math.nextafter(at, math.inf), turns) for turns in range(3)]))

    assert run_virtual(main()) == [1, 1, 1]
