"""What is read from a node's marks, garbage included, and for how long an announced reboot counts."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.announcement import Source
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.drain.facts.own_notes import State, digest
from sidecar.drain.facts.reboot_note import RebootNote
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
KURED = {names.KURED_REBOOTS: "2026-01-01T00:00:00Z"}


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


def test_the_intent_and_its_source() -> None:
    for taints, annotations, intent, source in [
        ([evacuate("reboot")], {}, Intent.REBOOT, Source.TAINT),  # taint
        ([evacuate()], intended("reboot"), Intent.REBOOT, Source.ANNOTATION),  # bare taint, annotation
        ([evacuate()], {}, Intent.RETIRE, Source.TAINT),  # bare taint is the stricter
        ([], intended("reboot"), Intent.REBOOT, Source.ANNOTATION),  # annotation alone
        ([], intended(" retire "), Intent.RETIRE, Source.ANNOTATION),  # annotation with blanks
        ([], intended(""), None, Source.NONE),  # empty annotation
        ([DISRUPTED], {}, Intent.RETIRE, Source.AUTOSCALER),  # karpenter
        ([DELETED], {}, Intent.RETIRE, Source.AUTOSCALER),  # cluster-autoscaler
        ([], KURED, Intent.REBOOT, Source.KURED),  # kured
        ([evacuate("retire")], intended("retire"), Intent.RETIRE, Source.TAINT),  # taint and annotation agree
    ]:
        cordoned, alone = (look(*taints, annotations=annotations, unschedulable=shut) for shut in (True, False))
        assert (cordoned.intent, cordoned.announced, cordoned.source, cordoned.problems) == (intent, intent, source, ())
        assert (alone.announced, alone.source, alone.problems) == (intent, source, ())
        assert alone.intent is (None if intent is Intent.REBOOT else intent), "a reboot counts only while the node is cordoned"


def test_of_two_intents_the_stricter_applies_and_both_are_named() -> None:
    for taints, annotations, source, named in [
        ([evacuate("reboot")], intended("retire"), Source.ANNOTATION, ["evacuate=reboot", "drain-intent: retire"]),
        ([evacuate("retire")], intended("reboot"), Source.TAINT, ["evacuate=retire", "drain-intent: reboot"]),
        ([DISRUPTED], intended("reboot"), Source.AUTOSCALER, ["karpenter.sh/disrupted", "drain-intent: reboot"]),
        ([DELETED], KURED, Source.AUTOSCALER, ["ToBeDeletedByClusterAutoscaler", "kured"]),
        ([evacuate("reboot"), taint(names.EVACUATE_TAINT, "retire", "NoExecute")], {}, Source.TAINT, ["=reboot:", "=retire:"]),
    ]:
        seen = look(*taints, annotations=annotations)
        assert (seen.intent, seen.source) == (Intent.RETIRE, source)
        assert len(seen.problems) == 1 and all(text in seen.problems[0] for text in named)


def test_a_word_nobody_knows_on_the_taint_counts_as_retire_and_is_named() -> None:
    seen = look(evacuate("Reboot"))
    assert (seen.intent, seen.source) == (Intent.RETIRE, Source.TAINT)
    assert any("'Reboot'" in problem for problem in seen.problems)


def test_an_unknown_word_in_the_annotation_counts_only_beside_another_mark() -> None:
    alone, beside = look(annotations=intended("retier")), look(evacuate("reboot"), annotations=intended("retier"))
    assert (alone.intent, alone.source) == (None, Source.NONE)
    assert beside.intent is Intent.RETIRE
    assert all(any("'retier'" in problem for problem in seen.problems) for seen in (alone, beside))


def test_the_policy_of_the_node_and_a_wrong_word() -> None:
    assert look(annotations={names.NODE_DRAIN_POLICY: "Evacuate"}).policy is NodePolicy.EVACUATE
    garbage = look(annotations={names.NODE_DRAIN_POLICY: "noschedule"})
    assert garbage.policy is None and "'noschedule'" in garbage.problems[0]


def test_a_taint_that_the_policy_ignores_is_named() -> None:
    for annotation, default_policy, told in [
        (None, NodePolicy.IGNORE, True),
        ("Ignore", NodePolicy.EVACUATE, True),
        ("Ignore", None, True),
        ("NoSchedule", NodePolicy.IGNORE, False),
        (None, NodePolicy.NO_SCHEDULE, False),
        (None, None, False),
    ]:
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


def test_a_noted_time_that_cannot_be_used_is_named() -> None:
    for text, why in [("soon", "not a time"), (stamp(-5), "future")]:
        for key in [START, CLOSED]:
            seen = look(annotations={key: text})
            assert (seen.started_at, seen.closed_at) == (None, None)
            assert why in seen.problems[0] and text in seen.problems[0]
            assert bool(seen.start_problem) is (key == START) is seen.marked


def test_an_override_is_its_text_and_one_that_has_had_its_time_is_named() -> None:
    assert look(annotations={names.FORCE_DRAIN: " disk is dead "}).override == "disk is dead"
    assert look(annotations={names.FORCE_DRAIN: "  "}).override == ""
    spent = look(annotations={names.FORCE_DRAIN: "disk is dead", SPENT: digest("disk is dead")})
    assert spent.override == "" and spent.force_drain == "disk is dead" and names.FORCE_DRAIN in spent.problems[0]
    assert look(annotations={names.FORCE_DRAIN: "another reason", SPENT: digest("disk is dead")}).override == "another reason"


def test_a_cordon_is_the_field_or_its_taint() -> None:
    assert look(unschedulable=True).cordoned and look(taint(names.CORDON_TAINT)).cordoned


# a reboot that is announced


REBOOT = names.of_driver(DRIVER, names.REBOOT_INTENT)
REBOOTING: dict[str, str] = {names.DRAIN_INTENT: "reboot"}


class Machine:
    """One node, and a process that reads it and notes what it reads, as `on_node` does."""

    def __init__(self, **annotations: str) -> None:
        self.annotations = {**REBOOTING, **annotations}
        self.cordoned = False
        self.before: Signals | None = None

    def look(self, *, cordoned: bool | None = None, noted: bool = True) -> Signals:
        self.cordoned = self.cordoned if cordoned is None else cordoned
        found = node(annotations=dict(self.annotations), unschedulable=self.cordoned)
        self.before = read(found, DRIVER, now=NOW, before=self.before)
        if noted:
            self.note(self.before.reboot)
        return self.before

    def note(self, value: RebootNote | None) -> None:
        self.annotations.pop(REBOOT, None)
        self.annotations |= {REBOOT: value.value} if value else {}

    def restart(self) -> None:
        self.before = None


def counts(seen: Signals) -> tuple[Intent | None, Intent | None]:
    """The intent that counts, and the one that closes the node and asks for its evacuation."""
    return seen.intent, seen.declared


def test_an_uncordon_for_less_than_a_second_ends_it_though_nothing_could_be_noted() -> None:
    machine = Machine()
    machine.look(cordoned=True)
    machine.look(cordoned=False, noted=False)
    assert counts(machine.look(cordoned=True, noted=False)) == (None, None)
    assert counts(machine.look(noted=False)) == (None, None)


def test_an_announced_reboot_without_a_cordon_is_no_drain_yet() -> None:
    """Kured annotates a node when a reboot is needed, and then waits for its turn, for hours."""
    announced = [look(annotations=REBOOTING), look(annotations=KURED)]
    assert [(seen.observed, seen.draining) for seen in announced] == [(True, False)] * 2
    begun = [look(annotations=KURED, unschedulable=True), look(DISRUPTED), look(evacuate("reboot")), look(annotations=intended("retire"))]
    assert [seen.draining for seen in begun] == [True] * 4 and not look().draining


def test_a_reboot_that_was_announced_for_a_former_node_is_spent() -> None:
    """Its disks are not those of this one."""
    for note in ["InEffect", "Spent", "nonsense"]:
        seen = look(annotations={**REBOOTING, REBOOT: note, MARKED: "uid-of-another"}, unschedulable=True)
        assert (*counts(seen), seen.reboot) == (None, None, RebootNote.SPENT)


# a cordon that nobody explains


def cordon_at(now: float, before: Signals | None = None, *, cordoned: bool = True, policy: str = "Evacuate", **notes: str) -> Signals:
    found = node(unschedulable=cordoned, annotations={names.NODE_DRAIN_POLICY: policy, **notes})
    return read(found, DRIVER, now=now, before=before, cordon_delay=60)


def test_with_evacuate_a_cordon_means_retire_once_it_has_lasted() -> None:
    first = cordon_at(NOW)
    assert (first.intent, first.source, first.cordon_counts_at) == (None, Source.NONE, NOW + 60)
    later = cordon_at(NOW + 59, first)
    assert (later.intent, later.cordon_counts_at) == (None, NOW + 60)
    due = cordon_at(NOW + 60, later)
    assert (due.intent, due.announced, due.source, due.cordon_counts_at) == (Intent.RETIRE, None, Source.CORDON, None)


def test_with_another_policy_it_never_does() -> None:
    for policy in ["Ignore", "NoSchedule", "nonsense", ""]:
        seen = cordon_at(NOW + 3600, cordon_at(NOW, policy=policy), policy=policy)
        assert (seen.intent, seen.source, seen.cordon_counts_at) == (None, Source.NONE, None)


def test_after_a_restart_the_noted_closing_tells_since_when() -> None:
    assert cordon_at(NOW + 30, **{CLOSED: stamp(0)}).cordon_counts_at == NOW + 60
    assert cordon_at(NOW + 61, **{CLOSED: stamp(0)}).intent is Intent.RETIRE


def test_of_another_machine_under_the_name_nothing_is_remembered() -> None:
    before = cordon_at(NOW)
    other = node(uid="uid-of-another", unschedulable=True, annotations={names.NODE_DRAIN_POLICY: "Evacuate"})
    assert read(other, DRIVER, now=NOW + 50, before=before, cordon_delay=60).cordon_counts_at == NOW + 110


MILD = st.sampled_from(["InEffect", "Spent", "", "garbage"])


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["", "reboot", "retire", "garbage"]))), MILD)
def test_a_reboot_is_never_an_intent_of_a_node_that_is_not_cordoned(course: list[tuple[bool, bool, str]], mark: str) -> None:
    """Nor after an uncordon, for as long as the annotation stays."""
    machine, worn, in_effect = Machine(**({REBOOT: mark} if mark else {})), False, False
    for cordoned, noted, text in course:
        machine.annotations[names.DRAIN_INTENT] = text
        seen = machine.look(cordoned=cordoned, noted=noted)
        was_in_effect = seen.intent is Intent.REBOOT
        assert not was_in_effect or (cordoned and text == "reboot" and not worn)
        worn = text == "reboot" and (worn or (not cordoned and in_effect))
        in_effect = was_in_effect and text == "reboot"


KEYS = [START, CLOSED, MARKED, SPENT, REBOOT, names.DRAIN_INTENT, names.NODE_DRAIN_POLICY, names.FORCE_DRAIN]


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30)), st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_written_there_is_read_without_a_crash_and_no_anchor_is_ahead(notes: dict[str, str], state: str, value: str) -> None:
    seen = look(evacuate(value), labels={STATE: state}, annotations=notes)
    assert seen.announced is not None
    assert all(at is None or at <= NOW for at in (seen.started_at, seen.closed_at))
    assert all(problem and "\n" not in problem.replace(value, "") for problem in seen.problems)


def test_a_node_leaves_if_somebody_says_so_and_nobody_anything_else() -> None:
    for unschedulable in [
        False,  # open
        True,  # cordoned
    ]:
        for taints, annotations, leaving in [
            ([evacuate("retire")], {}, True),  # taint
            ([], intended("retire"), True),  # annotation
            ([DELETED], {}, True),  # autoscaler
            ([evacuate()], intended("retire"), True),  # bare taint beside a word
            ([evacuate(), DISRUPTED], {}, True),  # bare taint beside an autoscaler
            ([], {}, False),  # nobody
            ([evacuate()], {}, False),  # bare taint
            ([evacuate("retier")], {}, False),  # wrong word in the taint
            ([evacuate("retier")], intended("retire"), False),  # wrong word beside a right one
            ([], intended("retier"), False),  # wrong word in the annotation
            ([DELETED], intended("retier"), False),  # wrong word beside an autoscaler
            ([evacuate("reboot")], {}, False),  # reboot
            ([evacuate("retire")], intended("reboot"), False),  # two that contradict each other
            ([DELETED], intended("reboot"), False),  # an autoscaler and a reboot
            ([DELETED], KURED, False),  # an autoscaler and kured
            ([], intended("") | {names.NODE_DRAIN_POLICY: "Evacuate"}, False),  # a policy is no announcement
            ([evacuate("retire")], {names.NODE_DRAIN_POLICY: "Ignore"}, False),  # a taint that has no effect
            ([], intended("retire") | {names.NODE_DRAIN_POLICY: "Ignore"}, True),  # a word where drains are ignored
            ([DELETED], {names.NODE_DRAIN_POLICY: "Ignore"}, True),  # an autoscaler where drains are ignored
        ]:
            assert look(*taints, annotations=annotations, unschedulable=unschedulable).leaving is leaving


def test_a_cordon_that_counts_as_retire_is_no_announcement() -> None:
    before = read(node(unschedulable=True), DRIVER, now=NOW, default_policy=NodePolicy.EVACUATE)
    seen = read(node(unschedulable=True), DRIVER, now=NOW + 3600, default_policy=NodePolicy.EVACUATE, before=before)
    assert seen.intent is Intent.RETIRE
    assert not seen.leaving


# --- For how long the annotation counts by which kured announces a reboot: value by value, over restarts, beside other drivers ---


MARK = names.of_driver(DRIVER, names.KURED_REBOOT)

MONDAY, TUESDAY = "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"


class KuredMachine:
    """One node, and a process that reads it and notes what it reads, as `on_node` does."""

    def __init__(self, driver: str = DRIVER) -> None:
        self.annotations: dict[str, str] = {}
        self.cordoned = False
        self.driver, self.before = driver, None

    before: Signals | None

    def look(self, value: str | None = None, *, cordoned: bool = False, noted: bool = True) -> Intent | None:
        """The intent that counts; `value` is what kured has written, None: nothing."""
        self.annotations.pop(names.KURED_REBOOTS, None)
        self.annotations |= {} if value is None else {names.KURED_REBOOTS: value}
        found = node(annotations=dict(self.annotations), unschedulable=cordoned)
        self.before = read(found, self.driver, now=NOW, before=self.before)
        if noted:
            self.note(self.before.kured.mark)
        return self.before.intent

    def note(self, mark: str | None) -> None:
        key = names.of_driver(self.driver, names.KURED_REBOOT)
        self.annotations.pop(key, None)
        self.annotations |= {key: mark} if mark else {}

    def restart(self) -> None:
        self.before = None


def test_what_was_written_for_a_former_node_is_spent_and_a_new_value_counts() -> None:
    for state in ["InEffect", "Spent"]:
        notes = {MARK: f"{state} {digest(MONDAY)}", MARKED: "uid-of-another"}
        assert [_of(notes, value) for value in (MONDAY, TUESDAY)] == [None, Intent.REBOOT]


def _of(notes: dict[str, str], value: str) -> Intent | None:
    return read(node(annotations=notes | {names.KURED_REBOOTS: value}, unschedulable=True), DRIVER, now=NOW).intent


STEPS = st.lists(st.tuples(st.sampled_from([None, MONDAY, TUESDAY, ""]), st.booleans(), st.booleans(), st.booleans()), max_size=12)


@given(STEPS)
def test_no_value_ever_counts_under_two_cordons_between_which_it_stayed(steps: list[tuple[str | None, bool, bool, bool]]) -> None:
    """Whatever is written, however often the process dies after its note, and whether notes are written or not while it lives."""
    machine, present, over = KuredMachine(), None, False
    counted = False
    for value, cordoned, noted, restarts in steps:
        counted, over = (False, False) if value != present else (counted, over)
        present = value
        seen = machine.look(value, cordoned=cordoned, noted=noted or restarts)
        over = over or (counted and not cordoned)
        counted = counted or (value is not None and cordoned)
        assert seen is (Intent.REBOOT if cordoned and value is not None and not over else None)
        if restarts:
            machine.restart()


def test_an_annotation_that_is_left_behind_is_a_note_and_no_problem() -> None:
    """kured takes it away a moment later, after each reboot: that is no warning."""
    machine = KuredMachine()
    for cordoned in (True, False):
        machine.look(MONDAY, cordoned=cordoned)
    assert machine.before is not None and machine.before.problems == ()
    (note,) = machine.before.notes
    assert names.KURED_REBOOTS in note and "cordon that is over" in note and "remove it" in note


def test_a_mark_that_nobody_of_us_wrote_counts_as_spent() -> None:
    for text in ["ineffect", "Spent", f"Ineffect {digest(MONDAY)}", "InEffect nonsense", f"Spent  {digest(TUESDAY)}"]:
        assert _of({MARK: text}, MONDAY) is None
