"""Worlds in which upstream runs on some nodes, and one program takes over from the other: what upstream does wrong by itself is not held
against ours, and what ours does wrong is found there all the same."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from hack.sim.driver.faults import Fault
from hack.sim.world.invariants import LEAKED, UNWELL
from hack.sim.world.plan import Plan, PlannedEvent, plan_of
from hack.sim.world.plan_rolls import PLACEMENTS, Program
from hack.sim.world.upstream_excuses import made_second
from hack.sim.world.upstream_objects import MARK
from hack.sim.world.world import Report, World, play
from sidecar.model.objects import Json
from tests.world.mutations import MUTATIONS, Mutation

MOST = 100
LINGERS = Fault(method="CreateVolume", times=1, linger=6.0)
"""The volume is made at once, and the answer comes when its caller is gone."""
FOUND_IN_MIXED_WORLDS = (
    "a creation that was begun is not written down",
    "the object is removed before the volume",
    "volumes of other nodes are taken for ours",
)


def worlds() -> Iterator[Plan]:
    return (plan for plan in map(plan_of, range(MOST)) if "mixed" in plan.troubles)


def events(*rows: tuple[float, str, str] | tuple[float, str, str, str]) -> tuple[PlannedEvent, ...]:
    return tuple(PlannedEvent(row[0], row[1], row[2], 1, "".join(row[3:])) for row in rows)


def played(plan: Plan) -> tuple[Report, World]:
    seen: list[World] = []
    return play(plan, before=seen.append), seen[0]


def test_upstream_alone_serves_late_and_immediate_claims_and_deletes_their_volumes() -> None:
    made = [(float(number), "claim", f"data-{number}", ("late", "immediate")[number % 2]) for number in range(10)]
    gone = [(200.0 + number, "delete", f"data-{number}") for number in range(5)]
    report, world = played(Plan(1, ("n0", "n1", "n2"), events=events(*made, *gone), upstream=("n0", "n1", "n2")))
    assert report.ok, report
    assert sum(len(node.driver.volumes()) for node in world.nodes.values()) == 5
    assert all(node.runs is Program.UPSTREAM and node.sidecar is None for node in world.nodes.values())


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_upstream_that_ends_in_the_middle_leaves_a_volume_whose_claim_has_gone(how: str) -> None:
    """And ours, which takes over, cannot know of it."""
    rows = events((2.0, "claim", "data", "late"), (4.0, "swap", "n0", f"ours {how}"), (4.1, "delete", "data"))
    report, world = played(Plan(1, ("n0",), events=rows, upstream=("n0",), faults=(("n0", LINGERS),)))
    assert report.ok, report
    assert len(world.nodes["n0"].driver.volumes()) == 1


def test_what_ours_had_begun_waits_for_it_while_upstream_runs() -> None:
    begun = [(2.0, "claim", "data", "late"), (4.0, "swap", "n0", "upstream killed"), (4.1, "delete", "data")]
    plan = Plan(1, ("n0",), events=events(*begun), faults=(("n0", LINGERS),))
    report, world = played(plan)
    assert report.ok, report
    assert len(world.nodes["n0"].driver.volumes()) == 1
    report, world = played(Plan(1, ("n0",), events=events(*begun, (60.0, "swap", "n0", "ours stopped")), faults=plan.faults))
    assert report.ok, report
    assert world.nodes["n0"].driver.volumes() == ()


def test_no_excuse_covers_what_ours_forgets_where_upstream_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's life is over when ours begins the creation, and ours does not write it down."""
    rows = events((1.0, "swap", "n0", "ours stopped"), (20.0, "claim", "data", "late"), (22.0, "kill", "n0"), (22.1, "delete", "data"))
    plan = Plan(1, ("n0",), events=rows, upstream=("n0",), faults=(("n0", LINGERS),))
    assert play(plan).ok
    mutation("a creation that was begun is not written down").breaks(monkeypatch)
    assert LEAKED in play(plan).kinds


def renamed_while_its_driver_works(upstream: tuple[str, ...]) -> Plan:
    """The machine comes back under another name, with its disks and its folder. The claim stays with the name that nobody has any more."""
    rows = events((2.0, "claim", "data", "late"), (4.0, "node renamed", "n0", "n0-again"))
    return Plan(1, ("n0",), events=rows, upstream=upstream, faults=(("n0", LINGERS),))


def test_upstream_whose_machine_is_renamed_before_it_has_stored_a_volume_leaves_it() -> None:
    """Its claim is another node's business, and what had begun it is dead."""
    report, world = played(renamed_while_its_driver_works(("n0",)))
    assert report.ok, report
    assert len(world.nodes["n0-again"].driver.volumes()) == 1


def test_no_excuse_covers_what_ours_forgets_where_its_machine_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, as it is, has it in its journal still and tells people of it: what was made under another name only they may delete."""
    report, world = played(renamed_while_its_driver_works(()))
    assert report.ok, report
    (begun,) = world.nodes["n0-again"].folder.begun.values()
    assert "this node is called n0-again" in begun.suspect
    mutation("a creation that was begun is not written down").breaks(monkeypatch)
    assert LEAKED in play(renamed_while_its_driver_works(())).kinds


def test_no_excuse_covers_what_ours_forgets_on_a_machine_where_upstream_runs_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream, under the new name, has never had that volume in hand."""
    plan = renamed_while_its_driver_works(())
    swapped = replace(
        plan, events=events((2.0, "claim", "data", "late"), (3.0, "swap", "n0", "upstream killed"), (4.0, "node renamed", "n0", "n0-again"))
    )
    mutation("a creation that was begun is not written down").breaks(monkeypatch)
    report, world = played(swapped)
    assert world.nodes["n0-again"].runs is Program.UPSTREAM
    assert LEAKED in report.kinds


def volume(name: str, handle: str, *, by_upstream: bool) -> Json:
    notes = {MARK: ""} if by_upstream else {}
    return {"metadata": {"name": name, "annotations": notes}, "spec": {"claimRef": {"uid": "uid"}, "csi": {"volumeHandle": handle}}}


@pytest.mark.parametrize(("first", "second", "excused"), [("ours", "upstream", {"data-uid"}), ("upstream", "ours", set())])
def test_a_second_volume_under_another_name_is_excused_if_upstream_has_stored_it(first: str, second: str, excused: set[str]) -> None:
    order = ["h1", "h2"]
    world = SimpleNamespace(referee=SimpleNamespace(when_named=order.index))
    volumes = [volume("data-uid", "h2", by_upstream=second == "upstream"), volume("pvc-uid", "h1", by_upstream=first == "upstream")]
    assert made_second(cast(World, world), volumes) == excused


def test_an_upstream_that_is_dead_at_the_end_is_found() -> None:
    report = play(Plan(1, ("n0",), upstream=("n0",)), before=lambda world: world.nodes["n0"].lay_down())
    assert UNWELL in report.kinds


def mutation(name: str) -> Mutation:
    return next(each for each in MUTATIONS if each.name == name)


@pytest.mark.parametrize("name", FOUND_IN_MIXED_WORLDS)
def test_mixed_worlds_find_what_ours_does_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mutation(name).breaks(patch)
        found = next(plan for plan in worlds() if play(plan).kinds & mutation(name).kinds)
    assert play(found).ok


def test_every_placement_is_played_and_so_is_a_roll() -> None:
    plans = [plan_of(seed) for seed in range(40)]
    drawn = [frozenset(placement for _, placement in plan.placements) for plan in plans]
    assert {frozenset({name}) for name in PLACEMENTS} | {frozenset(PLACEMENTS)} == set(drawn)
    assert any(item.what == "placement" for plan in plans for item in plan.events)
