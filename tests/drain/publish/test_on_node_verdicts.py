"""The verdicts on the Node, as two conditions and an annotation: what they say, and since when."""

import json
from dataclasses import replace

from sidecar.drain.evacuation.rules import Begin
from sidecar.drain.facts.node_marks import read
from sidecar.drain.publish import on_node
from sidecar.drain.publish.on_node import (
    SUMMARY_BYTES,
    conditions,
    conditions_differ,
    conditions_patch,
    protection,
    summary,
    summary_mark,
    wanted,
)
from sidecar.model import names
from sidecar.model.standing import OPEN
from tests.harness.drain import samples
from tests.harness.drain.judgements import DRIVER, NOW, UID, blocked, blocker, everything, later, ready

# --- conditions of the node -------------------------------------------------------------------------------------------

THEIRS = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def test_there_are_two_conditions_for_each_driver() -> None:
    drain, retire = conditions(blocked(), [THEIRS])
    assert (drain["type"], drain["status"]) == ("local.example.com/DrainReady", "True")
    assert retire == {
        "type": "local.example.com/RetireReady",
        "status": "False",
        "reason": "LastCopy",
        "message": "PersistentVolumeClaim shop/data-0: LastCopy",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
        "lastHeartbeatTime": "2023-11-14T22:13:20Z",
    }
    assert conditions(replace(blocked(), driver="Local.Example.COM"), [])[0]["type"] == "local.example.com/DrainReady"


def test_a_heartbeat_alone_is_no_change() -> None:
    before = conditions(blocked(), [THEIRS])
    again = conditions(later(blocked()), [THEIRS, *before])
    assert [item["lastTransitionTime"] for item in again] == [item["lastTransitionTime"] for item in before]
    assert again[0]["lastHeartbeatTime"] != before[0]["lastHeartbeatTime"]
    assert not conditions_differ([THEIRS, *before], again)
    assert conditions_differ([THEIRS], again)
    assert conditions_differ([THEIRS, *before], conditions(later(ready()), before))


def test_G4_the_patch_has_our_conditions_and_the_node_s_uid_and_nothing_else() -> None:
    ours = conditions(blocked(), [THEIRS])
    assert conditions_patch(ours, node_uid=UID) == {"metadata": {"uid": UID}, "status": {"conditions": ours}}


# --- the annotation ---------------------------------------------------------------------------------------------------


def test_the_summary_says_both_verdicts_and_what_blocks() -> None:
    assert json.loads(summary(everything())) == {
        "validUntil": "2023-11-14T22:28:20Z",
        "drain": {"status": "False", "reason": "VolumeInUse"},
        "retire": {"status": "False", "reason": "VolumeInUse"},
        "counts": {"LastCopy": 1, "VolumeInUse": 1},
        "blockers": ["shop/db-0: VolumeInUse", "shop/data-0: LastCopy"],
    }


def test_the_summary_keeps_within_two_KiB_and_says_what_it_left_out() -> None:
    for count in [1, 40, 2000]:
        for length in [5, 63, 253]:
            many = blocked(*(blocker(f"{number:0{length}}") for number in range(count)))
            text = summary(many)
            told = json.loads(text)
            assert len(text.encode()) <= SUMMARY_BYTES
            assert told["blockers"] and len(told["blockers"]) + told.get("more", 0) == count


KEY = names.of_driver(DRIVER, names.DRAIN_SUMMARY)


def test_the_summary_changes_with_what_it_says_and_is_renewed_when_half_its_time_is_over() -> None:
    for seconds, same in [(0, True), (449, True), (450, False), (1000, False), (-1, False)]:
        before = summary_mark(everything(), {}).annotations
        after = summary_mark(later(everything(), seconds), {KEY: before[KEY] or ""}).annotations
        assert (after == before) is same
        assert summary(blocked()) != summary(ready())


def test_a_summary_that_cannot_be_read_is_written_anew() -> None:
    for stored in ["", "{", "[]", "null", '{"validUntil": 7}', '{"validUntil": "for ever"}']:
        assert summary_mark(ready(), {KEY: stored}).annotations == {KEY: summary(ready())}


def test_every_key_that_is_written_stands_in_the_files_own_table() -> None:
    node = replace(samples.node(), annotations={names.FORCE_DRAIN: "now"})
    noted = wanted(read(node, DRIVER, now=NOW), DRIVER, standing=OPEN, decision=Begin(NOW, "asked"))
    marks = noted | protection(node, DRIVER, needed=True) | summary_mark(blocked(), {})
    types = [condition["type"] for condition in conditions(blocked(), [])]
    table = on_node.__doc__ or ""
    for key in (*marks.annotations, *marks.labels, *types):
        assert key.replace(DRIVER, "DRIVER") in table, key
    assert len(marks.annotations) == 10 and len(marks.labels) == 1
