"""The simulated driver's accounts are exact, a crash changes nothing, and faults happen to calls as their script says.

What CSI asks for is held by csi-sanity, and real mounts by the kernel, in tests/contract_driver.
"""

import asyncio
import itertools
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from hack.sim.clock import run_virtual
from hack.sim.driver.calls import NO_FAULT, Fault, Faults, Reception, Record
from hack.sim.driver.local_driver import MIB, LocalDriver, Spec
from hack.sim.driver.state import read_state
from sidecar.csi.api import Capability, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError

POOLS = {"fast": 10 * MIB + 7, "slow": 100 * MIB}


def wanted(name: str = "pvc-1", required: int = MIB, **fields: Any) -> CreateRequest:
    writer = Capability("SINGLE_NODE_WRITER", fs_type="ext4")
    return CreateRequest(**{"name": name, "required_bytes": required, "capabilities": (writer,), **fields})


def refusal(act: Any, *args: Any, **kwargs: Any) -> Code:
    with pytest.raises(DriverError) as caught:
        act(*args, **kwargs)
    return caught.value.code


def local(*, state: Path | None = None, **options: Any) -> LocalDriver:
    return LocalDriver(Spec(**{"node_id": "node-a", "pools": POOLS, "topology": {"zone": "a"}, **options}), state=state)


# --- space, names and crashes -------------------------------------------------------------------------------------------


class Accounts(RuleBasedStateMachine):
    """Whatever is asked, in whatever order, with crashes in between: volumes plus free space are the pool."""

    names = Bundle("names")

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state"
        self.driver = local(state=self.path)
        self.known: dict[str, tuple[CreateRequest, CreatedVolume]] = {}
        self.ever: set[str] = set()
        self.numbers = itertools.count()

    @rule(target=names, size=st.integers(0, 40 * MIB), pool=st.sampled_from(["fast", "slow"]))
    def create(self, size: int, pool: str) -> str:
        request = wanted(f"pvc-{next(self.numbers)}", size, parameters={"pool": pool})
        free = self.driver.get_capacity(CapacityQuery({"pool": pool}))
        if max(size, 1) > (free.maximum or 0):
            assert refusal(self.driver.create, request) is Code.RESOURCE_EXHAUSTED
            return request.name
        volume = self.driver.create(request)
        assert size <= volume.capacity_bytes < size + MIB or (size == 0 and volume.capacity_bytes == MIB)
        assert volume.volume_id not in self.ever, "an id is never given twice"
        self.ever.add(volume.volume_id)
        self.known[request.name] = request, volume
        return request.name

    @rule(name=names)
    def create_again(self, name: str) -> None:
        if name in self.known:
            request, volume = self.known[name]
            assert self.driver.create(request) == volume
            larger = wanted(name, volume.capacity_bytes + 1, parameters=request.parameters)
            assert refusal(self.driver.create, larger) is Code.ALREADY_EXISTS

    @rule(name=consumes(names), times=st.integers(1, 2))
    def delete(self, name: str, times: int) -> None:
        if name in self.known:
            _request, volume = self.known.pop(name)
            for _ in range(times):
                self.driver.delete(volume.volume_id)

    @rule()
    def crash(self) -> None:
        """Nothing is said goodbye to: the next driver has the file alone."""
        before = self.driver.volumes()
        self.driver.close()
        self.driver = local(state=self.path)
        assert self.driver.volumes() == before

    @invariant()
    def accounts_are_exact(self) -> None:
        if not hasattr(self, "driver"):
            return
        known = {name: volume.volume_id for name, (_request, volume) in self.known.items()}
        assert {volume.name: volume.id for volume in self.driver.volumes()} == known
        assert read_state(self.path).volumes == {volume.id: volume for volume in self.driver.volumes()}
        for pool, size in POOLS.items():
            used = sum(volume.bytes for volume in self.driver.volumes() if volume.pool == pool)
            free = self.driver.get_capacity(CapacityQuery({"pool": pool})).available
            assert used + free == size and free >= 0

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.close()
            self.folder.cleanup()


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=40, stateful_step_count=20)


# --- what happens to one call, in virtual time --------------------------------------------------------------------------


class Stage:
    """A reception, and the effects that calls had, with their times."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.reception = Reception(record=Record(now=self.now))
        self.done: list[tuple[str, float]] = []

    async def call(self, name: str = "pvc-1", *, method: str = "CreateVolume", deadline: float | None = None) -> Code:
        try:
            async with asyncio.timeout(deadline):
                await self.reception.attend(method, name, request={}, act=lambda: self.done.append((name, self.now())))
        except DriverError as error:
            return error.code
        except TimeoutError:
            return Code.DEADLINE_EXCEEDED
        return Code.OK

    @property
    def codes(self) -> list[Code | None]:
        return [call.code for call in self.reception.record.calls]


def play(scene: Callable[[Stage], Awaitable[None]], *faults: Fault) -> None:
    async def main() -> None:
        stage = Stage()
        stage.reception.faults.set(faults)
        await scene(stage)
        await stage.reception.close()

    run_virtual(main())


def test_a_call_that_fails_has_no_effect_and_one_whose_answer_is_lost_has() -> None:
    async def scene(stage: Stage) -> None:
        assert [await stage.call() for _ in range(3)] == [Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.OK]
        assert (stage.done, stage.now()) == ([("pvc-1", 0.0), ("pvc-1", 3.0)], 3.0)
        assert stage.codes == [Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.OK]

    lost = Fault(method="CreateVolume", times=1, linger=3, lose=Code.DEADLINE_EXCEEDED)
    play(scene, Fault(method="CreateVolume", times=1, fail=Code.UNAVAILABLE), lost)


def test_a_delayed_call_is_done_although_its_caller_has_gone() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call(deadline=2) is Code.DEADLINE_EXCEEDED
        assert await stage.call() is Code.ABORTED, "the volume is busy"
        assert await stage.call("pvc-2", deadline=2) is Code.DEADLINE_EXCEEDED, "another volume is not"
        await asyncio.sleep(10)
        assert stage.done == [("pvc-1", 5.0), ("pvc-2", 7.0)]
        stage.reception.faults.set([])
        assert await stage.call() is Code.OK
        assert stage.codes == [Code.CANCELLED, Code.ABORTED, Code.CANCELLED, Code.OK]

    play(scene, Fault(method="CreateVolume", delay=5))


def test_a_hanging_call_is_taken_back_with_its_caller() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call(deadline=2) is Code.DEADLINE_EXCEEDED
        assert stage.done == []
        assert await stage.call() is Code.OK, "the volume is not busy any more"

    play(scene, Fault(method="CreateVolume", times=1, hang=float("inf")))


def test_a_script_of_faults_means_what_it_says() -> None:
    once, always = Fault(method="CreateVolume", names="pvc-*[0-7]", times=1, delay=1), Fault(method="CreateVolume", delay=2)
    faults = Faults()
    faults.set([once, always])
    assert [faults.take("DeleteVolume", "pvc-1"), faults.take("CreateVolume", "pvc-8")] == [NO_FAULT, always]
    assert [faults.take("CreateVolume", "pvc-1") for _ in range(3)] == [once, always, always]


def test_a_changed_file_replaces_the_script_and_its_counts(tmp_path: Path) -> None:
    file, told = tmp_path / "faults", list[str]()
    faults = Faults(file, complain=told.append)

    def write(text: str) -> None:
        file.with_name("draft").write_text(text)
        file.with_name("draft").replace(file)

    assert faults.take("CreateVolume") == NO_FAULT
    once = Fault(method="CreateVolume", times=1, fail=Code.ABORTED)
    for _ in range(2):
        write(json.dumps([{"method": "CreateVolume", "times": 1, "fail": "ABORTED"}]))
        assert [faults.take("CreateVolume") for _ in range(2)] == [once, NO_FAULT]
    write(json.dumps([{"method": "Probe", "delay": "9"}, {"method": "GetCapacity", "linger": "inf"}]))
    assert (faults.take("Probe").delay, faults.take("GetCapacity").linger) == (9, float("inf"))
    mistaken = ({"method": "*", "fail": "SLEEPY"}, {"method": "*", "hang": "soon"}, {"method": "*", "explode": 1}, {"fail": "ABORTED"})
    for broken in ('[{"method": "Crea', *(json.dumps([fault]) for fault in mistaken)):
        told.clear()
        write(broken)
        assert [faults.take("Probe").delay for _ in range(2)] == [9, 9], "what was said before stays"
        assert len(told) == 1
