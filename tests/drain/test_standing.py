"""When a node takes no volumes any more, and when it is emptied, under each policy and mark; what the keeper remembers of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.marks import Marks, NodePolicy, Record, read
from sidecar.drain.settings import Settings
from sidecar.drain.standing import DEBOUNCE, StandingKeeper, closed_at, standing
from sidecar.model import names
from sidecar.model.nodes import Taint
from sidecar.model.standing import OPEN, Standing
from tests.harness.drain.samples import DRIVER, NODE, NOW, marks, node, stamp, taint

CORDON = Taint(names.CORDON_TAINT, "", "NoSchedule")
RECORD = names.of_driver(DRIVER, names.DRAIN_RECORD)
KURED = {names.KURED_REBOOTS: "2026-01-01T00:00:00Z"}
REBOOT = {names.DRAIN_INTENT: "reboot"}
SPENT = REBOOT | {RECORD: marks(annotations=REBOOT, cordoned=True).record.as_text("uid-n1") or ""}

AT_ONCE, CLOSED_ONLY, NOTHING = (0, 0), (0, None), (None, None)
"""Seconds until the node takes no volumes, and until it is evacuated; None: never."""


def course(facts: dict[str, Any], *, policy: NodePolicy, annotated: bool) -> tuple[int | None, int | None]:
    """When the node is first seen closed, and first asked to be emptied, in looks once a second for two minutes."""
    if annotated:
        facts = facts | {"annotations": {**facts.get("annotations", {}), names.NODE_DRAIN_POLICY: policy.value}}
    seen: Marks | None = None
    before, shut_since = OPEN, None
    closed, asked = None, None
    for second in range(120):
        now = NOW + second
        seen = read(node(**facts), DRIVER, now=now, policy=NodePolicy.IGNORE if annotated else policy, before=seen)
        shut_since = (shut_since or now) if seen.shut else None
        before, _ = standing(seen, shut_since=shut_since, now=now, before=before)
        closed = second if closed is None and before.closed else closed
        asked = second if asked is None and seen.wish is not None and before.closed else asked
    return closed, asked


@pytest.mark.parametrize("annotated", [False, True], ids=["by the flag", "by the node's annotation"])
@pytest.mark.parametrize(
    ("facts", "by_schedule", "by_evacuate"),
    [
        pytest.param({"taints": (taint(names.EVACUATE_TAINT, "retire"),)}, AT_ONCE, AT_ONCE, id="the taint"),
        pytest.param({"taints": (taint(names.EVACUATE_TAINT, "reboot"),)}, AT_ONCE, AT_ONCE, id="the taint, reboot"),
        pytest.param({"annotations": {names.DRAIN_INTENT: "retire"}}, AT_ONCE, AT_ONCE, id="the annotation"),
        pytest.param({"annotations": {names.DRAIN_INTENT: "reboot"}}, AT_ONCE, AT_ONCE, id="the annotation, reboot"),
        pytest.param({"unschedulable": True}, (10, None), (10, 60), id="a cordon"),
        pytest.param({"taints": (taint(names.RETIRING_TAINTS[1]),)}, CLOSED_ONLY, AT_ONCE, id="the cluster-autoscaler"),
        pytest.param({"taints": (taint(names.RETIRING_TAINTS[0]),), "unschedulable": True}, CLOSED_ONLY, AT_ONCE, id="karpenter, cordon"),
        pytest.param({"annotations": KURED}, NOTHING, NOTHING, id="kured waits"),
        pytest.param({"annotations": KURED, "unschedulable": True}, CLOSED_ONLY, AT_ONCE, id="kured drains"),
        pytest.param({"annotations": SPENT}, NOTHING, NOTHING, id="a spent reboot"),
        pytest.param({"annotations": {names.DRAIN_INTENT: "rebot"}}, NOTHING, NOTHING, id="a wrong word"),
        pytest.param(
            {"annotations": {names.DRAIN_INTENT: "rebot"}, "unschedulable": True}, (10, None), (10, 60), id="a wrong word, cordon"
        ),
    ],
)
def test_when_each_mark_closes_a_node_and_asks_for_its_evacuation(
    facts: dict[str, Any], by_schedule: tuple[int | None, int | None], by_evacuate: tuple[int | None, int | None], annotated: bool
) -> None:
    for policy, expected in zip(NodePolicy, (NOTHING, by_schedule, by_evacuate), strict=True):
        assert course(facts, policy=policy, annotated=annotated) == expected, policy


def judge(found: Marks, **changes: Any) -> tuple[Standing, float | None]:
    return standing(found, **({"shut_since": NOW - 60, "now": NOW} | changes))


CORDONED = marks(cordoned=True)


def test_a_cordon_has_to_last_and_a_closing_that_is_noted_need_not() -> None:
    assert judge(CORDONED, shut_since=NOW - 9) == (OPEN, NOW + 1)
    assert judge(CORDONED, shut_since=None) == (OPEN, NOW + DEBOUNCE)
    assert judge(CORDONED, shut_since=NOW - DEBOUNCE)[0].closed
    assert judge(CORDONED, shut_since=NOW + 3600)[0].closed, "a clock that was set back does not make it wait again"
    noted = marks(cordoned=True, annotations={RECORD: Record(closed_at=NOW - 70).as_text("uid-n1") or ""})
    found, _ = judge(noted, shut_since=None)
    assert (found.closed, found.since, closed_at(found)) == (True, f"uid-n1/{stamp(70)}", NOW - 70)
    assert judge(marks(annotations={RECORD: Record(closed_at=NOW - 70).as_text("uid-n1") or ""})) == (OPEN, None), "an uncordon, at once"


def test_which_closing_it_is_stays_the_same_until_it_is_noted_and_another_one_is_another() -> None:
    first, _ = judge(CORDONED)
    later, _ = judge(CORDONED, now=NOW + 30, before=first)
    second, _ = judge(CORDONED, now=NOW + 60)
    other, _ = judge(marks(cordoned=True, uid="uid-of-another"), before=first)
    assert first.since == later.since == f"uid-n1/{stamp(0)}" and len({first.since, second.since, other.since}) == 3


def test_what_closes_a_node_is_named_and_is_what_a_pod_has_to_tolerate() -> None:
    evacuate, removed = taint(names.EVACUATE_TAINT, "retire"), taint(names.RETIRING_TAINTS[0])
    for found, taints, why in [
        (CORDONED, (CORDON,), "it is cordoned"),
        (marks(evacuate), (evacuate,), str(evacuate)),
        (marks(evacuate, cordoned=True), (CORDON, evacuate), str(evacuate)),
        (marks(removed), (removed,), "to be removed"),
        (marks(annotations={names.DRAIN_INTENT: "retire"}), (), "drain-intent: retire"),
    ]:
        closed, _ = judge(found)
        assert closed.taints == taints and why in closed.why


@given(st.floats(-100, 100), st.floats(0, 100))
def test_time_alone_closes_and_never_opens(since: float, later: float) -> None:
    first, until = judge(CORDONED, shut_since=NOW + since)
    then, _ = judge(CORDONED, shut_since=NOW + since, now=NOW + later, before=first)
    assert until is None or (until > NOW and judge(CORDONED, shut_since=NOW + since, now=until)[0].closed)
    assert not (first.closed and since <= 0) or (then.closed and then.since == first.since)


class Keeper:
    def __init__(self, policy: NodePolicy = NodePolicy.NO_SCHEDULE) -> None:
        self.now, self.changes = 0.0, 0
        settings = Settings(NODE, DRIVER, "ns", "1", policy=policy)
        self.keeper = StandingKeeper(settings, clock=lambda: self.now, wall=lambda: NOW + self.now, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, found: Marks | None) -> bool:
        if found is None:
            self.keeper.renew_without_node()
        else:
            self.keeper.renew(found)
        return self.keeper.current.closed


def test_it_remembers_since_when_a_cordon_is_there_and_when_to_look_again() -> None:
    it = Keeper()
    assert not it.look(CORDONED) and it.keeper.again == DEBOUNCE
    it.now = 5
    assert not it.look(marks())
    it.now = 9
    assert not it.look(CORDONED) and it.keeper.again == 9 + DEBOUNCE, "an uncordon in between begins it anew"
    it.now = 19
    assert it.look(CORDONED) and it.changes == 1
    assert not it.look(marks()) and it.changes == 2


def test_a_node_whose_object_is_gone_is_closed_and_one_that_was_never_seen_is_not() -> None:
    assert not Keeper().look(None)
    it = Keeper()
    it.look(marks())
    assert it.look(None) and it.keeper.current.why == "its Node object is gone"
    since = it.keeper.current.since
    it.now = 60
    assert it.look(None) and it.keeper.current.since == since != ""
    ignores = Keeper(NodePolicy.IGNORE)
    ignores.look(marks())
    assert not ignores.look(None)
