"""deploy/components/node-loss on a real API server, with tokens of two nodes: of a machine that has its Node a peer takes nothing, and of
one that is gone only what says so itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DRIVER
from tests.harness.left_objects import CLAIMS, VOLUMES, claim, judged, uid_of, volume
from tests.harness.policies import Abuse, Request, Secured, allowed, built, create, delete, in_force, patch, secured

REPORTS = "/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/csi-node-sidecar/leases"


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overlay = built(tmp_path_factory.mktemp("overlay"), "drain", "node-loss", "own-node")
    with secured(plane, overlay) as made:
        made.make(CLAIMS, claim("first"))
        in_force(delete(f"{CLAIMS}/first"), made.nobody, "bound to no pod")
        in_force(delete(f"{CLAIMS}/first"), made.n1, "with which machine")
        yield made


def released(cluster: Secured, name: str, *, lies_on: str, node: str, **spec: Any) -> None:
    """The volume controller says so of one whose claim is gone."""
    claim = {"kind": names.CLAIM, "namespace": "default", "name": "gone", "uid": "uid-of-a-claim-that-is-gone"}
    cluster.make(VOLUMES, volume(name, lies_on=lies_on, node=node, claimRef=claim, **spec))
    until(lambda: cluster.plane.request("GET", f"{VOLUMES}/{name}").get("status", {}).get("phase") == "Released", f"{name} is released")


def mark_of(name: str, mark: str) -> Request:
    return patch(f"{CLAIMS}/{name}", {"metadata": {"annotations": {names.LOST_WITH: mark}}})


# --- claims ---------------------------------------------------------------------------------------------------------------


def test_a_claim_that_says_with_which_machine_its_data_was_lost_may_go(cluster: Secured) -> None:
    cluster.make(CLAIMS, claim("lost", lost_with="n9/uid-9"))
    allowed(judged(cluster, "lost"), cluster.n1)
    code, said, broken = delete(f"{CLAIMS}/lost").by(cluster.n1)
    assert code == 422 and "as it has judged it" in said, (code, said, broken)
    code, said, broken = judged(cluster, "lost").by(cluster.nobody)
    assert code == 422 and any("bound to no pod" in each for each in broken), (code, said, broken)


@pytest.mark.parametrize("mark", ["", "n9", "n9/", "/uid-9", "n9/uid-9/x"])
def test_a_claim_without_such_a_mark_stays(cluster: Secured, mark: str) -> None:
    name = f"unmarked-{len(mark)}"
    cluster.make(CLAIMS, claim(name, lost_with=mark))
    code, said, _ = judged(cluster, name).by(cluster.n1)
    assert code == 422 and "csi-node-sidecar" in said, (code, said)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_while_there_is_a_node_of_that_name_or_uid_nothing_is_marked_or_deleted(cluster: Secured, node: str) -> None:
    for number, mark in enumerate((f"{node}/{uid_of(cluster, node)}", f"{node}/former", f"n9/{uid_of(cluster, node)}")):
        name, of = f"kept-{node}-{number}", mark.partition("/")[0]
        cluster.make(CLAIMS, claim(name, lost_with=mark, node=of))
        code, said, _ = judged(cluster, name).by(cluster.n1)
        assert code == 422 and f"there is a Node {node}" in said, (code, said)
        cluster.make(CLAIMS, claim(f"{name}-not-yet", node=of))
        code, said, _ = mark_of(f"{name}-not-yet", mark).by(cluster.n1)
        assert code == 422 and f"there is a Node {node}" in said, (code, said)


# What a stolen token would make of a claim whose data nobody has lost: it invents a machine.
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"node": "n2"}, id="made for a node that is there"),
        pytest.param({"node": ""}, id="bound by hand"),
        pytest.param({"driver": "ebs.example.com"}, id="of a network driver"),
        pytest.param({"driver": ""}, id="asked of nobody"),
        pytest.param({"volume": ""}, id="not bound"),
    ],
)
def test_a_token_gives_up_no_claim_but_of_the_node_for_which_its_volume_was_made(cluster: Secured, kept: Json) -> None:
    name = "kept-" + "-".join(f"{key}-{value.partition('.')[0] or 'none'}" for key, value in kept.items())
    cluster.make(CLAIMS, claim(name, **kept))
    says = "of driver" if kept.get("driver") == "ebs.example.com" else "made for the node that is gone"
    code, said, broken = mark_of(name, "n9/uid-9").by(cluster.n1)
    assert code == 422 and any(says in each for each in [said, *broken]), (code, said, broken)
    cluster.make(CLAIMS, claim(f"{name}-marked", lost_with="n9/uid-9", **kept))
    code, said, broken = judged(cluster, f"{name}-marked").by(cluster.n1)
    assert code == 422 and any("made for the node that is gone" in each for each in [said, *broken]), (code, said, broken)


def test_for_which_node_the_volume_of_a_bound_claim_was_made_no_token_changes(cluster: Secured) -> None:
    cluster.make(CLAIMS, claim("of-n1", node="n1"))
    for value in (None, "n9"):
        code, said, broken = patch(f"{CLAIMS}/of-n1", {"metadata": {"annotations": {names.SELECTED_NODE: value}}}).by(cluster.n1)
        assert code == 422 and any("bound claim" in each for each in [said, *broken]), (code, said, broken)


def test_a_machine_that_is_gone_may_be_named_and_nothing_else_of_the_claim_is_changed(cluster: Secured) -> None:
    allowed(mark_of("first", "n9/uid-9"), cluster.n1)
    for word in (names.ALLOW_CLAIM_DELETION, names.DRAIN_POLICY):
        code, _, _ = patch(f"{CLAIMS}/first", {"metadata": {"annotations": {word: "true"}}}).by(cluster.n1)
        assert code == 422, word


# --- volumes --------------------------------------------------------------------------------------------------------------


def test_a_released_volume_of_a_machine_that_is_gone_may_go(cluster: Secured) -> None:
    released(cluster, "pv-lost", lies_on="n9/uid-9", node="n9")
    allowed(delete(f"{VOLUMES}/pv-lost"), cluster.n1)


@pytest.mark.parametrize("lies_on", ["", "n2/{n2}", "n2/former", "n9/{n2}"])
def test_a_volume_of_a_node_that_is_there_stays(cluster: Secured, lies_on: str) -> None:
    name = f"pv-{len(lies_on)}-{lies_on[:2] or 'none'}"
    released(cluster, name, lies_on=lies_on.format(n2=uid_of(cluster, "n2")), node="n2")
    code, said, _ = delete(f"{VOLUMES}/{name}").by(cluster.n1)
    assert code == 422, (code, said)


def by_name(node: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def by_hosts(*nodes: str) -> Json:
    return {"matchExpressions": [{"key": "example.com/host", "operator": "In", "values": list(nodes)}]}


@pytest.mark.parametrize(
    ("maker", "terms"),
    [
        pytest.param("n2", [by_name("n2")], id="by the field of its name"),
        pytest.param("n2", [by_hosts("n2", "n3")], id="by two names"),
        pytest.param("n2", [], id="without affinity"),
        pytest.param("a-n1", [by_hosts("a-n1")], id="its name ends in that of the requester"),
    ],
)
def test_a_volume_of_a_node_that_is_there_stays_however_it_says_where_it_is(cluster: Secured, maker: str, terms: list[Json]) -> None:
    name = f"pv-of-{maker}-{len(str(terms))}"
    identity = {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-{maker}"}
    there = {"csi": {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": identity}}
    there |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}} if terms else None}
    where = maker if maker == "n2" else "n2"  # that of a node which is there
    released(cluster, name, lies_on=f"{where}/{uid_of(cluster, 'n2')}", node=maker, **there)
    code, said, broken = delete(f"{VOLUMES}/{name}").by(cluster.n1)
    assert code == 422 and any("gives no volume of node n2 up" in each for each in [said, *broken]), (code, said, broken)


def test_a_volume_of_a_machine_that_is_gone_stays_until_it_is_released(cluster: Secured) -> None:
    cluster.make(VOLUMES, volume("pv-free", lies_on="n9/uid-9", node="n9"))
    Abuse(delete(f"{VOLUMES}/pv-free"), "only when they are released").check(cluster, cluster.n1)


@pytest.mark.parametrize(
    ("maker", "lies_on", "may_go"),
    [
        ("n9", "n9/uid-9", True),
        ("n8", "n9/uid-9", False),
        ("n9-x", "n9/uid-9", False),
        ("n2", "n2/former", False),
        ("n9", "n9/{n2}", False),
    ],
)
def test_one_without_node_affinity_may_go_if_its_maker_is_the_node_that_is_gone(
    cluster: Secured, maker: str, lies_on: str, may_go: bool
) -> None:
    name = f"pv-{maker}-{'there' if '{' in lies_on else lies_on[3:6]}"
    released(cluster, name, lies_on=lies_on.format(n2=uid_of(cluster, "n2")), node=maker, nodeAffinity=None)
    if may_go:
        allowed(delete(f"{VOLUMES}/{name}"), cluster.n1)
    else:
        code, said, _ = delete(f"{VOLUMES}/{name}").by(cluster.n1)
        assert code == 422 and "gives" in said, (code, said)


def test_our_finalizer_alone_is_taken_off_and_only_while_it_is_being_deleted(cluster: Secured) -> None:
    other, path = "example.com/other", f"{VOLUMES}/pv-leaves"

    def finalizers(*left: str) -> Request:
        return patch(path, {"metadata": {"finalizers": list(left)}})

    made = volume("pv-leaves", lies_on="n9/uid-9", node="n9")
    made["metadata"]["finalizers"].append(other)
    cluster.plane.request("POST", VOLUMES, made)
    code, said, _ = finalizers(other, "kubernetes.io/pv-protection").by(cluster.n1)
    assert code == 422 and "only while that is being deleted" in said, (code, said)
    cluster.plane.request("DELETE", path)
    ours = [names.VOLUME_FINALIZER, other]
    until(lambda: cluster.plane.request("GET", path)["metadata"]["finalizers"] == ours, "only these two keep it")
    allowed(finalizers(other), cluster.n1)
    code, said, _ = finalizers(names.VOLUME_FINALIZER).by(cluster.n1)
    assert code == 422 and "no finalizer" in said, (code, said)
    cluster.plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


# --- reports and the lease ------------------------------------------------------------------------------------------------


def report(node: str, **meta: Any) -> Json:
    head = {"name": names.drain_report(node, DRIVER), "labels": {names.NODE_LOSS_FOR: DRIVER}} | meta
    return {"apiVersion": names.REPORT_VERSION, "kind": names.REPORT_KIND, "metadata": head, "spec": {"nodeName": node, "driver": DRIVER}}


def test_a_peer_reports_on_a_node_that_is_gone_and_says_no_verdict(cluster: Secured) -> None:
    allowed(create(REPORTS, report("n9")), cluster.n1)
    Abuse(create(REPORTS, report("n9", annotations={names.ACKNOWLEDGED: "me"})), "for people to say").check(cluster, cluster.n1)
    cluster.plane.request("POST", REPORTS, report("n8"))  # it goes with its type
    path = f"{REPORTS}/{names.drain_report('n8', DRIVER)}"
    gone = {"gone": {"evidence": "None"}}
    allowed(patch(f"{path}/status", [{"op": "add", "path": "/status", "value": gone}], content_type=JSON_PATCH), cluster.n1)
    lie = gone | {"verdicts": {"drain": {"status": "True"}}}
    code, said, _ = patch(f"{path}/status", [{"op": "add", "path": "/status", "value": lie}], content_type=JSON_PATCH).by(cluster.n1)
    assert code == 422 and "may not report on node n8" in said
    code, said, _ = delete(path).by(cluster.n1)
    assert code == 422 and "may not report on node n8" in said, "it says of nothing that it is gone"


def test_the_report_of_a_former_node_becomes_the_one_on_its_loss(cluster: Secured) -> None:
    """What a person had acknowledged of another machine is taken off before that."""
    cluster.plane.request("POST", REPORTS, report("n7", labels={}, annotations={names.ACKNOWLEDGED: "me"}))
    path = f"{REPORTS}/{names.drain_report('n7', DRIVER)}"
    head = {"ownerReferences": None, "labels": {names.NODE_LOSS_FOR: DRIVER}, "annotations": {names.ACKNOWLEDGED: None}}
    allowed(patch(path, {"metadata": head}), cluster.n1)


def test_of_a_node_that_is_there_nobody_else_says_that_it_is_gone(cluster: Secured) -> None:
    owner = {"apiVersion": "v1", "kind": names.NODE, "name": "n2", "uid": uid_of(cluster, "n2")}
    refused = "says of no node that it is gone while there is a Node n2"
    Abuse(create(REPORTS, report("n2")), refused).check(cluster, cluster.n1)
    allowed(create(REPORTS, report("n2", ownerReferences=[owner])), cluster.n2)
    cluster.plane.request("POST", REPORTS, report("n2"))
    path = f"{REPORTS}/{names.drain_report('n2', DRIVER)}"
    Abuse(patch(path, {"metadata": {"labels": {"example.com/x": "y"}}}), refused).check(cluster, cluster.n1)
    gone = [{"op": "add", "path": "/status", "value": {"gone": {"evidence": "None"}}}]
    Abuse(patch(f"{path}/status", gone, content_type=JSON_PATCH), refused).check(cluster, cluster.n1)
    cluster.plane.request("PATCH", f"{path}/status", gone, content_type=JSON_PATCH)
    allowed(delete(path), cluster.n1)


def test_which_driver_made_the_volume_of_a_bound_claim_no_token_changes(cluster: Secured) -> None:
    """Claims of a driver whose volumes any node reaches name nodes that are long gone."""
    cluster.make(CLAIMS, claim("of-another-driver", driver="other.example.com"))
    for key in (names.STORAGE_PROVISIONER, "volume.beta.kubernetes.io/storage-provisioner"):
        code, said, broken = patch(f"{CLAIMS}/of-another-driver", {"metadata": {"annotations": {key: DRIVER}}}).by(cluster.n1)
        assert code == 422 and any("which driver made the volume" in each for each in [said, *broken]), (code, said, broken)


def test_the_lease_is_that_of_its_holders_node(cluster: Secured) -> None:
    def lease(node: str, **meta: Any) -> Json:
        uid = uid_of(cluster, node)
        owner = {"apiVersion": "v1", "kind": names.NODE, "name": node, "uid": uid}
        head = {"name": names.node_loss(DRIVER), "labels": {names.NODE_LOSS_FOR: DRIVER}, "ownerReferences": [owner]} | meta
        spec = {"holderIdentity": f"{uid}/{DRIVER}", "leaseDurationSeconds": 900, "renewTime": "2026-01-01T00:00:00.000000Z"}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": names.LEASE, "metadata": head, "spec": spec}

    allowed(create(LEASES, lease("n1")), cluster.n1)
    for wrong in (lease("n2"), lease("n1", labels={}), lease("n1", name="node-loss.other"), lease("n1", ownerReferences=[])):
        code, said, _ = create(LEASES, wrong).by(cluster.n1)
        assert code == 422, (code, said)
