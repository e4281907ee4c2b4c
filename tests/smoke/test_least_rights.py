"""With the token of one node nobody touches what another node has: a few rows of each policy. All of them are in `tests/e2e/test_*rights*`.

Each row is tried by an account that has the same role and that no policy is about, then with the token of n1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.model import names
from tests.deploy.manifests import DRIVER, NAMESPACE
from tests.harness.left_objects import claim as made_claim
from tests.harness.policies import Request, Secured, allowed, built, create, delete, in_force, patch, put, secured
from tests.harness.policy_samples import FOREIGN, OWNER, claim, event, placed, space, volume

CLAIMS, PODS, EVENTS = (f"/api/v1/namespaces/default/{name}" for name in ("persistentvolumeclaims", "pods", "events"))
VOLUMES, NODES = "/api/v1/persistentvolumes", "/api/v1/nodes"
REPORTS = f"/apis/{names.REPORT_VERSION}/nodedrainreports"
CAPACITIES = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"
OURS = {names.STORAGE_PROVISIONER: DRIVER}
RECORD, STATE = (names.of_driver(DRIVER, name) for name in (names.DRAIN_RECORD, names.EVACUATION_STATE))


@pytest.fixture(scope="module")
def secure(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overlay = built(tmp_path_factory.mktemp("all"), "drain", "gate", "emptying", "reprovision", "node-loss", "own-node")
    with secured(plane, overlay) as made:
        for obj in (volume("mine"), volume("theirs", "n2")):
            made.make(VOLUMES, obj)
        for name in ("mine", "theirs"):
            until(lambda name=name: _phase(made, name) == "Released", f"{name} is released")  # type: ignore[misc]
        for name, notes in {"free": OURS, "theirs": {**OURS, names.SELECTED_NODE: "n2"}, "unasked": {}}.items():
            made.make(CLAIMS, claim(name, notes))
        made.make(CLAIMS, made_claim("bound", node="n2"))
        made.make(CAPACITIES, space("theirs", "n2"))
        made.make(PODS, {"metadata": {"name": "tenant"}, "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}})
        for request in (create(VOLUMES, volume("new")), delete(f"{VOLUMES}/mine"), put(f"{CLAIMS}/free", note(names.SELECTED_NODE, "n1"))):
            in_force(request, made.nobody, "bound to no pod")
        for request in (create(EVENTS, event()), create(CAPACITIES, space()), patch(f"{NODES}/n1", noted(**{RECORD: "x"}))):
            in_force(request, made.nobody, "bound to no pod")
        for request in (create(f"{PODS}/tenant/eviction", eviction(preconditions={"uid": "x"})), delete(f"{CLAIMS}/bound")):
            in_force(request, made.nobody, "bound to no pod")
        yield made


def _phase(cluster: Secured, name: str) -> str:
    return str(cluster.plane.request("GET", f"{VOLUMES}/{name}").get("status", {}).get("phase"))


def noted(**notes: str | None) -> Json:
    return {"metadata": {"annotations": notes}}


def note(key: str, value: str) -> Callable[[Json], None]:
    return lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value})


def eviction(**options: object) -> Json:
    meta = {"name": "tenant", "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def status(type_: str) -> Request:
    return patch(f"{NODES}/n1/status", {"status": {"conditions": [{"type": type_, "status": "False"}]}})


REFUSED: dict[str, tuple[Request, str]] = {
    # own-node: volumes, claims, events, capacity
    "a volume of another node": (create(VOLUMES, volume("new", "n2")), "on that node only"),
    "a volume for pods of another node": (create(VOLUMES, volume("new", **placed("n2"))), "for pods of that node only"),
    "a volume of another driver": (create(VOLUMES, volume("new", driver=FOREIGN)), f"of driver {DRIVER} only"),
    "another node's volume deleted": (delete(f"{VOLUMES}/theirs"), "gives no volume up that node n2"),
    "its own volume kept": (patch(f"{VOLUMES}/mine", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), "nothing in the spec"),
    "its own volume owned": (patch(f"{VOLUMES}/mine", {"metadata": {"ownerReferences": [OWNER]}}), "no owner"),
    "another node's claim taken": (put(f"{CLAIMS}/theirs", note(names.SELECTED_NODE, "n1")), "theirs goes from n2 to n1"),
    "a claim given to another node": (put(f"{CLAIMS}/free", note(names.SELECTED_NODE, "n2")), "free goes from no node to n2"),
    "a claim that nobody has asked for": (put(f"{CLAIMS}/unasked", note(names.SELECTED_NODE, "n1")), "its driver is asked for"),
    "an event of another node": (create(EVENTS, event(reportingInstance="n2")), "from that node only"),
    "another node's capacity": (patch(f"{CAPACITIES}/theirs", {"capacity": "0"}), "on that node only"),
    # drain
    "another node's mark": (patch(f"{NODES}/n2", noted(**{RECORD: "x"})), "may not change node n2"),
    "another node's state": (patch(f"{NODES}/n2", {"metadata": {"labels": {STATE: "Success"}}}), "may not change node n2"),
    "a label of the scheduler": (patch(f"{NODES}/n1", {"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}}), "labels"),
    "the words of people": (patch(f"{NODES}/n1", noted(**{names.FORCE_DRAIN: "because"})), "annotations"),
    "its own node cordoned": (patch(f"{NODES}/n1", {"spec": {"unschedulable": True}}), "neither cordons nor taints"),
    "its own node not ready": (status("Ready"), "conditions"),
    # emptying
    "an eviction of whatever has the name": (create(f"{PODS}/tenant/eviction", eviction()), "the one that it has judged"),
    "an eviction at once": (
        create(f"{PODS}/tenant/eviction", eviction(preconditions={"uid": "x"}, gracePeriodSeconds=0)),
        "its own grace period",
    ),
    # reprovision
    "a mark on a claim of another node": (
        patch(f"{CLAIMS}/bound", noted(**{names.REPROVISIONED_BY: "n1/x"})),
        "marks claims by its own node",
    ),
    "leave to delete a claim": (patch(f"{CLAIMS}/bound", noted(**{names.ALLOW_CLAIM_DELETION: "true"})), "is for people to say"),
    # node loss
    "the loss of a node that is there": (patch(f"{CLAIMS}/bound", noted(**{names.LOST_WITH: "n2/x"})), "there is a Node n2"),
    "a claim deleted": (delete(f"{CLAIMS}/bound"), "csi-node-sidecar"),
}


@pytest.mark.parametrize(("request_", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(secure: Secured, request_: Request, says: str) -> None:
    code, said, _ = request_.by(secure.unrestricted)
    assert code in (200, 201, 404, 409), f"without policies: {said}"
    code, said, broken = request_.by(secure.n1)
    assert code == 422 and "denied request" in said, (code, said)
    assert any(says in each for each in broken), broken


PASSES: dict[str, Request] = {
    "a volume of its own": create(VOLUMES, volume("new")),
    "its own volume deleted": delete(f"{VOLUMES}/mine"),
    "a claim taken": put(f"{CLAIMS}/free", note(names.SELECTED_NODE, "n1")),
    "an event": create(EVENTS, event()),
    "capacity": create(CAPACITIES, space()),
    "its own mark": patch(f"{NODES}/n1", noted(**{RECORD: "x"})),
}


@pytest.mark.parametrize("request_", PASSES.values(), ids=PASSES.keys())
def test_what_the_program_writes_passes(secure: Secured, request_: Request) -> None:
    allowed(request_, secure.n1)
    assert request_.by(secure.nobody)[0] == 422, "a token that is bound to no pod of a node"


def test_a_held_pod_goes_at_the_word_of_its_own_sidecar_alone(secure: Secured) -> None:
    """Whatever else is reported: of another driver, without a list, without a status."""
    held = {"held": ["default/tenant"], "heldBecause": "the drain of n1 is held"}
    for node, driver, said in (("n2", DRIVER, None), ("n3", DRIVER, {"nodeUID": "x"}), ("n1", FOREIGN, held)):
        secure.make(REPORTS, drain_report(node, driver, said))
    evict = create(
        f"{PODS}/tenant/eviction", eviction(preconditions={"uid": secure.plane.request("GET", f"{PODS}/tenant")["metadata"]["uid"]})
    )
    allowed(evict, secure.unrestricted)
    secure.make(REPORTS, drain_report("n1", DRIVER, held))
    refused = until(lambda: answer if (answer := evict.by(secure.unrestricted))[0] == 403 else None, "it is refused")
    says = f"default/tenant must not be evicted: the drain of n1 is held (NodeDrainReport {names.drain_report('n1', DRIVER)})"
    assert says in refused[1], refused
    allowed(evict, secure.n1)
    secure.plane.request("DELETE", REPORTS)
    secure.made = [path for path in secure.made if not path.startswith(REPORTS)]


def drain_report(node: str, driver: str, said: Json | None) -> Json:
    meta, spec = {"name": names.drain_report(node, driver)}, {"nodeName": node, "driver": driver}
    report: Json = {"apiVersion": names.REPORT_VERSION, "kind": names.REPORT_KIND, "metadata": meta, "spec": spec}
    return report | ({"status": said} if said else {})
