"""What a node notes, cordons, evicts and tells for its maintenances: the rules alone."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.maintenance.objects import Entry, Maintenance, Runner, Selector, Stage
from sidecar.drain.maintenance.plan import Peer
from sidecar.drain.maintenance.step import Decision, Progress, Record, View, decide, is_drained, late, record_of
from sidecar.drain.words import Intent, Status
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.drain.test_maintenance_plan import A, B, draining, maintenance, runner
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER, NOW

CORDONED = samples.node(unschedulable=True)
ONE = maintenance()
AT_WORK = Record(False, (0, 0, 0), {ONE.uid: Progress(A, 0, NOW - 60.0)}, Intent.REBOOT)
ANNOTATION = names.of_driver(DRIVER, names.MAINTENANCE_RECORD)
WEB = runner("web")


def view(
    *active: Maintenance,
    record: Record = AT_WORK,
    node: Node = CORDONED,
    pods: tuple[Runner, ...] = (WEB,),
    peers: tuple[Peer, ...] = (),
    **changes: Any,
) -> View:
    drains = tuple(
        draining(one, *pods, finished=record.of[one.uid].finished if one.uid in record.of else 0, peers=peers)
        for one in active
        if one.stage is Stage.DRAIN
    )
    base = View(node=node, now=NOW, record=record, active=active, drains=drains, wanted_by_others=False, retire=Status.TRUE)
    return replace(base, **changes)


def noted(record: Record, *, uid: str = "uid-n1") -> Node:
    return samples.node(annotations={ANNOTATION: record.as_text(uid) or ""})


def evicted(decision: Decision) -> list[str]:
    return [each.runner.pod.name for each in decision.evict]


# --- stages and the cordon ---------------------------------------------------------------------------------------------


def test_drain_C1_idle_notes_nothing_cordons_nothing_and_is_announced() -> None:
    one = maintenance(stage=Stage.IDLE, intent=Intent.RETIRE, planned_for="2026-01-01T00:00:00Z", reason="new disks")
    found = decide(view(one, record=Record(), node=samples.node()))
    assert (found.record, found.cordon, found.evict, found.events) == (Record(), None, (), ())
    text = "PlannedMaintenance maintenance-a: retire, planned for 2026-01-01T00:00:00Z ('new disks')"
    assert found.conditions == {names.MAINTENANCE_PLANNED: text}
    assert [said["stage"] for said in found.status] == ["Idle"]


@pytest.mark.parametrize("stage", [Stage.CORDON, Stage.DRAIN])
@pytest.mark.parametrize("before", [True, False])
def test_drain_C2_C12_the_cordon_is_noted_with_how_the_node_was_and_nothing_is_evicted_in_that_pass(stage: Stage, before: bool) -> None:
    found = decide(view(maintenance(stage=stage), record=Record(), node=samples.node(unschedulable=before)))
    assert found.record.prior is before and found.cordon is (None if before else True) and found.evict == ()
    assert (ONE.uid in found.record.of) is (stage is Stage.DRAIN)


def test_only_a_node_that_is_cordoned_by_now_is_drained_and_only_then_an_entry_is_done() -> None:
    """A pod may be put here between the list and the cordon."""
    assert evicted(decide(view(ONE))) == ["web"]
    for record, node in ((Record(), samples.node()), (Record(), CORDONED), (AT_WORK, samples.node())):
        found = decide(view(ONE, record=record, node=node, pods=()))
        assert found.record.of[ONE.uid].finished == 0 and not found.status[0]["drained"]
        assert evicted(decide(view(ONE, record=record, node=node))) == []
    assert decide(view(ONE, pods=())).record.of[ONE.uid].finished == 1


def test_drain_C11_who_uncordons_it_meanwhile_finds_it_cordoned_again_and_how_it_was_stays_noted() -> None:
    for prior in (True, False):
        found = decide(view(ONE, record=replace(AT_WORK, prior=prior), node=samples.node()))
        assert found.cordon is True and found.record.prior is prior


@pytest.mark.parametrize(
    ("prior", "cordoned", "wanted", "cordon", "left"),
    [
        (False, True, False, False, None),
        (True, True, False, None, None),
        (False, False, False, None, None),
        (True, False, False, None, None),
        (False, True, True, None, False),
        (False, False, True, None, None),
        (True, False, True, None, None),
        (None, True, False, None, None),
    ],
)
def test_drain_B10_C12_it_is_put_back_as_it_was(prior: Any, cordoned: bool, wanted: bool, cordon: Any, left: Any) -> None:
    for stage in (Stage.IDLE, None):
        active = (maintenance(stage=stage),) if stage else ()
        node = samples.node(unschedulable=cordoned)
        found = decide(view(*active, record=replace(AT_WORK, prior=prior), node=node, wanted_by_others=wanted))
        assert found.cordon is cordon and found.record == Record(left) and found.evict == ()


def test_drain_C12_who_uncordons_it_while_an_evacuation_wants_it_may_cordon_it_again_and_that_cordon_is_his() -> None:
    gone = decide(view(record=Record(False), node=samples.node(), wanted_by_others=True))
    for wanted in (True, False):
        assert decide(view(record=gone.record, node=CORDONED, wanted_by_others=wanted)).cordon is None


def test_drain_C12_another_maintenance_keeps_the_cordon_and_what_was_before_it() -> None:
    other = maintenance(B, stage=Stage.CORDON)
    found = decide(view(other))
    assert found.cordon is None and found.record == Record(False)
    assert found.conditions.keys() == {names.MAINTENANCE_IN_PROGRESS}


# --- the drain ----------------------------------------------------------------------------------------------------------


def test_pods_whose_volumes_block_are_held_until_the_deadline_overrides_and_one_that_ends_is_waited_for() -> None:
    ends = runner("ends", deleting_since=samples.stamp())
    held = view(ONE, pods=(WEB, ends), held=frozenset({"apps/web"}))
    found = decide(held)
    assert (evicted(found), [each.runner.pod.name for each in found.waits]) == ([], ["ends", "web"])
    assert [said["why"] for said in found.status[0]["pods"]] == ["it is ending", "its volumes block reboot"]
    over = maintenance(deadline=30.0, overrides=True)
    assert evicted(decide(replace(held, active=(over,), drains=(draining(over, WEB, ends),)))) == ["web"]


def test_drain_C7_what_limits_a_maintenance_is_named() -> None:
    first, second = maintenance(A, Entry(priority=5)), maintenance(B, Entry(priority=9))
    record = replace(AT_WORK, of={first.uid: Progress(A, 0, NOW), second.uid: Progress(B, 0, NOW)})
    said = decide(view(first, second, record=record)).status
    assert [each.get("limitedBy") for each in said] == [None, A]


def test_drain_C8_one_that_begins_where_the_node_is_already_is_told_once() -> None:
    new = maintenance(B, Entry(priority=2000))
    record = replace(AT_WORK, reached=(0, 10000, 1))
    found = decide(view(ONE, new, record=record))
    assert [reason for reason, _ in found.events] == [names.MAINTENANCE_FAST_FORWARDED] and B in found.events[0][1]
    assert found.record.reached == (0, 10000, 1)
    assert decide(view(ONE, new, record=found.record)).events == ()


def test_drain_C10_whom_it_waits_for_is_named_with_when_that_node_was_heard_last() -> None:
    record = replace(AT_WORK, of={ONE.uid: Progress(A, 1, NOW)})
    peers = (Peer("n2", 0, "2026-01-01T00:00:00Z"), Peer("n3", None))
    said = decide(view(ONE, record=record, peers=peers)).status[0]
    assert said["waitingFor"] == [{"node": "n2", "seen": "2026-01-01T00:00:00Z"}, {"node": "n3", "seen": "never"}]


@pytest.mark.parametrize(
    ("intent", "retire", "finished", "drained"),
    [
        (Intent.REBOOT, Status.FALSE, 4, True),
        (Intent.REBOOT, Status.TRUE, 3, False),
        (Intent.RETIRE, Status.TRUE, 4, True),
        (Intent.RETIRE, Status.FALSE, 4, False),
        (Intent.RETIRE, Status.UNKNOWN, 4, False),
    ],
)
def test_drained_is_said_when_all_entries_are_done_and_for_a_retire_once_the_node_may_go(
    intent: Intent, retire: Status, finished: int, drained: bool
) -> None:
    one = maintenance(intent=intent)
    assert is_drained(view(one, retire=retire), one, Progress(A, finished, NOW)) is drained


@pytest.mark.parametrize(("drained", "kind"), [(4, names.DRAINED), (0, names.DRAIN_IN_PROGRESS)])
def test_drain_C16_the_conditions_say_how_far_the_node_is(drained: int, kind: str) -> None:
    record = replace(AT_WORK, of={ONE.uid: Progress(A, drained, NOW)})
    assert decide(view(ONE, record=record)).conditions.keys() == {kind, names.MAINTENANCE_IN_PROGRESS}


def test_where_one_says_retire_and_one_reboot_the_drain_is_for_retire() -> None:
    both = (ONE, maintenance(B, intent=Intent.RETIRE))
    assert decide(view(*both)).record.intent is Intent.RETIRE and decide(view(ONE)).record.intent is Intent.REBOOT


# --- the deadline -------------------------------------------------------------------------------------------------------


def at(record: Record, one: Maintenance, *, now: float = NOW) -> tuple[Any, Any, bool]:
    found = late(record, [one], now)
    return found.of[one.uid].started_at, found.of[one.uid].deadline_at, bool(found.forced)


def test_drain_B2_the_deadline_is_noted_at_the_beginning_and_only_made_earlier() -> None:
    ten, two, never = (maintenance(deadline=seconds, overrides=True) for seconds in (600.0, 120.0, None))
    assert at(Record(), ten) == (NOW, NOW + 600.0, False)
    began = Record(False, of={ONE.uid: Progress(A, 0, NOW - 360.0, NOW + 240.0)})
    for one, deadline, forced in (
        (ten, 240.0, False),
        (two, -240.0, True),
        (never, 240.0, False),
        (replace(ten, deadline=9e9), 240.0, False),
    ):
        assert at(began, one) == (NOW - 360.0, NOW + deadline, forced)
    assert at(began, ten, now=NOW + 239.0)[2] is False and at(began, ten, now=NOW + 240.0)[2] is True
    assert at(began, replace(ten, overrides=False), now=NOW + 240.0)[2] is False, "it is told only"


def test_what_was_declared_of_the_override_is_noted_for_a_process_that_cannot_read_it() -> None:
    ten = maintenance(deadline=600.0, overrides=True)
    for one, counts in ((ten, True), (replace(ten, overrides=False), False)):
        noted_ = record_of(noted(replace(late(Record(), [one], NOW), prior=False)), DRIVER)
        assert [bool(late(noted_, None, at).forced) for at in (NOW + 599.0, NOW + 600.0)] == [False, counts]
    whole = replace(AT_WORK, of={ONE.uid: Progress("x" * 253, 0, NOW, NOW, True)})
    forced = late(whole, None, NOW).forced
    assert record_of(noted(replace(whole, forced=forced)), DRIVER).forced == forced, "a long name is read again as it was noted"


def test_a_drain_that_began_in_the_future_begins_now() -> None:
    assert at(Record(False, of={ONE.uid: Progress(A, 0, NOW + 3600.0)}), maintenance(deadline=60.0)) == (NOW, NOW + 60.0, False)


def test_with_the_drain_its_override_ends() -> None:
    forced = replace(AT_WORK, forced="the deadline is over")
    assert decide(view(maintenance(stage=Stage.CORDON), record=forced)).record == Record(False)
    assert decide(view(record=forced)).record == Record()


# --- the record ---------------------------------------------------------------------------------------------------------


def test_what_is_noted_is_read_again_and_nothing_is_noted_of_nothing() -> None:
    whole = Record(True, (1, 5000, 0), {"u": Progress(A, 3, NOW, NOW + 60.0, True)}, Intent.RETIRE, "late")
    assert record_of(noted(whole), DRIVER) == whole
    assert Record().as_text("uid-n1") is None and record_of(samples.node(), DRIVER) == Record()
    assert record_of(noted(whole), "another.example.com") == Record()


def test_drain_G1_what_an_earlier_node_of_the_name_has_noted_does_not_count() -> None:
    assert record_of(noted(AT_WORK, uid="uid-of-the-former"), DRIVER) == Record()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        "7",
        '"uid"',
        "{",
        "[" * 100_000,
        '{"uid":"uid-n1","of":[]}',
        '{"uid":"uid-n1","of":{"u":null}}',
        '{"uid":"uid-n1","of":{"u":{"name":"a","finished":"many"}}}',
        '{"uid":"uid-n1","reached":[1]}',
        '{"uid":"uid-n1","reached":"far"}',
        '{"uid":"uid-n1","intent":"scrap"}',
        '{"uid":"uid-n1","of":{"u":{"name":"a","finished":1e999}}}',
        '{"uid":"uid-n1","prior":true,"forced":"' + "x" * 20_000 + '"}',
    ],
)
def test_drain_B2_garbage_in_the_record_is_no_record(text: str) -> None:
    assert record_of(samples.node(annotations={ANNOTATION: text}), DRIVER) == Record()


def test_what_is_odd_in_a_record_counts_for_as_little_as_may_be() -> None:
    text = '{"uid":"uid-n1","prior":"yes","of":{"u":{"name":"a","finished":-7,"startedAt":"soon","deadlineAt":5}}}'
    assert record_of(samples.node(annotations={ANNOTATION: text}), DRIVER) == Record(of={"u": Progress("a")})
    assert Selector.of({"matchLabels": None, "matchExpressions": None}).selects({})
