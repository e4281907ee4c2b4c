"""Whose turn it is to be emptied, and when the Lease of a turn is taken, kept and given back."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.evacuation.slots import Contender, SlotsView, WaitFor, contenders, decide
from sidecar.drain.leases import DURATION, Hold, Lease, NotWanted, Release, Renew, Take
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
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
