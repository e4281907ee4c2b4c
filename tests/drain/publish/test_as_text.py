"""What `explain node` prints, to the letter where people read it, and the list of reasons that the component's README carries."""

import json
from pathlib import Path

import pytest

from sidecar.drain.publish.as_text import as_json, hindrances_table, reasons_table, render, size
from sidecar.drain.vocabulary import MEANING, Intent, Reason
from tests.harness.drain.judgements import GIB, blocked, blocker, everything, ready

README = Path(__file__).resolve().parents[3] / "deploy" / "components" / "drain" / "reasons" / "README.md"


def test_D2_the_table_says_it_all() -> None:
    assert render(everything()).splitlines() == [
        "Node n1, volumes of local.example.com, at 2023-11-14T22:13:20Z",
        "",
        "May it be drained?  False  VolumeInUse  about draining",
        "May it be retired?  False  VolumeInUse  PersistentVolumeClaim shop/db-0: VolumeInUse",
        "",
        "3 volumes with 11.5Gi; 512Mi keep it from being drained, 10.5Gi keep it from being retired.",
        "",
        "WHAT BLOCKS  VOLUME     SIZE   CLASS  REASON       POLICY           BLOCKS          SINCE",
        "shop/db-0    pv-db-0    512Mi  InUse  VolumeInUse  Block (default)  reboot, retire  2023-11-14T22:12:20Z",
        "    shop/db-0 has it",
        "shop/data-0  pv-data-0  10Gi   Idle   LastCopy     Block (default)  retire          2023-11-14T22:12:20Z",
        "",
        "What to do:",
        f"  VolumeInUse: {MEANING[Reason.VOLUME_IN_USE].says}",
        f"    {MEANING[Reason.VOLUME_IN_USE].remedy}",
        f"  LastCopy: {MEANING[Reason.LAST_COPY].says}",
        f"    {MEANING[Reason.LAST_COPY].remedy}",
        "",
        "POD        IF DRAINED            IF RETIRED             VOLUMES  BUDGETS  WHY",
        "shop/db-0  ReturnsAfterUncordon  StrandedUntilUncordon  pv-db-0  shop/db  its volume stays here",
        "",
        "Budgets that would be used up while the node is away, so that draining another node would wait:",
        "  shop/db allows 1 now, and 1 of its pods would stay away: shop/db-0",
        "",
        "Where volumes could go:",
        "  pv-db-0 to n2",
        "  pv-data-0 to no node: 5Gi missing",
        "    n3: cordoned",
        "",
        "Worth knowing:",
        "  budgets were looked at",
    ]


def test_of_one_intent_only_what_concerns_it_is_told() -> None:
    text = render(everything(), intent=Intent.REBOOT)
    assert "May it be drained?" in text and "IF DRAINED" in text and "shop/db-0 " in text
    assert not [word for word in ("retired", "RETIRED", "shop/data-0", "StrandedUntilUncordon", "LastCopy") if word in text]


def test_a_node_with_nothing_on_it_takes_two_lines() -> None:
    assert render(ready()).splitlines()[2:] == [
        "May it be drained?  True  NoVolumes  no volume is here",
        "May it be retired?  True  NoVolumes  no volume is here",
    ]


def test_a_remedy_that_many_blockers_share_is_told_once() -> None:
    assert render(blocked(*(blocker(f"data-{number}") for number in range(5)))).count(MEANING[Reason.LAST_COPY].remedy) == 1


def test_what_is_no_claim_is_called_by_its_kind() -> None:
    lonely = blocker("pv-9", kind="PersistentVolume", namespace="", class_=None, policy=None, policy_source="")
    row = next(line for line in render(blocked(lonely)).splitlines() if line.startswith("PersistentVolume "))
    assert row.split()[:4] == ["PersistentVolume", "pv-9", "pv-pv-9", "10Gi"]
    assert "POLICY" not in render(blocked(lonely)), "a column that is empty is left out"


def test_nobody_s_text_can_pass_as_a_line_of_the_table() -> None:
    text = render(blocked(blocker(message="x\nMay it be retired?  True\x1b[2J"), notes=("a\rb",)))
    assert "\x1b" not in text and "\r" not in text
    assert len([line for line in text.splitlines() if line.startswith("May it be retired?")]) == 1


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (1023, "1023"), (1024, "1Ki"), (3 * 2**20 // 2, "1.5Mi"), (10 * GIB, "10Gi"), (2**41, "2Ti")]
)
def test_sizes_are_for_reading(count: int, text: str) -> None:
    assert size(count) == text


def test_json_holds_every_field_and_nothing_is_cut() -> None:
    whole = as_json(everything())
    assert json.loads(json.dumps(whole)) == whole
    assert whole["verdicts"]["retire"] == {
        "status": "False",
        "reason": "VolumeInUse",
        "message": "PersistentVolumeClaim shop/db-0: VolumeInUse",
    }
    assert whole["counts"] == {"classes": {"Idle": 2, "Snapshot": 1}, "reasons": {"LastCopy": 1, "VolumeInUse": 1}}
    assert (whole["snapshots"], whole["releasing"], whole["inFlight"]) == (1, 0, 0)
    assert "untracked" not in whole, "none is known of"
    assert whole["placement"][1] == {
        "volumes": ["pv-data-0"],
        "shortfall": 5 * GIB,
        "excluded": [{"node": "n3", "why": "cordoned"}],
    }
    assert len(as_json(blocked(*(blocker(f"data-{number}") for number in range(500))))["blockers"]) == 500


def test_D11_a_blocker_carries_everything() -> None:
    assert as_json(blocked())["blockers"] == [
        {
            "kind": "PersistentVolumeClaim",
            "namespace": "shop",
            "name": "data-0",
            "uid": "uid-data-0",
            "volume": "pv-data-0",
            "bytes": 10 * GIB,
            "class": "Idle",
            "reason": "LastCopy",
            "policy": "Block",
            "policySource": "default",
            "blocks": ["retire"],
            "since": "2023-11-14T22:12:20Z",
            "remedy": MEANING[Reason.LAST_COPY].remedy,
        }
    ]


def test_a_volume_that_blocks_twice_is_in_the_way_once() -> None:
    twice = blocked(blocker(), blocker(reason=Reason.NO_CAPACITY))
    assert as_json(twice)["bytes"] == {"total": 20 * GIB, "remaining": 10 * GIB}


def test_every_reason_to_withhold_a_verdict_is_in_the_table() -> None:
    rows = reasons_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [str(reason) for reason in Reason if reason in MEANING]
    assert {reason for reason in Reason if reason not in MEANING} == {Reason.NOTHING_HERE, Reason.NOTHING_BLOCKS}
    assert all(row.count(" | ") == 2 for row in rows)


def test_the_README_has_that_table() -> None:
    """Below the line `<!-- reasons -->`, as `reasons_table` makes it."""
    _, marker, after = README.read_text().partition("<!-- reasons -->\n")
    assert marker, f"{README} has no line <!-- reasons -->"
    assert after.startswith(reasons_table() + "\n")


def test_the_readme_of_emptying_has_the_table_of_hindrances() -> None:
    page = (README.parents[2] / "emptying" / "README.md").read_text()
    assert page.partition("<!-- hindrances -->\n")[2].startswith(hindrances_table() + "\n")


def test_the_readme_of_reprovision_has_the_table_of_its_own() -> None:
    page = (README.parents[2] / "reprovision" / "README.md").read_text()
    assert page.partition("<!-- hindrances -->\n")[2].startswith(hindrances_table(anew=True) + "\n")
