"""The local driver's accounts are exact, its answers are the ones CSI asks for, and a crash changes nothing."""

import errno
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.spec import FEATURES, MIB, Spec
from hack.sim.driver.state import read_state
from sidecar.csi.api import Capability, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.model.topology import Segment
from tests.harness.driver.calls import WRITER, refusal, wanted

POOLS = {"fast": 10 * MIB + 7, "slow": 100 * MIB}
HERE, ELSEWHERE = Segment((("zone", "a"),)), Segment((("zone", "b"),))


def local(*, state: Path | None = None, **options: Any) -> LocalDriver:
    return LocalDriver(Spec(**{"node_id": "node-a", "pools": POOLS, "topology": {"zone": "a"}, **options}), state=state)


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

    @rule(name=names)
    def create_larger(self, name: str) -> None:
        if name in self.known:
            request, volume = self.known[name]
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
        assert {volume.name: volume.id for volume in self.driver.volumes()} == {
            name: volume.volume_id for name, (_request, volume) in self.known.items()
        }
        assert read_state(self.path).volumes == {volume.id: volume for volume in self.driver.volumes()}
        for pool, size in POOLS.items():
            used = sum(volume.bytes for volume in self.driver.volumes() if volume.pool == pool)
            free = self.driver.get_capacity(CapacityQuery({"pool": pool})).available
            assert used + free == size
            assert free >= 0

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.close()
            self.folder.cleanup()


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize(
    ("request_", "limit", "code"),
    [
        pytest.param(wanted(name=""), 0, Code.INVALID_ARGUMENT, id="no name"),
        pytest.param(wanted(name="x" * 129), 0, Code.INVALID_ARGUMENT, id="name too long"),
        pytest.param(wanted(capabilities=()), 0, Code.INVALID_ARGUMENT, id="no capabilities"),
        pytest.param(wanted(capabilities=(Capability("MULTI_NODE_MULTI_WRITER"),)), 0, Code.INVALID_ARGUMENT, id="for many nodes"),
        pytest.param(wanted(source_snapshot="snap"), 0, Code.INVALID_ARGUMENT, id="from a snapshot"),
        pytest.param(wanted(mutable_parameters={"iops": "1"}), 0, Code.INVALID_ARGUMENT, id="mutable parameters"),
        pytest.param(wanted(required=-1), 0, Code.INVALID_ARGUMENT, id="negative size"),
        pytest.param(wanted(required=MIB + 1), MIB + 2, Code.OUT_OF_RANGE, id="no whole unit within the limits"),
        pytest.param(wanted(required=51 * MIB), 0, Code.OUT_OF_RANGE, id="above the maximum"),
        pytest.param(wanted(required=1), MIB, Code.OUT_OF_RANGE, id="limit below the minimum"),
        pytest.param(wanted(required=11 * MIB), 0, Code.RESOURCE_EXHAUSTED, id="no room"),
        pytest.param(wanted(parameters={"pool": "none"}), 0, Code.RESOURCE_EXHAUSTED, id="no such pool on this node"),
        pytest.param(wanted(requisite=(ELSEWHERE,)), 0, Code.RESOURCE_EXHAUSTED, id="for another node"),
    ],
)
def test_refusals_leave_nothing_behind(request_: CreateRequest, limit: int, code: Code) -> None:
    driver = local(minimum=2 * MIB, maximum=50 * MIB)
    assert refusal(driver.create, request_, limit_bytes=limit) is code
    assert driver.volumes() == ()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"required": 2 * MIB}, id="size"),
        pytest.param({"parameters": {"pool": "slow"}}, id="parameters"),
        pytest.param({"capabilities": (Capability("SINGLE_NODE_WRITER", block=True),)}, id="capabilities"),
        pytest.param({"requisite": (ELSEWHERE,)}, id="topology"),
    ],
)
def test_a_name_stands_for_one_volume(other: dict[str, Any]) -> None:
    driver = local()
    first = driver.create(wanted())
    assert refusal(driver.create, wanted(**other)) is Code.ALREADY_EXISTS
    assert driver.create(wanted()) == first


def test_the_answer_names_the_own_topology_and_the_parameters_it_was_made_of() -> None:
    volume = local().create(wanted(parameters={"pool": "slow"}, requisite=(ELSEWHERE, HERE), preferred=(ELSEWHERE,)))
    assert (volume.topologies, volume.context, volume.has_source) == ((HERE,), {"pool": "slow"}, False)


def test_a_repetition_succeeds_on_a_full_node() -> None:
    driver = local(pools={"only": MIB})
    first = driver.create(wanted())
    assert refusal(driver.create, wanted("pvc-2")) is Code.RESOURCE_EXHAUSTED
    assert driver.create(wanted()) == first


def test_a_volume_in_use_is_not_deleted(tmp_path: Path) -> None:
    driver = local()
    volume = driver.create(wanted()).volume_id
    driver.publish(volume, str(tmp_path / "pod"), capability=WRITER)
    assert refusal(driver.delete, volume) is Code.FAILED_PRECONDITION
    driver.unpublish(volume, str(tmp_path / "pod"))
    driver.delete(volume)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("block", [False, True])
def test_publishing_is_idempotent_and_removes_only_its_own(tmp_path: Path, block: bool) -> None:
    driver, use = local(), Capability("SINGLE_NODE_WRITER", block=block)
    volume = driver.create(wanted(capabilities=(use,))).volume_id
    target, foreign = tmp_path / "pod", tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("data")
    for _ in range(2):
        driver.publish(volume, str(target), capability=use)
    assert refusal(driver.publish, volume, str(target), capability=use, readonly=True) is Code.ALREADY_EXISTS
    assert refusal(driver.publish, volume, str(foreign), capability=use) is Code.INTERNAL
    assert refusal(driver.unpublish, volume, str(foreign)) is Code.INTERNAL
    for _ in range(2):
        driver.unpublish(volume, str(target))
    assert [path.name for path in tmp_path.rglob("*")] == ["foreign", "precious"]


def test_a_single_writer_is_held_to_one_target(tmp_path: Path) -> None:
    driver, use = local(), Capability("SINGLE_NODE_SINGLE_WRITER")
    volume = driver.create(wanted(capabilities=(use,))).volume_id
    driver.publish(volume, str(tmp_path / "one"), capability=use)
    assert refusal(driver.publish, volume, str(tmp_path / "two"), capability=use) is Code.FAILED_PRECONDITION


def test_usage_counts_what_the_pod_wrote(tmp_path: Path) -> None:
    driver = local()
    volume = driver.create(wanted()).volume_id
    driver.publish(volume, str(tmp_path / "pod"), capability=WRITER)
    (tmp_path / "pod" / "file").write_bytes(b"12345")
    assert driver.stats(volume, str(tmp_path / "pod")) == (MIB, 5)
    assert refusal(driver.stats, volume, str(tmp_path / "other")) is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("query", "available", "maximum"),
    [
        pytest.param(CapacityQuery(), 10 * MIB + 7, 10 * MIB, id="the first pool, in whole units"),
        pytest.param(CapacityQuery({"pool": "slow"}, HERE), 100 * MIB, 50 * MIB, id="a named pool, up to the maximum size"),
        pytest.param(CapacityQuery({"pool": "none"}), 0, 0, id="no such pool"),
        pytest.param(CapacityQuery({}, ELSEWHERE), 0, 0, id="another node"),
        pytest.param(CapacityQuery({}, None, (Capability("MULTI_NODE_MULTI_WRITER"),)), 0, 0, id="a use it does not have"),
    ],
)
def test_capacity(query: CapacityQuery, available: int, maximum: int) -> None:
    answer = local(maximum=50 * MIB).get_capacity(query)
    assert (answer.available, answer.maximum, answer.minimum) == (available, maximum, MIB)


def test_a_page_token_holds_while_volumes_come_and_go() -> None:
    driver = local()
    ids = [driver.create(wanted(f"pvc-{number}")).volume_id for number in range(4)]
    first, token = driver.list_volumes(2)
    driver.delete(ids[1])
    ids.append(driver.create(wanted("pvc-late")).volume_id)
    rest, end = driver.list_volumes(0, token)
    assert [volume.volume_id for volume in (*first, *rest)] == ids
    assert end == ""
    assert refusal(driver.list_volumes, 0, "junk") is Code.ABORTED


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_what_is_switched_off_is_neither_claimed_nor_done(feature: str) -> None:
    driver = local(without=frozenset({feature}))
    assert FEATURES[feature] not in driver.info.plugin | driver.info.controller
    match feature:
        case "create" | "controller":
            assert refusal(driver.create, wanted()) is Code.UNIMPLEMENTED
        case "capacity":
            assert refusal(driver.get_capacity, CapacityQuery()) is Code.UNIMPLEMENTED
        case "list":
            assert refusal(driver.list_volumes) is Code.UNIMPLEMENTED
        case "topology":
            assert driver.info.segment == Segment()
            assert driver.create(wanted(requisite=(ELSEWHERE,))).topologies == ()
        case _:
            finely = wanted(capabilities=(Capability("SINGLE_NODE_MULTI_WRITER"),))
            assert refusal(driver.create, finely) is Code.INVALID_ARGUMENT


def test_a_shrunken_pool_has_no_room_and_keeps_its_volumes(tmp_path: Path) -> None:
    local(state=tmp_path / "state", pools={"only": 10 * MIB}).create(wanted(required=10 * MIB))
    smaller = local(state=tmp_path / "state", pools={"only": 5 * MIB})
    assert smaller.get_capacity(CapacityQuery()).available == 0
    assert len(smaller.volumes()) == 1


def test_the_state_of_another_node_is_refused(tmp_path: Path) -> None:
    local(state=tmp_path / "state").close()
    with pytest.raises(ValueError, match="node-a"):
        local(state=tmp_path / "state", node_id="node-b")


def test_a_state_that_cannot_be_written_is_no_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = local(state=tmp_path / "state")

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert refusal(driver.create, wanted()) is Code.INTERNAL
    monkeypatch.undo()
    assert driver.volumes() == ()
    assert read_state(tmp_path / "state").volumes == {}
    driver.create(wanted())
    driver.close()


def test_a_senseless_spec_is_refused_with_every_reason() -> None:
    with pytest.raises(ValueError, match=r"node id.*pool.*no such feature: wings"):
        Spec(node_id="", pools={}, without=frozenset({"wings"}))
