"""`explain pvc` as people call it, against an API server over HTTP: the whole answer, and no look at the machine on which it is typed."""

import json
import re
import socket
from collections.abc import Iterator

import pytest

from hack.lib.programs import IMMEDIATE, LATE, claim, pod, storage_class
from sidecar.cli import main
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CSI_NODES, DAEMON_SETS, EVENTS, MERGE_PATCH, NODES, PODS, VOLUMES, Resource
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, OTHER, volume
from tests.harness.drain.served import Fault, Json, Scene, bare

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
WAITS = [{"name": "csi-provisioner", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
CRASHES = {"conditions": [{"type": "Ready", "status": "False", "message": "unready"}], "containerStatuses": WAITS}
FIRST = f"class    fast, of {DRIVER}; binds when a pod that uses the claim is scheduled"
SIDECARS = "sidecar  DaemonSet kube-system/sidecar ready on 2 of 2 nodes"
ANEW = "make the claim anew (kubectl delete pvc -n default data)"


@pytest.fixture
def town(scene: Scene) -> Iterator[Scene]:
    """A driver with its sidecar on n1 and n2, with 8Gi and 5Gi free, and two classes of it. The socket of this machine is never asked."""
    containers = [{"name": "csi-provisioner", "image": "csi-node-sidecar:1", "args": ["--node-deployment", f"--of={DRIVER}"]}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    put(scene, DAEMON_SETS, {"metadata": {"name": "sidecar"}, "spec": spec}, "kube-system", {"numberReady": 2, "desiredNumberScheduled": 2})
    for name, driver, binding in (("fast", DRIVER, LATE), ("fast-now", DRIVER, IMMEDIATE), ("theirs", OTHER, LATE)):
        put(scene, CLASSES, storage_class(name, driver, binding))
    for node, free in (("n1", "8Gi"), ("n2", "5Gi")):
        drivers = [{"name": name, "nodeID": node, "topologyKeys": ["kubernetes.io/hostname"]} for name in (DRIVER, OTHER)]
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
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(str(scene.kubeconfig.with_name("csi.sock")))
        here.listen()
        here.setblocking(False)
        yield scene
        with pytest.raises(BlockingIOError):
            here.accept()


def asked(scene: Scene, *words: str) -> int:
    address = scene.kubeconfig.with_name("csi.sock")
    line = ["explain", "pvc", "default/data", *words, f"--kubeconfig={scene.kubeconfig}", f"--csi-address={address}"]
    return main([*line, "--kube-api-qps=1000"])


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


def told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = asked(scene, "--exit-code")
    out, err = capsys.readouterr()
    assert err == ""
    return code, re.sub(r"\b\d+s ago", "1s ago", out).splitlines()


SAYS = "0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) did not have enough free storage."
MULTI = "rpc error: code = InvalidArgument desc = cannot be MULTI_NODE_MULTI_WRITER"
ANSWERS = {
    "class misspelt": """\
claim  default/data is Pending: 1Gi, ReadWriteOnce
class  fats does not exist
event  ProvisioningFailed (1s ago, persistentvolume-controller): storageclass.storage.k8s.io "fats" not found
next   {anew} with a class that exists (fast may be meant), or create StorageClass fats""",
    "too big": """\
claim    default/data is Pending: 100Gi, ReadWriteOnce
{late}
pod      db-0: not scheduled: {says}
nodes    0 of 2 could take it; n1 has 8Gi free, n2 has 5Gi free
{ready}
next     {anew} with 8Gi at most, free space on a node, or add one: none has 100Gi""",
    "too big, at once": """\
claim    default/data is Pending: 100Gi, ReadWriteOnce
class    fast-now, of local.example; binds at once
nodes    0 of 2 could take it; n1 has 8Gi free, n2 has 5Gi free
{ready}
next     {anew} with 8Gi at most, free space on a node, or add one: none has 100Gi""",
    "access mode": """\
claim    default/data is Pending: 1Gi, ReadWriteMany
{late}
node     n1 is selected, has 8Gi free
sidecar  Pod kube-system/sidecar-n1 is ready
event    ProvisioningFailed (1s ago, local.example on n1): {multi}
next     {anew} with ReadWriteOnce: a volume of one node can hardly be ReadWriteMany; the event has the driver's own words""",
    "node cordoned": """\
claim    default/data is Pending: 6Gi, ReadWriteOnce
{late}
pod      db-0: not scheduled: {says}
nodes    0 of 2 could take it; n1 is cordoned, n2 has 5Gi free
{ready}
next     kubectl uncordon n1, or add a node""",
    "sidecar not ready": """\
claim    default/data is Pending: 1Gi, ReadWriteOnce
{late}
node     n1 is selected, has 8Gi free
sidecar  Pod kube-system/sidecar-n1 is not ready: csi-provisioner CrashLoopBackOff
next     see why it is not ready: kubectl describe pod -n kube-system sidecar-n1""",
    "driver's error": """\
claim    default/data is Pending: 1Gi, ReadWriteOnce
{late}
node     n1 is selected, has 8Gi free
sidecar  Pod kube-system/sidecar-n1 is ready
event    ProvisioningFailed (1s ago, local.example on n1): rpc error: code = Internal desc = no file system ext5
next     mend what the event names, in class fast or in the claim; it is tried again by itself""",
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_whole_answer(town: Scene, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours = f"{DRIVER}_sidecar-n1_1-2-3"
    match case:
        case "class misspelt":
            made = want(town, "fats")
            warn(town, made, "persistentvolume-controller", 'storageclass.storage.k8s.io "fats" not found')
        case "too big":
            want(town, size="100Gi", scheduler=f"{SAYS} no new claims to deallocate, preemption: 0/2 nodes are available")
        case "too big, at once":
            want(town, "fast-now", size="100Gi")
        case "access mode":
            warn(town, want(town, mode="ReadWriteMany", on="n1"), ours, MULTI, "n1")
        case "node cordoned":
            town.patch("n1", {"spec": {"unschedulable": True}})
            want(town, size="6Gi", scheduler=SAYS)
        case "sidecar not ready":
            want(town, on="n1")
            where: Json = {"content_type": MERGE_PATCH, "namespace": "kube-system", "subresource": "status"}
            town.act(lambda: town.cluster.patch(PODS, "sidecar-n1", {"status": CRASHES}, **where))
        case "driver's error":
            warn(town, want(town, on="n1"), ours, "rpc error: code = Internal desc = no file system ext5", "n1")
    words = {"anew": ANEW, "late": FIRST, "ready": SIDECARS, "says": SAYS, "multi": MULTI}
    code, lines = told(town, capsys)
    assert (code, "\n".join(lines)) == (3, ANSWERS[case].format(**words))


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
    where, code, what = ("on n1", 0, "nothing: the claim has its volume")
    if by == "nothing":
        where, code = "on no node that is there", 3
        what = "no node reaches the volume: see `csi-node-sidecar explain volumes`, and restore the node's labels or the node"
    lines = ["claim   default/data is Bound: 1Gi, ReadWriteOnce", f"volume  pv-data of {DRIVER}, {where}", f"next    {what}"]
    assert told(town, capsys) == (code, lines)


@pytest.mark.parametrize(
    ("on", "does", "code", "says"),
    [
        ("n1", "", 4, "nothing is wrong: the sidecar of n1 makes the volume; if that lasts, see its log"),
        ("n1", "cordon", 4, "nothing is wrong: the sidecar of n1 makes the volume"),
        ("n1", "cordon --node-drain-policy=NoSchedule", 3, "kubectl uncordon n1, or let the pod that uses the claim run elsewhere"),
        ("n1", "--provisioning=false", 4, f"the sidecars only report here: see the log of {DRIVER}'s own provisioner"),
        ("n1", "--watch-scope=labelled", 4, "nothing is wrong: the sidecar of n1 makes the volume"),
        ("n9", "", 3, f"bring node n9 back; or, if it is gone for good, delete the pod that uses the claim, and {ANEW}"),
        ("n3", "", 3, f"see why nobody makes volumes of {DRIVER} on n3; if this program makes its volumes: "),
        ("", "theirs", 3, f"see why nobody makes volumes of {OTHER} in this cluster"),
        ("", "", 4, "nothing is wrong that the cluster shows; ask again in a minute"),
        ("", "no pod", 4, "nothing is wrong: the volume is made when a pod that uses the claim is scheduled; create that pod"),
    ],
)
def test_what_comes_of_the_node(town: Scene, on: str, does: str, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    want(town, "theirs" if does == "theirs" else "fast", on=on)
    if "--" in does:
        serve(town, does.split()[-1])
    if "cordon" in does:
        town.patch("n1", {"spec": {"unschedulable": True}})
    if does == "no pod":
        town.act(lambda: town.cluster.delete(PODS, "db-0", namespace="default"))
    got = told(town, capsys)
    assert (got[0], got[1][-1].startswith(f"next     {says}")) == (code, True), got
    assert any("has no label where node.n1 should be" in line for line in got[1]) is ("labelled" in does)


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
    want(town, on="n1")
    hidden = (CLASSES, NODES, CSI_NODES, CAPACITIES, PODS, EVENTS)
    town.faults.set(*[Fault(resource=resource.plural, status=403) for resource in hidden])
    assert asked(town, "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert {line.split()[1].rstrip(":") for line in said["not known"]} == {str(resource) for resource in hidden}
    assert (said["status"], said["node"]) == ("Unknown", "n1 is selected")
    town.faults.set(Fault(resource=CLAIMS.plural, status=403))
    assert asked(town) == 1
