"""Stories of nodes that are lost: others clear up what was given up, and nothing else; nothing of a machine that is there is touched."""

import pytest

from hack.sim.world.effects import TOUCHED
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.themes import BACK, CLEANUP, LOST, LOST_SET, ORPHAN
from hack.sim.world.world import World
from tests.world.playing import NODES, played

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
) -> Plan:
    """n0 goes, with replicas, claims that nobody makes again and volumes that are kept."""
    events = [PlannedEvent(2.0 + number, LOST_SET, f"set-{number}", 3.0, "late" if number else "kept") for number in range(3)]
    classes = ("late", "late", "late", "kept", "late", "late", "late", "late")
    events += [PlannedEvent(10.0 + number, "app", f"app-{number}", 1.0, class_) for number, class_ in enumerate(classes)]
    events += [PlannedEvent(150.0, "evacuate", "n0")] if announced else []
    events += [PlannedEvent(200.0, "evacuation undone", "n0")] if undone else []
    events += [PlannedEvent(AT, LOST, "n0"), *(PlannedEvent(AT + 5.0, "app deleted", f"app-{number}") for number in range(4))]
    events += [PlannedEvent(AT + back, BACK, "n0")] if back is not None else []
    order = tuple(sorted(events, key=lambda item: item.at))
    flags = ("--drain-report", "--node-drain-policy=NoSchedule", policy, "--node-gone-after=0s")
    return Plan(seed, NODES, "node-loss", events=order, args=flags, settle=1500.0)


def no_process_begins_again(world: World) -> None:
    """What has come back has no sidecar, so nobody takes off what an earlier one has noted."""
    begin, begun = world._begin, set[str]()

    def once(node: str) -> None:
        if node not in begun:
            begun.add(node)
            begin(node)

    world._begin = once  # type: ignore[method-assign]


def test_what_was_announced_is_cleared_away_and_the_sets_are_whole() -> None:
    report, world = played(lost(1))
    assert report.ok, report
    assert world.effects.touches > 0, "nothing was cleared away, so nothing was tried"


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
    report, world = played(plan)
    assert report.ok, report
    assert world.effects.touches == 0


def test_a_machine_that_is_back_in_the_middle_has_its_data() -> None:
    report, world = played(lost(back=IN_BETWEEN))
    assert report.ok, report
    assert world.effects.touches > 0, "it came too early"


def test_another_machine_under_the_name_is_another_node() -> None:
    """Also where no process there says so."""
    report, world = played(lost(back=5.0), no_process_begins_again)
    assert TOUCHED not in report.kinds, report
    assert world.effects.touches == 0
