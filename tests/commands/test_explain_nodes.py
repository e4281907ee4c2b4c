"""`explain nodes`: one line for each node and driver, to the letter, and the exit code that scripts go by."""

import json
from typing import Any

import pytest
import yaml

from sidecar.commands.explain.judged import Judged
from sidecar.commands.explain.node import told as told_of_node
from sidecar.commands.explain.nodes import judge_all, told
from sidecar.commands.explain.question import Question, exit_code, read_question
from sidecar.commands.explain.rows import about_own_word, as_json
from sidecar.drain.gate import HeldPods
from sidecar.drain.snapshot import Own
from sidecar.drain.words import Intent, Status
from sidecar.kube.errors import Forbidden
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, Json, Lists, claim, cluster, look_at_all, meta, pod, ready

KINDS = (names.DRAIN_READY, names.RETIRE_READY)
HEARTBEAT = "1970-01-01T00:00:05Z"


def asked(*words: str) -> Question:
    question = read_question(["nodes", *words])
    assert question
    return question


def small() -> Lists:
    """One node with a volume in use, and one with a registration and nothing on it; a third has neither."""
    kube = ready()
    kube.objects["persistentvolumes"] = kube.objects["persistentvolumes"][:1]
    kube.objects["persistentvolumeclaims"] = kube.objects["persistentvolumeclaims"][:1]
    kube.objects["volumesnapshotcontents"] = []
    kube.objects["namespaces"] = []
    kube.objects["pods"] = [pod("db-0", "a", node="n1", phase="Running")]
    kube.objects["pods"][0]["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
    ]
    registered = {"drivers": [{"name": DRIVER, "topologyKeys": ["kubernetes.io/hostname"]}]}
    kube.objects["csinodes"] = [{"metadata": meta(name), "spec": registered} for name in ("n1", "n2")]
    kube.objects["nodes"][1]["status"] = kube.objects["nodes"][0]["status"]
    return kube


def marked(kube: Lists) -> Lists:
    """The first node is being evacuated, and its own sidecar says so."""
    meta_ = kube.objects["nodes"][0]["metadata"]
    noted = {"uid": "uid-n1", "state": "InProgress", "startedAt": "1970-01-01T00:00:02Z"}
    meta_["annotations"] = {names.of_driver(DRIVER, names.DRAIN_RECORD): json.dumps(noted)}
    return kube


def reported(kube: Lists, *, retire: str = "False", uid: str = "uid-n1") -> Lists:
    verdicts = {
        "drain": {"status": "True", "reason": "NothingBlocks", "lastTransitionTime": "1970-01-01T00:00:01Z"},
        "retire": {"status": retire, "reason": "VolumeInUse", "lastTransitionTime": "1970-01-01T00:00:03Z"},
    }
    evacuation = {"state": "InProgress", "deadline": "1970-01-01T00:10:02Z"}
    status = {
        "nodeUID": uid,
        "observedAt": "1970-01-01T00:00:04Z",
        "verdicts": verdicts,
        "evacuation": evacuation,
    }
    kube.objects["nodedrainreports"] = [{"metadata": {"name": names.drain_report("n1", DRIVER)}, "status": status}]
    return kube


def judged(kube: Lists, driver: str = "", now: float = 7.0) -> tuple[Judged, ...]:
    return judge_all(look_at_all(kube, now), driver, Own())


def shown(kube: Lists, *words: str, now: float = 7.0) -> str:
    question = asked(*words)
    return told(judged(kube, question.driver, now), look_at_all(kube, now), question).text


def test_a_line_for_each_node_that_has_volumes_or_a_registration() -> None:
    assert shown(small()).splitlines() == [
        "NODE  DRIVER         DRAIN  RETIRE  BLOCKERS  REASON         BYTES",
        "n1    local.example  True   False   1         VolumeInUse    1Gi",
        "n2    local.example  True   True    0         NothingBlocks",
    ]


def test_what_its_own_sidecar_says_and_how_far_the_evacuation_is_stands_beside_it() -> None:
    assert shown(reported(marked(small())), "-o", "wide").splitlines() == [
        "NODE  DRIVER         DRAIN  RETIRE  BLOCKERS  REASON         BYTES  EVACUATION         ITS SIDECAR SAYS                        "
        "FIRST BLOCKER                               UNTIL",
        "n1    local.example  True   False   1         VolumeInUse    1Gi    InProgress for 5s  drain True for 6s; retire False for 4s  "
        "default/a: used by default/db-0             evacuation: deadline: until 1970-01-01T00:10:02Z",
        "n2    local.example  True   True    0         NothingBlocks                                                                    "
        "no volume of local.example is on this node",
    ]


def test_what_is_not_said_again_is_called_stale_and_counts_as_unknown() -> None:
    kube = reported(small(), retire="True")
    assert "stale" not in shown(kube, now=904.0)
    assert "retire True for 15m; stale, last said 15m ago, so it counts as Unknown" in shown(kube, now=905.0)
    (first, _) = judged(kube, now=905.0)
    assert first.word is not None and {first.word.status(intent) for intent in Intent} == {Status.UNKNOWN}


def test_for_one_node_it_is_told_who_holds_a_drain_how_far_its_evacuation_is_and_what_passes_by_itself() -> None:
    """No other node sees that, and whoever reads it wants to know why nothing moves."""
    kube, minute = (
        reported(small()),
        "a volume counts as used for a minute after its last pod, which may come back in that time: 53 s are left",
    )
    kube.objects["nodes"][0]["spec"] = {"unschedulable": True}
    (first, _) = judged(kube)
    assert any("nobody announced" in line and "node reboot n1" in line for line in about_own_word(first, None)), "nor does the sidecar"
    noted = {names.of_driver(DRIVER, names.MAINTENANCE_RECORD): json.dumps({"uid": first.marks.uid if first.marks else "", "prior": False})}
    kube.objects["nodes"][0]["metadata"].setdefault("annotations", {}).update(noted)
    (first, _) = judged(kube)
    assert first.unannounced == "", "the cordon of a maintenance is explained"
    del kube.objects["nodes"][0]["metadata"]["annotations"][next(iter(noted))]
    kube.objects["nodedrainreports"][0]["status"] |= {
        "gate": {"enabled": True, "held": True, "why": ""},
        **HeldPods(("default/db-0",), "local.example holds the drain of node n1", "retire, assumed").as_json(),
        "notes": [minute],
    }
    kube.objects["nodedrainreports"][0]["status"]["evacuation"] |= {"slot": "held", "next": "PDBBlocked: the budget is apps/db"}
    (first, _) = judged(kube)
    lines = (
        "the gate is shut",
        "local.example holds the drain of node n1",
        "must not be evicted: default/db-0",
        "evacuation: its slot: held; PDBBlocked: the budget is apps/db",
        minute,
    )
    assert about_own_word(first, None)[1:6] == [f"its own sidecar says: {line}" for line in lines]
    assert as_json(first)["ownSidecar"]["held"]["pods"] == ["default/db-0"]
    (first, _) = judged(kube, now=905.0)
    told = about_own_word(first, None)
    assert not any(minute in line for line in told) and "held" not in as_json(first)["ownSidecar"]
    assert any("opens on a person's word alone" in line and f"{names.FORCE_DRAIN}=WHY" in line for line in told)
    kube.objects["nodes"][0]["metadata"]["annotations"] = {names.FORCE_DRAIN: "no power"}
    (first, _) = judged(kube, now=905.0)
    assert any(f"{names.FORCE_DRAIN} says 'no power'" in line for line in about_own_word(first, None)), "and is not asked for again"


def test_a_word_on_a_former_node_of_that_name_is_none() -> None:
    assert "ITS SIDECAR SAYS" not in shown(reported(small(), uid="former"))


def test_without_a_report_the_conditions_speak() -> None:
    kube = small()
    kube.objects["nodes"][0]["status"] = {
        "conditions": [
            *kube.objects["nodes"][0]["status"]["conditions"],
            *({"type": f"{DRIVER}/{kind}", "status": "False", "lastHeartbeatTime": HEARTBEAT} for kind in KINDS),
            {"type": f"third.example/{names.RETIRE_READY}", "status": "True"},
        ]
    }
    assert shown(kube).splitlines()[1].endswith("drain False; retire False")
    for condition in kube.objects["nodes"][0]["status"]["conditions"]:
        condition.pop("lastHeartbeatTime", None)
    assert shown(kube).splitlines()[1].endswith("drain False; retire False; stale, so it counts as Unknown")


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same(form: str, read: Any) -> None:
    said: Json = read(shown(reported(marked(small())), "-o", form))
    assert (said["observedAt"], said["unknown"]) == ("1970-01-01T00:00:07Z", [])
    first, second = said["nodes"]
    assert first["verdicts"]["retire"]["reason"] == first["firstBlocker"]["reason"] == "VolumeInUse"
    assert first["evacuation"] == {
        "state": "InProgress",
        "startedAt": "1970-01-01T00:00:02Z",
        "seconds": 5,
        "deadline": "1970-01-01T00:10:02Z",
    }
    assert first["ownSidecar"]["retire"] == {"status": "False", "reason": "VolumeInUse", "since": "1970-01-01T00:00:03Z"}
    assert (first["ownSidecar"]["stale"], first["ownSidecar"]["observedAt"]) == (False, "1970-01-01T00:00:04Z")
    assert second == {
        "node": "n2",
        "driver": DRIVER,
        "verdicts": second["verdicts"],
        "blockers": 0,
        "bytes": {"total": 0, "inTheWay": 0},
    }


def test_a_driver_can_be_chosen_and_one_that_nobody_has_is_said_to_be_nowhere() -> None:
    assert len(shown(cluster(), "--driver=other.example").splitlines()) == 2
    assert shown(small(), "--driver=third.example") == "no node has volumes of third.example that it alone can reach, or could have"


def test_what_could_not_be_listed_is_told() -> None:
    kube = small()
    kube.broken["volumeattachments"] = Forbidden("not allowed", status=403)
    text = shown(kube)
    assert "Unknown" in text and "not known: volumeattachments.storage.k8s.io: not allowed" in text


def test_the_stricter_of_both_verdicts_is_shown_everywhere_with_its_reason_and_whose_it_is() -> None:
    """Its own sidecar sees volumes without a PersistentVolume, and what has begun in the driver. After a kill it does not know yet what was
    used, and said False while `explain nodes` printed the node as one that may be retired."""
    kube = reported(small(), retire="False")
    status = kube.objects["nodedrainreports"][0]["status"]
    status["verdicts"]["retire"]["message"] = "PersistentVolumeClaim default/a: VolumeInUse"
    kube.objects["persistentvolumes"] = []
    kube.objects["persistentvolumeclaims"] = []
    kube.objects["pods"] = []
    why = "its own sidecar says: PersistentVolumeClaim default/a: VolumeInUse; from outside it is True"
    assert " ".join(shown(kube).splitlines()[1].split()).startswith("n1 local.example True False 0 VolumeInUse (its sidecar) drain")
    counts = {"status": "False", "reason": "VolumeInUse", "message": why, "by": "ownSidecar"}
    (first, _) = judged(kube)
    for said in (json.loads(shown(kube, "-o", "json"))["nodes"][0], as_json(first)):
        assert said["verdicts"]["retire"] == counts and said["verdicts"]["drain"]["by"] == "outside"
    in_words = told_of_node((first,), read_question(["node", "n1"]))  # type: ignore[arg-type]
    assert f"May it be retired?  False  VolumeInUse    {why}" in in_words.text
    assert exit_code(in_words.statuses) == exit_code(told(judged(kube), look_at_all(kube), asked("--exit-code")).statuses) == 3
    stale, late = reported(kube, retire="True"), 905.0
    assert json.loads(shown(stale, "-o", "json", now=late))["nodes"][0]["verdicts"]["retire"]["reason"] == "AgentUnavailable"
    assert exit_code(told(judged(stale, now=late), look_at_all(stale), asked("--exit-code")).statuses) == 4


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((), 0),
        ((Status.TRUE,), 0),
        ((Status.TRUE, Status.UNKNOWN), 4),
        ((Status.UNKNOWN, Status.FALSE, Status.TRUE), 3),
    ],
)
def test_not_ready_is_worse_than_not_known(statuses: tuple[Status, ...], code: int) -> None:
    assert exit_code(statuses) == code


def test_a_creation_that_may_not_have_begun_counts_for_ten_minutes_and_that_is_told() -> None:
    kube = small()
    waits = claim("waits", selected="n2")
    waits["metadata"]["creationTimestamp"] = "1970-01-01T00:00:03Z"
    kube.objects["persistentvolumeclaims"].append(waits)
    (_, second) = judged(kube)
    assert second.ends == (("default/waits: ProvisioningInFlight, if nothing has begun", 603.0),)


def test_what_is_over_has_no_end() -> None:
    kube = reported(marked(small()))
    kube.objects["nodedrainreports"][0]["status"]["evacuation"]["deadline"] = "1970-01-01T00:00:06Z"
    assert [one.ends for one in judged(kube)] == [(), ()]


def test_no_line_at_all_is_no_yes_unless_everything_was_read_and_the_driver_is_known() -> None:
    kube = small()
    for plural in ("persistentvolumes", "csinodes", "persistentvolumeclaims", "pods"):
        kube.objects[plural] = []
    assert exit_code(told((), look_at_all(kube), asked("--exit-code")).statuses) == 0
    assert exit_code(told((), look_at_all(kube), asked("--exit-code", f"--driver={DRIVER}")).statuses) == 0
    assert exit_code(told((), look_at_all(kube), asked("--exit-code", "--driver=local.exampel")).statuses) == 4
    kube.broken["csinodes"] = Forbidden("not allowed", status=403)
    assert exit_code(told((), look_at_all(kube), asked("--exit-code")).statuses) == 4
