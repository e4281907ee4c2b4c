"""A script means what its text says, and a changed file is heard at the next call."""

import math
import os
from pathlib import Path

import pytest

from hack.sim.driver.faults import (
    NO_FAULT,
    BadFault,
    Fault,
    Faults,
    Script,
    fault_of,
    parse_fault,
    read_faults,
    write_faults,
)
from sidecar.csi.outcome import Code


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("CreateVolume:fail=UNAVAILABLE", Fault(method="CreateVolume", fail=Code.UNAVAILABLE)),
        ("*:hang=inf", Fault(method="*", hang=math.inf)),
        ("DeleteVolume:names=node-a-*,times=2,delay=0.5", Fault(method="DeleteVolume", names="node-a-*", times=2, delay=0.5)),
        (
            "CreateVolume:linger=3,lose=DeadlineExceeded,message=slow, very slow",
            Fault(method="CreateVolume", linger=3, lose=Code.DEADLINE_EXCEEDED, message="slow, very slow"),
        ),
    ],
)
def test_the_compact_form(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "CreateVolume",
        "CreateVolume:",
        ":fail=UNAVAILABLE",
        "CreateVolume:times=1",
        "CreateVolume:fail=OK",
        "CreateVolume:fail=SLEEPY",
        "CreateVolume:fail",
        "CreateVolume:explode=1",
        "CreateVolume:delay=soon",
        "CreateVolume:delay=-1",
        "CreateVolume:delay=nan",
        "CreateVolume:delay=1,times=0",
        "CreateVolume:fail=UNAVAILABLE,lose=UNAVAILABLE",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadFault):
        parse_fault(text)


def test_the_first_fault_that_concerns_the_call_and_has_times_left() -> None:
    once, always = Fault(method="Create*", names="pvc-*", times=1, delay=1), Fault(method="CreateVolume", delay=2)
    script = Script([once, always])
    assert script.take("DeleteVolume", "pvc-1") is None
    assert script.take("CreateVolume", "other") == always
    assert [script.take("CreateVolume", "pvc-1") for _ in range(3)] == [once, always, always]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    faults = (Fault(method="*", names="a", times=3, hang=math.inf, message="m"), Fault(method="Probe", linger=1, lose=Code.INTERNAL))
    write_faults(tmp_path / "faults", faults)
    assert read_faults(tmp_path / "faults") == faults


def test_a_changed_file_replaces_the_script_and_its_counts(tmp_path: Path) -> None:
    file = tmp_path / "faults"
    faults = Faults([Fault(method="Probe", delay=9)], file=file)
    assert faults.take("CreateVolume", "") == NO_FAULT
    once = Fault(method="CreateVolume", times=1, fail=Code.ABORTED)
    for _ in range(2):
        write_faults(file, [once])
        assert [faults.take("CreateVolume", "") for _ in range(2)] == [once, NO_FAULT]
    write_faults(file, [once])
    file.unlink()
    assert faults.take("CreateVolume", "") == NO_FAULT
    assert faults.take("Probe", "").delay == 9, "what was given at start stays"


@pytest.mark.parametrize("text", ['[{"method": "Crea', "{}", '[{"method": "Probe"}]'])
def test_a_file_that_cannot_be_read_changes_nothing_and_is_told_once(tmp_path: Path, text: str) -> None:
    file, told = tmp_path / "faults", list[str]()
    write_faults(file, [Fault(method="Probe", delay=1)])
    faults = Faults(file=file, complain=told.append)
    assert faults.take("Probe", "").delay == 1
    draft = file.with_name("draft")
    draft.write_text(text)
    draft.replace(file)
    assert [faults.take("Probe", "").delay for _ in range(2)] == [1, 1]
    assert len(told) == 1


def test_an_edit_in_place_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "faults"
    file.write_text("[]")
    faults = Faults(file=file)
    assert faults.take("Probe", "") == NO_FAULT
    file.write_text('[{"method": "Probe", "delay": 2}]')
    os.utime(file, ns=(1, 1))
    assert faults.take("Probe", "").delay == 2


def test_json_numbers_may_be_texts() -> None:
    assert fault_of({"method": "Probe", "times": "2", "hang": "inf"}) == Fault(method="Probe", times=2, hang=math.inf)
