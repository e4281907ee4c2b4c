"""deploy/components/failover on a real API server: which pods, attachments and taints a token may touch, and what stops it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar
from sidecar.eviction.attempt_io import body
from sidecar.eviction.rules import May
from sidecar.failover.look_io import attachment_name
from sidecar.failover.unit import IGNORED_BY_PIRAEUS
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names, timestamps
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE
from tests.e2e.test_rights_at_work import denied
from tests.harness.drains import JUDGING, SWIFT
from tests.harness.persons import ACCOUNT
from tests.harness.policies import Abuse, Request, Secured, allowed, built, create, in_force, patch, secured, type_checked

PODS, NODES, CLAIMS = "/api/v1/namespaces/default/pods", "/api/v1/nodes", "/api/v1/namespaces/default/persistentvolumeclaims"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OFF, ON, OWN = "n3", "n2", "n1"
"""A node whose kubelet never came up, one that is Ready, and that of the token."""
KEEPER = {"apiVersion": "example.com/v1", "kind": "Keeper", "name": "k", "uid": "u", "controller": True}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
TAINT = names.of_driver(DRIVER, names.STORAGE_LOST)
ROLES = (("drain", "failover"), ("drain", "emptying", "failover"))


@pytest.fixture(scope="module", params=ROLES, ids="+".join)
def cluster(request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(plane, built(tmp_path_factory.mktemp("overlay"), *request.param)) as made:
        made.empties = "emptying" in request.param  # type: ignore[attr-defined]
        plane.add_node(OFF, managed=False)
        made.made.append(f"{NODES}/{OFF}")
        until(lambda: ready(made, ON) and ready(made, OWN), "two nodes are Ready")
        first = made.make(PODS, pod("first", OFF, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "another"}}]))
        in_force(gone(first), made.nobody, "bound to no pod")
        in_force(detached(attachment(made, "first", OFF)), made.nobody, "bound to no pod")
        bare = made.make(PODS, pod("second", ON, metadata={"ownerReferences": []}))
        in_force(evicted(bare), made.n1, "nobody makes again")
        in_force(gone(made.make(PODS, pod("third", ON))), made.n1, "is Ready")
        in_force(patch(f"{NODES}/{OFF}", {"spec": {"unschedulable": True}}), made.n1, "neither cordons nor taints")
        yield made


def ready(cluster: Secured, name: str) -> bool:
    conditions = cluster.plane.request("GET", f"{NODES}/{name}")["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def pod(name: str, node: str, *, metadata: Json | None = None, **spec: Any) -> Json:
    """One that fails over: with a claim, and with somebody who makes it again."""
    head = {"name": name, "namespace": "default", "ownerReferences": [KEEPER], **(metadata or {})}
    full = {"nodeName": node, "volumes": [DATA], "containers": [{"name": "main", "image": "none"}], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": {**full, **spec}}


def options(uid: str | None, **more: Any) -> Json:
    """Of a deletion. It is a dry run: beside a body the API server does not read the address."""
    conditions = {} if uid is None else {"preconditions": {"uid": uid}}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **conditions, **more}


def gone(stored: Json, *, uid: bool = True, **more: Any) -> Request:
    """As the program asks for it."""
    meta = stored["metadata"]
    given = {"gracePeriodSeconds": 0, **more}
    return Request("DELETE", f"{PODS}/{meta['name']}", options(meta["uid"] if uid else None, **given))


def evicted(stored: Json) -> Request:
    meta = stored["metadata"]
    return create(f"{PODS}/{meta['name']}/eviction", body(May("default", meta["name"], meta["uid"])))


def detached(stored: Json, *, uid: bool = True) -> Request:
    meta = stored["metadata"]
    return Request("DELETE", f"{ATTACHMENTS}/{meta['name']}", options(meta["uid"] if uid else None))


def attachment(cluster: Secured, name: str, node: str, attacher: str = DRIVER) -> Json:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": f"pv-{name}"}}
    whole = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"csi-{name}"}, "spec": spec}
    return cluster.make(ATTACHMENTS, whole)


# --- pods ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("volume", [DATA, {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], ids=["claim", "ephemeral"])  # fmt: skip
def test_a_pod_of_a_node_that_is_not_ready_is_deleted_by_its_uid(cluster: Secured, volume: Json) -> None:
    stored = cluster.plane.request("POST", PODS, pod("dies", OFF, volumes=[volume]))
    try:
        allowed(gone(stored), cluster.n1)
        allowed(evicted(stored), cluster.n1)
        Abuse(gone(stored), "bound to no pod").check(cluster, cluster.nobody)
        Abuse(gone(stored, uid=False), "the one that it has judged").check(cluster, cluster.n1)
        for more in ({"propagationPolicy": "Orphan"}, {"propagationPolicy": "Foreground"}):
            Abuse(gone(stored, **more), "go with it").check(cluster, cluster.n1)
    finally:
        cluster.plane.request("DELETE", f"{PODS}/dies?gracePeriodSeconds=0")


LEFT_ALONE: dict[str, tuple[Json, Json, str]] = {
    "no claim": ({}, {"volumes": [{"name": "data", "emptyDir": {}}]}, "without a claim"),
    "no volume": ({}, {"volumes": []}, "without a claim"),
    "no owner": ({"ownerReferences": []}, {}, "nobody makes again"),
    "an owner that does not control": ({"ownerReferences": [{**KEEPER, "controller": False}]}, {}, "nobody makes again"),
    "a DaemonSet's": ({"ownerReferences": [{**KEEPER, "kind": "DaemonSet"}]}, {}, "nobody makes again"),
    "a static one": ({"ownerReferences": [{**KEEPER, "kind": "Node"}]}, {}, "nobody makes again"),
    "Ignore": ({"annotations": {names.FAILOVER: "Ignore"}}, {}, "left alone"),
    "what is no word": ({"annotations": {names.FAILOVER: "ignore"}}, {}, "left alone"),
    "an empty word": ({"annotations": {names.FAILOVER: ""}}, {}, "left alone"),
    "piraeus' word": ({"annotations": {IGNORED_BY_PIRAEUS: ""}}, {}, "left alone"),
}


@pytest.mark.parametrize(("meta", "spec", "says"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_other_pods_are_neither_deleted_nor_evicted(cluster: Secured, meta: Json, spec: Json, says: str) -> None:
    stored = cluster.plane.request("POST", PODS, pod("stays", OFF, metadata=meta, **spec))
    try:
        Abuse(gone(stored), says).check(cluster, cluster.n1)
        seen(cluster, stored)
        Abuse(evicted(stored), says).check(cluster, cluster.n1)
    finally:
        cluster.plane.request("DELETE", f"{PODS}/stays?gracePeriodSeconds=0")


def seen(cluster: Secured, stored: Json) -> None:
    """The policy about evictions reads pods from a watch, which hears of one a moment later."""
    until(lambda: evicted(stored).by(cluster.n1)[0] == 422, "the policy has seen the pod")


@pytest.mark.parametrize("word", ["Ignore", "anything"])
def test_what_a_namespace_says_holds_for_its_pods(cluster: Secured, word: str) -> None:
    stored = cluster.plane.request("POST", PODS, pod("said", OFF))
    try:
        annotate(cluster, word)
        until(lambda: gone(stored).by(cluster.n1)[0] == 422, "the word is known")
        Abuse(gone(stored), "left alone").check(cluster, cluster.n1)
        Abuse(evicted(stored), "left alone").check(cluster, cluster.n1)
    finally:
        annotate(cluster, None)
        until(lambda: gone(stored).by(cluster.n1)[0] == 200, "the word is taken back")
        cluster.plane.request("DELETE", f"{PODS}/said?gracePeriodSeconds=0")


def annotate(cluster: Secured, word: str | None) -> None:
    change = {"metadata": {"annotations": {names.FAILOVER: word}}}
    cluster.plane.request("PATCH", "/api/v1/namespaces/default", change, content_type=MERGE_PATCH)


def test_of_a_node_that_is_ready_pods_are_evicted_and_not_deleted(cluster: Secured) -> None:
    stored = cluster.plane.request("POST", PODS, pod("runs", ON))
    try:
        allowed(evicted(stored), cluster.n1)
        Abuse(gone(stored), f"while node {ON} is Ready").check(cluster, cluster.n1)
        Abuse(gone(stored), f"while node {ON} is Ready").check(cluster, cluster.n2)
        annotate(cluster, "ForceOnExclusion")
        until(lambda: gone(stored).by(cluster.n1)[0] == 200, "the namespace's word is known")
    finally:
        annotate(cluster, None)
        cluster.plane.request("DELETE", f"{PODS}/runs?gracePeriodSeconds=0")
    meta = {"annotations": {names.FAILOVER: "ForceOnExclusion"}}
    stored = cluster.plane.request("POST", PODS, pod("forced", ON, metadata=meta))
    try:
        until(lambda: gone(stored).by(cluster.n1)[0] == 200, "the namespace's word is taken back, and that of the pod counts")
        allowed(gone(stored), cluster.n1)
    finally:
        cluster.plane.request("DELETE", f"{PODS}/forced?gracePeriodSeconds=0")


def test_what_a_drain_evicts_of_its_own_node_is_not_bound_by_fail_over(cluster: Secured) -> None:
    """With the role of emptying, and on that node alone."""
    for node in (OWN, ON):
        stored = cluster.plane.request("POST", PODS, pod(f"bare-{node}", node, metadata={"ownerReferences": []}, volumes=[]))
        try:
            if cluster.empties and node == OWN:  # type: ignore[attr-defined]
                allowed(evicted(stored), cluster.n1)
            else:
                seen(cluster, stored)
        finally:
            cluster.plane.request("DELETE", f"{PODS}/bare-{node}?gracePeriodSeconds=0")


def test_where_no_pod_is_left_it_is_told_so_and_not_refused(cluster: Secured) -> None:
    """Else a drain would take the last pod of a namespace, which has gone meanwhile, for one that may not go."""
    path = "/api/v1/namespaces/kube-node-lease/pods"
    assert not cluster.plane.request("GET", path)["items"]
    code, said, broken = create(f"{path}/none/eviction", body(May("kube-node-lease", "none", "u"))).by(cluster.n1)
    assert (code, broken) == (404, []), said


# --- attachments --------------------------------------------------------------------------------------------------------


def test_attachments_of_its_driver_to_other_nodes_are_deleted_by_their_uid(cluster: Secured) -> None:
    for name, node, attacher, says in (
        ("ours", OFF, DRIVER, ""),
        ("theirs", OFF, "other.example.com", f"of driver {DRIVER} only"),
        ("own", OWN, DRIVER, "its own node"),
    ):
        stored = attachment(cluster, name, node, attacher)
        request = detached(stored)
        if says:
            Abuse(request, says).check(cluster, cluster.n1)
            continue
        allowed(request, cluster.n1)
        Abuse(request, "bound to no pod").check(cluster, cluster.nobody)
        Abuse(detached(stored, uid=False), "the one that it has judged").check(cluster, cluster.n1)


@pytest.mark.parametrize("verb", ["PATCH", "PUT", "POST"])
def test_no_attachment_is_changed_or_made(cluster: Secured, verb: str) -> None:
    """Neither are finalizers taken off: the role does not allow it."""
    path = ATTACHMENTS if verb == "POST" else f"{ATTACHMENTS}/csi-first"
    code, _ = cluster.n1.ask(verb, f"{path}?dryRun=All", {"metadata": {"finalizers": []}}, content_type=_type(verb))
    assert code == 403


def _type(verb: str) -> str:
    return MERGE_PATCH if verb == "PATCH" else "application/json"


# --- the taint ----------------------------------------------------------------------------------------------------------


def tainted(cluster: Secured, node: str, *ours: Json, without: bool = False, **more: Any) -> Request:
    """With these beside those that are there, on condition of the version."""
    stored = cluster.plane.request("GET", f"{NODES}/{node}")
    others = [] if without else [taint for taint in stored["spec"].get("taints", []) if taint["key"] != TAINT]
    meta = {"resourceVersion": stored["metadata"]["resourceVersion"], **more.pop("metadata", {})}
    return patch(f"{NODES}/{node}", {"metadata": meta, "spec": {"taints": [*others, *ours], **more}})


LOST = {"key": TAINT, "value": "peers-took-over", "effect": "NoSchedule"}
NEITHER = "neither cordons nor taints"


@pytest.fixture
def put(cluster: Secured, request: pytest.FixtureRequest) -> Iterator[str]:
    """Our taint, on a node."""
    sent = tainted(cluster, request.param, LOST)
    cluster.plane.request("PATCH", sent.path, sent.content, content_type=sent.content_type)
    yield request.param
    sent = tainted(cluster, request.param)
    cluster.plane.request("PATCH", sent.path, sent.content, content_type=sent.content_type)


def test_the_taint_is_put_on_a_node_that_is_not_ready_and_on_its_own(cluster: Secured) -> None:
    for node in (OFF, OWN):
        allowed(tainted(cluster, node, LOST), cluster.n1)
    Abuse(tainted(cluster, ON, LOST), NEITHER).check(cluster, cluster.n1)


@pytest.mark.parametrize("put", [OWN], indirect=True)
def test_it_is_taken_off_by_the_node_s_own_sidecar(cluster: Secured, put: str) -> None:
    allowed(tainted(cluster, put), cluster.n1)
    allowed(tainted(cluster, put, {**LOST, "value": "no-quorum"}), cluster.n1)
    Abuse(tainted(cluster, put), NEITHER).check(cluster, cluster.n2)


@pytest.mark.parametrize("put", [OFF], indirect=True)
def test_it_is_neither_taken_off_another_node_nor_changed_there(cluster: Secured, put: str) -> None:
    Abuse(tainted(cluster, put), NEITHER).check(cluster, cluster.n1)
    Abuse(tainted(cluster, put, {**LOST, "value": "powered-off-x"}), NEITHER).check(cluster, cluster.n1)


ODD: dict[str, tuple[tuple[Json, ...], Json]] = {
    "effect": (({**LOST, "effect": "NoExecute"},), {}),
    "twice": ((LOST, {**LOST, "effect": "NoExecute"}), {}),
    "another key": (({**LOST, "key": names.of_driver("other.example", names.STORAGE_LOST)},), {}),
    "out-of-service": (({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"},), {}),
    "another one beside it": ((LOST, {"key": "a", "effect": "NoSchedule"}), {}),
    "others taken off": ((LOST,), {"without": True}),
    "a cordon": ((LOST,), {"unschedulable": True}),
    "something else": ((LOST,), {"providerID": "x"}),
}


@pytest.mark.parametrize("node", [OFF, OWN])
@pytest.mark.parametrize(("taints", "more"), ODD.values(), ids=ODD)
def test_nothing_else_of_the_spec_changes_with_it(cluster: Secured, node: str, taints: tuple[Json, ...], more: Json) -> None:
    mine = {"key": "example.com/kept", "effect": "PreferNoSchedule"}
    sent = tainted(cluster, node, mine)
    cluster.plane.request("PATCH", sent.path, sent.content, content_type=sent.content_type)
    try:
        Abuse(tainted(cluster, node, *taints, **more), NEITHER).check(cluster, cluster.n1)
    finally:
        stored = cluster.plane.request("GET", f"{NODES}/{node}")
        left = [taint for taint in stored["spec"]["taints"] if taint["key"] != mine["key"]]
        cluster.plane.request("PATCH", sent.path, {"spec": {"taints": left}}, content_type=sent.content_type)


POWER = {"labels": {names.POWERED_OFF: "boot"}}


@pytest.mark.parametrize("meta", [POWER, {"annotations": {"a": "b"}}, {"finalizers": ["example.com/x"]}], ids=str)
def test_nobody_says_more_of_another_node_with_it(cluster: Secured, meta: Json) -> None:
    """That its power was cut is for people to say, also of the own node."""
    code, said, _ = tainted(cluster, OFF, LOST, metadata=meta).by(cluster.n1)
    assert code == 422 and "csi-node-sidecar" in said
    code, said, broken = patch(f"{NODES}/{OWN}", {"metadata": POWER}).by(cluster.n1)
    assert code == 422 and "its own labels" in said and len(broken) == 1


# --- words of people, and the Lease ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [names.FAILOVER, IGNORED_BY_PIRAEUS])
def test_it_says_of_no_claim_whether_it_fails_over(cluster: Secured, key: str) -> None:
    path = f"{CLAIMS}/worded"
    if not any(item["metadata"]["name"] == "worded" for item in cluster.plane.request("GET", CLAIMS)["items"]):
        spec = {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        cluster.make(CLAIMS, {"metadata": {"name": "worded"}, "spec": spec})

    def say(claim: Json) -> None:
        claim["metadata"].setdefault("annotations", {})[key] = "ForceOnExclusion"

    Abuse(Request("PUT", path, prepare=say), "is for people to say").check(cluster, cluster.n1)


def lease(cluster: Secured, node: str, *, held: bool = True, **meta: Any) -> Json:
    uid = cluster.plane.request("GET", f"{NODES}/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    head = {"name": names.failover(DRIVER), "labels": {names.FAILOVER_FOR: DRIVER}, "ownerReferences": [owner], **meta}
    said = {"holderIdentity": f"{uid}/{DRIVER}" if held else "", "leaseDurationSeconds": 30, "renewTime": timestamps.to_micro_text(1.7e9)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": head, "spec": said}


def test_the_lease_is_held_by_one_node_and_left_for_the_next(cluster: Secured) -> None:
    path, said = f"{LEASES}/{names.failover(DRIVER)}", "for its own node only"
    code, told, _ = create(LEASES, lease(cluster, ON)).by(cluster.n1)
    assert code == 422 and said in told
    code, first = cluster.n1.ask("POST", LEASES, lease(cluster, OWN))
    assert code == 201, first
    cluster.made.append(path)

    def put(node: str, *, held: bool = True, of: Json = first) -> Request:
        body = lease(cluster, node, held=held, resourceVersion=of["metadata"]["resourceVersion"])
        body["spec"]["renewTime"] = timestamps.to_micro_text(1.7e9 + 1)
        return Request("PUT", path, body)

    allowed(put(OWN), cluster.n1)
    allowed(put(OWN, held=False), cluster.n1)
    code, told, _ = put(ON).by(cluster.n2)
    assert code == 422 and "only when it has run out" in told
    code, told, _ = put(ON, held=False).by(cluster.n2)
    assert code == 422 and said in told
    code, left = cluster.n1.ask("PUT", path, put(OWN, held=False).content)
    assert code == 200, left
    allowed(put(ON, of=left), cluster.n2)


# --- the program ------------------------------------------------------------------------------------------------------------


BOOT = dict.fromkeys(
    ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion"), ""
)


def test_all_that_the_program_writes_passes(cluster: Secured, tmp_path: Path) -> None:
    """As a process on n1, with a token as the kubelet hands it out, once somebody says that the power of a node was cut."""
    plane, volumes = cluster.plane, "/api/v1/persistentvolumes"
    for node in (OWN, ON, OFF):
        plane.add_csinode(node, DRIVER, node, [])
        cluster.made.append(f"/apis/storage.k8s.io/v1/csinodes/{node}")
    spec = {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    asked = {**spec, "volumeName": "pv-db", "resources": {"requests": {"storage": "1Gi"}}}
    made = cluster.make(CLAIMS, {"metadata": {"name": "data"}, "spec": asked})
    ref = {"namespace": "default", "name": "data", "uid": made["metadata"]["uid"]}
    more = {"capacity": {"storage": "1Gi"}, "csi": {"driver": DRIVER, "volumeHandle": "vol"}, "claimRef": ref}
    cluster.make(volumes, {"metadata": {"name": "pv-db"}, "spec": {**spec, **more, "persistentVolumeReclaimPolicy": "Retain"}})
    until(lambda: plane.request("GET", f"{CLAIMS}/data")["status"]["phase"] == "Bound", "the claim is bound")
    cluster.make(PODS, pod("db", OFF))
    source = {"persistentVolumeName": "pv-db"}
    attached = {"metadata": {"name": attachment_name("vol", DRIVER, OFF)}, "spec": {"attacher": DRIVER, "nodeName": OFF, "source": source}}
    cluster.make(ATTACHMENTS, attached)
    info = {**BOOT, "bootID": "b1", "operatingSystem": "linux", "architecture": "amd64"}
    plane.request("PATCH", f"{NODES}/{OFF}/status", {"status": {"nodeInfo": info}}, content_type=MERGE_PATCH)
    before = denied(plane)
    assert before, "it counts none, not even those by which the fixture saw that the policies are in force"
    driver = OurDriver(tmp_path, node=OWN, name=DRIVER)
    sidecar = Sidecar(
        tmp_path,
        node=OWN,
        address=driver.socket,
        kubeconfig=cluster.kubeconfig(OWN, ACCOUNT),
        args=[*JUDGING, "--failover=Act"],
        environ={"NAMESPACE": NAMESPACE, "POD_NAME": "none"},
        speed=SWIFT,
    )

    def gone_from(path: str, name: str) -> bool:
        return name not in [item["metadata"]["name"] for item in plane.request("GET", path)["items"]]

    with driver, sidecar:
        sidecar.until_ready()
        label = {"metadata": {"labels": {names.POWERED_OFF: "b1"}}}
        plane.request("PATCH", f"{NODES}/{OFF}", label, content_type=MERGE_PATCH)
        until(lambda: gone_from(PODS, "db"), "the pod is deleted")
        until(lambda: gone_from(ATTACHMENTS, attached["metadata"]["name"]), "its volume is detached")
        taints = plane.request("GET", f"{NODES}/{OFF}")["spec"]["taints"]
        assert [taint["value"] for taint in taints if taint["key"] == TAINT] == ["powered-off-b1"]
        until(lambda: not plane.request("GET", f"{LEASES}/{names.failover(DRIVER)}")["spec"]["holderIdentity"], "the Lease is left")
    assert denied(plane) == before
    off = {"metadata": {"labels": {names.POWERED_OFF: None}}, "spec": {"taints": [t for t in taints if t["key"] != TAINT]}}
    plane.request("PATCH", f"{NODES}/{OFF}", off, content_type=MERGE_PATCH)
    cluster.made = [path for path in cluster.made if not path.endswith(("/pods/db", attached["metadata"]["name"]))]


# --- all of it ------------------------------------------------------------------------------------------------------------


def test_the_server_finds_nothing_to_say_about_the_policies(cluster: Secured) -> None:
    assert not any(type_checked(cluster.plane).values())


def test_what_the_policies_cannot_see_is_told_in_the_readme(cluster: Secured) -> None:
    """Whose volume a pod has, and whether it is proven that nobody writes to it."""
    stored = cluster.plane.request("POST", PODS, pod("unproven", OFF))
    allowed(gone(stored), cluster.n1)
    cluster.plane.request("DELETE", f"{PODS}/unproven?gracePeriodSeconds=0")
    told = (DEPLOY / "components/own-node/README.md").read_text()
    assert "| failover |" in told and "pods with claims of nodes that are not Ready" in told
