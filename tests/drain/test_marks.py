"""What is read from a Node: who wants what, which words are spent, whatever else stands there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.marks import Marks, NodePolicy, Record, Source, State, read
from sidecar.drain.words import Intent
from sidecar.model import names
from sidecar.model.nodes import Taint
from tests.harness.drain.samples import DRIVER, NOW, marks, node, stamp, taint

RECORD = names.of_driver(DRIVER, names.DRAIN_RECORD)
DISRUPTED, DELETED = (taint(key) for key in names.RETIRING_TAINTS)
REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE
KURED = {names.KURED_REBOOTS: "2026-01-01T00:00:00Z"}
IGNORED = {names.NODE_DRAIN_POLICY: "Ignore"}


def evacuate(value: str = "") -> Taint:
    return taint(names.EVACUATE_TAINT, value)


def intent(word: str) -> dict[str, str]:
    return {names.DRAIN_INTENT: word}


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taints", "annotations", "announced", "source", "problems", "leaving"),
    [
        pytest.param([], {}, None, Source.NONE, [], False, id="nobody says anything"),
        pytest.param([evacuate("reboot")], {}, REBOOT, Source.TAINT, [], False, id="the taint says reboot"),
        pytest.param([evacuate("retire")], {}, RETIRE, Source.TAINT, [], True, id="the taint says retire"),
        pytest.param([evacuate()], {}, RETIRE, Source.TAINT, [], False, id="a taint without a word is the stricter"),
        pytest.param([evacuate()], intent("reboot"), REBOOT, Source.ANNOTATION, [], False, id="a bare taint beside an annotation"),
        pytest.param([evacuate()], intent("retire"), RETIRE, Source.ANNOTATION, [], True, id="a bare taint beside retire"),
        pytest.param([], intent(" retire "), RETIRE, Source.ANNOTATION, [], True, id="an annotation with blanks"),
        pytest.param([], intent(""), None, Source.NONE, [], False, id="an empty annotation"),
        pytest.param([DISRUPTED], {}, RETIRE, Source.AUTOSCALER, [], True, id="karpenter"),
        pytest.param([DELETED], {}, RETIRE, Source.AUTOSCALER, [], True, id="the cluster-autoscaler"),
        pytest.param([evacuate(), DISRUPTED], {}, RETIRE, Source.TAINT, [], True, id="a bare taint beside an autoscaler"),
        pytest.param([], KURED, REBOOT, Source.KURED, [], False, id="kured"),
        pytest.param(
            [evacuate("reboot")], intent("retire"), RETIRE, Source.ANNOTATION, ["=reboot", "intent: retire"], False, id="taint milder"
        ),
        pytest.param([evacuate("retire")], intent("reboot"), RETIRE, Source.TAINT, ["=retire", ": reboot"], False, id="taint stricter"),
        pytest.param([DELETED], intent("reboot"), RETIRE, Source.AUTOSCALER, ["ToBeDeleted", "reboot"], False, id="autoscaler, reboot"),
        pytest.param([DELETED], KURED, RETIRE, Source.AUTOSCALER, ["ToBeDeleted", "kured"], False, id="autoscaler and kured"),
        pytest.param([evacuate("Reboot")], {}, RETIRE, Source.TAINT, ["'Reboot'"], False, id="a wrong word in the taint is retire"),
        pytest.param([], intent("retier"), None, Source.NONE, ["'retier'"], False, id="a wrong word alone starts nothing"),
        pytest.param([DELETED], intent("retier"), RETIRE, Source.AUTOSCALER, ["'retier'"], False, id="a wrong word beside retire"),
        pytest.param([], {**KURED, **intent("x")}, RETIRE, Source.ANNOTATION, ["'x'"], False, id="a wrong word beside a milder one"),
        pytest.param([evacuate("retire")], IGNORED, RETIRE, Source.TAINT, ["has no effect"], False, id="a taint that has no effect"),
        pytest.param([], intent("retire") | IGNORED, RETIRE, Source.ANNOTATION, [], True, id="retire where drains are ignored"),
        pytest.param(
            [evacuate("retire")], intent("retire") | IGNORED, RETIRE, Source.TAINT, ["no effect"], True, id="ignored taint beside retire"
        ),
    ],
)
@pytest.mark.parametrize("cordoned", [False, True], ids=["open", "cordoned"])
def test_who_says_what_a_drain_is_for(
    taints: list[Taint],
    annotations: dict[str, str],
    announced: Intent | None,
    source: Source,
    problems: list[str],
    leaving: bool,
    cordoned: bool,
) -> None:
    seen = marks(*taints, annotations=annotations, cordoned=cordoned)
    assert (seen.announced, seen.source, seen.leaving) == (announced, source, leaving)
    assert seen.intent is (None if announced is REBOOT and not cordoned else announced), "a reboot counts only under a cordon"
    assert all(text in " ".join(seen.problems) for text in problems) and bool(seen.problems) is bool(problems)
    assert seen.assumable is (announced is None and not problems)


@pytest.mark.parametrize(
    ("found", "expected", "draining"),
    [
        pytest.param(marks(), False, False, id="nothing"),
        pytest.param(marks(annotations=intent("reboot")), True, False, id="a reboot is announced for a cordon to come"),
        pytest.param(marks(annotations=KURED), True, False, id="kured waits for its turn, for hours"),
        pytest.param(marks(annotations=KURED, cordoned=True), True, True, id="kured drains"),
        pytest.param(marks(DISRUPTED), True, True, id="an autoscaler need not cordon"),
        pytest.param(marks(evacuate("reboot")), True, True, id="the taint keeps pods off by itself"),
        pytest.param(marks(annotations=intent("retire")), True, True, id="retire is announced"),
        pytest.param(marks(taint(names.CORDON_TAINT)), True, True, id="a cordon is its taint, too"),
    ],
)
def test_when_a_node_is_drained(found: Marks, expected: bool, draining: bool) -> None:
    assert (found.drain_expected, found.draining) == (expected, draining)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param({"annotations": intent("retire")}, (RETIRE, RETIRE), id="retire is announced"),
        pytest.param({"annotations": intent("reboot")}, (REBOOT, REBOOT), id="reboot is announced"),
        pytest.param({"annotations": intent("rebot"), "cordoned": True}, (None, None), id="a wrong word"),
        pytest.param({"taints": [evacuate("reboot")]}, (REBOOT, REBOOT), id="the taint, reboot"),
        pytest.param({"taints": [evacuate()]}, (RETIRE, RETIRE), id="the taint alone"),
        pytest.param({"taints": [DELETED]}, (None, RETIRE), id="an autoscaler is going to drain"),
        pytest.param({"annotations": KURED, "cordoned": True}, (None, REBOOT), id="kured drains"),
        pytest.param({"annotations": KURED}, (None, None), id="kured waits"),
        pytest.param({"cordoned": True}, (None, None), id="a cordon has to last"),
    ],
)
def test_who_asks_for_an_evacuation_by_policy(found: dict[str, Any], wanted: tuple[Intent | None, Intent | None]) -> None:
    taints = found.pop("taints", [])
    for policy, expected in zip((NodePolicy.IGNORE, NodePolicy.NO_SCHEDULE, NodePolicy.EVACUATE), (None, *wanted), strict=True):
        wish = marks(*taints, **found, policy=policy).wish
        assert (wish.intent if wish else None) is expected, policy


def test_the_nodes_own_policy_outranks_the_flag_and_a_wrong_word_is_named() -> None:
    assert marks(annotations={names.NODE_DRAIN_POLICY: "Evacuate"}, policy=NodePolicy.IGNORE).policy is NodePolicy.EVACUATE
    wrong = marks(annotations={names.NODE_DRAIN_POLICY: "noschedule"}, policy=NodePolicy.IGNORE)
    assert wrong.policy is NodePolicy.IGNORE and "'noschedule'" in wrong.problems[0]


# --- a cordon that nobody explains ------------------------------------------------------------------------------------


def cordon(later: float, before: Marks | None = None, *, policy: NodePolicy = NodePolicy.EVACUATE, **changes: Any) -> Marks:
    return marks(cordoned=True, policy=policy, now=NOW + later, before=before, **changes)


def test_with_evacuate_a_cordon_means_retire_once_it_has_lasted_and_announces_nothing() -> None:
    first = cordon(0)
    early = cordon(59, first)
    due = cordon(60, early)
    assert (first.intent, first.cordon_counts_at, early.intent, early.cordon_counts_at) == (None, NOW + 60, None, NOW + 60)
    assert (due.intent, due.announced, due.source, due.cordon_counts_at, due.leaving) == (RETIRE, None, Source.CORDON, None, False)
    assert due.wish is not None and due.wish.intent is RETIRE
    for policy in (NodePolicy.IGNORE, NodePolicy.NO_SCHEDULE):
        assert cordon(3600, cordon(0, policy=policy), policy=policy).intent is None


def test_the_cordon_of_a_maintenance_that_drains_later_never_means_retire_but_one_that_was_there_before_does() -> None:
    def later(prior: bool) -> Marks:
        noted = {names.of_driver(DRIVER, names.MAINTENANCE_RECORD): json.dumps({"uid": "uid-n1", "prior": prior})}
        return cordon(3600, cordon(0, annotations=noted), annotations=noted)

    assert (later(False).intent, later(False).wish, later(False).planned) == (None, None, True)
    assert (later(True).intent, later(True).planned) == (RETIRE, False)


def test_an_announcement_that_is_taken_back_under_a_cordon_does_not_become_a_cordon_that_has_lasted() -> None:
    announced = cordon(3600, cordon(0), annotations=intent("retire"))
    undone = cordon(3601, announced)
    assert (undone.wish, undone.cordon_counts_at) == (None, NOW + 3661)


def test_after_a_restart_the_noted_closing_tells_since_when_it_is_cordoned() -> None:
    noted = {RECORD: Record(closed_at=NOW - 61).as_text("uid-n1") or ""}
    assert cordon(0, annotations=noted).intent is RETIRE
    assert cordon(-2, annotations=noted).cordon_counts_at == NOW - 1


def test_a_clock_that_was_set_back_starts_the_cordon_anew_and_of_another_machine_nothing_is_remembered() -> None:
    assert cordon(-3600, cordon(0)).cordon_counts_at == NOW - 3540
    assert cordon(50, cordon(0), uid="uid-of-another").cordon_counts_at == NOW + 110


# --- words that are for one drain -------------------------------------------------------------------------------------


class Machine:
    """One node, and a process that reads it and notes what it has read."""

    def __init__(self, **annotations: str) -> None:
        self.annotations = annotations
        self.before: Marks | None = None

    def look(self, *taints: Taint, cordoned: bool = False, uid: str = "uid-n1") -> Marks:
        self.before = marks(*taints, cordoned=cordoned, annotations=dict(self.annotations), before=self.before, uid=uid)
        self.annotations.pop(RECORD, None)
        self.annotations |= {RECORD: text} if (text := self.before.record.as_text(uid)) else {}
        return self.before


WORDS = [
    pytest.param(names.DRAIN_INTENT, "reboot", id="a reboot that was announced"),
    pytest.param(names.KURED_REBOOTS, "2026-01-01T00:00:00Z", id="kured's annotation"),
    pytest.param(names.FORCE_DRAIN, "the disk is dead", id="force-drain"),
]


def counts(seen: Marks) -> bool:
    return seen.announced is not None or bool(seen.forced)


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a new process for each look"])
@pytest.mark.parametrize(("key", "text"), WORDS)
def test_a_word_that_stood_while_the_node_was_shut_is_spent_once_it_is_open(key: str, text: str, restarts: bool) -> None:
    machine = Machine(**{key: text})
    for cordoned, expected in [(False, True), (True, True), (True, True), (False, False), (True, False), (False, False)]:
        assert counts(machine.look(cordoned=cordoned)) is expected
        machine.before = None if restarts else machine.before
    seen = machine.look()
    assert any(key in note and "remove it and set again" not in note and "remove it" in note for note in seen.notes)
    assert bool(seen.problems) is (key != names.KURED_REBOOTS), "kured takes it away a moment later, after each reboot: no warning"
    machine.annotations.pop(key)
    machine.look()
    machine.annotations[key] = text
    assert counts(machine.look(cordoned=True)), "set again it is a new word"


@pytest.mark.parametrize(("key", "text"), WORDS)
def test_a_word_that_was_for_an_earlier_machine_of_the_name_is_spent(key: str, text: str) -> None:
    machine = Machine(**{key: text})
    machine.look(cordoned=True)
    machine.before = None
    assert not counts(machine.look(cordoned=True, uid="uid-of-another")), "its disks are not those of this one"
    machine.before = None
    assert not counts(machine.look(cordoned=True, uid="uid-of-another"))


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a new process for each look"])
def test_a_force_drain_beside_an_announcement_is_for_that_one_though_nobody_shuts_the_node(restarts: bool) -> None:
    machine = Machine(**intent("retire"), **{names.FORCE_DRAIN: "the disk is dead"})
    assert machine.look().forced
    machine.before = None if restarts else machine.before
    del machine.annotations[names.DRAIN_INTENT]
    assert not machine.look().forced
    assert not machine.look(cordoned=True).forced, "nor at the next drain, months later"


STEPS = st.lists(st.tuples(st.sampled_from([None, "monday", "tuesday", ""]), st.booleans(), st.booleans()), min_size=3, max_size=12)


@given(STEPS)
def test_no_word_counts_under_two_cordons_between_which_it_stayed(steps: list[tuple[str | None, bool, bool]]) -> None:
    """Whatever is written, and however often the process dies after its note."""
    machine, present, counted, over = Machine(), None, False, False
    for value, cordoned, restarts in steps:
        machine.annotations.pop(names.KURED_REBOOTS, None)
        machine.annotations |= {} if value is None else {names.KURED_REBOOTS: value}
        counted, over = (False, False) if value != present else (counted, over)
        present = value
        seen = machine.look(cordoned=cordoned)
        over = over or (counted and not cordoned)
        counted = counted or (value is not None and cordoned)
        assert seen.intent is (REBOOT if cordoned and value is not None and not over else None)
        machine.before = None if restarts else machine.before


# --- the record -------------------------------------------------------------------------------------------------------


def test_the_record_is_read_as_it_was_written_and_that_of_another_driver_is_none_of_ours() -> None:
    record = Record(State.IN_PROGRESS, NOW - 60, NOW - 70)
    text = record.as_text("uid-n1") or ""
    assert marks(annotations={RECORD: text}).record == record
    others = names.of_driver("other.example.com", names.DRAIN_RECORD)
    assert (marks(annotations={others: text}).record, Record().as_text("uid-n1")) == (Record(), None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("nonsense", "not what a sidecar writes", id="no JSON"),
        pytest.param("[]", "not what a sidecar writes", id="a list"),
        pytest.param('{"uid":"uid-n1","state":"Done"}', "not what a sidecar writes", id="no state"),
        pytest.param('{"uid":"uid-n1","used":7}', "not what a sidecar writes", id="no words"),
        pytest.param('{"uid":"uid-old","state":"Overridden","startedAt":"2020-01-01T00:00:00Z"}', "earlier Node", id="another machine"),
        pytest.param(json.dumps({"uid": "uid-n1", "startedAt": stamp(-5)}), "in the future", id="a start in the future"),
    ],
)
def test_a_record_that_makes_no_sense_is_not_there_and_is_named(text: str, problem: str) -> None:
    seen = marks(annotations={RECORD: text})
    assert seen.record == Record() and problem in seen.problems[0]


ANY_TEXT = st.text(max_size=30) | st.sampled_from(['{"uid":"uid-n1"}', '{"uid":"uid-n1","state":[],"spent":{"a":1},"closedAt":[]}'])
KEYS = [RECORD, names.DRAIN_INTENT, names.NODE_DRAIN_POLICY, names.FORCE_DRAIN, names.KURED_REBOOTS]


@given(st.dictionaries(st.sampled_from(KEYS), ANY_TEXT), st.text(max_size=20))
def test_whatever_stands_there_is_read_without_a_crash_and_no_time_is_ahead(notes: dict[str, str], value: str) -> None:
    seen = read(node(taints=(evacuate(value),), annotations=notes), DRIVER, now=NOW)
    assert seen.announced is not None
    assert all(at is None or at <= NOW for at in (seen.record.started_at, seen.record.closed_at))
