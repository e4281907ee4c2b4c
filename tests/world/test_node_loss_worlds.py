"""Nodes are lost and others clear up after them, by seed: nothing of a node that is there is touched, and nothing that nobody has given up.

`hack/fire --worlds node-loss` plays any number. By day 3 of them are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 100. Guards that
are left out on purpose are tried in a few worlds in which each of them is needed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.drains.node_loss_plan import BACK, CLEANUP, LOST, ORPHAN, SET, UNPLACED
from hack.sim.drains.node_loss_referee import KEPT_GOES, NO_EVIDENCE, NOT_ASKED, TOUCHED, WRONG_CLAIM
from hack.sim.drains.node_loss_world import NodeLossWorld, plan_of, play
from hack.sim.world.doors import NodeKube
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar import settings
from sidecar.drain.node_loss import evidence, remains
from sidecar.drain.node_loss.cleanup_io import Cleanup
from sidecar.drain.notes import rules as notes_rules
from sidecar.drain.remade import Remade
from sidecar.kube.api import CLAIMS
from tests.harness.seeds import ALL_SEEDS

SEEDS = range(100 if ALL_SEEDS else 3)
NODES = ("n0", "n1", "n2", "n3")
AT = 300.0
"""When nodes are lost."""
IN_BETWEEN = 66.0
"""Seconds after that, when claims are marked, and none is deleted yet."""


def lost(
    seed: int = 0,
    *,
    announced: bool = True,
    undone: bool = False,
    policy: str = CLEANUP,
    back: float | None = None,
    more: tuple[PlannedEvent, ...] = (),
    args: tuple[str, ...] = (),
    settle: float = 1500.0,
) -> Plan:
    """n0 goes, with replicas, claims that nobody makes again and volumes that are kept."""
    events = [PlannedEvent(2.0 + number, SET, f"set-{number}", 3.0, "late" if number else "kept") for number in range(3)]
    classes = ("late", "late", "late", "kept", "late", "late", "late", "late")
    events += [PlannedEvent(10.0 + number, "app", f"app-{number}", 1.0, class_) for number, class_ in enumerate(classes)]
    events += [PlannedEvent(150.0, "evacuate", "n0")] if announced else []
    events += [PlannedEvent(200.0, "evacuation undone", "n0")] if undone else []
    events += [PlannedEvent(AT, LOST, "n0"), *(PlannedEvent(AT + 5.0, "app deleted", f"app-{number}") for number in range(4))]
    events += [PlannedEvent(AT + back, BACK, "n0")] if back is not None else []
    flags = ("--drain-report", "--node-drain-policy=NoSchedule", policy, "--node-gone-after=0s", *args)
    return Plan(seed, NODES, events=tuple(sorted((*events, *more), key=lambda item: item.at)), args=flags, settle=settle)


def nothing_before(world: NodeLossWorld) -> None:
    pass


def no_process_begins_again(world: NodeLossWorld) -> None:
    """What has come back has no sidecar, so nobody takes off what an earlier one has noted."""
    begin, begun = world._begin, set[str]()

    def once(node: str) -> None:
        if node not in begun:
            begun.add(node)
            begin(node)

    world._begin = once  # type: ignore[method-assign]


def played(plan: Plan, *, before: Callable[[NodeLossWorld], None] = nothing_before) -> tuple[Report, int]:
    """The report, and how often something of another machine was touched."""
    worlds: list[NodeLossWorld] = []

    def watch(world: NodeLossWorld) -> None:
        worlds.append(world)
        before(world)

    report = play(plan, before=watch)
    return report, worlds[0].losses.effects


@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_with_all_kinds_of_trouble(seed: int) -> None:
    report = play(plan_of(seed))
    assert report.ok, str(report)


@pytest.mark.parametrize("args", [(), (UNPLACED,)], ids=["with node affinity", "without"])
def test_what_was_announced_is_cleared_away_and_the_sets_are_whole(args: tuple[str, ...]) -> None:
    report, count = played(lost(1, args=args))
    assert report.ok, str(report)
    assert count > 0, "nothing was cleared away, so nothing was tried"


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(lost(announced=False), id="not announced"),
        pytest.param(lost(undone=True), id="undone"),
        pytest.param(lost(policy=ORPHAN), id="Orphan"),
        pytest.param(lost(back=10.0), id="back at once"),
    ],
)
def test_otherwise_nothing_is_touched(plan: Plan) -> None:
    report, count = played(plan)
    assert report.ok, str(report)
    assert count == 0


def test_a_machine_that_is_back_in_the_middle_has_no_marks_at_rest() -> None:
    report, count = played(lost(back=IN_BETWEEN))
    assert report.ok, str(report)
    assert count > 0, "it came too early"


def test_a_machine_may_be_lost_again_before_its_process_has_begun() -> None:
    """What an earlier one has noted stands, for only such a process takes it off."""
    report, count = played(lost(back=5.0, more=(PlannedEvent(AT + 5.001, LOST, "n0"),)))
    assert report.ok, str(report)
    assert count > 0


def test_another_machine_under_the_name_is_another_node() -> None:
    """Also where no process there says so."""
    report, count = played(lost(back=5.0), before=no_process_begins_again)
    assert TOUCHED not in report.kinds, str(report)
    assert count == 0


# --- guards that are left out -----------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def _always(patch: Patch, *, where: Any, name: str) -> None:
    async def yes(self: Any, *given: Any) -> bool:
        return True

    patch.setattr(where, name, yes)


def _no_evidence(patch: Patch) -> None:
    def machine(view: Any, *, real: Any = remains.machine_to_clear) -> Any:
        loss = view.loss
        return real(replace(view, loss=replace(loss, evidence=evidence.Evidence.ANNOUNCED)) if isinstance(loss, evidence.Gone) else view)

    patch.setattr(remains, "machine_to_clear", machine)


def _undo_stays_noted(patch: Patch) -> None:
    def noted(volume: Any, view: Any, *, real: Any = notes_rules._noted) -> Any:
        return real(volume, view) if view.leaving else notes_rules.Fine("it is noted")

    patch.setattr(notes_rules, "_noted", noted)


def _kept_volumes_too(patch: Patch) -> None:
    def step(view: Any, seen: Any, *, real: Any = remains._of_volume) -> Any:
        return real(view, replace(seen, volume=replace(seen.volume, reclaim_policy="Delete")))

    patch.setattr(remains, "_of_volume", step)


def _bound_volumes_too(patch: Patch) -> None:
    def step(view: Any, seen: Any, *, real: Any = remains._of_volume) -> Any:
        # Two rules keep them: the phase, and that the claim is there.
        return real(replace(view, claims={}), replace(seen, volume=replace(seen.volume, phase="Released")))

    patch.setattr(remains, "_of_volume", step)


def _everything_is_made_again(patch: Patch) -> None:
    patch.setattr(remains, "who_remakes", lambda claim, sets: Remade("nobody"))


def _without_conditions(patch: Patch) -> None:
    async def delete(self: Any, resource: Any, name: str, *, real: Any = NodeKube.delete, **given: Any) -> None:
        if resource == CLAIMS:
            given = {"namespace": given["namespace"]}
        await real(self, resource, name, **given)

    patch.setattr(NodeKube, "delete", delete)


MUTATIONS: dict[str, tuple[Callable[[Patch], None], str, Plan]] = {
    "the Node is looked for anew": (lambda patch: _always(patch, where=Cleanup, name="_is_gone"), NOT_ASKED, lost()),
    "evidence": (_no_evidence, NO_EVIDENCE, lost(announced=False)),
    "an undo takes the note off": (_undo_stays_noted, NO_EVIDENCE, lost(undone=True)),
    "Orphan": (lambda patch: patch.setattr(settings, "CLEANUP", "Orphan"), NO_EVIDENCE, lost(policy=ORPHAN)),
    "pods with a node": (lambda patch: patch.setattr(remains, "_users", lambda pods, there: []), WRONG_CLAIM, lost()),
    "somebody makes it again": (
        lambda patch: patch.setattr(remains, "who_remakes", lambda claim, sets: Remade("nobody")),
        WRONG_CLAIM,
        lost(),
    ),
    "uid and version": (_without_conditions, WRONG_CLAIM, lost()),
    "reclaim policy": (_kept_volumes_too, KEPT_GOES, lost(1)),
    "released": (_bound_volumes_too, KEPT_GOES, lost()),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_that_is_missing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, kind, plan = MUTATIONS[name]
    with monkeypatch.context() as patch:
        breaks(patch)
        report, _ = played(plan)
    assert kind in report.kinds, f"{name} is missing, and nobody has noticed: {report}"


def test_it_is_noticed_when_only_the_uid_of_a_node_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "_there", lambda view: None)
        _always(patch, where=Cleanup, name="_is_gone")
        report, _ = played(lost(back=5.0), before=no_process_begins_again)
    assert TOUCHED in report.kinds, str(report)
