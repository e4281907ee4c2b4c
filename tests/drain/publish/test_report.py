"""The report: what it says, since when, and that nothing is written where nothing has changed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import report as peers
from sidecar.drain.node_loss.evidence import Evidence, Gone
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.publish import report
from sidecar.drain.publish.events import MOST as MOST_ANNOUNCED
from sidecar.drain.publish.events import MOST_AT_ONCE
from sidecar.drain.publish.report import (
    HEARTBEAT,
    MOST,
    EvacuationStatus,
    GateStatus,
    ReportContext,
    SlotStatus,
    body,
    differs,
    is_stale,
    status_patch,
)
from sidecar.drain.vocabulary import Intent, Reason, Status
from sidecar.model.objects import Json
from tests.harness.drain.judgements import BOTH, DRIVER, GIB, NODE, NOW, UID, blocked, blocker, everything, later, verdict

CRD = Path(__file__).resolve().parents[3] / "deploy" / "components" / "drain" / "crd.yaml"
FULL = ReportContext(
    observed=True,
    intent=Intent.RETIRE,
    intent_source="taint",
    gate=GateStatus(enabled=True, held=True, why="something blocks"),
    slot=SlotStatus("evacuation-slot-0", ahead=("n2",)),
    evacuation=EvacuationStatus("InProgress", NOW - 100, NOW + 500),
)


def made(assessment: Any = None, previous: Json | None = None, context: ReportContext = report.NORMAL_LIFE) -> Json:
    return body(assessment or everything(), previous=previous, agent="1.2.3", context=context)


# --- what it says -----------------------------------------------------------------------------------------------------


def test_it_belongs_to_the_node_and_is_named_after_node_and_driver() -> None:
    head = {key: value for key, value in made().items() if key != "status"}
    assert head == {
        "apiVersion": "csi-node-sidecar.io/v1alpha1",
        "kind": "NodeDrainReport",
        "metadata": {
            "name": "n1.local.example.com",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": UID}],
        },
        "spec": {"nodeName": NODE, "driver": DRIVER},
    }


def test_it_reports_the_evacuation_if_there_is_one() -> None:
    status = made(context=FULL)["status"]
    assert (status["nodeUID"], status["agentVersion"], status["schemaVersion"]) == (UID, "1.2.3", 1)
    assert (status["intent"], status["intentSource"]) == ("retire", "taint")
    assert status["gate"] == {"enabled": True, "held": True, "why": "something blocks"}
    assert status["slot"] == {"lease": "evacuation-slot-0", "waitingBehind": ["n2"]}
    assert status["evacuation"] == {"state": "InProgress", "startedAt": "2023-11-14T22:11:40Z", "deadline": "2023-11-14T22:21:40Z"}
    assert not {"intent", "intentSource", "gate", "slot", "evacuation"} & made()["status"].keys()


def schema() -> Json:
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    found: Json = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def unknown_fields(value: Any, described: Json, path: str = "") -> list[str]:
    """What the API server would drop or refuse: fields that its type does not have, or of another kind."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if type(value) is not kinds[described["type"]]:
        return [f"{path}: {value!r} is no {described['type']}"]
    if isinstance(value, list):
        return [found for item in value for found in unknown_fields(item, described["items"], f"{path}[]")]
    if not isinstance(value, dict):
        return [f"{path}: {value!r}"] if value not in described.get("enum", [value]) else []
    found = [f"{path}.{key} is missing" for key in described.get("required", ()) if key not in value]
    for key, item in value.items():
        inner = described.get("properties", {}).get(key) or described.get("additionalProperties")
        found += unknown_fields(item, inner, f"{path}.{key}") if inner else [f"{path}.{key}"]
    return found


def test_every_field_is_one_of_the_type_in_deploy() -> None:
    """Or the server would drop it, and what is stored would never equal what should be."""
    for context in [
        FULL,  # evacuated
        report.NORMAL_LIFE,  # normal life
    ]:
        whole = made(context=context)
        assert unknown_fields(whole["spec"], schema()["spec"]) == []
        assert unknown_fields(whole["status"], schema()["status"]) == []
        assert unknown_fields({"unheard": 1}, schema()["status"]) == [".unheard"], "or this test would say nothing"


def test_every_field_of_the_type_is_told() -> None:
    """What nobody looked for is left out, and what only the peer of a gone node says."""
    assert made(context=FULL)["status"].keys() == schema()["status"]["properties"].keys() - {"untracked", "gone"}


def test_every_field_about_a_node_that_is_gone_is_told() -> None:
    loss = Gone(Machine("n1", "uid"), Evidence.NONE, 0.0, "why")
    told = peers.status(Suspect("n1", "uid"), loss, peers.Left((), ()), agent="v0", now=0.0)
    fields = schema()["status"]["properties"]
    assert told.keys() <= fields.keys()
    assert told["gone"].keys() == fields["gone"]["properties"].keys()


def test_its_conditions_are_the_verdicts() -> None:
    drain, retire = made()["status"]["conditions"]
    assert (drain["type"], drain["status"], drain["reason"]) == ("DrainReady", "False", "VolumeInUse")
    assert retire == {
        "type": "RetireReady",
        "status": "False",
        "reason": "VolumeInUse",
        "message": "PersistentVolumeClaim shop/db-0: VolumeInUse",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }


def test_long_lists_are_cut_and_say_so() -> None:
    many = blocked(*(blocker(f"data-{number:03}") for number in range(MOST + 7)))
    status = made(many)["status"]
    assert len(status["blockers"]) == MOST and status["blockersTruncated"] == 7
    assert status["counts"]["reasons"] == {"LastCopy": MOST + 7}
    assert status["bytes"]["remaining"] == (MOST + 7) * 10 * GIB
    assert made()["status"]["blockersTruncated"] == 0


def test_the_longest_report_can_be_stored() -> None:
    name, text = "n" * 253, "m" * 5000
    pod = replace(everything().pods[0], namespace="s" * 63, name=name, why=text, volumes=(name,) * 100, budgets=(name,) * 100)
    place = replace(everything().places[1], volumes=(name,) * 100, excluded=((name, text),) * 10)
    blockers = (blocker(name, namespace="s" * 63, volume=name, message=text, uid=f"{number:036}") for number in range(600))
    huge = replace(blocked(*blockers), pods=(pod,) * 600, places=(place,) * 600, notes=(text,) * 600)
    context, status = replace(FULL, intent=None), made(huge, context=FULL)["status"]
    for _ in range(MOST_ANNOUNCED // MOST_AT_ONCE):
        status = made(huge, {"status": status}, context)["status"]
    assert len(status["announced"]) == MOST_ANNOUNCED
    assert len(json.dumps(status)) < 1_500_000
    assert status["blockersTruncated"] == 600 - len(status["blockers"]) > 0


# --- since when -------------------------------------------------------------------------------------------------------


def test_a_status_that_stays_keeps_its_time_and_one_that_changes_does_not() -> None:
    before = made(blocked())
    unlike = replace(later(blocked(blocker(blocks=BOTH))), retire=verdict(Status.FALSE, Reason.NO_CAPACITY, "another reason"))
    after = made(unlike, before)["status"]["verdicts"]
    assert after["retire"]["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    assert after["drain"]["lastTransitionTime"] == "2023-11-14T22:30:00Z"


def test_G1_of_a_former_node_under_the_name_nothing_is_carried_on() -> None:
    before = made(blocked(), context=FULL)
    another = replace(later(blocked()), node_uid="another-uid")
    assert made(another, before)["status"]["verdicts"]["retire"]["lastTransitionTime"] == "2023-11-14T22:30:00Z"
    assert differs(before, made(another, before)) and report.owner_differs(before, made(another, before))
    assert report.owner_patch(made(another)) == {"metadata": {"ownerReferences": made(another)["metadata"]["ownerReferences"]}}


def test_a_time_that_makes_no_sense_is_replaced_by_now() -> None:
    for noted in ["yesterday", "2090-01-01T00:00:00Z", None, 7]:
        before = made(blocked())
        before["status"]["verdicts"]["retire"]["lastTransitionTime"] = noted
        assert made(later(blocked()), before)["status"]["verdicts"]["retire"]["lastTransitionTime"] == "2023-11-14T22:30:00Z"


# --- whether to write -------------------------------------------------------------------------------------------------


def test_G3_in_a_steady_state_nothing_differs() -> None:
    before = made(context=FULL)
    again = made(later(everything()), before, FULL)
    assert again["status"]["observedAt"] != before["status"]["observedAt"]
    assert not differs(before, again)
    assert differs(None, again)


def test_a_report_edited_by_hand_is_written_anew() -> None:
    for path in [("verdicts", "drain", "status"), ("blockers",), ("conditions",), ("counts", "reasons")]:
        edited = made()
        parent = edited["status"]
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = "True" if path[-1] == "status" else []
        renewed = made(previous=edited)
        assert differs(edited, renewed)
        assert renewed["status"]["verdicts"]["drain"]["status"] == "False"


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["verdicts", "drain", "blockers", "announced", "nodeUID", "observedAt", "name"]), inner)
    ),
    max_leaves=8,
)


@given(GARBAGE)
def test_no_garbage_in_what_is_stored_breaks_anything(status: Any) -> None:
    before = {"metadata": {}, "status": status}
    assert differs(before, made(previous=before, context=FULL))
    assert isinstance(is_stale(before, now=NOW), bool)


def test_the_sign_of_life_is_due_every_five_minutes() -> None:
    last = made()
    assert not is_stale(last, now=NOW + HEARTBEAT - 1)
    assert is_stale(last, now=NOW + HEARTBEAT)
    assert is_stale(last, now=NOW - 10), "a look that lies ahead is none"
    assert is_stale({}, now=NOW)


def test_what_is_written_leaves_nothing_of_what_was_there() -> None:
    assert status_patch(made()) == [{"op": "add", "path": "/status", "value": made()["status"]}]
