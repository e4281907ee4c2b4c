"""`explain pvc` as people call it, against an API server over HTTP: the whole answer, and no look at the machine on which it is typed."""

import json
import re
from typing import Any

import pytest

from hack.lib.programs import IMMEDIATE, LATE, claim, pod, storage_class
from sidecar import doors
from sidecar.cli import main
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CSI_NODES, DAEMON_SETS, EVENTS, MERGE_PATCH, NODES, PODS, VOLUMES, Resource
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, volume
from tests.harness.drain.served import Fault, Json, Scene, bare

ASKED = ("explain", "pvc", "default/data")
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
CRASHES = {
    "conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status: [csi-provisioner]"}],
    "containerStatuses": [{"name": "csi-provisioner", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
}
FIRST = f"class    fast, of {DRIVER}; binds when a pod that uses the claim is scheduled"
SIDECARS = "sidecar  DaemonSet kube-system/sidecar ready on 2 of 2 nodes"
ON_N1 = "sidecar  Pod kube-system/sidecar-n1 is ready"
ANEW = "make the claim anew (kubectl delete pvc -n default data)"


@pytest.fixture(autouse=True)
def no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def connects(*_: Any) -> None:
        pytest.fail("the socket of this machine was asked")

    monkeypatch.setattr(doors.DriverConnection, "run", connects)


@pytest.fixture
def town(scene: Scene) -> Scene:
    """A driver with its sidecar on n1 and n2, with 8Gi and 5Gi free, and two classes of it."""
    containers = [{"name": "csi-provisioner", "image": "csi-node-sidecar:1", "args": ["--node-deployment", f"--of={DRIVER}"]}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    put(scene, DAEMON_SETS, {"metadata": {"name": "sidecar"}, "spec": spec}, "kube-system", {"numberReady": 2, "desiredNumberScheduled": 2})
    for name, binding in (("fast", LATE), ("fast-now", IMMEDIATE)):
        put(scene, CLASSES, storage_class(name, DRIVER, binding))
    for node, free in (("n1", "8Gi"), ("n2", "5Gi")):
        drivers = [{"name": DRIVER, "nodeID": node, "topologyKeys": ["kubernetes.io/hostname"]}]
        put(scene, CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": drivers}})
        put(
            scene,
            PODS,
            {"metadata": {"name": f"sidecar-{node}"}, "spec": {"nodeName": node, "containers": containers}},
            "kube-system",
            READY,
        )
        for class_ in ("fast", "fast-now"):
            meta = {"name": f"{class_}-{node}", "labels": {names.CAPACITY_DRIVER_LABEL: DRIVER}}
            here = {"matchLabels": {"kubernetes.io/hostname": node}}
            put(scene, CAPACITIES, {"metadata": meta, "storageClassName": class_, "nodeTopology": here, "capacity": free}, "kube-system")
    return scene


def put(scene: Scene, resource: Resource, obj: Json, namespace: str = "", status: Json | None = None) -> Json:
    name = obj["metadata"]["name"]
    where: Json = {"namespace": namespace} if namespace else {}
    body = {**obj, "metadata": {**obj["metadata"], **where}}
    made: Json = scene.act(lambda: scene.cluster.create(resource, body, **where)).obj
    if status:
        change = {"status": status}
        scene.act(lambda: scene.cluster.patch(resource, name, change, content_type=MERGE_PATCH, subresource="status", **where))
    return made


def want(scene: Scene, class_: str = "fast", *, size: str = "1Gi", mode: str = "ReadWriteOnce", on: str = "", scheduler: str = "") -> Json:
    """The claim default/data and a pod that uses it, of which the scheduler may have said something."""
    notes = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: on} if on else {}
    wanted = claim("data", class_, size=size, annotations=notes)
    wanted["spec"]["accessModes"] = [mode]
    said = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": scheduler}]}
    put(scene, PODS, pod("db-0", "data"), "default", said if scheduler else None)
    return put(scene, CLAIMS, wanted, "default")


def warn(scene: Scene, about: Json, by: str, message: str, host: str = "") -> None:
    meta = about["metadata"]
    event = {
        "metadata": {"name": "data.1"},
        "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": meta["uid"]},
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": message,
        "lastTimestamp": meta["creationTimestamp"],
        "source": {"component": by, **({"host": host} if host else {})},
    }
    put(scene, EVENTS, event, "default")


def serve(scene: Scene, flag: str) -> None:
    """Another pod of the sidecar on n1, with this flag."""
    args = ["--node-deployment", f"--of={DRIVER}", flag]
    containers = [{"name": "csi-provisioner", "image": "csi-node-sidecar:1", "args": args}]
    scene.act(lambda: scene.cluster.delete(PODS, "sidecar-n1", namespace="kube-system"))
    put(scene, PODS, {"metadata": {"name": "other"}, "spec": {"nodeName": "n1", "containers": containers}}, "kube-system", READY)


def told(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = main([*ASKED, "--exit-code", *words, f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, re.sub(r"\b\d+s ago", "1s ago", out).splitlines()


def test_the_class_is_misspelt(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    made = want(town, "fats")
    warn(town, made, "persistentvolume-controller", 'storageclass.storage.k8s.io "fats" not found')
    assert told(town, capsys) == (
        3,
        [
            "claim  default/data is Pending: 1Gi, ReadWriteOnce",
            "class  fats does not exist",
            'event  ProvisioningFailed (1s ago, persistentvolume-controller): storageclass.storage.k8s.io "fats" not found',
            f"next   {ANEW} with a class that exists (fast may be meant), or create StorageClass fats",
        ],
    )


@pytest.mark.parametrize("class_", ["fast", "fast-now"])
def test_it_is_too_big_for_any_node(town: Scene, class_: str, capsys: pytest.CaptureFixture[str]) -> None:
    says = "0/2 nodes are available: 2 node(s) did not have enough free storage. no new claims to deallocate, preemption: 0/2 nodes"
    want(town, class_, size="100Gi", scheduler=says)
    late = ["pod      db-0: not scheduled: 0/2 nodes are available: 2 node(s) did not have enough free storage."]
    assert told(town, capsys) == (
        3,
        [
            "claim    default/data is Pending: 100Gi, ReadWriteOnce",
            *([FIRST, *late] if class_ == "fast" else [f"class    fast-now, of {DRIVER}; binds at once"]),
            "nodes    0 of 2 could take it; n1 has 8Gi free, n2 has 5Gi free",
            SIDECARS,
            f"next     {ANEW} with 8Gi at most, free space on a node, or add one: none has 100Gi",
        ],
    )


def test_the_driver_does_not_offer_the_access_mode(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    made = want(town, mode="ReadWriteMany", on="n1")
    warn(town, made, f"{DRIVER}_sidecar-n1_1-2-3", "rpc error: code = InvalidArgument desc = cannot be MULTI_NODE_MULTI_WRITER", "n1")
    assert told(town, capsys) == (
        3,
        [
            "claim    default/data is Pending: 1Gi, ReadWriteMany",
            FIRST,
            "node     n1 is selected, has 8Gi free",
            ON_N1,
            f"event    ProvisioningFailed (1s ago, {DRIVER} on n1): "
            "rpc error: code = InvalidArgument desc = cannot be MULTI_NODE_MULTI_WRITER",
            f"next     {ANEW} with ReadWriteOnce: a volume of one node can hardly be ReadWriteMany; the event has the driver's own words",
        ],
    )


def test_the_driver_answers_with_an_error(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    made = want(town, on="n1")
    warn(town, made, f"{DRIVER}_sidecar-n1_1-2-3", "rpc error: code = Internal desc = no file system ext5", "n1")
    code, lines = told(town, capsys)
    assert (code, lines[3:]) == (
        3,
        [
            ON_N1,
            f"event    ProvisioningFailed (1s ago, {DRIVER} on n1): rpc error: code = Internal desc = no file system ext5",
            "next     mend what the event names, in class fast or in the claim; it is tried again by itself",
        ],
    )


def test_the_node_is_cordoned(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    town.patch("n1", {"spec": {"unschedulable": True}})
    want(town, size="6Gi", scheduler="0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) did not have enough free storage.")
    assert told(town, capsys) == (
        3,
        [
            "claim    default/data is Pending: 6Gi, ReadWriteOnce",
            FIRST,
            "pod      db-0: not scheduled: "
            "0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) did not have enough free storage.",
            "nodes    0 of 2 could take it; n1 is cordoned, n2 has 5Gi free",
            SIDECARS,
            "next     kubectl uncordon n1, or add a node",
        ],
    )


def test_the_nodes_sidecar_is_not_ready(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    want(town, on="n1")
    where: Json = {"content_type": MERGE_PATCH, "namespace": "kube-system", "subresource": "status"}
    town.act(lambda: town.cluster.patch(PODS, "sidecar-n1", {"status": CRASHES}, **where))
    code, lines = told(town, capsys)
    assert (code, lines[2:]) == (
        3,
        [
            "node     n1 is selected, has 8Gi free",
            "sidecar  Pod kube-system/sidecar-n1 is not ready: csi-provisioner CrashLoopBackOff",
            "next     see why it is not ready: kubectl describe pod -n kube-system sidecar-n1",
        ],
    )


@pytest.mark.parametrize("by", ["affinity", "maker", "nothing"])
def test_it_is_bound(town: Scene, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = volume("pv-data", "n9" if by == "nothing" else "n1", claim="data")
    if by == "maker":
        del made["spec"]["nodeAffinity"]
        made["spec"]["csi"]["volumeAttributes"] = {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-n1"}
    more = {"accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete"}
    put(town, VOLUMES, bare(made, "v1", "PersistentVolume", **more))
    wanted = claim("data", "fast")
    put(town, CLAIMS, {**wanted, "spec": {**wanted["spec"], "volumeName": "pv-data"}}, "default", {"phase": "Bound"})
    there = "on no node that is there" if by == "nothing" else "on n1"
    what = "no node reaches the volume: see `csi-node-sidecar explain volumes`, and restore the node's labels or the node"
    assert told(town, capsys) == (
        3 if by == "nothing" else 0,
        [
            "claim   default/data is Bound: 1Gi, ReadWriteOnce",
            f"volume  pv-data of {DRIVER}, {there}",
            f"next    {what if by == 'nothing' else 'nothing: the claim has its volume'}",
        ],
    )


@pytest.mark.parametrize(
    ("on", "does", "code", "says"),
    [
        ("n1", "", 4, "nothing is wrong: the sidecar of n1 makes the volume; if that lasts, see its log"),
        ("n1", "cordon", 4, "nothing is wrong: the sidecar of n1 makes the volume"),
        ("n1", "cordon that is heeded", 3, "kubectl uncordon n1, or let the pod that uses the claim run elsewhere"),
        ("n9", "", 3, f"bring node n9 back; or, if it is gone for good, delete the pod that uses the claim, and {ANEW}"),
        ("n3", "", 3, f"see why nobody makes volumes of {DRIVER} on n3; if this program makes its volumes: "),
        ("", "", 4, "nothing is wrong that the cluster shows; ask again in a minute"),
        ("", "no pod", 4, "nothing is wrong: the volume is made when a pod that uses the claim is scheduled; create that pod"),
    ],
)
def test_what_comes_of_the_node(town: Scene, on: str, does: str, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    want(town, on=on)
    if "heeded" in does:
        serve(town, "--node-drain-policy=NoSchedule")
    if "cordon" in does:
        town.patch("n1", {"spec": {"unschedulable": True}})
    if does == "no pod":
        town.act(lambda: town.cluster.delete(PODS, "db-0", namespace="default"))
    got = told(town, capsys)
    assert (got[0], got[1][-1].startswith(f"next     {says}")) == (code, True), got


@pytest.mark.parametrize("reaches", [True, False])
def test_the_sidecars_last_decision_is_asked_through_the_api_server(town: Scene, reaches: bool, capsys: pytest.CaptureFixture[str]) -> None:
    uid = want(town, on="n1")["metadata"]["uid"]
    serve(town, "--debug-endpoint=:8081")
    rows = [{"room": room, "decision": "Wait", "why": f"of {room}", "time": 1.0} for room in ("provisioning", "capacity")]
    if reaches:
        town.served.pages[f"kube-system/other:8081/debug/decisions?key={uid}"] = json.dumps(rows).encode()
    code, lines = told(town, capsys)
    assert code == 4 and any(line.startswith("decision") for line in lines) is reaches
    found = next(line for line in lines if line.startswith("decision" if reaches else "not known"))
    assert (": of provisioning" if reaches else "the last decision of pod kube-system/other: ") in found


def test_what_may_not_be_read_is_named_and_the_rest_is_told(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    made = want(town, on="n1")
    warn(town, made, f"{DRIVER}_sidecar-n1_1-2-3", "no", "n1")
    hidden = (CLASSES, NODES, CSI_NODES, CAPACITIES)
    town.faults.set(*[Fault(resource=resource.plural, status=403) for resource in hidden])
    assert told(town, capsys, "-o", "json")[0] == 3
    town.faults.set(*[Fault(resource=resource.plural, status=403) for resource in (*hidden, PODS, EVENTS)])
    assert main([*ASKED, f"--kubeconfig={town.kubeconfig}", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [line.split()[1].rstrip(":") for line in said["not known"]] == [
        "storageclasses.storage.k8s.io",
        "events",
        "nodes",
        "csinodes.storage.k8s.io",
        "csistoragecapacities.storage.k8s.io",
        "pods",
    ]
    assert (said["status"], said["node"]) == ("Unknown", "n1 is selected")
    town.faults.set(Fault(resource=CLAIMS.plural, status=403))
    assert main([*ASKED, f"--kubeconfig={town.kubeconfig}"]) == 1
