"""What a stopped sidecar counted, and what can be seen of it."""

from dataclasses import replace
from typing import Any

from sidecar.drain.gate.hidden import known_volumes, seen_volumes
from sidecar.drain.publish import report
from tests.harness.drain.judgements import blocked

JUDGED = replace(blocked(), node_uid="uid-n0")
STORED = report.body(JUDGED, previous=None, agent="1")


def with_status(**changes: Any) -> dict[str, Any]:
    return STORED | {"status": STORED["status"] | changes}


def test_the_report_of_a_judgement_counts_what_that_judgement_counts() -> None:
    assert known_volumes(STORED, node_uid="uid-n0") == seen_volumes(JUDGED) > 0


def test_what_was_not_counted_is_not_known() -> None:
    for stored in [
        None,  # none
        {},  # empty
        with_status(nodeUID="uid-of-another-machine"),  # another machine
        with_status(verdicts={}),  # no verdict
        with_status(verdicts={"retire": {"status": "Unknown"}}),  # not judged
        with_status(counts={"classes": {"Idle": "many"}}),  # edited
    ]:
        assert known_volumes(stored, node_uid="uid-n0") is None


def test_a_sidecar_that_has_just_started_leaves_the_count_of_the_one_before() -> None:
    withdrawn = with_status(
        verdicts={"retire": {"status": "Unknown", "formerStatus": "True"}}, counts={"classes": {"Idle": 3, "Ephemeral": 2}}
    )
    assert known_volumes(withdrawn, node_uid="uid-n0") == 3
