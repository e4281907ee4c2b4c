"""Nodes that watch claims by label, by seed: the policy is late, missing, edited or removed, labels lie, machines come and go while few
nodes hear of each claim, programs and scopes are rolled to and fro, and no claim is lost.

`hack/fire --worlds labelled` plays any number of them. By day 24 seeds are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 500.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hack.sim.world.invariants import LOST, RESTLESS
from hack.sim.world.label_events import GONE, IN_FORCE
from hack.sim.world.labelled_world import plan_of, play
from hack.sim.world.node import csi_node
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.plan_roster import TROUBLES
from hack.sim.world.world import World
from sidecar.capacity import gone_nodes_io
from sidecar.capacity.gone_nodes import Suspects
from sidecar.kube.api import CSI_NODES
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.local import claim_hearing_io
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.claim_labels import heard_claims
from sidecar.local.left_claims_io import LeftClaims
from sidecar.model.names import SHARDS
from tests.harness.seeds import ALL_SEEDS

QUICK = 8
ALL = 500 if ALL_SEEDS else 24
CHUNK = 4
MOST = 60
NODES = ("n0", "n1")

Patch = pytest.MonkeyPatch


def assert_all_hold(seeds: range) -> None:
    failed = [report for seed in seeds if not (report := play(plan_of(seed))).ok]
    assert not failed, "\n" + "\n".join(map(str, failed))


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_the_first_seeds(first: int):
    assert_all_hold(range(first, first + CHUNK))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, CHUNK))
def test_the_other_seeds(first: int):
    assert_all_hold(range(first, first + CHUNK))


def test_a_claim_that_another_node_s_label_hides_is_found() -> None:
    """208: it was given back and taken by another node while the policy was away, and the node of its label ran upstream's program."""
    report = play(plan_of(208, without=TROUBLES))
    assert report.ok, report


def a_world(*events: PlannedEvent, settle: float = 800.0) -> Plan:
    return Plan(1, NODES, events=(PlannedEvent(0.0, IN_FORCE), *events), by_label=NODES, settle=settle, rest=60.0)


def claim(at: float, name: str, class_: str) -> PlannedEvent:
    return PlannedEvent(at, "claim", name, 1, class_)


QUIET = a_world(claim(5.0, "late", "late"), claim(6.0, "open", "immediate"), settle=120.0)
# The policy goes while this claim waits for its pod to be scheduled, and nobody makes another one.
GOES = a_world(
    PlannedEvent(4.0, "class away", "late"), claim(5.0, "late", "late"), PlannedEvent(10.0, GONE), PlannedEvent(20.0, "class back", "late")
)
# The same, and another claim shows it to all.
SHOWN = a_world(
    *GOES.events[1:3], PlannedEvent(10.0, GONE), PlannedEvent(10.1, "class back", "late"), claim(12.0, "open", "immediate"), settle=120.0
)
COMES_LATE = a_world(PlannedEvent(1.0, GONE), claim(5.0, "late", "late"), claim(6.0, "open", "immediate"), settle=120.0)
# Nodes go over to all claims, because of the first one, while others are made.
WIDENS = a_world(PlannedEvent(4.0, GONE), *(claim(5.0 + 0.5 * number, f"late-{number}", "late") for number in range(16)), settle=120.0)


@pytest.mark.parametrize("plan", [QUIET, GOES, SHOWN, COMES_LATE, WIDENS], ids=["quiet", "goes", "shown", "comes late", "widens"])
def test_every_claim_is_bound(plan: Plan):
    report = play(plan)
    assert report.ok, report


def test_a_failing_world_says_how_to_see_it_again():
    report = play(QUIET, before=lambda world: world.found("leaked", "on purpose"))
    assert str(report) == "hack/fire --worlds labelled --seed 1\nleaked: on purpose"


def with_looks(patch: Patch, *, every: float) -> None:
    """For what gone nodes have left, from the time of rest on."""
    patch.setattr(gone_nodes_io, "first_pause", lambda node: 130.0 if node == "n0" else math.inf)
    patch.setattr(gone_nodes_io, "share_of", lambda node: 0.0)
    patch.setattr(gone_nodes_io, "pause", lambda nodes, **_: every)


GOES_FOR_GOOD = a_world(*(PlannedEvent(5.0, "node joins", f"m{number}", detail="labelled") for number in range(3)), settle=100.0)
GOES_FOR_GOOD = replace(
    GOES_FOR_GOOD, events=(*GOES_FOR_GOOD.events, *(PlannedEvent(20.0, "node leaves", f"m{number}") for number in range(3)))
)


def test_one_look_for_gone_nodes_may_fall_into_the_time_of_rest(monkeypatch: Patch):
    with_looks(monkeypatch, every=1000.0)
    report = play(GOES_FOR_GOOD)
    assert report.ok, report
    assert report.transcript.count("n0         delete csistoragecapacities") == 3 * 2


def test_looks_that_ask_for_ever_about_the_same_nodes_are_found(monkeypatch: Patch):
    """A Node without a driver is suspect in every world."""
    with_looks(monkeypatch, every=30.0)
    plan = replace(GOES_FOR_GOOD, rest=300.0)
    assert play(plan).ok
    monkeypatch.setattr(Suspects, "stays", lambda self, node, why: None)
    assert RESTLESS in play(plan).kinds


def _no_list_of_what_waits(patch: Patch) -> None:
    async def look(self: ClaimHearing, claims: object) -> None:
        """It finds nothing."""

    patch.setattr(ClaimHearing, "_look_at_waiting", look)


def _no_watch_of_what_has_no_label(patch: Patch) -> None:
    patch.setattr(claim_hearing_io, "heard_claims", lambda node, shards: heard_claims(node, shards)[:1])


def _no_list_at_all(patch: Patch) -> None:
    _no_list_of_what_waits(patch)
    patch.setattr(ClaimHearing, "_look_at_others", ClaimHearing._look_at_waiting)


def _nobody_looks_for_what_is_left(patch: Patch) -> None:
    async def look(self: LeftClaims, others: object) -> None:
        """It finds nothing."""

    patch.setattr(LeftClaims, "look", look)


def _labels_are_believed(patch: Patch) -> None:
    patch.setattr(claim_hearing_io, "why_wrong", lambda obj, **_: "")


def _without_list_of_all(patch: Patch) -> None:
    """It would find later what a watch has missed."""
    patch.setattr(claim_hearing_io, "WholeList", lambda _, share: SimpleNamespace(share=share, due=lambda _: math.inf))


def _gap_at_a_change(patch: Patch) -> None:
    """What is listed when selectors change is not taken in; only what the new watch brings."""
    real = ChangingReflector.told

    def told(self, part, change):  # type: ignore[no-untyped-def]
        is_listing = bool(self._current) and part not in [self._open[selector].part for selector in self._current]
        return frozenset() if is_listing and change.old is None else real(self, part, change)

    patch.setattr(ChangingReflector, "told", told)


def ranked(plan: Plan) -> Plan:
    """All nodes know the contenders and watch by label; each shard is heard by one of them, although there are few."""
    events = tuple(item for item in plan.events if item.what not in ("placement", "scope"))
    return replace(plan, events=events, by_label=plan.nodes, placements=tuple((node, "ranked") for node in plan.nodes), listeners=1)


def with_ghosts(world: World) -> None:
    """Machines whose driver was registered, and that are not there any more: nobody lives who hears of most shards."""

    async def register() -> None:
        for number in range(10):
            await world.api.create(CSI_NODES, csi_node(f"ghost-{number}"))

    world.spawn("ghosts", register())


HAUNTED = ranked(a_world(*(claim(30.0 + number, f"open-{number}", "immediate") for number in range(8)), settle=400.0))


@pytest.mark.parametrize("seed", range(4))
def test_open_claims_are_shared_out(seed: int):
    report = play(ranked(plan_of(seed)))
    assert report.ok, report


def test_what_nobody_alive_hears_of_is_found_by_others(monkeypatch: Patch):
    report = play(HAUNTED, before=with_ghosts)
    assert report.ok, report
    _nobody_looks_for_what_is_left(monkeypatch)
    assert LOST in play(HAUNTED, before=with_ghosts).kinds


@pytest.mark.parametrize(
    ("breaks", "plan"),
    [
        pytest.param(_no_list_of_what_waits, GOES, id="what waits is never listed"),
        pytest.param(_no_watch_of_what_has_no_label, COMES_LATE, id="what has no label is not watched"),
        pytest.param(_labels_are_believed, GOES, id="labels are believed"),
        pytest.param(_gap_at_a_change, SHOWN, id="a gap where selectors change"),
    ],
)
def test_what_is_broken_loses_claims(breaks: Callable[[Patch], None], plan: Plan, monkeypatch: Patch):
    _without_list_of_all(monkeypatch)
    breaks(monkeypatch)
    assert LOST in play(plan).kinds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breaks", "found_before", "without"),
    [
        pytest.param(_no_list_at_all, 254, tuple(TROUBLES), id="claims are never listed"),
        pytest.param(_no_watch_of_what_has_no_label, 1, (), id="what has no label is not watched"),
        pytest.param(_gap_at_a_change, 22, (), id="a gap where selectors change"),
        pytest.param(_nobody_looks_for_what_is_left, 19, (), id="what nobody alive hears of is left"),
    ],
)
def test_a_world_finds_it(breaks: Callable[[Patch], None], found_before: int, without: tuple[str, ...], monkeypatch: Patch):
    """A seed that no longer finds it costs time and nothing else."""
    with monkeypatch.context() as patch:
        _without_list_of_all(patch)
        breaks(patch)
        plans = (plan_of(seed, without=without) for seed in (found_before, *range(MOST)))
        found = next((plan for plan in plans if LOST in play(plan).kinds), None)
    assert found is not None
    assert play(found).ok


def test_shards_are_moved_while_claims_are_open(monkeypatch: Patch):
    """Worlds of few nodes are drawn so that nodes hear of some shards and not of others, and of others soon after."""
    heard: set[tuple[str, ...]] = set()
    real = ChangingReflector.select

    def select(self, selectors):  # type: ignore[no-untyped-def]
        heard.add(selectors)
        real(self, selectors)

    monkeypatch.setattr(ChangingReflector, "select", select)
    plan = next(plan for plan in map(plan_of, range(MOST)) if "roster churn" in plan.troubles)
    assert play(plan).ok
    assert len({selectors for selectors in heard if 0 < selectors[0].count("open.") < len(SHARDS)}) > 3
