"""Nodes that watch claims by label, by seed: the policy is late, missing, edited or removed, labels lie, and no claim is lost.

`hack/fire --worlds labelled` plays any number of them. By day 24 seeds are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 500.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from sidecar import wiring
from sidecar.kube.api import CSI_NODES
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.local import claim_hearing_io
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.claim_labels import heard_claims
from sidecar.local.left_claims_io import LeftClaims
from sidecar.ownership.controller import Contenders
from sidecar.ownership.shards import heard_shards
from sidecar.simulation.world.invariants import LOST
from sidecar.simulation.world.labelled_world import plan_of, play
from sidecar.simulation.world.node import csi_node
from sidecar.simulation.world.plan import Plan, PlannedEvent
from sidecar.simulation.world.plan_labels import GONE, IN_FORCE
from sidecar.simulation.world.world import World
from tests.harness.seeds import ALL_SEEDS

QUICK = 8
ALL = 500 if ALL_SEEDS else 24
CHUNK = 4
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
    report = play(plan_of(208))
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


def _no_list_of_what_waits(patch: Patch) -> None:
    async def look(self: ClaimHearing, claims: object) -> None:
        """It finds nothing."""

    patch.setattr(ClaimHearing, "_look_at_waiting", look)


def _no_watch_of_what_has_no_label(patch: Patch) -> None:
    patch.setattr(claim_hearing_io, "heard_claims", lambda node, shards: heard_claims(node, shards)[:1])


def _labels_are_believed(patch: Patch) -> None:
    patch.setattr(claim_hearing_io, "why_wrong", lambda obj, **_: "")


def _gap_at_a_change(patch: Patch) -> None:
    """What is listed when selectors change is not taken in; only what the new watch brings."""
    real = ChangingReflector.told

    def told(self, part, change):  # type: ignore[no-untyped-def]
        is_listing = bool(self._current) and part not in [self._open[selector].part for selector in self._current]
        return frozenset() if is_listing and change.old is None else real(self, part, change)

    patch.setattr(ChangingReflector, "told", told)


@pytest.fixture
def shared_out(monkeypatch: Patch) -> None:
    """Each shard is heard by one node, although there are few nodes."""
    monkeypatch.setattr(wiring, "heard_shards", partial(heard_shards, listeners=1))
    monkeypatch.setitem(Contenders.__init__.__kwdefaults__, "listeners", 1)
    monkeypatch.setattr(wiring.Sidecar, "_by_shards", lambda self: self._config.watch_scope == "labelled")


def ranked(plan: Plan) -> Plan:
    """All nodes know the contenders and watch by label."""
    events = tuple(item for item in plan.events if item.what not in ("placement", "scope"))
    return replace(plan, events=events, by_label=plan.nodes, placements=tuple((node, "ranked") for node in plan.nodes))


def with_ghosts(world: World) -> None:
    """Machines whose driver was registered, and that are not there any more: nobody lives who hears of most shards."""

    async def register() -> None:
        for number in range(10):
            await world.api.create(CSI_NODES, csi_node(f"ghost-{number}"))

    world.spawn("ghosts", register())


HAUNTED = ranked(a_world(*(claim(30.0 + number, f"open-{number}", "immediate") for number in range(8)), settle=400.0))


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("seed", range(4))
def test_open_claims_are_shared_out(seed: int):
    report = play(ranked(plan_of(seed)))
    assert report.ok, report


@pytest.mark.usefixtures("shared_out")
def test_what_nobody_alive_hears_of_is_found_by_others(monkeypatch: Patch):
    report = play(HAUNTED, before=with_ghosts)
    assert report.ok, report

    async def look(self: LeftClaims, others: object) -> None:
        """It finds nothing."""

    monkeypatch.setattr(LeftClaims, "look", look)
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
    monkeypatch.setattr(claim_hearing_io, "_ALL_EVERY", 1e6)  # the list of all claims would find them later
    breaks(monkeypatch)
    assert LOST in play(plan).kinds
