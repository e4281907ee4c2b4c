"""deploy/components/gate on a real API server: a guard is what the program makes, field by field, and the gate of another node stays shut.

As in `test_rights` each line is tried before and after, and one rule alone stops it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.drain.gate import GateView, budget_of, deployment_of
from sidecar.drain.settings import Settings
from sidecar.drain.words import Status
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from sidecar.model.nodes import Node, Taint
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, the, written
from tests.harness.cluster import NODES
from tests.harness.persons import ACCOUNT, person_on
from tests.harness.policies import Abuse, Secured, allowed, create, delete, in_force, patch, secured

BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
Change = Callable[[Json], object]


def image() -> str:
    """That of the base's settings."""
    return str(written("base", "settings.yaml")[0]["data"]["guard-image"])


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[Secured]:
    with secured(plane, DEPLOY / "overlays" / "gated") as made:
        mine = gate(made)
        in_force(create(DEPLOYMENTS, mine.deployment), made.nobody, "bound to no pod")
        in_force(create(BUDGETS, mine.budget), made.nobody, "bound to no pod")
        for obj, path in ((mine.deployment, DEPLOYMENTS), (mine.budget, BUDGETS)):
            other = copy.deepcopy(obj)
            other["metadata"] |= {"name": "nobodys", "labels": {}}
            made.make(path, other)
            made.make(path, {**copy.deepcopy(obj), "metadata": {**obj["metadata"], "ownerReferences": [], "name": "unowned"}})
            anothers = {**obj["metadata"]["labels"], names.GUARDED_FOR: "another.example.com"}
            made.make(path, {**copy.deepcopy(obj), "metadata": {**obj["metadata"], "labels": anothers, "name": "anothers"}})
        in_force(delete(f"{DEPLOYMENTS}/nobodys"), made.nobody, "bound to no pod")
        yield made


@dataclass(frozen=True, slots=True)
class GateObjects:
    budget: Json
    deployment: Json


def gate(cluster: Secured, node: str = "n1", taints: tuple[Taint, ...] = ()) -> GateObjects:
    view = GateView(
        node=replace(Node.of(cluster.plane.request("GET", f"{NODES}/{node}")), taints=taints),
        settings=Settings(node, DRIVER, NAMESPACE, "1", gate=True, gate_image=image()),
        draining=False,
        verdict=Status.FALSE,
        holds_volumes=True,
        overridden=False,
        budget=None,
        deployment=None,
        guarded=False,
    )
    return GateObjects(budget_of(view), deployment_of(view))


def at(*path: str | int, to: Any = None) -> Change:
    """Sets, or takes away, what is there."""

    def change(obj: Json) -> None:
        found: Any = obj
        for step in path[:-1]:
            found = found[step]
        if to is None:
            found.pop(path[-1], None)
        else:
            found[path[-1]] = to

    return change


POD, CONTAINER = ("spec", "template", "spec"), ("spec", "template", "spec", "containers", 0)
SIDE = {"name": "two", "image": "x"}
MORE = {"operator": "Exists"}
FORGED: dict[str, tuple[Change, str]] = {
    "another name": (at("metadata", "name", to="drain-held-see-events-of-node-x"), "guards of its own node only"),
    "no owner": (at("metadata", "ownerReferences", to=[]), "guards of its own node only"),
    "another label": (at("metadata", "labels", to={"app": "x"}), "has no other labels"),
    "another driver's label": (at("metadata", "labels", names.GUARDED_FOR, to="x"), "has no other labels"),
    "an annotation": (at("spec", "template", "metadata", "annotations", "sidecar.istio.io/inject", to="true"), "what it is for"),
    "a finalizer": (at("metadata", "finalizers", to=["a.b/c"]), "no finalizers"),
    "an annotation above": (at("metadata", "annotations", "a/b", to="c"), "what it is for"),
    "ten thousand": (at("spec", "replicas", to=10_000), "a guard is one pod"),
    "none": (at("spec", "replicas", to=0), "a guard is one pod"),
    "paused": (at("spec", "paused", to=True), "a guard is one pod"),
    "another image": (at(*CONTAINER, "image", to="evil:latest"), "one container with the image"),
    "a command": (at(*CONTAINER, "command", to=["sh"]), "no command"),
    "arguments": (at(*CONTAINER, "args", to=["x"]), "no command"),
    "a Secret as environment": (
        at(*CONTAINER, "env", to=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        "no environment",
    ),
    "a Secret of environments": (at(*CONTAINER, "envFrom", to=[{"secretRef": {"name": "s"}}]), "no environment"),
    "a port": (at(*CONTAINER, "ports", to=[{"containerPort": 80, "hostPort": 80}]), "no ports"),
    "a probe": (at(*CONTAINER, "livenessProbe", to={"exec": {"command": ["x"]}}), "no probes"),
    "a life cycle": (at(*CONTAINER, "lifecycle", to={"postStart": {"exec": {"command": ["x"]}}}), "no command"),
    "privileges": (at(*CONTAINER, "securityContext", to={"privileged": True}), "has no privileges"),
    "capabilities": (at(*CONTAINER, "securityContext", "capabilities", to={"drop": ["ALL"], "add": ["NET_ADMIN"]}), "has no privileges"),
    "its own seccomp": (at(*CONTAINER, "securityContext", "seccompProfile", to={"type": "Unconfined"}), "has no privileges"),
    "much memory": (at(*CONTAINER, "resources", "limits", "memory", to="1Ti"), "8Mi of memory"),
    "no limit": (at(*CONTAINER, "resources"), "8Mi of memory"),
    "a folder of the host": (at(*POD, "volumes", to=[{"name": "h", "hostPath": {"path": "/"}}]), "no volumes"),
    "something before it": (at(*POD, "initContainers", to=[SIDE]), "no further containers"),
    "pull secrets": (at(*POD, "imagePullSecrets", to=[{"name": "s"}]), "no pull secrets"),
    "the sidecar's account": (at(*POD, "serviceAccountName", to=ACCOUNT), "no account"),
    "the account by its old name": (at(*POD, "serviceAccount", to=ACCOUNT), "no account"),
    "a critical priority": (at(*POD, "priorityClassName", to="system-node-critical"), "no priority"),
    "another node by name": (at(*POD, "nodeName", to="n2"), "no node name"),
    "the host's network": (at(*POD, "hostNetwork", to=True), "nothing of the host"),
    "the host's processes": (at(*POD, "hostPID", to=True), "nothing of the host"),
    "a token": (at(*POD, "automountServiceAccountToken", to=True), "no token"),
    "no word about a token": (at(*POD, "automountServiceAccountToken"), "no token"),
    "root": (at(*POD, "securityContext", "runAsUser", to=1), "runs as nobody"),
    "seccomp off": (at(*POD, "securityContext", "seccompProfile", to={"type": "Unconfined"}), "runs as nobody"),
    "any node": (at(*POD, "affinity"), "for its own node only"),
    "everything tolerated": (at(*POD, "tolerations", to=[MORE]), "not everything"),
    "memory pressure tolerated": (at(*POD, "tolerations", to=[{"key": "node.kubernetes.io/memory-pressure"}]), "not everything"),
    "an autoscaler's mark": (at(*POD, "tolerations", to=[{"key": "karpenter.sh/disrupted", "value": "x"}]), "no autoscaler's mark"),
    "any value": (at(*POD, "tolerations", to=[{"key": "example.com/x", **MORE}]), "not everything"),
}


@pytest.mark.parametrize(("change", "says"), FORGED.values(), ids=FORGED.keys())
def test_a_guard_is_a_pod_that_waits_and_no_more(cluster: Secured, change: Change, says: str) -> None:
    forged = copy.deepcopy(gate(cluster).deployment)
    change(forged)
    Abuse(create(DEPLOYMENTS, forged), says).check(cluster, cluster.n1)


def test_a_guard_has_one_container(cluster: Secured) -> None:
    forged = copy.deepcopy(gate(cluster).deployment)
    forged["spec"]["template"]["spec"]["containers"].append(SIDE)
    Abuse(create(DEPLOYMENTS, forged), "one container with the image").check(cluster, cluster.n1)


UNSELECTIVE: dict[str, tuple[Change, str]] = {
    "with a finalizer": (at("metadata", "finalizers", to=["a.b/c"]), "no finalizers"),
    "everything": (at("spec", "selector", to={}), "no other pod"),
    "another's pods": (at("spec", "selector", to={"matchLabels": {"app": "x"}}), "no other pod"),
    "nothing said": (at("spec", "selector"), "no other pod"),
    "kept by nobody": (at("spec", "minAvailable", to=0), "keeps that one"),
    "no owner": (at("metadata", "ownerReferences", to=[]), "budgets of its own node's guard only"),
    "another name": (at("metadata", "name", to="drain-held-see-events-of-node-x"), "budgets of its own node's guard only"),
    "no labels": (at("metadata", "labels", to={}), "budgets of its own node's guard only"),
}


@pytest.mark.parametrize(("change", "says"), UNSELECTIVE.values(), ids=UNSELECTIVE.keys())
def test_E8_a_budget_selects_the_guard_and_no_other_pod(cluster: Secured, change: Change, says: str) -> None:
    forged = copy.deepcopy(gate(cluster).budget)
    change(forged)
    Abuse(create(BUDGETS, forged), says).check(cluster, cluster.n1)


def test_E5_the_gate_is_built_and_taken_down(cluster: Secured) -> None:
    tainted = gate(cluster, taints=(Taint("example.com/storage", "yes", "NoSchedule"),))
    for path, obj in ((BUDGETS, tainted.budget), (DEPLOYMENTS, tainted.deployment)):
        allowed(create(path, obj), cluster.n1)
        Abuse(create(path, obj), "bound to no pod").check(cluster, cluster.nobody)
        code, answer = cluster.n1.ask("POST", path, obj)
        assert code == 201, answer
        where = f"{path}/{obj['metadata']['name']}"
        assert cluster.n1.ask("GET", where)[0] == 200
        Abuse(delete(where), "bound to no pod").check(cluster, cluster.nobody)
        assert cluster.n1.ask("DELETE", where)[0] == 200


def test_the_gate_of_another_node_is_not_built(cluster: Secured) -> None:
    """That node would find it and take it for its own; or its budget would count it, and let the other one go."""
    mine, theirs = gate(cluster), gate(cluster, "n2")
    for path, own, other in ((BUDGETS, mine.budget, theirs.budget), (DEPLOYMENTS, mine.deployment, theirs.deployment)):
        squatting, stolen = copy.deepcopy(own), copy.deepcopy(own)
        squatting["metadata"]["name"] = other["metadata"]["name"]
        stolen["metadata"]["ownerReferences"] = other["metadata"]["ownerReferences"]
        for forged in (squatting, stolen):
            Abuse(create(path, forged), "of its own node").check(cluster, cluster.n1)
        assert create(path, other).by(cluster.n1)[0] == 422
        allowed(create(path, other), cluster.n2)
    counted = copy.deepcopy(mine.deployment)
    its = theirs.deployment["spec"]
    counted["spec"] |= {"selector": its["selector"], "template": {**counted["spec"]["template"], "metadata": its["template"]["metadata"]}}
    Abuse(create(DEPLOYMENTS, counted), "found by its own node").check(cluster, cluster.n1)


@pytest.mark.parametrize("path", [BUDGETS, DEPLOYMENTS])
def test_nothing_but_gates_is_deleted(cluster: Secured, path: str) -> None:
    for name in ("nobodys", "unowned", "anothers"):
        Abuse(delete(f"{path}/{name}"), "nothing but gates of nodes").check(cluster, cluster.n1)


@pytest.mark.parametrize(("path", "says"), [(BUDGETS, "budgets of guards, and changes none"), (DEPLOYMENTS, "guards, and changes none")])
def test_what_stands_is_not_changed(cluster: Secured, path: str, says: str) -> None:
    Abuse(patch(f"{path}/nobodys", {"metadata": {"labels": {"example.com/x": "y"}}}), says).check(cluster, cluster.n1)


QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"


@pytest.mark.parametrize(("path", "resource"), [(BUDGETS, "count/poddisruptionbudgets.policy"), (DEPLOYMENTS, "count/deployments.apps")])
def test_how_many_there_are_a_quota_bounds_and_no_policy(cluster: Secured, path: str, resource: str) -> None:
    mine = gate(cluster)
    real = mine.budget if path == BUDGETS else mine.deployment
    further = copy.deepcopy(real)
    further["metadata"]["name"] = f"drain-held-see-events-of-node-n1-ffffffff-{gate_uid(cluster, 'n1')}"
    allowed(create(path, further), cluster.n1)
    there = len(cluster.plane.request("GET", path)["items"])
    hard = {"hard": {resource: str(there + 1)}}
    cluster.plane.request("POST", QUOTAS, {"metadata": {"name": "gates"}, "spec": hard})
    try:
        until(lambda: "used" in cluster.plane.request("GET", f"{QUOTAS}/gates").get("status", {}), "it is counted")
        assert cluster.n1.ask("POST", path, real)[0] == 201
        code, answer = cluster.n1.ask("POST", path, further)
        assert code == 403 and f"exceeded quota: gates, requested: {resource}=1" in answer["message"]
    finally:
        cluster.plane.request("DELETE", f"{QUOTAS}/gates")
        cluster.plane.request("DELETE", f"{path}/{real['metadata']['name']}")


def test_E3_a_peer_opens_the_gate_of_another_node_on_a_person_s_word_alone(cluster: Secured) -> None:
    theirs, node = gate(cluster, "n2"), f"{NODES}/n2"
    name = theirs.budget["metadata"]["name"]
    for path, obj in ((BUDGETS, theirs.budget), (DEPLOYMENTS, theirs.deployment)):
        cluster.make(path, obj)
    for path in (BUDGETS, DEPLOYMENTS):
        abuse = Abuse(delete(f"{path}/{name}"), "only when somebody has annotated that")
        abuse.check(cluster, cluster.n1)
        allowed(abuse.request, cluster.n2)
    cluster.plane.request("PATCH", node, {"metadata": {"annotations": {names.FORCE_DRAIN: "because"}}}, content_type=MERGE_PATCH)
    try:
        for path in (BUDGETS, DEPLOYMENTS):
            request = delete(f"{path}/{name}")
            until(lambda request=request: request.by(cluster.n1)[0] == 200, "the word is seen")  # type: ignore[misc]
    finally:
        cluster.plane.request("PATCH", node, {"metadata": {"annotations": {names.FORCE_DRAIN: None}}}, content_type=MERGE_PATCH)


def test_a_token_of_an_earlier_node_is_told_what_to_do(cluster: Secured) -> None:
    """A token keeps the uid that the Node had when it was given out: a Node that is made anew has no gate until the pod has another one."""
    plane, path = cluster.plane, f"{NODES}/n3"
    plane.add_node("n3")
    try:
        earlier = person_on(plane, "n3")
        plane.request("DELETE", path)
        plane.add_node("n3")
        new = gate(cluster, "n3")
        for where, obj in ((BUDGETS, new.budget), (DEPLOYMENTS, new.deployment)):
            code, said, _ = create(where, obj).by(earlier)
            assert code == 422
            assert "is for an earlier Node n3" in said and "delete the pod of the sidecar" in said, said
            allowed(create(where, obj), person_on(plane, "n3"))
    finally:
        plane.request("DELETE", path)


def gate_uid(cluster: Secured, node: str) -> str:
    return str(cluster.plane.request("GET", f"{NODES}/{node}")["metadata"]["uid"])


def test_the_image_is_that_of_the_flag() -> None:
    policy = the(
        "ValidatingAdmissionPolicy", written("components", "gate", "admission.yaml"), f"csi-node-sidecar-guard--{DRIVER}--{NAMESPACE}"
    )
    assert {"name": "image", "expression": f"'{image()}'"} in policy["spec"]["variables"]
