"""What is kept beyond the caches, and for how long."""

import math
import random
import time
from dataclasses import replace

import pytest

from sidecar.model.objects import Claim
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
    RemovalStep,
    Stored,
    Unsaved,
    after_unanswered_hand_back,
    competes,
    created_for,
    mark,
    race_of,
    with_race,
    without_bid,
)
from sidecar.provisioning.progress_table import ProgressTable
from tests.harness import samples

CLAIM, RACE = samples.claim(), Race(0, 1.0)
LEFT_OUT = Race(0, math.inf)
EVERY: list[Progress] = [
    NOT_BEGUN,
    Racing(RACE),
    Racing(LEFT_OUT),
    Bidding(CLAIM, None),
    Bidding(CLAIM, RACE),
    Creating(CLAIM),
    Unsaved(CLAIM, samples.PACKED, mark("id"), refusals=2),
    Creating(CLAIM, mark("id"), refusals=2),
    HandedBack("7", NOT_BEGUN),
    HandedBack("7", Racing(RACE)),
    HandedBack("7", Creating(CLAIM)),
    Stored.at(100.0, "handle"),
]


def holding(progress: Progress) -> ProgressTable:
    table = ProgressTable()
    table.advance("uid", progress)
    return table


@pytest.mark.parametrize(
    ("progress", "concerns", "in_progress", "unsaved", "takes_space", "pending"),
    [
        (NOT_BEGUN, False, 0, 0, True, None),
        (Racing(RACE), True, 0, 0, True, None),
        (Racing(LEFT_OUT), True, 0, 0, True, None),
        (Bidding(CLAIM, None), False, 0, 0, True, CLAIM),
        (Bidding(CLAIM, RACE), True, 0, 0, True, CLAIM),
        (Creating(CLAIM), True, 1, 0, True, CLAIM),
        (Unsaved(CLAIM, samples.PACKED, mark("id")), True, 0, 1, False, CLAIM),
        (Creating(CLAIM, mark("id")), True, 0, 1, False, CLAIM),
        (HandedBack("7", NOT_BEGUN), False, 0, 0, True, None),
        (HandedBack("7", Racing(RACE)), True, 0, 0, True, None),
        (HandedBack("7", Creating(CLAIM)), True, 1, 0, True, CLAIM),
        (Stored.at(100.0, "handle"), False, 0, 0, False, None),
    ],
    ids=repr,
)
def test_what_each_progress_means_to_others(
    progress: Progress, concerns: bool, in_progress: int, unsaved: int, takes_space: bool, pending: Claim | None
) -> None:
    table = holding(progress)
    assert table.concerns("uid") is concerns
    assert (table.in_progress(), table.unsaved()) == (in_progress, unsaved)
    assert table.takes_space("uid") is takes_space
    assert table.pending_of("uid") == pending
    assert table.under_way() == (["uid"] if created_for(progress) else [])
    table.forget("uid")
    assert table.progress("uid") == NOT_BEGUN and not table.concerns("uid")


@pytest.mark.parametrize("progress", EVERY, ids=repr)
def test_a_hand_back_without_an_answer_loses_nothing(progress: Progress) -> None:
    """Neither that a volume may exist nor where this node stands in the race."""
    after = after_unanswered_hand_back(progress, "8")
    assert created_for(after) == created_for(progress)
    assert race_of(after) == race_of(progress)
    assert isinstance(after, HandedBack) or after == progress


@pytest.mark.parametrize("progress", EVERY, ids=repr)
def test_the_end_of_a_bid_ends_nothing_else(progress: Progress) -> None:
    after = without_bid(progress)
    assert race_of(after) == race_of(progress) and created_for(after) == created_for(progress)
    assert not isinstance(after, Bidding) and (after == progress or isinstance(progress, Bidding))


def test_a_race_changes_while_the_bid_is_on_its_way() -> None:
    assert with_race(Bidding(CLAIM, RACE), LEFT_OUT) == Bidding(CLAIM, LEFT_OUT)
    assert with_race(Racing(RACE), LEFT_OUT) == Racing(LEFT_OUT)
    assert competes(Racing(RACE)) and competes(Bidding(CLAIM, RACE)) and not competes(Racing(LEFT_OUT)) and not competes(NOT_BEGUN)


def test_a_claim_concerns_us_while_a_worker_is_at_its_creation() -> None:
    table = ProgressTable()
    with table.in_hand("uid"):
        assert table.concerns("uid")
    assert not table.concerns("uid")


def test_the_doubt_about_a_stored_volume_is_settled_by_beginning_anew() -> None:
    for progress in EVERY:
        table = holding(progress)
        table.doubt("uid")
        table.settle_doubt("uid")
        assert not table.doubts("uid")
        assert table.progress("uid") == (NOT_BEGUN if isinstance(progress, Stored) else progress)


def test_what_a_claim_is_filled_from_is_known_until_it_is_forgotten() -> None:
    table, source = ProgressTable(), Ref(SNAPSHOT, "snap", "ns")
    table.learn("uid", Findings(source=SourceHold(source)))
    assert table.fills_from(source)
    assert not table.fills_from(Ref(SNAPSHOT, "snap", "elsewhere"))
    table.forget("uid")
    assert not table.fills_from(source)


def test_a_namesake_of_a_volume_that_left_begins_at_the_beginning() -> None:
    table = ProgressTable()
    assert table.removal_step(samples.volume()) is RemovalStep.NOT_YET
    table.reach_removal_step(samples.volume(), RemovalStep.EMPTIED)
    assert table.removal_step(samples.volume()) is RemovalStep.EMPTIED
    assert table.removal_step(samples.volume(meta={"uid": "another"})) is RemovalStep.NOT_YET
    table.forget_volume("test-testi")
    assert table.removal_step(samples.volume()) is RemovalStep.NOT_YET


def test_who_holds_a_handle_is_found_however_the_claims_changed() -> None:
    dice = random.Random(7)
    table, claims = ProgressTable(), {uid: replace(CLAIM, uid=uid) for uid in "abcdef"}
    for _ in range(2_000):
        uid, handle = dice.choice("abcdef"), dice.choice("xyz")
        claim = claims[uid]
        table.advance(uid, dice.choice((NOT_BEGUN, Stored.at(100.0, handle), Creating(claim), Creating(claim, mark(handle)))))
        for asked in "xyz":
            holds = {other for other in claims if isinstance(at := table.progress(other), Creating) and at.handle == mark(asked)}
            for besides in ("", *claims):
                found = table.holder(asked, besides=besides)
                assert found in {f"the volume of claim {other}" for other in holds - {besides}} or (not found and holds <= {besides})


def test_who_holds_a_handle_is_found_without_a_look_at_every_claim() -> None:
    table = ProgressTable()
    for number in range(5_000):
        table.advance(f"u{number}", Creating(CLAIM, mark(f"h{number}")))
    started = time.process_time()
    for number in range(2_000):
        assert table.holder(f"h{number}", besides=f"u{number}") == ""
    assert time.process_time() - started < 1.0, "ten million looks"
