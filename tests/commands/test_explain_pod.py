"""`explain pod` as people call it, against an API server over HTTP: before a failure, and during one."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack.lib.programs import claim
from sidecar.cli import main
from sidecar.failover.evidence import Fact
from sidecar.failover.look_io import attachment_name
from sidecar.failover.survivor import Decision, Guard, Step
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, CSI_NODES, NAMESPACES, NODES, PODS, VOLUMES
from sidecar.model import names
from sidecar.observe.decisions import Decisions
from tests.commands.test_explain_claim import READY, put
from tests.harness.drain.listed_cluster import DRIVER, OTHER
from tests.harness.drain.served import Json, Scene

OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}
READER = {"name": "read-drbd", "image": "csi-node-sidecar-read-drbd:1", "args": ["--listen=/csi/drbd.sock"]}


@pytest.fixture
def town(scene: Scene) -> Iterator[Scene]:
    """shop/db-0 on n1 with a volume that both nodes reach."""
    put(scene, NAMESPACES, {"metadata": {"name": "shop"}})
    put(scene, CLASSES, {"metadata": {"name": "replicated"}, "provisioner": DRIVER})
    for node in ("n1", "n2"):
        put(scene, CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": [{"name": DRIVER, "nodeID": node}]}})
        scene.patch(node, {"spec": {"taints": None}})  # that of a Node that is new
    wanted = claim("data", "replicated")
    wanted["spec"] |= {"volumeName": "pv-db"}
    made = put(scene, CLAIMS, wanted, "shop")
    ref = {"namespace": "shop", "name": "data", "uid": made["metadata"]["uid"]}
    spec = {"csi": {"driver": DRIVER, "volumeHandle": "vol"}, "claimRef": ref, "accessModes": ["ReadWriteOnce"]}
    spec |= {"capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "replicated"}
    put(scene, VOLUMES, {"metadata": {"name": "pv-db"}, "spec": spec})
    yield scene


def pod(scene: Scene, *, node: str = "n1", volumes: tuple[Json, ...] = (), **meta: Any) -> None:
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"nodeName": node, "volumes": [data, *volumes], "containers": [{"name": "m", "image": "n", "volumeMounts": [{"name": "etc"}]}]}
    put(scene, PODS, {"metadata": {"name": "db-0", "ownerReferences": [OWNER], **meta}, "spec": spec}, "shop")


def sidecars(scene: Scene, *flags: str, reader: bool = True) -> None:
    one = {"name": "csi-provisioner", "image": "csi-node-sidecar:1", "args": ["--node-deployment", f"--of={DRIVER}", *flags]}
    for node in ("n1", "n2"):
        spec = {"nodeName": node, "containers": [one, *([READER] if reader else [])]}
        put(scene, PODS, {"metadata": {"name": f"sidecar-{node}"}, "spec": spec}, "kube-system", READY)


def told(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    before = scene.versions()
    code = main(["explain", "pod", "shop/db-0", *words, "--exit-code", f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000"])
    assert scene.versions() == before, "it writes nothing"
    out, err = capsys.readouterr()
    assert err == ""
    return code, out.splitlines()


BEFORE = """\
pod     shop/db-0 on n1, which is Ready
mode    Act
volume  pv-db of claim shop/data: proof by DRBD, or by the label powered-off; not attached
guard   holds  policy: nobody says Ignore
        holds  owner: StatefulSet db makes it again
        holds  other writers: it writes to nothing else
        holds  others who act: nobody else acts on the node
        holds  target: node n2 could run it
next    it fails over once its node has lost its storage, if that is proven for all its volumes"""


def test_before_a_failure_the_whole_answer(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    pod(town)
    sidecars(town, "--failover=Act")
    code, lines = told(town, capsys)
    assert "\n".join(lines) == BEFORE and code == 0
    source = {"persistentVolumeName": "pv-db"}
    put(
        town,
        ATTACHMENTS,
        {"metadata": {"name": attachment_name("vol", DRIVER, "n1")}, "spec": {"attacher": DRIVER, "nodeName": "n1", "source": source}},
    )
    assert "not attached" not in "\n".join(told(town, capsys)[1])


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        ("observed", 3, "nothing is done for it: not all sidecars of the driver have --failover=Act"),
        ("no reader", 4, "it fails over only once somebody has cut the power of n1 and labelled it so"),
        ("ignored", 3, "it stays where it is if its node is lost: csi-node-sidecar.io/failover says Ignore"),
        ("bare", 3, "it stays where it is if its node is lost: no controller owns it, so nobody would make it again"),
        ("writes elsewhere", 3, "it stays where it is if its node is lost: it may write to hostPath etc, of which nothing can be proven"),
        (
            "local",
            3,
            "it stays where it is if its node is lost: NoTarget: its volumes are on this node alone",
        ),
        ("pending", 3, "nothing fails over: it has no node yet"),
        ("another driver", 3, "it stays where it is if its node is lost: it may write to volume pv-db of "),
    ],
)
def test_what_stands_against_it(town: Scene, case: str, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    meta: Json = {"annotations": {names.FAILOVER: "Ignore"}} if case == "ignored" else {"ownerReferences": []} if case == "bare" else {}
    etc = ({"name": "etc", "hostPath": {"path": "/etc"}},) if case == "writes elsewhere" else ()
    pod(town, node="" if case == "pending" else "n1", volumes=etc, **meta)
    sidecars(town, f"--failover={'Observe' if case == 'observed' else 'Act'}", reader=case != "no reader")
    if case == "local":
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}
        town.act(lambda: town.cluster.patch(VOLUMES, "pv-db", {"spec": affinity}, content_type="application/merge-patch+json"))
    got, lines = told(town, capsys, *(["--driver", OTHER] if case == "another driver" else []))
    assert (got, lines[-1].startswith(f"next    {says}") or lines[-1].startswith(f"next  {says}")) == (code, True), lines


def test_during_one_each_guard_has_its_source_and_age(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """As the sidecar notes it, by its debug page."""
    pod(town)
    sidecars(town, "--failover=Act", "--debug-endpoint=:8081")
    proof = Fact(None, "vol: two reads disagree", "drbd", 2.4)
    guards = (Guard("policy", Fact(True, "nobody says Ignore")), Guard("proof of pv-db", proof))
    noted = Decisions()
    noted.note(Decision(Step.NONE, proof.says, guards, again=2.0), at=time.time(), room="failover", key="shop/db-0", name="pod shop/db-0")
    town.served.pages["kube-system/sidecar-n2:8081/debug/decisions?key=shop/db-0"] = json.dumps(noted.rows("shop/db-0")).encode()
    town.served.pages["kube-system/sidecar-n1:8081/debug/decisions?key=shop/db-0"] = b"[]"
    code, lines = told(town, capsys)
    shown = re.sub(r"\b\d+s ago", "1s ago", "\n".join(lines))
    assert code == 0 and shown.split("\nnow ")[1].splitlines()[:3] == [
        "    n2, 1s ago: None: vol: two reads disagree; again in 2 s",
        "        holds  policy: nobody says Ignore (itself, 0 s old)",
        "        FAILS  proof of pv-db: vol: two reads disagree (drbd, 2 s old)",
    ]
    town.served.pages["kube-system/sidecar-n1:8081/debug/decisions?key=shop/db-0"] = b"{"
    assert "n1: what it has decided cannot be read" in "\n".join(told(town, capsys)[1])


def test_for_programs(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    pod(town)
    sidecars(town, "--failover=Act")
    said = json.loads("\n".join(told(town, capsys, "-o", "json")[1]))
    assert (said["status"], said["mode"], len(said["guard"])) == ("True", "Act", 5)


def test_a_node_that_is_off_by_somebody_s_word(town: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    pod(town)
    sidecars(town, "--failover=Act", reader=False)
    change = {"metadata": {"labels": {names.POWERED_OFF: "boot"}}}
    town.act(lambda: town.cluster.patch(NODES, "n1", change, content_type="application/merge-patch+json"))
    code, lines = told(town, capsys)
    assert code == 4 and any(line.startswith("power ") for line in lines)
