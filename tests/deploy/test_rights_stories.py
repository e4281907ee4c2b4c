"""Each right of a sample role is taken away in a story, so that it is known what happens without it."""

from collections.abc import Set

import pytest

from sidecar.rights.rights import Right
from sidecar.rights.table import TABLE, Sample
from tests.e2e.rights_stories import (
    ALL_UNTOLD,
    BESIDE,
    BESIDE_ENDS,
    BESIDE_UNUSED,
    DRAINS,
    ENDS,
    EVICTS,
    MAKES_ANEW,
    REPORTS_ONLY,
    UNUSED,
    WITHOUT,
)

BASE = {*WITHOUT, ENDS, *BESIDE, *BESIDE_UNUSED, BESIDE_ENDS}
STORIES: dict[Sample, Set[Right]] = {
    Sample.BASE: BASE,
    Sample.DRAIN: {*DRAINS},
    Sample.GATE: {*DRAINS},
    Sample.EMPTYING: {EVICTS},
    Sample.REPROVISION: MAKES_ANEW,
    Sample.REPORT: {*REPORTS_ONLY, *DRAINS},
}


@pytest.mark.parametrize("sample", [sample for sample in Sample if sample is not Sample.NONE], ids=str)
def test_no_right_is_without_a_story(sample: Sample) -> None:
    """`test_rights_table` holds the table to the roles, so a new right in a role needs a row there and a story here."""
    assert {str(row.right) for row in TABLE if sample in row.samples and row.right not in STORIES[sample]} == set()


def test_no_story_is_about_a_right_that_no_role_grants() -> None:
    granted = {row.right for row in TABLE if row.samples != {Sample.NONE}}
    assert {str(right) for rights in STORIES.values() for right in rights - granted} == set()


def test_what_a_story_does_without_is_said_to_switch_nothing_off() -> None:
    """And the other way round: where a row names a feature, some story sees it go, or says why it cannot."""
    missed = {*BESIDE, BESIDE_ENDS, ENDS, EVICTS, *MAKES_ANEW, *(right for right, works in WITHOUT.items() if works != ALL_UNTOLD)}
    missed |= {right for lacks in (DRAINS, REPORTS_ONLY) for right, lack in lacks.items() if lack != UNUSED}
    unseen = {str(row.right) for row in TABLE if row.off and row.samples != {Sample.NONE} and row.right not in missed}
    assert unseen == {
        "get csinodes.storage.k8s.io",  # for nodes that are gone, which are looked for a quarter of an hour after a start
        "list nodedrainreports.csi-node-sidecar.io",  # for the gate of another node, once its sidecar is dead for that long
    }
    assert {str(row.right) for row in TABLE if not row.off and row.right in missed} == set()
