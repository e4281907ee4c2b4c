"""For how long the annotation counts by which kured announces a reboot: value by value, over restarts, beside other drivers."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.node_marks import Signals, read
from sidecar.drain.facts.own_notes import digest
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from tests.harness.drain.samples import DRIVER, NOW, node

MARK, MARKED = names.of_driver(DRIVER, names.KURED_REBOOT), names.of_driver(DRIVER, names.MARKED_NODE)
MONDAY, TUESDAY = "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"


class Machine:
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


def test_an_annotation_that_kured_leaves_behind_counts_for_one_cordon() -> None:
    for restarts in [False, True]:
        machine = Machine()
        for cordoned, expected in [(False, None), (True, Intent.REBOOT), (True, Intent.REBOOT), (False, None), (True, None), (False, None)]:
            assert machine.look(MONDAY, cordoned=cordoned) is expected
            if restarts:
                machine.restart()
        assert machine.annotations[MARK] == f"Spent {digest(MONDAY)}"


def test_kureds_next_reboot_counts_again() -> None:
    """It writes another time, with the old annotation removed before or still there."""
    for restarts in [False, True]:
        machine = Machine()
        for removed in (False, True):
            for value in (MONDAY, TUESDAY):
                seen = []
                for cordoned in (False, True, False):
                    seen.append(machine.look(value, cordoned=cordoned))
                    if restarts:
                        machine.restart()
                assert seen == [None, Intent.REBOOT, None], value
                if removed:
                    machine.look()
            machine.look()
            assert MARK not in machine.annotations


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
    machine, present, over = Machine(), None, False
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
