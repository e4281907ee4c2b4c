"""What is written on the Node: marks, conditions and summary, nothing else; and undoing leaves it as it was, byte for byte."""

import copy
import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.evacuation import rules
from sidecar.drain.evacuation.rules import AskForSlot, Begin, Expire, Override, Proceed, Restart, StandAside, Succeed, Undo, Wait
from sidecar.drain.facts.node_marks import read
from sidecar.drain.facts.own_notes import digest
from sidecar.drain.publish import on_node
from sidecar.drain.publish.on_node import (
    PROTECTING,
    Marks,
    conditions,
    conditions_differ,
    conditions_patch,
    needs_protection,
    none,
    patch,
    protection,
    summary,
    summary_mark,
    wanted,
)
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Status
from sidecar.kube.api import MERGE_PATCH, NODES
from sidecar.model import names
from sidecar.model.nodes import Node, Taint
from sidecar.model.objects import Json
from sidecar.model.standing import OPEN, Standing
from tests.harness.cluster_tools import new_cluster, refusal
from tests.harness.drain import samples
from tests.harness.drain.judgements import DRIVER, NOW, UID, blocked, everything, later, ready
from tests.harness.drain.samples import stamp

OTHER = "other.example.com"
MARKER, OTHERS_MARKER = (names.of_driver(driver, names.AUTOSCALER_MARKER) for driver in (DRIVER, OTHER))
CLOSED = Standing(closed=True, why="it is cordoned", since=f"uid-n1/{stamp(5)}", taints=(Taint(names.CORDON_TAINT, "", "NoSchedule"),))


def node_json(*, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Json:
    meta = {"name": "n1", "uid": "uid-n1", "annotations": annotations or {}, "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
    }


def merged(target: Any, change: Any) -> Any:
    """A JSON merge patch, applied."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def text(obj: Json) -> str:
    """As the server has it, which keeps no empty maps."""
    meta = {key: value for key, value in obj["metadata"].items() if value != {}}
    return json.dumps(obj | {"metadata": meta}, sort_keys=True)


def write(obj: Json, marks: Marks) -> Json:
    change = patch(Node.of(obj), marks)
    result: Json = obj if change is None else merged(copy.deepcopy(obj), change)
    assert patch(Node.of(result), marks) is None
    return result


def step(obj: Json, decision: rules.Decision, standing: Standing = CLOSED, *, now: float = NOW) -> Json:
    return write(obj, wanted(read(Node.of(obj), DRIVER, now=now), DRIVER, standing=standing, decision=decision))


def own(obj: Json, name: str) -> str | None:
    key = names.of_driver(DRIVER, name)
    found = obj["metadata"]["labels" if name == names.EVACUATION_STATE else "annotations"].get(key)
    return None if found is None else str(found)


def test_a_closing_and_a_beginning_are_noted() -> None:
    begun = step(node_json(), Begin(NOW, "asked"))
    assert own(begun, names.CLOSED_AT) == stamp(5)
    assert own(begun, names.EVACUATION_STARTED_AT) == stamp(0)
    assert own(begun, names.EVACUATION_STATE) == "Pending"
    assert own(begun, names.MARKED_NODE) == "uid-n1"


def test_each_step_says_how_far_it_is_and_keeps_the_start() -> None:
    for decision, state in [
        (Wait(None, ""), "Pending"),
        (Proceed(NOW, ""), "InProgress"),
        (StandAside(NOW, ""), "Blocked"),
        (Succeed(""), "Success"),
        (Expire(""), "Failed"),
        (Override(""), "Overridden"),
        (Rest(""), "Pending"),
        (AskForSlot(""), "Pending"),
        (Restart(NOW + 9, ""), "Pending"),
    ]:
        after = step(step(node_json(), Begin(NOW, "")), decision)
        assert own(after, names.EVACUATION_STATE) == state
        assert own(after, names.EVACUATION_STARTED_AT) == (stamp(-9) if isinstance(decision, Restart) else stamp(0))


def test_the_server_refuses_it_for_another_machine_of_the_name() -> None:
    cluster = new_cluster()
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    change = patch(Node.of(node_json()), Marks({f"{names.GROUP}/a": "b"}))
    code, reason, _ = refusal(lambda: cluster.patch(NODES, "n1", change, content_type=MERGE_PATCH))
    assert (code, reason) == (422, "Invalid")


def test_an_override_that_is_over_is_remembered_until_its_annotation_goes() -> None:
    forced = node_json(annotations={names.FORCE_DRAIN: "the disk is dead"})
    over = step(step(forced, Begin(NOW, "")), Undo(""), OPEN)
    assert own(over, names.SPENT_OVERRIDE) == digest("the disk is dead")
    assert read(Node.of(over), DRIVER, now=NOW).override == ""
    again = step(over, Begin(NOW, ""))
    assert read(Node.of(again), DRIVER, now=NOW).override == ""
    del over["metadata"]["annotations"][names.FORCE_DRAIN]
    assert text(step(over, Rest(""), OPEN)) == text(node_json())


# autoscalers


def shield(obj: Json, needed: bool | None, driver: str = DRIVER) -> Json:
    return write(obj, protection(Node.of(obj), driver, needed=needed))


def protecting(obj: Json) -> dict[str, str]:
    return {key: obj["metadata"]["annotations"][key] for key in PROTECTING if key in obj["metadata"]["annotations"]}


def test_drain_E7_the_autoscalers_annotations_come_and_go() -> None:
    shielded = shield(node_json(), True)
    assert protecting(shielded) == dict.fromkeys(PROTECTING, "true")
    assert json.loads(shielded["metadata"]["annotations"][MARKER]) == list(PROTECTING)
    assert text(shield(shielded, None)) == text(shielded)
    assert text(shield(shielded, False)) == text(node_json())


def test_what_a_user_has_set_is_neither_changed_nor_taken_away() -> None:
    for key in PROTECTING:
        for value in ["true", "false", ""]:
            theirs = node_json(annotations={key: value})
            shielded = shield(theirs, True)
            assert shielded["metadata"]["annotations"][key] == value
            assert text(shield(shielded, False)) == text(theirs)


def test_a_marker_that_somebody_edited_takes_away_nothing_of_others() -> None:
    for marker in ["[", "[" * 100_000, "{}", "null", "7", '["kubernetes.io/hostname"]', f'["{names.DRAIN_INTENT}"]']:
        theirs = {names.DO_NOT_DISRUPT: "true", names.DRAIN_INTENT: "retire", "kubernetes.io/hostname": "n1"}
        assert text(shield(node_json(annotations=theirs | {MARKER: marker}), False)) == text(node_json(annotations=theirs))


def test_of_two_drivers_the_last_one_takes_them_away() -> None:
    both = shield(shield(node_json(), True), True, OTHER)
    one = shield(both, False)
    assert protecting(one) == dict.fromkeys(PROTECTING, "true") and MARKER not in one["metadata"]["annotations"]
    assert text(shield(one, False, OTHER)) == text(node_json())


def test_when_a_node_needs_protection_from_autoscalers() -> None:
    for enabled, retire, overridden, needed in [
        (True, Status.FALSE, False, True),
        (True, Status.TRUE, False, False),
        (True, Status.UNKNOWN, False, None),
        (True, Status.FALSE, True, False),
        (False, Status.FALSE, False, False),
    ]:
        assert needs_protection(enabled=enabled, retire=retire, overridden=overridden) is needed


# byte for byte

FOREIGN = st.dictionaries(
    st.sampled_from(["a", "kubernetes.io/hostname", f"{OTHER}.{names.GROUP}/closed-at", *PROTECTING]), st.text(max_size=8)
)
WRITTEN = st.dictionaries(st.sampled_from([names.DRAIN_INTENT, names.NODE_DRAIN_POLICY]), st.text(max_size=8))
DECISIONS = st.sampled_from([Wait(None, ""), Proceed(NOW - 9, ""), Succeed(""), Expire(""), Override(""), Rest(""), Restart(NOW - 9, "")])


@given(FOREIGN, FOREIGN, WRITTEN, st.lists(DECISIONS), st.booleans())
def test_undo_restores_every_byte(
    annotations: dict[str, str], labels: dict[str, str], written: dict[str, str], course: list[rules.Decision], guarded: bool
) -> None:
    before = node_json(annotations=annotations | written, labels=labels)
    now = shield(step(before, Begin(NOW, "")), True if guarded else None)
    for decision in course:
        now = step(now, decision)
    assert own(now, names.EVACUATION_STARTED_AT)
    undone = shield(step(now, Undo(""), OPEN), False)
    assert text(undone) == text(before)


@given(FOREIGN, FOREIGN, st.lists(DECISIONS), st.text(max_size=5))
def test_drain_G7_an_uninstall_leaves_what_others_wrote_and_nothing_else(
    annotations: dict[str, str], labels: dict[str, str], course: list[rules.Decision], summary: str
) -> None:
    before = node_json(annotations=annotations, labels=labels)
    now = shield(step(before, Begin(NOW, "")), True)
    for decision in course:
        now = step(now, decision)
    now["metadata"]["annotations"][names.of_driver(DRIVER, names.DRAIN_SUMMARY)] = summary
    assert text(write(now, none(Node.of(now), DRIVER))) == text(before)


# a reboot that is announced


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


def test_every_key_that_is_written_stands_in_the_files_own_table() -> None:
    node = replace(samples.node(), annotations={names.FORCE_DRAIN: "now"})
    noted = wanted(read(node, DRIVER, now=NOW), DRIVER, standing=OPEN, decision=Begin(NOW, "asked"))
    marks = noted | protection(node, DRIVER, needed=True) | summary_mark(blocked(), {})
    types = [condition["type"] for condition in conditions(blocked(), [])]
    table = on_node.__doc__ or ""
    for key in (*marks.annotations, *marks.labels, *types):
        assert key.replace(DRIVER, "DRIVER") in table, key
    assert len(marks.annotations) == 10 and len(marks.labels) == 1
