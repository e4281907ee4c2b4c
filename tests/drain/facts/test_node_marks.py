"""What is read from a node's marks, garbage included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.node_marks import OF_MARKS, NodePolicy, Signals, Source, State, digest, read
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Taint
from tests.harness.drain.samples import DRIVER, NOW, node, stamp, taint

START = names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
CLOSED = names.of_driver(DRIVER, names.CLOSED_AT)
STATE = names.of_driver(DRIVER, names.EVACUATION_STATE)
MARKED = names.of_driver(DRIVER, names.MARKED_NODE)
SPENT = names.of_driver(DRIVER, names.SPENT_OVERRIDE)
DISRUPTED, DELETED = (taint(key) for key in names.RETIRING_TAINTS)
KURED = {names.REBOOTING_NOTES[0]: "2026-01-01T00:00:00Z"}


def evacuate(value: str = "") -> Taint:
    return taint(names.EVACUATE_TAINT, value)


def look(
    *taints: Taint, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, unschedulable: bool = False
) -> Signals:
    return read(node(taints=taints, labels=labels or {}, annotations=annotations or {}, unschedulable=unschedulable), DRIVER, now=NOW)


def intended(word: str) -> dict[str, str]:
    return {names.DRAIN_INTENT: word}


def test_a_node_without_marks_asks_for_nothing() -> None:
    seen = look()
    assert (seen.cordoned, seen.evacuate, seen.intent, seen.source, seen.policy) == (False, (), None, Source.NONE, None)
    assert (seen.override, seen.started_at, seen.closed_at, seen.state, seen.marked, seen.problems) == ("", None, None, None, False, ())


@pytest.mark.parametrize(
    ("taints", "annotations", "intent", "source"),
    [
        pytest.param([evacuate("reboot")], {}, Intent.REBOOT, Source.TAINT, id="taint"),
        pytest.param([evacuate()], intended("reboot"), Intent.REBOOT, Source.ANNOTATION, id="bare taint, annotation"),
        pytest.param([evacuate()], {}, Intent.RETIRE, Source.TAINT, id="bare taint is the stricter"),
        pytest.param([], intended("reboot"), Intent.REBOOT, Source.ANNOTATION, id="annotation alone"),
        pytest.param([], intended(" retire "), Intent.RETIRE, Source.ANNOTATION, id="annotation with blanks"),
        pytest.param([], intended(""), None, Source.NONE, id="empty annotation"),
        pytest.param([DISRUPTED], {}, Intent.RETIRE, Source.AUTOSCALER, id="karpenter"),
        pytest.param([DELETED], {}, Intent.RETIRE, Source.AUTOSCALER, id="cluster-autoscaler"),
        pytest.param([], KURED, Intent.REBOOT, Source.KURED, id="kured"),
        pytest.param([evacuate("retire")], intended("retire"), Intent.RETIRE, Source.TAINT, id="taint and annotation agree"),
    ],
)
def test_the_intent_and_its_source(taints: list[Taint], annotations: dict[str, str], intent: Intent | None, source: Source) -> None:
    seen = look(*taints, annotations=annotations)
    assert (seen.intent, seen.source, seen.problems) == (intent, source, ())


@pytest.mark.parametrize(
    ("taints", "annotations", "source", "named"),
    [
        ([evacuate("reboot")], intended("retire"), Source.ANNOTATION, ["evacuate=reboot", "drain-intent: retire"]),
        ([evacuate("retire")], intended("reboot"), Source.TAINT, ["evacuate=retire", "drain-intent: reboot"]),
        ([DISRUPTED], intended("reboot"), Source.AUTOSCALER, ["karpenter.sh/disrupted", "drain-intent: reboot"]),
        ([DELETED], KURED, Source.AUTOSCALER, ["ToBeDeletedByClusterAutoscaler", "kured"]),
        ([evacuate("reboot"), taint(names.EVACUATE_TAINT, "retire", "NoExecute")], {}, Source.TAINT, ["=reboot:", "=retire:"]),
    ],
)
def test_of_two_intents_the_stricter_applies_and_both_are_named(
    taints: list[Taint], annotations: dict[str, str], source: Source, named: list[str]
) -> None:
    seen = look(*taints, annotations=annotations)
    assert (seen.intent, seen.source) == (Intent.RETIRE, source)
    assert len(seen.problems) == 1 and all(text in seen.problems[0] for text in named)


def test_a_word_nobody_knows_on_the_taint_counts_as_retire_and_is_named() -> None:
    seen = look(evacuate("Reboot"))
    assert (seen.intent, seen.source) == (Intent.RETIRE, Source.TAINT)
    assert any("'Reboot'" in problem for problem in seen.problems)


def test_a_word_nobody_knows_in_the_annotation_says_nothing_alone_and_the_stricter_beside_another() -> None:
    alone, beside = look(annotations=intended("retier")), look(evacuate("reboot"), annotations=intended("retier"))
    assert (alone.intent, alone.source) == (None, Source.NONE)
    assert beside.intent is Intent.RETIRE
    assert all(any("'retier'" in problem for problem in seen.problems) for seen in (alone, beside))


def test_the_policy_of_the_node_and_a_wrong_word() -> None:
    assert look(annotations={names.NODE_DRAIN_POLICY: "Evacuate"}).policy is NodePolicy.EVACUATE
    garbage = look(annotations={names.NODE_DRAIN_POLICY: "noschedule"})
    assert garbage.policy is None and "'noschedule'" in garbage.problems[0]


@pytest.mark.parametrize(
    ("annotation", "default_policy", "told"),
    [
        (None, NodePolicy.IGNORE, True),
        ("Ignore", NodePolicy.EVACUATE, True),
        ("Ignore", None, True),
        ("NoSchedule", NodePolicy.IGNORE, False),
        (None, NodePolicy.NO_SCHEDULE, False),
        (None, None, False),
    ],
)
def test_a_taint_that_the_policy_ignores_is_named(annotation: str | None, default_policy: NodePolicy | None, told: bool) -> None:
    notes = {names.NODE_DRAIN_POLICY: annotation} if annotation else {}
    seen = read(node(taints=(evacuate("retire"),), annotations=notes), DRIVER, now=NOW, default_policy=default_policy)
    assert ["evacuate=retire" in problem and "has no effect" in problem for problem in seen.problems] == [True] * told
    assert read(node(annotations=notes), DRIVER, now=NOW, default_policy=default_policy).problems == ()


def test_anchors_and_state_of_this_driver_are_read_and_those_of_another_are_not() -> None:
    own = look(labels={STATE: "InProgress"}, annotations={START: stamp(60), CLOSED: stamp(70)})
    assert (own.started_at, own.closed_at, own.state, own.marked) == (NOW - 60, NOW - 70, State.IN_PROGRESS, True)
    start, state = (
        names.of_driver("other.example.com", names.EVACUATION_STARTED_AT),
        names.of_driver("other.example.com", names.EVACUATION_STATE),
    )
    foreign = look(labels={state: "InProgress"}, annotations={start: stamp(60)})
    assert (foreign.started_at, foreign.state, foreign.marked, foreign.problems) == (None, None, False, ())


@pytest.mark.parametrize("key", [START, CLOSED])
@pytest.mark.parametrize(("text", "why"), [("soon", "not a time"), (stamp(-5), "future")])
def test_a_noted_time_that_cannot_be_used_is_named(key: str, text: str, why: str) -> None:
    seen = look(annotations={key: text})
    assert (seen.started_at, seen.closed_at) == (None, None)
    assert why in seen.problems[0] and text in seen.problems[0]
    assert bool(seen.start_problem) is (key == START) is seen.marked


def test_an_anchor_written_just_now_is_not_in_the_future() -> None:
    assert look(annotations={START: stamp(0)}).started_at == NOW


def test_a_wrong_state_is_named_and_still_counts_as_a_mark() -> None:
    seen = look(labels={STATE: "done"})
    assert (seen.state, seen.marked) == (None, True) and "'done'" in seen.problems[0]


def test_an_override_is_its_text_and_one_that_has_had_its_time_is_named() -> None:
    assert look(annotations={names.FORCE_DRAIN: " disk is dead "}).override == "disk is dead"
    assert look(annotations={names.FORCE_DRAIN: "  "}).override == ""
    spent = look(annotations={names.FORCE_DRAIN: "disk is dead", SPENT: digest("disk is dead")})
    assert spent.override == "" and spent.force_drain == "disk is dead" and names.FORCE_DRAIN in spent.problems[0]
    assert look(annotations={names.FORCE_DRAIN: "another reason", SPENT: digest("disk is dead")}).override == "another reason"


def test_a_cordon_is_the_field_or_its_taint() -> None:
    assert look(unschedulable=True).cordoned and look(taint(names.CORDON_TAINT)).cordoned


@pytest.mark.parametrize("key", [START, CLOSED, MARKED, names.DRAIN_INTENT, names.NODE_DRAIN_POLICY])
def test_of_what_is_quoted_only_the_beginning_is_told(key: str) -> None:
    seen = look(evacuate("reboot"), annotations={key: "garbage" * 10_000})
    assert seen.problems and all(("garbage" in problem or "reboot" in problem) and len(problem) < 400 for problem in seen.problems)


def test_problems_are_told_among_the_notes() -> None:
    seen = look(annotations=intended("retier"))
    assert seen.notes == tuple(f"{OF_MARKS}{problem}" for problem in seen.problems) != ()


KEYS = [START, CLOSED, MARKED, SPENT, names.DRAIN_INTENT, names.NODE_DRAIN_POLICY, names.FORCE_DRAIN]


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30)), st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_written_there_is_read_without_a_crash_and_no_anchor_is_ahead(notes: dict[str, str], state: str, value: str) -> None:
    seen = look(evacuate(value), labels={STATE: state}, annotations=notes)
    assert seen.intent is not None
    assert all(at is None or at <= NOW for at in (seen.started_at, seen.closed_at))
    assert all(problem and "\n" not in problem.replace(value, "") for problem in seen.problems)
