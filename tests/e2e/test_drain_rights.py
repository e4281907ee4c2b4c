"""deploy/components/drain on a real API server: a sidecar may write what is its own, on its own node, and nothing else."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.drain.assess import Assessment, PodFate, Verdict
from sidecar.drain.blockers import Blocker
from sidecar.drain.course import Held, as_json
from sidecar.drain.gate import HeldPods
from sidecar.drain.marks import Record, State, read
from sidecar.drain.node_io import PROTECTING, conditions, conditions_patch
from sidecar.drain.report import body, differs, head_patch, status_patch
from sidecar.drain.watch.turn_io import SILENT
from sidecar.drain.words import Fate, Intent, Policy, Reason, Status, VolumeClass
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node, Pod
from tests.deploy.manifests import DEPLOY, NAMESPACE, rendered
from tests.harness.persons import ACCOUNT, UNRESTRICTED, WITHOUT_POLICIES, Person, person_nowhere, person_on
from tests.harness.policies import KUBECTL_WAITS, REPORT_TYPE, type_checked

DRIVER = "local.csi-node-sidecar.io"
NODES, REPORTS = "/api/v1/nodes", "/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NOT_INSTALLED = ("DaemonSet", "StorageClass", "CSIDriver")
OURS, STATE = (names.of_driver(DRIVER, name) for name in (names.DRAIN_RECORD, names.EVACUATION_STATE))
READY = Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, "no volume is here")
BLOCKED = Verdict(Status.FALSE, Reason.LAST_COPY, "PersistentVolumeClaim shop/data-0: LastCopy")


class Drained:
    """A cluster with the component, and the sidecars of two nodes."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.sidecars = {name: person_on(plane, name) for name in ("n1", "n2")}
        self.nobody = person_nowhere(plane)
        self.base_only = person_nowhere(plane, UNRESTRICTED)
        self.admin = Person(plane, json.loads(plane.kubeconfig.read_text())["users"][0]["user"]["token"])

    def node(self, name: str = "n1") -> Json:
        return self.plane.request("GET", f"{NODES}/{name}")


@pytest.fixture(scope="module")
def drained(plane: ControlPlane) -> Iterator[Drained]:
    objects = [item for item in rendered(DEPLOY / "overlays" / "drained") if item["kind"] not in NOT_INSTALLED]
    manifest = yaml.safe_dump_all([*REPORT_TYPE, *objects, *yaml.safe_load_all(WITHOUT_POLICIES)])
    plane.apply(manifest)
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    for name in ("n1", "n2"):
        plane.add_node(name)
    cluster = Drained(plane)
    for name in ("n1", "n2"):
        until(lambda name=name: marked(cluster.node(name)), f"the control plane has put its own marks on {name}")
    # Policies and rights are in force a moment after they are stored.
    until(lambda: "bound to no pod" in cluster.nobody.patch(f"{NODES}/n1?dryRun=All", note())[1], "the policy for nodes is in force")
    until(
        lambda: "bound to no pod" in str(cluster.nobody.ask("POST", f"{REPORTS}?dryRun=All", report("n1"))),
        "the policy for reports is in force",
    )
    yield cluster
    plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=manifest)
    plane.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", KUBECTL_WAITS)
    plane.kubectl("delete", "node", "n1", "n2", "--ignore-not-found", KUBECTL_WAITS)


@pytest.fixture
def own(drained: Drained) -> Iterator[Person]:
    """The sidecar of n1; what it made in a test goes with it."""
    yield drained.sidecars["n1"]
    for path in (REPORTS, BUDGETS, DEPLOYMENTS, LEASES):
        drained.plane.request("DELETE", path)


def note(key: str = OURS, value: str | None = "x") -> Json:
    return {"metadata": {"annotations": {key: value}}}


def marked(node: Json) -> bool:
    """Whether the controllers of nodes have written what they write on a new one, so that later differences are not theirs."""
    meta = node["metadata"]
    return "beta.kubernetes.io/os" in meta["labels"] and "node.alpha.kubernetes.io/ttl" in meta.get("annotations", {})


def label(key: str, value: str | None = "x") -> Json:
    return {"metadata": {"labels": {key: value}}}


def report(node: str, uid: str = "0f0f", *, retiring: bool = False, held: HeldPods | None = None) -> Json:
    """With something in each field. `retiring`: the node is announced to go for good."""
    of = ObjectRef("v1", "PersistentVolumeClaim", "shop", "data-0", "uid-data-0")
    blocker = Blocker(of, "pv-0", 5, VolumeClass.IDLE, Reason.LAST_COPY, Policy.BLOCK, "default", (Intent.RETIRE,), "as always")
    pod = Pod.of({"metadata": {"namespace": "shop", "name": "db-0", "uid": "uid-db-0"}})
    fate = PodFate(pod, Fate.RETURNS, Fate.STRANDED, ("pv-0",), "its volume stays here")
    judged = Assessment(node, uid, DRIVER, 1_700_000_000.0, READY, BLOCKED, (blocker,), (), (fate,), ("a note",), complete=True)
    said = {names.DRAIN_INTENT: "retire"} if retiring else {}
    marks = read(Node.of({"metadata": {"name": node, "uid": uid, "annotations": said}}), DRIVER, now=1_700_000_000.0)
    course = as_json(Record(State.IN_PROGRESS, 1_699_999_000.0), Held(""), "WouldComeBack: cordon it", allowed=10_000.0)
    gate = {"enabled": True, "held": True, "why": "it holds"}
    return body(judged, marks, agent="1", course=course, held=held or HeldPods(), gate=gate, previous=None)


def verdicts(drained: Drained, node: str, drain: Verdict, retire: Verdict, *, driver: str = DRIVER, ago: float = 1e7) -> Json:
    """Of that long ago, on condition of the Node as it is."""
    stored = drained.node(node)
    said = conditions(driver, drain, retire, before=stored["status"].get("conditions") or (), now=time.time() - ago)
    return conditions_patch(said, uid=stored["metadata"]["uid"], version=stored["metadata"]["resourceVersion"])


def put_status(stored: Json, status: Json) -> list[Json]:
    return status_patch(status, version=stored["metadata"]["resourceVersion"])


# --- on its own node --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        note(),
        label(STATE, "InProgress"),
        note(names.SCALE_DOWN_DISABLED, "true"),
        note(names.DO_NOT_DISRUPT, "true"),
    ],
    ids=["record", "label", "autoscaler", "karpenter"],
)
def test_its_marks_are_written_and_removed(own: Person, drained: Drained, change: Json) -> None:
    before = drained.node()["metadata"]
    assert own.patch(f"{NODES}/n1", change) == (200, "")
    ((field, marks),) = change["metadata"].items()
    assert marks.items() <= drained.node()["metadata"][field].items()
    assert own.patch(f"{NODES}/n1", {"metadata": {field: dict.fromkeys(marks)}}) == (200, "")
    after = drained.node()["metadata"]
    assert (after["labels"], after.get("annotations")) == (before["labels"], before.get("annotations"))


@pytest.mark.parametrize("driver", [DRIVER, "Upper.Example.COM"])
def test_G4_conditions_are_put_beside_those_of_others(drained: Drained, driver: str) -> None:
    own = drained.sidecars["n1"] if driver == DRIVER else drained.admin
    theirs = until(lambda: drained.node()["status"].get("conditions"), "the node has conditions")
    for _ in range(2):
        patch = verdicts(drained, "n1", READY, BLOCKED, driver=driver)
        assert own.patch(f"{NODES}/n1/status", patch, content_type=STRATEGIC_MERGE_PATCH) == (200, "")
    wanted_conditions = patch["status"]["conditions"]
    found = {item["type"]: item for item in drained.node()["status"]["conditions"]}
    assert [found[item["type"]] for item in wanted_conditions] == wanted_conditions
    assert {item["type"] for item in theirs} <= found.keys()
    kind = names.condition(driver, names.DRAIN_READY)
    drained.plane.kubectl("wait", f"--for=condition={kind}", "node/n1", KUBECTL_WAITS)
    another = conditions_patch(wanted_conditions, uid="another", version=drained.node()["metadata"]["resourceVersion"])
    code, said = own.patch(f"{NODES}/n1/status", another, content_type=STRATEGIC_MERGE_PATCH)
    assert code in (409, 422) and "uid" in said.lower()


def test_the_report_is_stored_as_it_was_made(own: Person, drained: Drained) -> None:
    """Or every look would find a difference, and write."""
    uid = drained.node()["metadata"]["uid"]
    wanted_report = report("n1", uid)
    name = wanted_report["metadata"]["name"]
    code, made = own.ask("POST", REPORTS, wanted_report)
    assert code == 201
    patch = put_status(made, wanted_report["status"])
    assert own.patch(f"{REPORTS}/{name}/status", patch, content_type=JSON_PATCH) == (200, "")
    stored = drained.plane.request("GET", f"{REPORTS}/{name}")
    assert not differs(stored, wanted_report["status"])
    assert stored["status"] == wanted_report["status"]
    assert head_patch(stored, wanted_report) is None
    (row,) = drained.plane.kubectl("get", "drainreports", "--no-headers").splitlines()
    assert row.split()[:3] == [name, "True", "False"]
    drained.plane.kubectl("wait", "--for=condition=RetireReady=False", f"nodedrainreport/{name}", KUBECTL_WAITS)


def test_the_report_of_a_node_that_goes_for_good_is_nobody_s_until_that_is_taken_back(own: Person, drained: Drained) -> None:
    uid = drained.node()["metadata"]["uid"]
    for retiring in (False, True, False):
        wanted_report = report("n1", uid, retiring=retiring)
        path = f"{REPORTS}/{wanted_report['metadata']['name']}"
        if own.ask("GET", path)[0] == 404:
            assert own.ask("POST", REPORTS, wanted_report)[0] == 201
        head = head_patch(drained.plane.request("GET", path), wanted_report)
        assert head is None or own.patch(path, head, content_type=MERGE_PATCH) == (200, "")
        patch = put_status(drained.plane.request("GET", path), wanted_report["status"])
        assert own.patch(f"{path}/status", patch, content_type=JSON_PATCH) == (200, "")
        stored = drained.plane.request("GET", path)
        assert stored["status"].get("leaving") == ({"nodeUID": uid, "volumes": []} if retiring else None)
        assert (
            [owner["uid"] for owner in stored["metadata"].get("ownerReferences") or ()],
            names.NODE_LOSS_FOR in stored["metadata"].get("labels", {}),
        ) == (([], True) if retiring else ([uid], False))


# --- what is refused --------------------------------------------------------------------------------------------------

OTHER = "other.example.com"
TAINT = {"key": names.EVACUATE_TAINT, "effect": "NoSchedule"}
FOREIGN: dict[str, tuple[Json, str]] = {
    "cordon": ({"spec": {"unschedulable": True}}, "neither cordons nor taints"),
    "taint": ({"spec": {"taints": [TAINT]}}, "neither cordons nor taints"),
    "foreign label": (label("example.com/x"), "labels"),
    "label of the scheduler": (label("kubernetes.io/hostname", "n2"), "labels"),
    "label removed": (label("kubernetes.io/os", None), "labels"),
    "foreign annotation": (note("example.com/x"), "annotations"),
    "what people write": (note(names.FORCE_DRAIN), "annotations"),
    "mark of another driver": (note(names.of_driver(OTHER, names.DRAIN_RECORD)), "annotations"),
    "mark of a driver whose name ends alike": (note(names.of_driver(f"x.{DRIVER}", names.DRAIN_RECORD)), "annotations"),
    "state of another driver": (label(names.of_driver(OTHER, names.EVACUATION_STATE)), "labels"),
    "label without a driver": (label(f"{names.GROUP}/x"), "labels"),
    "a name that looks like ours": (label("csi-node-sidecar.io.example.com/x"), "labels"),
    "finalizer": ({"metadata": {"finalizers": ["example.com/x"]}}, "finalizers"),
    "owner": ({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "x"}]}}, "owners"),
}


@pytest.mark.parametrize(("change", "why"), FOREIGN.values(), ids=FOREIGN.keys())
def test_nothing_else_of_its_own_node_may_change(own: Person, drained: Drained, change: Json, why: str) -> None:
    before = drained.node()
    for path in (f"{NODES}/n1", f"{NODES}/n1/status"):
        code, said = own.patch(path, change)
        # A status request cannot touch the spec: that is dropped, and so is no offence.
        if path.endswith("status") and "spec" in change:
            assert code == 200
        else:
            assert code == 422 and "csi-node-sidecar" in said and why in said
    after = drained.node()
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])


STATUS: dict[str, Json] = {
    "ready": {"conditions": [{"type": "Ready", "status": "False"}]},
    "another's condition": {"conditions": [{"type": "example.com/Broken", "status": "True"}]},
    "another driver's verdict": {"conditions": [{"type": names.condition(OTHER, names.RETIRE_READY), "status": "True"}]},
    "a verdict of a driver whose name ends alike": {
        "conditions": [{"type": names.condition(f"x.{DRIVER}", names.DRAIN_READY), "status": "True"}]
    },
    "a condition without a driver": {"conditions": [{"type": "DrainReady", "status": "True"}]},
    "a condition that is gone": {"conditions": [{"type": "Ready", "$patch": "delete"}]},
    "capacity": {"capacity": {"cpu": "1000"}},
    "addresses": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    "something new": {"volumesInUse": ["x"]},
}


@pytest.mark.parametrize("status", STATUS.values(), ids=STATUS.keys())
def test_nothing_else_of_its_status_may_change(own: Person, drained: Drained, status: Json) -> None:
    until(lambda: drained.node()["status"].get("conditions"), "the node has conditions")
    code, said = own.patch(f"{NODES}/n1/status", {"status": status}, content_type=STRATEGIC_MERGE_PATCH)
    assert code == 422 and "conditions" in said


def test_another_node_may_not_be_touched(own: Person, drained: Drained) -> None:
    patch = verdicts(drained, "n2", READY, READY)
    for code, said in (
        own.patch(f"{NODES}/n2", note()),
        own.patch(f"{NODES}/n2", label(STATE)),
        own.patch(f"{NODES}/n2/status", patch, content_type=STRATEGIC_MERGE_PATCH),
    ):
        assert code == 422 and "csi-node-sidecar on node n1 may not change node n2" in said
    assert drained.sidecars["n2"].patch(f"{NODES}/n2", note()) == (200, "")


def test_a_token_that_tells_no_node_changes_nothing(drained: Drained) -> None:
    code, said = drained.nobody.patch(f"{NODES}/n1", note())
    assert code == 422 and "bound to no pod" in said
    assert drained.nobody.ask("POST", REPORTS, report("n1"))[0] == 422


def test_nodes_are_neither_made_nor_deleted(own: Person) -> None:
    """The role says no before a policy is asked."""
    assert own.ask("POST", NODES, {"metadata": {"name": "n3"}})[0] == 403
    assert own.ask("DELETE", f"{NODES}/n1")[0] == 403


def test_the_policies_hold_whatever_the_roles_allow(own: Person, drained: Drained) -> None:
    """As where somebody has given the account more than it needs."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {
        "metadata": {"name": "too-much"},
        "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    drained.plane.request("POST", path, binding)
    try:
        until(lambda: own.ask("GET", "/api/v1/secrets")[0] == 200, "the account may do anything")
        for method, target in (("POST", NODES), ("DELETE", f"{NODES}/n1"), ("DELETE", NODES)):
            code, answer = own.ask(method, f"{target}?dryRun=All", {"metadata": {"name": "n3"}} if method == "POST" else None)
            assert code == 422 and "neither makes nor deletes nodes" in answer["message"]
        assert (
            own.patch(f"{NODES}/n2", note(value="of another"))[0] == own.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})[0] == 422
        )
    finally:
        drained.plane.request("DELETE", f"{path}/too-much")


def test_another_node_s_report_may_not_be_written(own: Person, drained: Drained) -> None:
    theirs = report("n2", drained.node("n2")["metadata"]["uid"])
    code, answer = own.ask("POST", REPORTS, theirs)
    assert code == 422 and "may not report on node n2" in answer["message"]
    assert drained.sidecars["n2"].ask("POST", REPORTS, theirs)[0] == 201
    path = f"{REPORTS}/{theirs['metadata']['name']}"
    for code, said in (
        own.patch(f"{path}/status", put_status(drained.plane.request("GET", path), theirs["status"]), content_type=JSON_PATCH),
        own.patch(path, label("example.com/x")),
    ):
        assert code == 422 and "may not report on node n2" in said


@pytest.mark.parametrize("ago", [0.0, 660.0], ids=["lives", "silent"])
def test_a_peer_lets_pods_go_that_a_silent_sidecar_holds_and_changes_nothing_else(own: Person, drained: Drained, ago: float) -> None:
    theirs = report("n2", drained.node("n2")["metadata"]["uid"], held=HeldPods(("apps/db-0",), "n2 is drained", "retire, assumed"))
    said = theirs["status"] | {"observedAt": timestamps.to_text(time.time() - ago)}
    path = f"{REPORTS}/{theirs['metadata']['name']}"
    code, made = drained.sidecars["n2"].ask("POST", REPORTS, theirs)
    assert code == 201
    assert drained.sidecars["n2"].patch(f"{path}/status", put_status(made, said), content_type=JSON_PATCH) == (200, "")
    stored, nothing = drained.plane.request("GET", path), HeldPods().as_json()
    for status, may in (
        (said | nothing | {"agentVersion": "x"}, False),
        (said | HeldPods(("apps/db-1",), "forged").as_json(), False),
        (said | nothing, ago > 0),
    ):
        code, told = own.patch(f"{path}/status", put_status(stored, status), content_type=JSON_PATCH)
        assert (code, told) == (200, "") if may else code == 422 and "may not report on node n2" in told


@pytest.mark.parametrize("driver", [OTHER, f"x.{DRIVER}"], ids=["another", "of whose report the name is that of node n1.x"])
def test_no_report_of_another_driver_is_written(own: Person, drained: Drained, driver: str) -> None:
    forged = report("n1", drained.node()["metadata"]["uid"])
    forged = {**forged, "metadata": {**forged["metadata"], "name": f"n1.{driver}"}, "spec": {"nodeName": "n1", "driver": driver}}
    code, answer = own.ask("POST", REPORTS, forged)
    assert code == 422 and f"on driver {DRIVER} only" in answer["message"]


def test_no_finalizer_keeps_a_report_or_a_lease(own: Person, drained: Drained) -> None:
    """Nor, with them, their type and their namespace."""
    for path, obj in ((REPORTS, report("n1", drained.node()["metadata"]["uid"])), (LEASES, sign(drained, "n1", holder="n1"))):
        code, answer = own.ask("POST", path, {**obj, "metadata": {**obj["metadata"], "finalizers": ["example.com/x"]}})
        assert code == 422 and "no finalizers" in answer["message"]


def test_a_report_is_named_after_its_node_and_stays_its(own: Person, drained: Drained) -> None:
    made = report("n1", drained.node()["metadata"]["uid"])
    misnamed = {**made, "metadata": {**made["metadata"], "name": f"n2.{DRIVER}"}}
    assert "named after" in own.ask("POST", REPORTS, misnamed)[1]["message"]
    assert own.ask("POST", REPORTS, made)[0] == 201
    code, said = own.patch(f"{REPORTS}/{made['metadata']['name']}", {"spec": {"nodeName": "n2"}})
    assert code == 422 and ("stays that of" in said or "may not report on node n2" in said)
    stranger = copy.deepcopy(made)
    stranger["metadata"] |= {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "x"}]}
    strange = {"metadata": {"ownerReferences": stranger["metadata"]["ownerReferences"]}}
    assert "the owner of a report is its node" in own.patch(f"{REPORTS}/{made['metadata']['name']}", strange)[1]


# --- on the node of a silent sidecar ------------------------------------------------------------------------------------

PROTECTED = {
    names.SCALE_DOWN_DISABLED: "true",
    names.DO_NOT_DISRUPT: "true",
    names.of_driver(DRIVER, names.AUTOSCALER_MARKER): json.dumps([*PROTECTING]),
}


@pytest.fixture
def silent(drained: Drained) -> Iterator[Drained]:
    """n2 with all that its own sidecar has written."""
    its, path = drained.sidecars["n2"], f"{NODES}/n2"
    marks = {"metadata": {"annotations": {**PROTECTED, OURS: "x"}}}
    assert its.patch(path, marks) == (200, "")
    _renewed(drained, "n2", ago=1e7)
    yield drained
    drained.plane.request(
        "PATCH", path, {"metadata": {"annotations": dict.fromkeys(marks["metadata"]["annotations"])}}, content_type=MERGE_PATCH
    )


def test_a_peer_says_that_the_verdicts_of_a_silent_sidecar_do_not_count(own: Person, silent: Drained) -> None:
    patch = verdicts(silent, "n2", SILENT, SILENT, ago=0.0)
    assert own.patch(f"{NODES}/n2/status", patch, content_type=STRATEGIC_MERGE_PATCH) == (200, "")
    found = {item["type"]: (item["status"], item["reason"]) for item in silent.node("n2")["status"]["conditions"]}
    ours = [found[names.condition(DRIVER, kind)] for kind in (names.DRAIN_READY, names.RETIRE_READY)]
    assert ours == [("Unknown", "AgentUnavailable")] * 2


def _renewed(drained: Drained, node: str, *, ago: float) -> None:
    """By its own sidecar, on that node's clock."""
    patch = verdicts(drained, node, READY, READY, ago=ago)
    assert drained.sidecars[node].patch(f"{NODES}/{node}/status", patch, content_type=STRATEGIC_MERGE_PATCH) == (200, "")


ONLY_WHEN = "only when nobody has renewed its verdicts for 10 minutes"


@pytest.mark.parametrize("ago", [0.0, 570.0, -3600.0], ids=["just now", "two heartbeats ago", "by a clock that is ahead"])
def test_no_neighbour_speaks_for_a_sidecar_that_lives(own: Person, silent: Drained, ago: float) -> None:
    _renewed(silent, "n2", ago=ago)
    for change in (
        _said(),
        _said(names.DRAIN_READY, lastHeartbeatTime="2001-01-01T00:00:00Z"),
        _said(lastHeartbeatTime="2099-01-01T00:00:00Z"),
    ):
        code, said = own.patch(f"{NODES}/n2/status", change, content_type=STRATEGIC_MERGE_PATCH)
        assert code == 422 and ONLY_WHEN in said, change


@pytest.mark.parametrize("many", [1, 9, 10, 11, 20])
def test_no_date_that_a_request_brings_along_makes_a_sidecar_silent(own: Person, silent: Drained, many: int) -> None:
    _renewed(silent, "n2", ago=0)
    stored = silent.node("n2")
    kinds = (names.condition(DRIVER, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY))
    owned = {"f:conditions": {f'k:{{"type":"{kind}"}}': {"f:lastHeartbeatTime": {}} for kind in kinds}}
    forged = [{**item, "subresource": "status", "apiVersion": "v1", "fieldsV1": {"f:status": owned}} for item in dated(many)]
    for entries in ([*stored["metadata"]["managedFields"], *forged], forged):
        for manager in ("csi-node-sidecar", forged[0]["manager"]):
            change = {"metadata": {"managedFields": entries}, **_said(lastHeartbeatTime="2099-01-01T00:00:00Z")}
            code, said = own.patch(f"{NODES}/n2/status?fieldManager={manager}", change, content_type=STRATEGIC_MERGE_PATCH)
            assert code == 422 and ONLY_WHEN in said


def test_a_verdict_whose_heartbeat_stays_is_not_withdrawn(own: Person, silent: Drained) -> None:
    """Then the API server's own dates do not say when it was written."""
    _renewed(silent, "n2", ago=660)
    code, said = own.patch(f"{NODES}/n2/status", _said(), content_type=STRATEGIC_MERGE_PATCH)
    assert code == 422 and ONLY_WHEN in said


def _said(kind: str = names.RETIRE_READY, driver: str = DRIVER, **changes: str) -> Json:
    base = {"status": "Unknown", "reason": "AgentUnavailable", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"status": {"conditions": [{"type": names.condition(driver, kind), **base, **changes}]}}


def _notes(changes: dict[str, str | None]) -> Json:
    return {"metadata": {"annotations": changes}}


APPLIED = {
    "manager": "gitops",
    "operation": "Apply",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:kubernetes.io/os": {}}}},
}
TOO_MUCH: dict[str, tuple[str, Json]] = {
    "a verdict": ("/status", _said(status="True", reason="NothingBlocks")),
    "a verdict with the word": ("/status", _said(status="True")),
    "no": ("/status", _said(status="False")),
    "another reason": ("/status", _said(reason="NotKnown")),
    "a condition that is not there": ("/status", _said(driver="new.example.com")),
    "a condition of others": ("/status", {"status": {"conditions": [{**_said()["status"]["conditions"][0], "type": "Ready"}]}}),
    "no condition": (
        "/status",
        {"status": {"conditions": [{"$patch": "delete", "type": names.condition(DRIVER, names.RETIRE_READY)}]}},
    ),
    "another mark": ("", _notes({OURS: None})),
    "a mark changed": ("", _notes({OURS: "y"})),
    "a label": ("", label(STATE, "Success")),
    "protection": ("", _notes(dict.fromkeys(PROTECTED))),
    "protection without its marker": ("", _notes({names.DO_NOT_DISRUPT: None})),
    "protection changed": ("", _notes({names.DO_NOT_DISRUPT: "false"})),
    "what people wrote": ("", _notes({names.FORCE_DRAIN: "because"})),
    # Whoever applies the node next would take away what it is said to own and does not name, such as a label.
    "fields that somebody applies": ("", {"metadata": {"managedFields": [APPLIED]}}),
}


@pytest.mark.parametrize(("where", "change"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_and_nothing_else_of_another_node(own: Person, silent: Drained, where: str, change: Json) -> None:
    before = silent.node("n2")
    kind = STRATEGIC_MERGE_PATCH if where else MERGE_PATCH
    code, said = own.patch(f"{NODES}/n2{where}", change, content_type=kind)
    assert code == 422 and "may not change node n2" in said
    after = silent.node("n2")
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert silent.nobody.patch(f"{NODES}/n2/status", _said(), content_type=STRATEGIC_MERGE_PATCH)[0] == 422


def test_no_neighbour_withdraws_what_another_driver_says(own: Person, silent: Drained) -> None:
    kind = names.condition(OTHER, names.RETIRE_READY)
    verdict = {"conditions": [{**_said()["status"]["conditions"][0], "type": kind, "status": "False", "reason": "VolumeInUse"}]}
    assert silent.admin.patch(f"{NODES}/n2/status", {"status": verdict}, content_type=STRATEGIC_MERGE_PATCH) == (200, "")
    code, said = own.patch(f"{NODES}/n2/status", _said(driver=OTHER), content_type=STRATEGIC_MERGE_PATCH)
    assert code == 422 and "may not change node n2" in said
    gone = {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}
    assert silent.admin.patch(f"{NODES}/n2/status", gone, content_type=STRATEGIC_MERGE_PATCH) == (200, "")


# --- leases -----------------------------------------------------------------------------------------------------------


def sign(drained: Drained, of: str, *, holder: str, **changes: Any) -> Json:
    """A slot that goes with this node: n1 makes one, n2 another."""
    uid, by = (drained.node(name)["metadata"]["uid"] for name in (of, holder))
    owner = {"apiVersion": "v1", "kind": "Node", "name": of, "uid": uid}
    name = names.evacuation_slot(int(of != "n1"), DRIVER)
    meta = {"name": name, "namespace": NAMESPACE, "labels": {names.SLOT_FOR: DRIVER}, "ownerReferences": [owner], **changes}
    spec = {"holderIdentity": f"{by}/{DRIVER}", "leaseDurationSeconds": 900, "renewTime": "2023-11-14T22:13:20.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def test_a_sidecar_signs_for_itself_alone(own: Person, drained: Drained) -> None:
    mine, theirs = sign(drained, "n1", holder="n1"), sign(drained, "n2", holder="n2")
    name, neighbour = theirs["metadata"]["name"], drained.sidecars["n2"]
    for forged in (theirs, sign(drained, "n1", holder="n2"), sign(drained, "n2", holder="n1")):
        code, answer = own.ask("POST", LEASES, forged)
        assert code == 422 and "lease" in answer["message"]
    assert drained.nobody.ask("POST", LEASES, mine)[0] == 422
    assert own.ask("POST", LEASES, mine)[0] == neighbour.ask("POST", LEASES, theirs)[0] == 201
    code, answer = own.ask("DELETE", f"{LEASES}/{name}")
    assert code == 422 and "none but its own" in answer["message"]


SOON = 2
"""Seconds for which a lease holds here."""


def version_of(drained: Drained, where: str) -> Json:
    return {"resourceVersion": drained.plane.request("GET", where)["metadata"]["resourceVersion"]}


def run_out(drained: Drained, where: str) -> Json:
    """The version it has a moment after its time is over."""
    time.sleep(SOON + 1.0)
    return version_of(drained, where)


def test_a_neighbour_takes_no_lease_that_is_renewed(own: Person, drained: Drained) -> None:
    """Whatever it says about the time: neither its own words nor dates that it brings along are heeded."""
    theirs = sign(drained, "n2", holder="n2")
    where = f"{LEASES}/{theirs['metadata']['name']}"
    assert drained.sidecars["n2"].ask("POST", LEASES, theirs)[0] == 201
    stored = drained.plane.request("GET", where)["metadata"]
    taken = sign(drained, "n2", holder="n1", resourceVersion=stored["resourceVersion"])
    (entry,) = stored["managedFields"]
    later = {**taken["spec"], "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}
    forged = [{**entry, "time": "2099-01-01T00:00:00Z"}]
    reset: list[Json] = [{}]
    for spec, managed in ((taken["spec"], None), (later, None), (taken["spec"], forged), (taken["spec"], [*forged, entry]), (later, reset)):
        meta = {**taken["metadata"], **({"managedFields": managed} if managed else {})}
        code, answer = own.ask("PUT", where, {**taken, "metadata": meta, "spec": spec})
        assert code == 422 and "only when it has run out" in answer["message"], managed
    assert drained.base_only.ask("PUT", f"{where}?dryRun=All", taken)[0] == 200, "the role alone allows it"


def dated(many: int) -> list[Json]:
    """Entries with dates to come, that own something which is there."""
    owned: Json = {"f:metadata": {"f:labels": {f"f:{names.SLOT_FOR}": {}}}}
    entry = {"operation": "Update", "apiVersion": "coordination.k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": owned}
    return [{**entry, "manager": f"m{number}", "time": f"2099-01-{number + 1:02}T00:00:00Z"} for number in range(many)]


@pytest.mark.parametrize("many", [1, 9, 10, 11, 20])
def test_no_lease_is_taken_by_dates_that_push_out_the_server_s_own(own: Person, drained: Drained, many: int) -> None:
    """Of more than ten entries the server merges the oldest, its own among them, and the date of the latest stays."""
    theirs = sign(drained, "n2", holder="n2")
    where = f"{LEASES}/{theirs['metadata']['name']}"
    assert drained.sidecars["n2"].ask("POST", LEASES, theirs)[0] == 201
    stored = drained.plane.request("GET", where)["metadata"]
    taken = sign(
        drained, "n2", holder="n1", resourceVersion=stored["resourceVersion"], managedFields=[*stored["managedFields"], *dated(many)]
    )
    code, answer = own.ask("PUT", f"{where}?fieldManager=another", taken)
    assert code == 422 and "only when it has run out" in answer["message"]
    drained.plane.request("DELETE", where)


@pytest.mark.parametrize("many", [1, 20])
def test_no_lease_is_dated_so_that_nobody_can_take_it(own: Person, drained: Drained, many: int) -> None:
    mine = _slot(drained, "n1")
    code, stored = own.ask("POST", LEASES, {**mine, "metadata": {**mine["metadata"], "managedFields": dated(many)}})
    assert code == 422 or not [item for item in stored["metadata"]["managedFields"] if item["time"] > "2099"]
    stored = drained.plane.request("GET", f"{LEASES}/{mine['metadata']['name']}") if code == 201 else own.ask("POST", LEASES, mine)[1]
    meta = {**mine["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    dates = [{**item, "fieldsV1": {"f:spec": {"f:leaseDurationSeconds": {}}}} for item in dated(many)]
    renewed = {**mine, "metadata": {**meta, "managedFields": [*stored["metadata"]["managedFields"], *dates]}}
    renewed["spec"] = {**mine["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}
    code, answer = own.ask("PUT", f"{LEASES}/{mine['metadata']['name']}", renewed)
    assert code == 422 and "by the API server, and by nobody else" in answer["message"]


def test_a_neighbour_takes_a_lease_as_it_is_and_gives_it_back(own: Person, drained: Drained) -> None:
    theirs = sign(drained, "n2", holder="n2")
    theirs["spec"]["leaseDurationSeconds"] = SOON
    where = f"{LEASES}/{theirs['metadata']['name']}"
    assert drained.sidecars["n2"].ask("POST", LEASES, theirs)[0] == 201
    taken = sign(drained, "n2", holder="n1", **run_out(drained, where))
    stolen = {**taken, "metadata": {**taken["metadata"], "ownerReferences": []}}
    code, answer = own.ask("PUT", where, stolen)
    assert code == 422 and "stays with the node it was made for" in answer["message"]
    hidden = {
        **taken,
        "metadata": {**taken["metadata"], "labels": {names.SLOT_FOR: "another.example.com"}},
    }
    code, answer = own.ask("PUT", where, hidden)
    assert code == 422 and "say what it is about" in answer["message"]
    assert own.ask("PUT", where, taken)[0] == 200
    assert drained.sidecars["n2"].ask("DELETE", where)[0] == 422
    assert own.ask("DELETE", where)[0] == 200


def test_no_lease_of_another_driver_is_made_or_taken(own: Person, drained: Drained) -> None:
    """Not even about its own node: several drivers may live in one namespace."""
    mine = sign(drained, "n1", holder="n1")
    anothers = {**mine, "metadata": {**mine["metadata"], "labels": {names.SLOT_FOR: OTHER}}}
    code, answer = own.ask("POST", LEASES, anothers)
    assert code == 422 and "say what it is about" in answer["message"]
    uid = drained.node()["metadata"]["uid"]
    signed = {**anothers, "spec": {**anothers["spec"], "holderIdentity": f"{uid}/{OTHER}"}}
    stored = drained.plane.request("POST", LEASES, signed)
    meta = {**mine["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    code, answer = own.ask("PUT", f"{LEASES}/{mine['metadata']['name']}", {**mine, "metadata": meta})
    assert code == 422 and "of the driver it was made for" in answer["message"]
    code, answer = own.ask("DELETE", f"{LEASES}/{mine['metadata']['name']}")
    assert code == 422 and "none but its own" in answer["message"]


def test_a_turn_to_be_evacuated_is_taken_over_with_its_owner(own: Person, drained: Drained) -> None:
    theirs, mine = (_slot(drained, node) for node in ("n2", "n1"))
    theirs["spec"]["leaseDurationSeconds"] = SOON
    where = f"{LEASES}/{theirs['metadata']['name']}"
    unlabelled = {**mine, "metadata": {**mine["metadata"], "labels": {}}}
    code, answer = own.ask("POST", LEASES, unlabelled)
    assert code == 422 and "say what it is about" in answer["message"]
    assert drained.sidecars["n2"].ask("POST", LEASES, theirs)[0] == 201
    assert own.ask("DELETE", where)[0] == 422
    code, answer = own.ask("PUT", where, {**mine, "metadata": {**mine["metadata"], **version_of(drained, where)}})
    assert code == 422 and "only when it has run out" in answer["message"]
    mine["metadata"] |= run_out(drained, where)
    assert own.ask("PUT", where, mine)[0] == 200
    assert own.ask("DELETE", where)[0] == 200


def _slot(drained: Drained, node: str) -> Json:
    return sign(drained, node, holder=node, name=names.evacuation_slot(0, DRIVER))


def test_other_leases_of_the_account_are_not_looked_at(own: Person) -> None:
    leader = {"metadata": {"name": "external-snapshotter-leader"}, "spec": {"holderIdentity": "whoever"}}
    assert own.ask("POST", LEASES, leader)[0] == 201
    assert own.ask("DELETE", f"{LEASES}/external-snapshotter-leader")[0] == 200


def test_others_are_not_looked_at(drained: Drained) -> None:
    drained.plane.kubectl("cordon", "n2")
    drained.plane.kubectl("uncordon", "n2")
    drained.plane.kubectl("label", "node", "n2", "example.com/x=y")


def test_the_policies_are_understood_to_the_letter(drained: Drained) -> None:
    assert not any(type_checked(drained.plane).values())


# --- what would open, hold or hide the gate of another node --------------------------------------------------------------


def test_a_driver_s_topology_label_is_no_mark_though_its_name_ends_like_one(own: Person) -> None:
    """A node that had it would reach the volumes of another one, which would take them for shared."""
    for key in (f"topology.{DRIVER}/node", f"{DRIVER}/node", OURS):
        code, said = own.patch(f"{NODES}/n1", label(key, "n2"))
        assert code == 422 and "labels" in said
    for key in (f"topology.{DRIVER}/node", names.of_driver(DRIVER, "invented")):
        code, said = own.patch(f"{NODES}/n1", note(key, "n2"))
        assert code == 422 and "annotations" in said


def test_a_lease_has_the_name_of_what_its_label_says(own: Person, drained: Drained) -> None:
    """Or nobody would find it, and it would be in the way of the real one."""
    mine = sign(drained, "n1", holder="n1")
    for name, label_ in ((names.watch(DRIVER), names.NODE_LOSS_FOR), (names.reprovision("uid", DRIVER), names.REPROVISION_FOR)):
        for meta in ({"name": name}, {"labels": {label_: DRIVER}}, {"name": name, "labels": {}}, {"name": name, "labels": {label_: OTHER}}):
            code, answer = own.ask("POST", LEASES, {**mine, "metadata": {**mine["metadata"], **meta}})
            assert code == 422 and "say what it is about" in answer["message"], meta
        assert own.ask("POST", LEASES, {**mine, "metadata": {**mine["metadata"], "name": name, "labels": {label_: DRIVER}}})[0] == 201


OF_PEOPLE = {names.ACKNOWLEDGED: "ann", names.DRAIN_POLICY: "Ignore", names.DRAIN_POLICY_RETIRE: "AllowIdle"}


NOBODY = {"apiVersion": "v1", "kind": "Pod", "name": "nobody", "uid": "nobody"}
ELSEWHERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}
WHOSE_WORDS: tuple[Json, ...] = (
    {"spec": {"claimRef": None}},
    {"spec": {"claimRef": {"namespace": "default", "name": "of-another"}}},
    {"spec": {"storageClassName": "a-laxer-one"}},
    {"spec": {"nodeAffinity": ELSEWHERE}},
    {"metadata": {"ownerReferences": [NOBODY]}},
)


def bound(drained: Drained, claim: str) -> Json | None:
    found = drained.plane.request("GET", claim)
    return found if found["status"]["phase"] == "Bound" else None


def test_what_people_say_of_volumes_no_sidecar_says(own: Person, drained: Drained) -> None:
    claims, volumes = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    source = {"csi": {"driver": DRIVER, "volumeHandle": "h"}}
    told = {"namespace": "default", "name": "told"}
    volume = {"metadata": {"name": "pv-told"}, "spec": {"capacity": size, "accessModes": modes, "claimRef": told, **source}}
    claim = {"metadata": {"name": "told"}, "spec": {"accessModes": modes, "resources": {"requests": size}}}
    for forged in (
        {"metadata": {"name": "pv-told", "annotations": {key: word}}, "spec": volume["spec"]} for key, word in OF_PEOPLE.items()
    ):
        code, answer = own.ask("POST", volumes, forged)
        assert code == 422 and "for people to say" in answer["message"]
    drained.plane.request("POST", claims, claim)
    assert own.ask("POST", volumes, volume)[0] == 201
    try:
        # The controller manager binds them; to a PUT of what was there before, the API server itself would say no.
        stored = until(lambda: bound(drained, f"{claims}/told"), "the claim is bound")
        for key, word in OF_PEOPLE.items():
            code, said = own.patch(f"{volumes}/pv-told", note(key, word))
            assert code == 422 and "for people to say" in said
            change = {**stored["metadata"], "annotations": {**stored["metadata"]["annotations"], key: word}}
            code, answer = own.ask("PUT", f"{claims}/told", {**stored, "metadata": change})
            assert code == 422 and "for people to say" in answer["message"]
        for changed in WHOSE_WORDS:
            code, said = own.patch(f"{volumes}/pv-told", changed)
            assert code == 422 and "neither claim, class and place" in said
        owned = {**stored, "metadata": {**stored["metadata"], "ownerReferences": [NOBODY]}}
        code, answer = own.ask("PUT", f"{claims}/told", owned)
        assert code == 422 and "nor who owns it" in answer["message"]
        grown = {"spec": {"capacity": {"storage": "2Gi"}}}
        assert own.patch(f"{volumes}/pv-told", grown) == (200, ""), "as another sidecar under this account does"
        drained.plane.request("PATCH", f"{volumes}/pv-told", note(names.DRAIN_POLICY, "Block"), content_type=MERGE_PATCH)
        code, said = own.patch(f"{volumes}/pv-told", note(names.DRAIN_POLICY, None))
        assert code == 422 and "for people to say" in said
        assert own.patch(f"{volumes}/pv-told", note("example.com/x")) == (200, "")
        drained.plane.request("PATCH", f"{volumes}/pv-told", note(names.ACKNOWLEDGED, "ann"), content_type=MERGE_PATCH)
        assert own.patch(f"{volumes}/pv-told", note(names.ACKNOWLEDGED, "bob"))[0] == 422
        assert own.patch(f"{volumes}/pv-told", note(names.ACKNOWLEDGED, None)) == (200, ""), "a pod uses it"
    finally:
        drained.plane.request("DELETE", f"{claims}/told")
        drained.plane.request("DELETE", f"{volumes}/pv-told")


def test_which_machine_has_a_volume_is_written_with_it_by_that_machine(own: Person, drained: Drained) -> None:
    """By it a peer may clear up after a node that is gone."""
    volumes, other = "/api/v1/persistentvolumes", drained.sidecars["n2"]
    me, them = (f"{name}/{drained.node(name)['metadata']['uid']}" for name in ("n1", "n2"))
    source = {"csi": {"driver": DRIVER, "volumeHandle": "h"}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    made = {"metadata": {"name": "pv-noted", "annotations": {names.LIES_ON: me}}, "spec": spec}
    code, answer = other.ask("POST", volumes, made)
    assert code == 422 and "of its own machine alone" in answer["message"]
    code, answer = drained.nobody.ask("POST", volumes, made)
    assert code == 422 and "bound to no pod" in answer["message"]
    assert own.ask("POST", volumes, made)[0] == 201
    path = f"{volumes}/pv-noted"
    try:
        for wrong in (them, "n1/earlier", None):
            for by in (own, other):
                code, said = by.patch(path, note(names.LIES_ON, wrong))
                assert code == 422 and "when it makes that volume" in said, wrong
    finally:
        drained.plane.request("DELETE", path)


# --- what tenants may say ---------------------------------------------------------------------------------------------


def test_the_policy_for_tenants_keeps_their_claims_from_holding_nodes_up(drained: Drained) -> None:
    claims, key = "/api/v1/namespaces/default/persistentvolumeclaims", names.DRAIN_POLICY_REBOOT
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}
    drained.plane.request("POST", claims, {"metadata": {"name": "before", "annotations": {key: "Block"}}, "spec": spec})
    manifest = (DEPLOY / "components" / "drain" / "tenant-policies.yaml").read_text()
    drained.plane.kubectl("label", "namespace", "default", f"{names.GROUP}/tenant=true")
    drained.plane.apply(manifest)
    try:
        made = {"metadata": {"name": "after", "annotations": {key: "Block"}}, "spec": spec}
        refused = until(
            lambda: said if (said := drained.admin.ask("POST", f"{claims}?dryRun=All", made))[0] == 422 else None, "it is in force"
        )
        assert "for whoever runs the cluster to say" in refused[1]["message"]
        for word, code in (("Migrate", 422), ("AllowIdle", 201), ("Ignore", 201)):
            made["metadata"]["annotations"] = {key: word}
            assert drained.admin.ask("POST", f"{claims}?dryRun=All", made)[0] == code, word
        assert drained.admin.patch(f"{claims}/before", note("example.com/x")) == (200, ""), "what was there stays"
        assert drained.admin.patch(f"{claims}/before", note(names.DRAIN_POLICY, "Block"))[0] == 422
    finally:
        drained.plane.kubectl("delete", "-f", "-", input=manifest)
        drained.plane.kubectl("label", "namespace", "default", f"{names.GROUP}/tenant-")
        drained.plane.request("DELETE", f"{claims}/before")
