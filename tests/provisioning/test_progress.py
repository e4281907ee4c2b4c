"""What is kept beyond the caches, and for how long."""

import math
from typing import Any

from sidecar.ownership.rules import Race
from sidecar.provisioning.findings import Findings, SourceHold
from sidecar.provisioning.needs import SNAPSHOT, Ref
from sidecar.provisioning.progress import (
    NOT_BEGUN,
    Bidding,
    Creating,
    HandedBack,
    Progress,
    Racing,
    Stored,
    Unsaved,
    after_unanswered_hand_back,
    created_for,
    mark,
    race_of,
    without_bid,
)
from sidecar.provisioning.progress_table import ProgressTable
from tests.harness import samples

CLAIM, RACE = samples.claim(), Race(0, 1.0)
LEFT_OUT = Race(0, math.inf)
MEANINGS: list[tuple[Progress, bool, int, int, bool, Any]] = [
    # concerns, in progress, unsaved, takes space, pending
    (NOT_BEGUN, False, 0, 0, True, None),
    (Racing(RACE), True, 0, 0, True, None),
    (Racing(LEFT_OUT), True, 0, 0, True, None),
    (Bidding(CLAIM, None), False, 0, 0, True, CLAIM),
    (Bidding(CLAIM, RACE), True, 0, 0, True, CLAIM),
    (Creating(CLAIM), True, 1, 0, True, CLAIM),
    (Unsaved(CLAIM, samples.PACKED, mark("id"), refusals=2), True, 0, 1, False, CLAIM),
    (Creating(CLAIM, mark("id"), refusals=2), True, 0, 1, False, CLAIM),
    (HandedBack("7", NOT_BEGUN), False, 0, 0, True, None),
    (HandedBack("7", Racing(RACE)), True, 0, 0, True, None),
    (HandedBack("7", Creating(CLAIM)), True, 1, 0, True, CLAIM),
    (Stored.at(100.0, "handle"), False, 0, 0, False, None),
]
EVERY = [progress for progress, *_ in MEANINGS]


def holding(progress: Progress) -> ProgressTable:
    table = ProgressTable()
    table.advance("uid", progress)
    return table


def test_what_each_progress_means_to_others() -> None:
    for progress, concerns, in_progress, unsaved, takes_space, pending in MEANINGS:
        table = holding(progress)
        assert table.concerns("uid") is concerns
        assert (table.in_progress(), table.unsaved()) == (in_progress, unsaved)
        assert table.takes_space("uid") is takes_space
        assert table.pending_of("uid") == pending
        assert table.under_way() == (["uid"] if created_for(progress) else [])
        table.forget("uid")
        assert table.progress("uid") == NOT_BEGUN and not table.concerns("uid")


def test_a_hand_back_without_an_answer_loses_nothing() -> None:
    """Neither that a volume may exist nor where this node stands in the race."""
    for progress in EVERY:
        after = after_unanswered_hand_back(progress, "8")
        assert created_for(after) == created_for(progress)
        assert race_of(after) == race_of(progress)
        assert isinstance(after, HandedBack) or after == progress


def test_the_end_of_a_bid_ends_nothing_else() -> None:
    for progress in EVERY:
        after = without_bid(progress)
        assert race_of(after) == race_of(progress) and created_for(after) == created_for(progress)
        assert not isinstance(after, Bidding) and (after == progress or isinstance(progress, Bidding))


def test_what_a_claim_is_filled_from_is_known_until_it_is_forgotten() -> None:
    table, source = ProgressTable(), Ref(SNAPSHOT, "snap", "ns")
    table.learn("uid", Findings(source=SourceHold(source)))
    assert table.fills_from(source)
    assert not table.fills_from(Ref(SNAPSHOT, "snap", "elsewhere"))
    table.forget("uid")
    assert not table.fills_from(source)
