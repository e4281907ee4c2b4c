"""What is told as an Event, of the node and of claims that block: each change once."""

from typing import Any

import pytest

from sidecar.drain import report
from sidecar.drain.assess import Assessment
from sidecar.drain.gate import HeldPods
from sidecar.drain.marks import Marks
from sidecar.drain.report import MOST_CLAIMS, DrainEvent, changes
from sidecar.drain.words import Reason, Status
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.drain.samples import claim, idle, judged, marks, pod, snapshot, used, volume

TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN
RETIRING = marks(annotations={names.DRAIN_INTENT: "retire"})
REBOOTING = marks(annotations={names.DRAIN_INTENT: "reboot"}, cordoned=True)


def stored(found: Assessment) -> Json:
    return report.body(found, marks(), agent="1", course={}, held=HeldPods(), gate=None, previous=None)


def told(was: Assessment | None, after: Assessment, told_of: Marks | None = None, **how: Any) -> list[DrainEvent]:
    given = {"before": marks(), "settling": False} | how
    return list(changes(stored(was) if was else None, after, told_of or marks(), **given))


@pytest.mark.parametrize(
    ("status", "reasons"),
    [
        pytest.param(TRUE, ["NodeDrainReady", "NodeRetireReady"], id="ready"),
        pytest.param(FALSE, ["NodeDrainBlocked", "NodeRetireBlocked"], id="blocked"),
        pytest.param(UNKNOWN, ["NodeDrainUnknown", "NodeRetireUnknown"], id="unknown"),
    ],
)
def test_the_node_is_told_when_a_verdict_changes(status: Status, reasons: list[str]) -> None:
    other = TRUE if status is FALSE else FALSE
    before, after = (judged(snapshot(), drain=each, retire=each) for each in (other, status))
    found = told(before, after, RETIRING)
    assert [each.reason for each in found] == reasons
    assert {each.type_ for each in found} == {"Normal" if status is TRUE else "Warning"}
    assert {each.type_ for each in told(before, after)} == {"Normal"}, "in normal life this is nobody's trouble"
    assert told(after, after) == told(None, after) == [], "a restart repeats nothing"
    assert told(before, judged(snapshot(), uid="uid-2", drain=status, retire=status)) == [], "of an earlier machine nothing counts"
    assert bool(told(before, after, settling=True)) is (status is not UNKNOWN)
    assert told(judged(snapshot(), drain=UNKNOWN, retire=UNKNOWN), after, settling=True) == [], "an Unknown of a start is no news"


def test_the_node_is_told_the_reason_and_what_to_do() -> None:
    (event,) = told(judged(idle(), retire=TRUE), judged(idle()))
    remedy = Reason.LAST_COPY.remedy
    assert event.message == f"local.example.com: LastCopy: PersistentVolumeClaim apps/data-0: LastCopy. What to do: {remedy}."


def test_a_claim_is_told_while_somebody_drains_its_node_and_by_one_name_however_often() -> None:
    assert told(judged(), judged()) == []
    (first,) = told(judged(), judged(), RETIRING)
    assert (first.ref.kind, first.ref.namespace, first.ref.name, first.ref.uid) == (names.CLAIM, "apps", "data-0", "uid-apps-data-0")
    assert (first.type_, first.reason) == ("Warning", "BlocksNodeDrain")
    assert first.message.startswith("Keeps node n1 from being retired: VolumeInUse: used by apps/db-0. What to do: ")
    assert told(judged(), judged(), RETIRING)[0].once == first.once != ""
    (other_machine,) = told(judged(), judged(uid="uid-2-of-another"), RETIRING)
    (other_reason,) = told(judged(), judged(idle()), RETIRING)
    assert len({first.once, other_machine.once, other_reason.once}) == 3


def test_of_a_reboot_only_those_are_told_that_block_it_and_of_a_drain_without_a_word_all() -> None:
    volumes = (volume(), volume("pv-1", "data-1"))
    found = judged(used(volumes=volumes, claims=(claim(policy="Block"), claim("data-1")), pods=(pod("db-0", "data-0", "data-1"),)))
    assert [each.ref.name for each in told(found, found, REBOOTING)] == ["data-0"]
    assert {each.ref.name for each in told(found, found, marks(cordoned=True))} == {"data-0", "data-1"}


def test_many_claims_have_an_end() -> None:
    numbers = range(MOST_CLAIMS + 7)
    volumes = tuple(volume(f"pv-{number:03}", f"data-{number:03}") for number in numbers)
    found = judged(idle(volumes=volumes, claims=tuple(claim(f"data-{number:03}") for number in numbers)))
    assert len({each.once for each in told(found, found, RETIRING)}) == MOST_CLAIMS


def test_what_is_wrong_with_marks_is_told_when_it_changes() -> None:
    wrong, other = (marks(annotations={names.DRAIN_INTENT: word}) for word in ("retier", "rebot"))
    (event,) = told(judged(), judged(), wrong)
    assert (event.type_, event.reason, event.ref.kind, event.ref.uid) == ("Warning", "NodeMarksWrong", names.NODE, "uid-n1")
    assert told(judged(), judged(), wrong, before=wrong) == []
    assert ["'rebot'" in each.message for each in told(judged(), judged(), other, before=wrong)] == [True]
