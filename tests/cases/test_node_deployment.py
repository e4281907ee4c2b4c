"""Node deployment: what one instance does in the race. The rule alone is tested where it is; here what is done on its word.

N21 (a polling tick) does not apply: nothing polls.
"""

import asyncio
from typing import Any

from sidecar.csi.api import CapacityAnswer, CapacityQuery
from sidecar.csi.outcome import Code, DriverError
from sidecar.provisioning.findings import NOTHING_FOUND
from sidecar.provisioning.progress import NOT_BEGUN, race_of
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, Bench, immediate


def won_by(bench: Bench, node: str) -> None:
    bench.see(claim=samples.claim(selected=node, meta={"resourceVersion": "8"}))


def test_N14_N20_the_count_of_delays_goes_when_the_claim_is_deleted_or_claimed() -> None:
    for how in ["deleted", "claimed by us", "claimed by another"]:
        bench = immediate(driver=ScriptedDriver(capacities=[CapacityAnswer(99)]))
        bench.claim()
        bench.now = 110.0
        bench.claim()
        race = race_of(bench.table.progress(UID))
        assert race is not None and race.attempt == 1, "kept while capacity is short"
        if how == "deleted":
            bench.forget_claim()
        else:
            won_by(bench, "bar" if how == "claimed by another" else "foo")
        bench.claim()
        assert race_of(bench.table.progress(UID)) is None
        if how == "claimed by another":
            kept = (bench.table.progress(UID), bench.table.findings(UID))
            assert kept == (NOT_BEGUN, NOTHING_FOUND) and bench.claim() is None, "a later race for a claim of that uid would begin anew"


def test_N28_a_driver_without_topology_is_raced_for_too() -> None:
    bench = immediate(driver=ScriptedDriver(info=samples.info(topology=False)))
    bench.now = bench.claim() or 0.0
    bench.claim()
    asked = [query for method, query in bench.driver.asked if method == "capacity"]
    assert [query.segment for query in asked] == [None]
    assert len(bench.kube.wrote("replace")) == 1


def test_N29_a_driver_that_hangs_is_waited_for_no_longer_than_one_call_may_take() -> None:
    """The deadline of the call is the driver door's, for GetCapacity as for every other; here it has passed."""
    bench = immediate()

    async def hangs(_: CapacityQuery) -> CapacityAnswer:
        raise DriverError(Code.DEADLINE_EXCEEDED, "GetCapacity: no answer within 10 s")

    bench.driver.get_capacity = hangs  # type: ignore[method-assign]
    bench.now = bench.claim() or 0.0
    bench.claim()
    assert len(bench.kube.wrote("replace")) == 1, "somebody must own it, so that its user sees the failure"


def test_N26_claims_that_wait_hold_no_worker() -> None:
    """200 of them race with long delays; a late claim for this node is created in the same breath."""
    bench = Bench().see(class_=samples.class_(volumeBindingMode="Immediate"))
    for number in range(200):
        bench.see(claim=samples.claim(meta={"uid": f"uid-{number}", "name": f"claim-{number}"}))

    async def look(uid: str) -> Any:
        return await bench.room.handle_claim(uid)

    async def all_looks() -> None:
        assert all(until is not None and until > bench.now for until in [await look(f"uid-{number}") for number in range(200)])
        bench.see(claim=samples.claim(selected="foo"))
        await look(UID)

    asyncio.run(all_looks())
    assert bench.driver.count("create") == 1
