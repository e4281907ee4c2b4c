"""Each change is told once, on the object it is about; a restart tells nothing again."""

from dataclasses import replace

from sidecar.drain.facts.node_marks import OF_MARKS
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.events import MOST_AT_ONCE, DrainEvent, events
from sidecar.drain.publish.report import ReportContext, body
from sidecar.drain.vocabulary import MEANING, Intent, Reason, Status
from sidecar.model.objects import Json
from tests.harness.drain.judgements import BOTH, NODE, UID, blocked, blocker, held, ready, verdict


class AnnouncedClaim:
    """A node's sidecar, whose only memory is the report it stores."""

    def __init__(self) -> None:
        self.report: Json | None = None

    def look(self, after: Assessment, *, observed: bool = True, intent: Intent | None = None) -> tuple[DrainEvent, ...]:
        found = events(self.report["status"] if self.report else None, after, observed=observed, intent=intent)
        self.report = body(after, previous=self.report, agent="1", context=ReportContext(observed=observed, intent=intent))
        return found


def said(found: tuple[DrainEvent, ...]) -> list[tuple[str, str]]:
    return [(each.ref.name, each.reason) for each in found]


def test_D11_a_claim_is_told_once_that_it_blocks_and_once_that_it_does_not() -> None:
    told = AnnouncedClaim()
    (first,) = told.look(blocked())
    assert (first.ref.kind, first.ref.namespace, first.ref.name, first.ref.uid) == ("PersistentVolumeClaim", "shop", "data-0", "uid-data-0")
    assert (first.type_, first.reason) == ("Warning", "BlocksNodeDrain")
    remedy = MEANING[Reason.LAST_COPY].remedy
    assert first.message == f"Keeps node n1 from being retired: LastCopy: {MEANING[Reason.LAST_COPY].says}. What to do: {remedy}."
    assert told.look(blocked()) == ()
    relieved = told.look(ready(volumes=(held(),)))
    assert said(relieved) == [("n1", "NodeRetireReady"), ("data-0", "NoLongerBlocksNodeDrain")]
    assert told.look(ready(volumes=(held(),))) == ()


def test_D11_a_restart_repeats_nothing() -> None:
    """Nothing but the stored report is handed on."""
    told, again = AnnouncedClaim(), AnnouncedClaim()
    told.look(blocked(blocker("a"), blocker("b")))
    again.report = told.report
    assert again.look(blocked(blocker("b"), blocker("a"))) == ()


def test_in_normal_life_claims_are_told_nothing() -> None:
    told = AnnouncedClaim()
    assert told.look(ready(), observed=False) == ()
    assert said(told.look(blocked(), observed=False)) == [("n1", "NodeRetireBlocked")]
    assert said(told.look(blocked())) == [("data-0", "BlocksNodeDrain")], "only now is it in somebody's way"
    assert told.look(blocked(), observed=False) == ()
    assert said(told.look(blocked())) == [("data-0", "BlocksNodeDrain")], "another cordon is another story"


def test_the_node_is_told_when_a_verdict_changes() -> None:
    for status, drain, retire in [
        (Status.TRUE, "NodeDrainReady", "NodeRetireReady"),
        (Status.FALSE, "NodeDrainBlocked", "NodeRetireBlocked"),
        (Status.UNKNOWN, "NodeDrainUnknown", "NodeRetireUnknown"),
    ]:
        other = Status.TRUE if status is Status.FALSE else Status.FALSE
        told = AnnouncedClaim()
        told.look(ready(drain=verdict(other), retire=verdict(other)))
        after = ready(drain=verdict(status, Reason.NOT_KNOWN), retire=verdict(status, Reason.NOT_KNOWN))
        found = told.look(after)
        assert [each.reason for each in found] == [drain, retire]
        assert {each.type_ for each in found} == {"Normal" if status is Status.TRUE else "Warning"}
        assert {(each.ref.kind, each.ref.name, each.ref.uid) for each in found} == {("Node", NODE, UID)}
        assert told.look(after) == ()


def test_the_node_is_told_reason_and_remedy() -> None:
    told = AnnouncedClaim()
    told.look(ready(), observed=False)
    (event,) = told.look(blocked(), observed=False)
    remedy = MEANING[Reason.LAST_COPY].remedy
    assert event.message == f"local.example.com: LastCopy: PersistentVolumeClaim shop/data-0: LastCopy. What to do: {remedy}."
    assert event.type_ == "Normal", "in normal life this is nobody's trouble"


def test_of_a_reboot_only_those_are_told_that_block_it() -> None:
    both = blocked(blocker("a", blocks=BOTH), blocker("b"))
    told = AnnouncedClaim()
    assert said(told.look(both, intent=Intent.REBOOT)) == [("a", "BlocksNodeDrain")]
    assert said(told.look(both, intent=Intent.RETIRE)) == [("b", "BlocksNodeDrain")]
    assert said(told.look(both, intent=Intent.REBOOT)) == [("b", "NoLongerBlocksNodeDrain")]


def test_what_is_unknown_ends_no_blocker() -> None:
    told = AnnouncedClaim()
    told.look(blocked())
    unknown = ready(volumes=(held(),), drain=verdict(Status.UNKNOWN, Reason.NOT_KNOWN), retire=verdict(Status.UNKNOWN, Reason.NOT_KNOWN))
    assert {reason for _, reason in said(told.look(unknown))} == {"NodeDrainUnknown", "NodeRetireUnknown"}
    assert [name for name, _ in said(told.look(blocked()))] == ["n1", "n1"], "the claim was told before, and is not told again"


def test_many_claims_are_told_bit_by_bit_and_each_once() -> None:
    count = 2 * MOST_AT_ONCE + 7
    many = blocked(*(blocker(f"data-{number:03}") for number in range(count)))
    told = AnnouncedClaim()
    looks = [told.look(many) for _ in range(4)]
    assert [len(found) for found in looks] == [MOST_AT_ONCE, MOST_AT_ONCE, 7, 0]
    assert len({each.ref for found in looks for each in found}) == count
    assert [name for name, _ in said(looks[0])] == [f"data-{number:03}" for number in range(MOST_AT_ONCE)]


def test_G1_of_a_former_node_nothing_is_remembered() -> None:
    told = AnnouncedClaim()
    told.look(blocked())
    another = replace(blocked(retire=verdict(Status.TRUE)), node_uid="another")
    assert said(told.look(another)) == [("data-0", "BlocksNodeDrain")]


def test_what_is_wrong_with_marks_is_told_once_and_again_when_it_changes() -> None:
    told, again = AnnouncedClaim(), AnnouncedClaim()
    wrong, other = (ready(notes=("other volumes: 3", f"{OF_MARKS}drain-intent says '{word}'")) for word in ("retier", "rebot"))
    (first,) = told.look(wrong, observed=False)
    assert (first.type_, first.reason, first.ref.kind, first.ref.uid) == ("Warning", "NodeMarksWrong", "Node", UID)
    assert first.message == "local.example.com: drain-intent says 'retier'"
    again.report = told.report
    assert again.look(wrong, observed=False) == ()
    assert [event.message for event in again.look(other)] == ["local.example.com: drain-intent says 'rebot'"]
    assert again.look(ready()) == ()
    assert said(again.look(other)) == [(NODE, "NodeMarksWrong")], "somebody has done it again"


def test_garbage_in_the_notes_counts_as_nothing() -> None:
    for notes in [5, "text", [5, None], {"a": 1}]:
        assert said(events({"nodeUID": UID, "notes": notes}, ready(notes=(f"{OF_MARKS}x",)), observed=False)) == [(NODE, "NodeMarksWrong")]


def test_garbage_in_the_report_counts_as_nothing() -> None:
    for garbage in [{}, {"announced": 5}, {"announced": [5, {"name": 7}], "verdicts": []}, {"verdicts": {"drain": 3}}]:
        assert said(events({"nodeUID": UID, **garbage}, blocked(), observed=True)) == [("data-0", "BlocksNodeDrain")]
