"""When a node closes, who asks for it to be emptied, and what announced reboots and cordons do in a running process."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.world.node import DRIVER as WORLD
from sidecar.drain.evacuation.closing import asked, noted_at, standing, without_node
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.kube.api import DEPLOYMENTS
from sidecar.model import names
from sidecar.model.nodes import Taint
from sidecar.model.standing import OPEN, Standing
from tests.harness.drain.samples import DRIVER, NOW, node, stamp, taint
from tests.harness.drain.simulated import STATE, Bench, all_of, change, node_of, play, report_of, running, wait

CORDON = Taint(names.CORDON_TAINT, "", "NoSchedule")
CLOSED = names.of_driver(DRIVER, names.CLOSED_AT)


def marks(*, cordoned: bool = False, evacuate: str | None = None, **annotations: str) -> Signals:
    taints = () if evacuate is None else (taint(names.EVACUATE_TAINT, evacuate),)
    notes = {getattr(names, key): value for key, value in annotations.items() if key != "closed"}
    notes |= {CLOSED: annotations["closed"]} if "closed" in annotations else {}
    return read(node(taints=taints, unschedulable=cordoned, annotations=notes), DRIVER, now=NOW)


def judge(signals: Signals, policy: NodePolicy = NodePolicy.NO_SCHEDULE, **changes: Any) -> tuple[Standing, float | None]:
    facts: dict[str, Any] = {"zero_when_closed": True, "cordon_stable_since": NOW - 60, "now": NOW} | changes
    return standing(signals, policy=policy, **facts)


def test_a_cordon_has_to_last_before_it_closes_and_the_taint_has_not() -> None:
    assert judge(marks(cordoned=True), cordon_stable_since=NOW - 9) == (OPEN, NOW + 1)
    assert judge(marks(cordoned=True), cordon_stable_since=None) == (OPEN, NOW + 10)
    assert judge(marks(cordoned=True), cordon_stable_since=NOW - 10)[0].closed
    assert judge(marks(cordoned=True, evacuate="retire"), cordon_stable_since=NOW)[0].closed


def test_an_uncordon_opens_at_once_whether_the_closing_was_noted_or_not() -> None:
    assert judge(marks(closed=stamp(60)), before=judge(marks(cordoned=True))[0]) == (OPEN, None)


def test_which_closing_it_is_stays_the_same_until_it_is_noted_and_after_a_restart() -> None:
    first = judge(marks(cordoned=True))[0]
    later = judge(marks(cordoned=True), now=NOW + 30, before=first)[0]
    noted = judge(marks(cordoned=True, closed=noted_at(first)), now=NOW + 60)[0]
    assert first.since == later.since == noted.since != ""
    assert noted_at(first) == stamp(0)


def test_another_closing_is_another_value_and_so_is_that_of_another_machine() -> None:
    first = judge(marks(cordoned=True))[0]
    second = judge(marks(cordoned=True), now=NOW + 60, before=OPEN)[0]
    other = read(node(uid="uid-of-another", unschedulable=True), DRIVER, now=NOW)
    assert len({first.since, second.since, judge(other)[0].since}) == 3


def gone(before: Standing = OPEN, *, uid: str = "uid-n1", policy: NodePolicy = NodePolicy.NO_SCHEDULE) -> Standing:
    return without_node(before, uid=uid, policy=policy, zero_when_closed=True, now=NOW)


def test_a_node_whose_object_is_gone_is_closed_and_stays_so() -> None:
    found = gone()
    assert (found.closed, found.publishes_zero, found.why) == (True, True, "its Node object is gone")
    assert found.since.startswith("uid-n1/") and gone(found) == found


def test_a_closed_node_whose_object_goes_stays_closed_under_any_policy() -> None:
    before = judge(marks(cordoned=True))[0]
    for policy in NodePolicy:
        found = gone(before, policy=policy)
        assert (found.closed, found.since, found.why) == (True, before.since, "its Node object is gone")


def test_a_node_object_that_was_never_seen_closes_nothing() -> None:
    assert gone(uid="") == OPEN


def test_what_closes_a_node_is_named_and_is_what_a_pod_has_to_tolerate() -> None:
    evacuate = taint(names.EVACUATE_TAINT, "retire")
    assert judge(marks(cordoned=True))[0].taints == (CORDON,)
    assert judge(marks(evacuate="retire"))[0].taints == (evacuate,)
    assert judge(marks(cordoned=True, evacuate="retire"))[0].taints == (CORDON, evacuate)
    assert "cordoned" in judge(marks(cordoned=True))[0].why and str(evacuate) in judge(marks(evacuate="retire"))[0].why


def test_a_capacity_of_zero_is_published_only_if_asked_for() -> None:
    for zero in [True, False]:
        assert judge(marks(cordoned=True), zero_when_closed=zero)[0].publishes_zero is zero
        assert not judge(marks(), zero_when_closed=zero)[0].publishes_zero


KURED = {names.KURED_REBOOTS: "2026-01-01T00:00:00Z"}
EXPLAINED = {
    "the taint": {"taints": (taint(names.EVACUATE_TAINT, "retire"),)},
    "the taint, reboot": {"taints": (taint(names.EVACUATE_TAINT, "reboot"),)},
    "the annotation": {"annotations": {names.DRAIN_INTENT: "retire"}},
    "the annotation, reboot": {"annotations": {names.DRAIN_INTENT: "reboot"}},
    "a cordon": {"unschedulable": True},
    "the cluster-autoscaler": {"taints": (taint(names.RETIRING_TAINTS[1]),)},
    "karpenter": {"taints": (taint(names.RETIRING_TAINTS[0]),)},
    "karpenter and a cordon": {"taints": (taint(names.RETIRING_TAINTS[0]),), "unschedulable": True},
    "kured waits": {"annotations": KURED},
    "kured drains": {"annotations": KURED, "unschedulable": True},
    "a spent reboot": {"annotations": {names.DRAIN_INTENT: "reboot", names.of_driver(DRIVER, names.REBOOT_INTENT): "Spent"}},
    "a wrong word": {"annotations": {names.DRAIN_INTENT: "rebot"}},
    "a wrong word and a cordon": {"annotations": {names.DRAIN_INTENT: "rebot"}, "unschedulable": True},
}


# Seconds until the node takes no volumes, and until it is evacuated; None: never.
AT_ONCE, CLOSED_ONLY, NOTHING = (0, 0), (0, None), (None, None)
COURSES = {
    "the taint": (AT_ONCE, AT_ONCE),
    "the taint, reboot": (AT_ONCE, AT_ONCE),
    "the annotation": (AT_ONCE, AT_ONCE),
    "the annotation, reboot": (AT_ONCE, AT_ONCE),
    "a cordon": ((10, None), (10, 60)),
    "the cluster-autoscaler": (CLOSED_ONLY, AT_ONCE),
    "karpenter": (CLOSED_ONLY, AT_ONCE),
    "karpenter and a cordon": (CLOSED_ONLY, AT_ONCE),
    "kured waits": (NOTHING, NOTHING),
    "kured drains": (CLOSED_ONLY, AT_ONCE),
    "a spent reboot": (NOTHING, NOTHING),
    "a wrong word": (NOTHING, NOTHING),
    "a wrong word and a cordon": ((10, None), (10, 60)),
}


def test_when_each_mark_closes_a_node_and_starts_its_evacuation_under_each_policy() -> None:
    """The default of the flag is Ignore."""
    for case in EXPLAINED:
        for policy in NodePolicy:
            for annotated in [
                False,  # by flag
                True,  # by annotation
            ]:
                by_schedule, by_evacuate = COURSES[case]
                expected = {NodePolicy.IGNORE: NOTHING, NodePolicy.NO_SCHEDULE: by_schedule, NodePolicy.EVACUATE: by_evacuate}[policy]
                assert course(EXPLAINED[case], policy=policy, annotated=annotated) == expected


def course(facts: dict[str, Any], *, policy: NodePolicy, annotated: bool) -> tuple[int | None, int | None]:
    """When the node is first seen closed, and first seen to be asked for, in looks once a second for two minutes."""
    if annotated:
        facts = facts | {"annotations": {**facts.get("annotations", {}), names.NODE_DRAIN_POLICY: policy.value}}
    flag = NodePolicy.IGNORE if annotated else policy
    seen, closed_at, asked_at = None, None, None
    for second in range(120):
        seen = read(node(**facts), DRIVER, now=NOW + second, default_policy=flag, before=seen)
        now = judge(seen, flag, cordon_stable_since=NOW, now=NOW + second)[0]
        closed_at = second if closed_at is None and now.closed else closed_at
        asked_at = second if asked_at is None and asked(seen, policy=flag, standing=now) else asked_at
    return closed_at, asked_at


@given(st.floats(-100, 100), st.floats(0, 100))
def test_time_alone_closes_and_never_opens(since: float, later: float) -> None:
    signals = marks(cordoned=True)
    first, until = judge(signals, cordon_stable_since=NOW + since)
    then, _ = judge(signals, cordon_stable_since=NOW + since, now=NOW + later, before=first)
    assert until is None or (until > NOW and judge(signals, cordon_stable_since=NOW + since, now=until)[0].closed)
    if first.closed and since <= 0:
        assert then.closed and then.since == first.since


# --- Announced reboots and cordons as a running process acts on them: the gate, the evacuation's marks, and what a restart leaves ---


REBOOT, CLOSED_AT = names.of_driver(WORLD, names.REBOOT_INTENT), names.of_driver(WORLD, names.CLOSED_AT)

GATED = ("--drain-report", "--drain-gate-image=pause")

CORDONED, UNCORDON = {"unschedulable": True}, {"unschedulable": None}


# Longer than a look, and much shorter than any delay.
SOON = 8


async def stands(bench: Bench) -> bool:
    """Whether the gate does, once the room has had time to look."""
    await wait(bench, SOON)
    return bool(await all_of(bench, DEPLOYMENTS))


async def with_volume_in_use(bench: Bench) -> None:
    await running(bench, "a")
    assert await stands(bench)


async def annotate(bench: Bench, notes: dict[str, str | None]) -> None:
    await change(bench, "n0", annotations=notes)


async def noted(bench: Bench, key: str) -> str | None:
    found: dict[str, str] = (await node_of(bench))["metadata"].get("annotations") or {}
    return found.get(key)


async def restart(bench: Bench) -> None:
    bench.nodes["n0"].kill()
    await wait(bench, 6)


@pytest.mark.parametrize("policy", ["Ignore", "NoSchedule"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_forgotten_reboot_opens_the_gate_for_one_cordon(policy: str, restarts: bool) -> None:
    async def story(bench: Bench) -> None:
        await with_volume_in_use(bench)
        await annotate(bench, {names.DRAIN_INTENT: "reboot"})
        assert await stands(bench), "a node that is not cordoned is not rebooted"
        await change(bench, "n0", CORDONED)
        assert not await stands(bench)
        if restarts:
            await restart(bench)
        await change(bench, "n0", UNCORDON)
        assert await stands(bench)
        assert await noted(bench, REBOOT) == "Spent" and await noted(bench, CLOSED_AT) is None
        if restarts:
            await restart(bench)
        await change(bench, "n0", CORDONED)
        assert await stands(bench), "the annotation was for the cordon before"
        assert [note for note in (await report_of(bench))["notes"] if "cordon that is over" in note]
        await annotate(bench, {names.DRAIN_INTENT: None})
        assert await stands(bench) and await noted(bench, REBOOT) is None
        await annotate(bench, {names.DRAIN_INTENT: "reboot"})
        assert not await stands(bench)

    play(story, args=(*GATED, f"--node-drain-policy={policy}"), nodes=("n0",))


async def starts_after(bench: Bench, seconds: int) -> bool:
    """Whether the evacuation begins so many seconds from now, and not before."""
    if seconds:
        await wait(bench, seconds - 5)
        assert STATE not in (await node_of(bench))["metadata"]["labels"]
    await wait(bench, SOON)
    return STATE in (await node_of(bench))["metadata"]["labels"]


EVACUATES = ("--drain-report", "--node-drain-policy=Evacuate")


def test_a_process_that_is_killed_again_and_again_puts_the_start_off_no_further() -> None:
    async def story(bench: Bench) -> None:
        await change(bench, "n0", CORDONED)
        for _ in range(4):
            await wait(bench, 14)
            await restart(bench)
        assert await noted(bench, CLOSED_AT)
        assert STATE in (await node_of(bench))["metadata"]["labels"], "80 seconds have passed, and no process has run for 30"

    play(story, args=EVACUATES, nodes=("n0",))


def test_the_delay_is_a_flag() -> None:
    def case(delay: str, by: int) -> None:
        async def story(bench: Bench) -> None:
            await change(bench, "n0", CORDONED)
            assert await starts_after(bench, by if by > 60 else 0)

        play(story, args=(*EVACUATES, f"--evacuation-cordon-delay={delay}"), nodes=("n0",))

    for delay, by in [("0s", 3), ("5m", 305)]:
        case(delay, by)
