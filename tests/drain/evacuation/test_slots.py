"""Whose turn it is to be emptied, and how the Lease of a turn is taken, kept and given back."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, Cluster, InProcessApi
from hack.sim.cluster.reading import Query
from sidecar.drain import leases
from sidecar.drain.evacuation.slots import Contender, Decision, NoLimit, SlotsView, WaitFor, contenders, decide, selector
from sidecar.drain.evacuation.slots_io import SlotController
from sidecar.drain.leases import DURATION, Hold, Lease, NotWanted, Release, Renew, Take, Terms
from sidecar.drain.settings import Settings
from sidecar.kube.api import LEASES, NODES
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.samples import DRIVER, NOW, node, stamp

START = names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
STATE = names.of_driver(DRIVER, names.EVACUATION_STATE)
FIRST, SECOND = (names.evacuation_slot(index, DRIVER) for index in range(2))


def evacuated(name: str, state: str = "Pending", ago: float = 60.0) -> Node:
    return node(name, labels={STATE: state}, annotations={START: stamp(ago)})


def view(*nodes: Node, leases: tuple[Lease, ...] = (), **changes: Any) -> SlotsView:
    """As n1 sees it."""
    base = SlotsView(
        now=NOW,
        driver=DRIVER,
        node="n1",
        node_uid="uid-n1",
        namespace="storage",
        limit=1,
        wanted=True,
        leases=leases,
        contenders=contenders(nodes, DRIVER),
    )
    return replace(base, **changes)


def lease(of: str, name: str = FIRST, *, ago: float = 10.0, holder: str | None = None) -> Lease:
    held_by = f"uid-{of}/{DRIVER}" if holder is None else holder
    return Lease(name, f"uid-of-{name}", "7", held_by, of, f"uid-{of}", NOW - ago, float(DURATION))


def test_without_a_limit_no_slot_is_asked_for_and_one_that_was_taken_is_given_back() -> None:
    assert decide(view(limit=0)) == NoLimit()
    decision = decide(view(limit=0, leases=(lease("n1"),)))
    assert isinstance(decision, Release) and decision.name == FIRST


def test_a_node_that_needs_no_slot_gives_back_its_own_and_no_other() -> None:
    decision = decide(view(wanted=False, limit=2, leases=(lease("n2"), lease("n1", SECOND))))
    assert isinstance(decision, Release) and decision.name == SECOND
    assert decide(view(wanted=False, leases=(lease("n2"),))) == NotWanted()


def test_a_free_slot_is_taken_and_the_lease_goes_with_the_node() -> None:
    decision = decide(view(evacuated("n1")))
    assert isinstance(decision, Take) and not decision.replaces
    meta, spec = decision.body["metadata"], decision.body["spec"]
    assert meta["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}]
    assert (meta["name"], spec["holderIdentity"], spec["leaseDurationSeconds"]) == (FIRST, f"uid-n1/{DRIVER}", DURATION)
    assert timestamps.to_seconds(spec["renewTime"]) == NOW


def test_drain_F8_admission_is_by_progress_then_age_then_name() -> None:
    nodes = [
        evacuated("a", ago=5),
        evacuated("b", ago=50),
        evacuated("c", ago=50),
        evacuated("d", "InProgress", ago=1),
        evacuated("e", "Success", 99),
    ]
    assert [item.name for item in contenders(nodes, DRIVER)] == ["d", "b", "c", "a"]
    assert contenders(reversed(nodes), DRIVER) == contenders(nodes, DRIVER)


def test_a_node_that_is_not_first_waits_and_knows_for_whom() -> None:
    decision = decide(view(evacuated("n1"), evacuated("n2", ago=90), evacuated("n3", "InProgress", 99), leases=(lease("n3"),)))
    assert isinstance(decision, WaitFor)
    assert (decision.position, decision.holders, decision.ahead, decision.free) == (2, ("n3",), ("n2",), False)
    assert "n2" in decision.why and "n3" in decision.why


def test_a_slot_that_the_first_in_turn_does_not_take_goes_to_the_next_in_time() -> None:
    nodes = (evacuated("n1"), evacuated("n2", ago=90))
    waiting = decide(view(*nodes))
    assert isinstance(waiting, WaitFor) and waiting.free
    patience = waiting.until - NOW
    assert isinstance(decide(view(*nodes, free_for=patience - 1)), WaitFor)
    assert isinstance(decide(view(*nodes, free_for=patience)), Take)


def test_a_lease_that_has_run_out_is_replaced_where_it_stands() -> None:
    decision = decide(view(evacuated("n1"), leases=(lease("n9"),), unchanged_for={FIRST: DURATION}))
    assert isinstance(decision, Take) and decision.replaces
    assert decision.body["metadata"]["resourceVersion"] == "7"
    assert isinstance(decide(view(evacuated("n1"), leases=(lease("n9"),), unchanged_for={FIRST: DURATION - 1})), WaitFor)
    assert isinstance(decide(view(evacuated("n1"), leases=(lease("n9", holder=""),))), Take)


def test_how_long_this_process_saw_no_renewal_counts_and_not_the_clock_it_was_written_by() -> None:
    for ago in [DURATION + 300, -3600, -365 * 86400]:
        dated = lease("n9", ago=ago)
        assert isinstance(decide(view(evacuated("n1"), leases=(dated,), unchanged_for={FIRST: DURATION - 1})), WaitFor)
        assert isinstance(decide(view(evacuated("n1"), leases=(dated,), unchanged_for={FIRST: DURATION})), Take)


def test_a_former_machine_of_the_name_holds_nothing_of_this_one() -> None:
    former = lease("n1", holder=f"uid-of-the-former-n1/{DRIVER}")
    assert isinstance(decide(view(evacuated("n1"), leases=(former,))), WaitFor)
    assert decide(view(wanted=False, leases=(former,))) == NotWanted()


def test_a_slot_that_is_held_is_renewed_in_time() -> None:
    for ago, kind in [(0, Hold), (DURATION / 3 - 1, Hold), (DURATION / 3, Renew), (DURATION * 2, Renew), (-5, Renew)]:
        decision = decide(view(evacuated("n1", "InProgress"), leases=(lease("n1", ago=ago),)))
        assert isinstance(decision, kind)
        if isinstance(decision, Hold):
            assert isinstance(decide(view(evacuated("n1"), leases=(lease("n1", ago=ago),), now=decision.until)), Renew)


def test_leases_of_others_are_passed_over() -> None:
    for name in ["leader", names.evacuation_slot(0, f"more.{DRIVER}"), f"evacuation-slot-x.{DRIVER}", "evacuation-slot-0.b"]:
        assert isinstance(decide(view(evacuated("n1"), leases=(lease("n2", name),))), Take)
        assert decide(view(wanted=False, leases=(lease("n1", name),))) == NotWanted()


def test_a_slot_that_was_taken_is_read_again_and_found_by_the_selector() -> None:
    cluster = new_cluster(clock=lambda: NOW)
    uid = cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}).obj["metadata"]["uid"]
    taken = decide(view(replace(evacuated("n1"), uid=uid), node_uid=uid, namespace="default"))
    assert isinstance(taken, Take)
    body = cluster.create(LEASES, taken.body, namespace="default", strict=True).obj
    read = Lease.of(body)
    assert (read.name, read.node, read.renewed, read.duration) == (FIRST, "n1", NOW, float(DURATION))
    assert isinstance(decide(view(leases=(read,), node_uid=uid)), Hold)
    key, _, value = selector(DRIVER).partition("=")
    assert body["metadata"]["labels"][key] == value


@dataclass
class Table:
    """Nodes that play by the rule, one after the other, on leases that all of them see."""

    limit: int
    leases: dict[str, Lease] = field(default_factory=dict)

    def play(self, name: str, wanting: frozenset[str]) -> None:
        order = tuple(sorted(Contender(True, float(ord(item)), item, f"uid-{item}") for item in wanting))
        seen = SlotsView(
            now=NOW,
            driver=DRIVER,
            node=name,
            node_uid=f"uid-{name}",
            namespace="storage",
            limit=self.limit,
            wanted=name in wanting,
            leases=tuple(self.leases.values()),
            contenders=order,
        )
        match decide(seen):
            case Take(slot, body, _):
                assert slot not in self.leases
                self.leases[slot] = Lease.of(body)
            case Release(slot):
                del self.leases[slot]
            case _:
                pass


@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from("abcde"), st.frozensets(st.sampled_from("abcde"))), max_size=30))
def test_never_more_than_the_limit_and_in_the_end_the_first_in_order_have_the_slots(
    limit: int, moves: list[tuple[str, frozenset[str]]]
) -> None:
    table = Table(limit)
    for name, wanting in moves:
        table.play(name, wanting)
        assert len(table.leases) <= limit
    for name in "abcde" * 2:
        table.play(name, frozenset())
    assert table.leases == {}
    for name in "edcba" * 2:
        table.play(name, frozenset("abcde"))
    assert sorted(item.node for item in table.leases.values()) == list("abcde"[:limit])


# --- Slots are leases that are taken, kept and given back; somebody else's lease under a slot's name is left alone, and told ---


NAMESPACE = "default"


def slot_of(node: str, uid: str, name: str = FIRST) -> Terms:
    """As the sidecar of that node takes it."""
    return Terms(name, NAMESPACE, {names.SLOT_FOR: DRIVER}, node, uid, leases.identity(uid, DRIVER))


CLOCK = 1_000.0 - NOW
"""The monotonic clock began some time ago."""


@dataclass
class Scene:
    """One process on node n1 of a small cluster. `meanwhile` is called ahead of each of its requests."""

    limit: int = 1
    now: float = NOW
    jump: float = 0.0
    """By how much the node's wall clock is wrong."""
    meanwhile: Callable[[Call], None] = lambda _: None
    cluster: Cluster = field(init=False)
    controller: SlotController = field(init=False)

    def __post_init__(self) -> None:
        async def before(call: Call) -> None:
            self.meanwhile(call)

        self.cluster = new_cluster(clock=lambda: self.now)
        settings = Settings(node="n1", driver=DRIVER, namespace=NAMESPACE, agent="sidecar", limit=self.limit)
        self.controller = SlotController(
            InProcessApi(self.cluster, before=before), settings, clock=lambda: self.now + CLOCK, wall=lambda: self.now + self.jump
        )
        self.evacuated("n1")

    def evacuated(self, name: str, ago: float = 60.0) -> None:
        meta = {"name": name, "labels": {STATE: "Pending"}, "annotations": {START: stamp(ago)}}
        self.cluster.create(NODES, {"metadata": meta})

    def step(self, *, wanted: bool = True) -> Decision:
        node = Node.of(self.cluster.get(NODES, "n1").obj)
        found: list[Decision] = []

        async def take() -> None:
            found.append(await self.controller.step(node, wanted=wanted))

        run_virtual(take())
        return found[0]

    def foreign(self, name: str = FIRST, **labels: str) -> Json:
        """A lease of somebody else, which has long run out."""
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": "them", "leaseDurationSeconds": 1}}
        return self.cluster.create(LEASES, body, namespace=NAMESPACE).obj

    def taken_by(self, name: str, slot: str = FIRST) -> None:
        """As the sidecar of that node takes it."""
        self.cluster.create(LEASES, leases.body(slot_of(name, f"uid-{name}", slot), now=self.now), namespace=NAMESPACE)

    def stored(self, name: str) -> Json:
        return self.cluster.get(LEASES, name, namespace=NAMESPACE).obj

    def deleted(self, name: str) -> None:
        self.cluster.delete(LEASES, name, namespace=NAMESPACE)


def once(verb: str, act: Callable[[], Any]) -> Callable[[Call], None]:
    """Acts ahead of the first such request about a lease."""
    done: list[Call] = []

    def meanwhile(call: Call) -> None:
        if (call.verb, call.resource) == (verb, LEASES) and not done:
            done.append(call)
            act()

    return meanwhile


def test_a_slot_is_taken_held_and_given_back() -> None:
    scene = Scene()
    decision = scene.step()
    assert isinstance(decision, Hold) and decision.name == FIRST
    assert scene.step(wanted=False) == NotWanted()
    assert not scene.cluster.list(LEASES, Query()).items


def test_a_foreign_lease_of_a_slots_name_is_left_alone_and_told() -> None:
    for labels in [{}, {names.SLOT_FOR: "other.example.com"}]:
        scene = Scene()
        before = scene.foreign(**labels)
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                scene.step()
            for word in (f"{NAMESPACE}/{FIRST}", "not ours", f"{names.SLOT_FOR}={DRIVER}", "delete it", "--max-concurrent-evacuations"):
                assert word in str(caught.value)
        assert scene.stored(FIRST) == before
        assert not scene.controller.maybe_held


def test_another_node_that_was_faster_is_not_taken_for_a_foreign_lease() -> None:
    scene = Scene()
    scene.meanwhile = once("create", lambda: scene.taken_by("n2"))
    decision = scene.step()
    assert isinstance(decision, WaitFor) and decision.holders == ("n2",)
    scene.deleted(FIRST)
    assert isinstance(scene.step(), Hold)


def unlimited(seen: list[Call], refusal: ApiError | None = None) -> Scene:
    """A process without a limit, on a node that has a slot from one with a limit."""

    def meanwhile(call: Call) -> None:
        if call.resource == LEASES:
            seen.append(call)
            if refusal is not None:
                raise refusal

    scene = Scene(limit=0, meanwhile=meanwhile)
    uid = scene.cluster.get(NODES, "n1").obj["metadata"]["uid"]
    scene.cluster.create(LEASES, leases.body(slot_of("n1", uid), now=scene.now), namespace=NAMESPACE)
    return scene


def test_without_a_limit_a_former_slot_is_given_back_and_then_nothing_is_asked() -> None:
    seen: list[Call] = []
    scene = unlimited(seen)
    assert scene.step() == NoLimit()
    assert not scene.cluster.list(LEASES, Query()).items and not scene.controller.maybe_held
    seen.clear()
    assert scene.step() == NoLimit() and seen == []


def test_without_a_limit_nobody_is_held_up_by_a_slot_that_cannot_be_given_back() -> None:
    for refusal, asks_again in [(Forbidden("cannot list leases", status=403), False), (Unavailable("overloaded", status=503), True)]:
        seen: list[Call] = []
        scene = unlimited(seen, refusal)
        assert scene.step() == NoLimit() and len(seen) == 1
        assert scene.step() == NoLimit() and len(seen) == 1 + asks_again


def test_a_second_slot_is_given_back() -> None:
    decision = decide(view(evacuated("n1"), limit=2, leases=(lease("n1", SECOND), lease("n1", FIRST))))
    assert isinstance(decision, Release) and decision.name == SECOND


def test_the_next_slot_is_taken_instead_and_no_more_than_the_limit() -> None:
    scene = Scene(limit=2)
    before = scene.foreign()
    decision = scene.step()
    assert isinstance(decision, Hold) and decision.name == SECOND
    assert scene.stored(FIRST) == before
    narrowed = Scene(limit=2)
    narrowed.foreign()
    narrowed.taken_by("n2", SECOND)
    with pytest.raises(ApiError, match=FIRST):
        narrowed.step()


def test_more_foreign_leases_than_steps_keep_nobody_from_the_slot_behind_them() -> None:
    scene = Scene(limit=7)
    for index in range(6):
        scene.foreign(names.evacuation_slot(index, DRIVER))
    scene.step()
    decision = scene.step()
    assert isinstance(decision, Hold) and decision.name == names.evacuation_slot(6, DRIVER)
