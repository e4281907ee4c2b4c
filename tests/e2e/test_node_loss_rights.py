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


@pytest.mark.parametrize("lies_on", ["n2/{n2}", "n2/former", "n9/{n2}"])
def test_a_volume_of_a_node_that_is_there_stays(cluster: Secured, lies_on: str) -> None:
    name = f"pv-{len(lies_on)}-{lies_on[:2] or 'none'}"
    released(cluster, name, lies_on=lies_on.format(n2=uid_of(cluster, "n2")), node="n9")
    code, said, _ = delete(f"{VOLUMES}/{name}").by(cluster.n1)
    assert code == 422, (code, said)


def term(*fields: Json, **labels: Any) -> Json:
    """As (key, operator, values) by label, or by field."""
    found = [{"key": f"example.com/{key}", **item} for key, item in labels.items()]
    return {name: items for name, items in (("matchExpressions", found), ("matchFields", list(fields))) if items}


def one_of(*values: str) -> Json:
    return {"operator": "In", "values": list(values)}


N2 = {"key": "metadata.name", **one_of("n2")}
NOT_N9 = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
# n2 has the labels example.com/host=n2 and example.com/pool=fast.
REACHED: dict[str, tuple[str, list[Json]]] = {
    "by the field of its name": ("n9", [term(N2)]),
    "by any other name than the one that is gone": ("n9", [term(NOT_N9)]),
    "by two names": ("n9", [term(host=one_of("n2", "n9"))]),
    "by one of two terms": ("n9", [term(host=one_of("n9")), term(host=one_of("n2"))]),
    "by all expressions of a term": ("n9", [term(host=one_of("n2"), pool=one_of("fast"))]),
    "by a label that it has": ("n9", [term(pool={"operator": "Exists"})]),
    "by a label that it has not": ("n9", [term(gone={"operator": "DoesNotExist"})]),
    "by a value that it has not": ("n9", [term(host={"operator": "NotIn", "values": ["n9"]})]),
    "by a number": ("n9", [term(size={"operator": "Gt", "values": ["5"]})]),
    "by its maker": ("n2", [term(host=one_of("n9"))]),
    "by nothing that anybody says": ("n9", []),
}


@pytest.fixture(scope="module")
def labelled(cluster: Secured) -> Secured:
    labels = {"example.com/host": "n2", "example.com/pool": "fast"}
    cluster.plane.request("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)
    return cluster


@pytest.mark.parametrize(("maker", "terms"), REACHED.values(), ids=REACHED.keys())
@pytest.mark.parametrize("lies_on", ["n9/uid-9", ""], ids=["noted", "of an earlier version"])
def test_a_volume_stays_that_a_node_there_reaches_or_has_made(labelled: Secured, maker: str, terms: list[Json], lies_on: str) -> None:
    name = f"pv-reached-{list(REACHED.values()).index((maker, terms))}-{lies_on[:2] or 'none'}"
    affinity = {"required": {"nodeSelectorTerms": terms}} if terms else None
    released(labelled, name, lies_on=lies_on, node=maker, nodeAffinity=affinity)
    code, said, broken = delete(f"{VOLUMES}/{name}").by(labelled.n1)
    assert code == 422 and any("gives" in each and "volume" in each for each in [said, *broken]), (code, said, broken)


NOT_REACHED: dict[str, list[Json]] = {
    "another name": [term({"key": "metadata.name", **one_of("n9")})],
    "one expression of two": [term(host=one_of("n2"), pool=one_of("slow"))],
    "a label that nobody has": [term(gone={"operator": "Exists"})],
    "an empty term": [{}, term(host=one_of("n9"))],
}


@pytest.mark.parametrize("terms", NOT_REACHED.values(), ids=NOT_REACHED.keys())
def test_a_volume_may_go_that_no_node_there_reaches(labelled: Secured, terms: list[Json]) -> None:
    name = f"pv-lost-{list(NOT_REACHED.values()).index(terms)}"
    released(labelled, name, lies_on="", node="n9", nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    allowed(delete(f"{VOLUMES}/{name}"), labelled.n1)


def test_a_volume_of_a_machine_that_is_gone_stays_until_it_is_released(cluster: Secured) -> None:
    cluster.make(VOLUMES, volume("pv-free", lies_on="n9/uid-9", node="n9"))
    Abuse(delete(f"{VOLUMES}/pv-free"), "only when they are released").check(cluster, cluster.n1)


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


def test_our_finalizer_is_put_on_volumes_of_its_own_node_alone(cluster: Secured) -> None:
    """On another's it would keep what a person deletes."""
    for node in ("n1", "n2"):
        kept: Any = volume(f"pv-kept-{node}", lies_on="", node=node, persistentVolumeReclaimPolicy="Retain")
        del kept["metadata"]["finalizers"]
        cluster.make(VOLUMES, kept)
    asked = {"metadata": {"finalizers": [names.VOLUME_FINALIZER, "kubernetes.io/pv-protection"]}}
    allowed(patch(f"{VOLUMES}/pv-kept-n1", asked), cluster.n1)
    Abuse(patch(f"{VOLUMES}/pv-kept-n2", asked), "of its own node only").check(cluster, cluster.n1)


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
    for lie, says in (
        (gone | {"verdicts": {"drain": {"status": "True"}}}, "may not report on node n8"),
        (gone | {"leaving": {"nodeUID": "uid-8", "volumes": ["uid"]}}, "is for its own sidecar to say"),
        (gone | {"held": ["default/db-0"]}, "is for the sidecar of their own node to say"),
    ):
        code, said, _ = patch(f"{path}/status", [{"op": "add", "path": "/status", "value": lie}], content_type=JSON_PATCH).by(cluster.n1)
        assert code == 422 and says in said, (code, said)
    code, said, _ = delete(path).by(cluster.n1)
    assert code == 422 and "may not report on node n8" in said, "it says of nothing that it is gone"


def test_the_report_of_a_former_node_becomes_the_one_on_its_loss(cluster: Secured) -> None:
    """What a person had acknowledged of another machine is taken off before that."""
    stored = cluster.plane.request("POST", REPORTS, report("n7", labels={}, annotations={names.ACKNOWLEDGED: "me"}))
    path = f"{REPORTS}/{names.drain_report('n7', DRIVER)}"
    leaving = {"leaving": {"nodeUID": "uid-7", "volumes": ["uid"]}}
    cluster.plane.request("PUT", f"{path}/status", {**stored, "status": leaving})
    for said, code in ((leaving, 200), ({}, 200), ({"leaving": {**leaving["leaving"], "volumes": ["uid", "more"]}}, 422)):
        value = {"gone": {"evidence": "Announced"}, **said}
        assert (
            patch(f"{path}/status", [{"op": "add", "path": "/status", "value": value}], content_type=JSON_PATCH).by(cluster.n1)[0] == code
        )
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
        head = {"name": names.watch(DRIVER), "labels": {names.NODE_LOSS_FOR: DRIVER}, "ownerReferences": [owner]} | meta
        spec = {"holderIdentity": f"{uid}/{DRIVER}", "leaseDurationSeconds": 900, "renewTime": "2026-01-01T00:00:00.000000Z"}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": names.LEASE, "metadata": head, "spec": spec}

    allowed(create(LEASES, lease("n1")), cluster.n1)
    for wrong in (lease("n2"), lease("n1", labels={}), lease("n1", name="watch.other"), lease("n1", ownerReferences=[])):
        code, said, _ = create(LEASES, wrong).by(cluster.n1)
        assert code == 422, (code, said)
