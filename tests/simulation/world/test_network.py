import asyncio
import random
import statistics

import pytest

from hack.sim.clock import run_virtual
from hack.sim.world.network import Broken, Latency, Network, Stream, Weather


def network(**weather: object) -> Network:
    return Network(random.Random(1), Weather(**weather))  # type: ignore[arg-type]


def test_latency_has_its_median_and_an_end():
    rng = random.Random(1)
    drawn = [Latency(0.01, 0.2).draw(rng) for _ in range(5000)]
    assert statistics.median(drawn) == pytest.approx(0.01, rel=0.1)
    assert statistics.quantiles(drawn, n=100)[-1] == pytest.approx(0.2, rel=0.25)
    assert max(drawn) == pytest.approx(0.6)
    assert Latency(0.0, 0.0).draw(rng) == 0.0


def test_a_stream_gives_items_in_order_each_at_its_time():
    async def main() -> list[tuple[float, str]]:
        loop, stream = asyncio.get_running_loop(), Stream[str]()
        stream.put("late", 5.0)
        stream.put("overtakes nobody", 1.0)
        loop.call_later(8.0, lambda: stream.put("later", 9.0))
        return [(loop.time(), item) for item in [await stream.next() for _ in range(2)]] + [(loop.time(), await stream.next())]

    assert [item for _, item in run_virtual(main())] == ["late", "overtakes nobody", "later"]


def test_a_break_is_felt_at_once_whatever_is_on_its_way():
    async def main() -> float:
        loop, stream = asyncio.get_running_loop(), Stream[str]()
        stream.put("never heard", 100.0)
        loop.call_later(2.0, stream.break_off)
        with pytest.raises(Broken):
            await stream.next()
        return loop.time()

    assert run_virtual(main()) == 2.0


def test_an_outage_breaks_what_is_open_and_only_there():
    net = network()
    with net.stream("n0") as here, net.stream("n1") as there:
        net.take_down("n0")

        async def main() -> None:
            with pytest.raises(Broken):
                await here.next()
            there.put("still there", 0.0)
            assert await there.next() == "still there"

        run_virtual(main())
    assert (net.up("n0"), net.up("n1")) == (False, True)
    net.bring_up("n0")
    assert net.up("n0")


def test_each_watch_of_a_lagging_node_lags_by_a_part_of_its_own():
    net = network(watch=Latency(0.0, 0.0))
    net.local_delay("n0", 10.0)
    claims, volumes = net.watch_delay("n0", "claims"), net.watch_delay("n0", "volumes")
    assert 0.0 < claims < 10.0 and 0.0 < volumes < 10.0 and claims != volumes
    assert net.watch_delay("n0", "claims") == claims
    assert net.watch_delay("n1", "claims") == 0.0
    net.local_delay("n0", 0.0)
    assert net.watch_delay("n0", "claims") == 0.0


def test_a_write_may_stray():
    assert network(straying=1.0).write_delay() > 5.0
    assert network().write_delay() < 1.0
