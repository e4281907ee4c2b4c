"""POSTs to subresources of pods: evictions, which ask the disruption budgets, and bindings to nodes."""

from collections.abc import Mapping
from typing import Any, Final

from hack.sim.cluster.kinds.checks import inside
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.refusals import Refused, bad_request, conflict, internal, namespace_ends, no_such_method, too_many_requests
from hack.sim.cluster.storage.history import Stored
from hack.sim.cluster.storage.selectors import labels_of, selector_test
from hack.sim.cluster.writes import deletion
from hack.sim.cluster.writes.objects import Objects
from sidecar.kube.api import BUDGETS, NAMESPACES
from sidecar.model.objects import Json

SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_COUNTING_PAUSE: Final = 10


def post(objects: Objects, kind: Kind, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str) -> Json:
    wanted = kind.subresources.get(subresource)
    if wanted not in ("Eviction", "Binding"):
        raise no_such_method()
    given = body.get("kind") or wanted
    if given != wanted:
        why = f'{given} in version "{body.get("apiVersion")}" cannot be handled as a {wanted}: unknown conversion'
        raise bad_request(why)
    if subresource == "eviction" and inside(body, "metadata.name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    within = objects.store.find(NAMESPACES, namespace)
    if within is not None and within["metadata"].get("deletionTimestamp"):
        raise namespace_ends(kind.resource, name, namespace)
    pod = objects.get(kind.resource, name, namespace=namespace)
    if subresource == "binding":
        _bind(objects, kind, pod, inside(body, "target.name") or "")
    else:
        _evict(objects, kind, pod, deletion.options_of(body.get("deleteOptions") or {}))
    return dict(SUCCESS)


def _bind(objects: Objects, kind: Kind, pod: Stored, node: str) -> None:
    name, before = pod.obj["metadata"]["name"], pod.obj["spec"].get("nodeName")
    if before:
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{before}"')
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": objects.now()}
    others = [item for item in pod.obj["status"].get("conditions") or () if item["type"] != "PodScheduled"]
    status = pod.obj["status"] | {"conditions": [*others, scheduled]}
    objects.rewrite(kind, pod, pod.obj | {"spec": pod.obj["spec"] | {"nodeName": node}, "status": status})


def _evict(objects: Objects, kind: Kind, pod: Stored, options: deletion.Options) -> None:
    if not _may_always_go(pod.obj):
        budget = _budget_of(objects, pod.obj)
        if budget is not None and not _sick_and_free(pod.obj, budget.obj):
            _spend(objects, budget, pod.obj["metadata"]["name"], dry_run=options.dry_run)
    deletion.delete(objects, kind, pod, options)


def _may_always_go(pod: Json) -> bool:
    """A pod that does not run, or is being deleted already, disrupts nothing."""
    return inside(pod, "status.phase") in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budget_of(objects: Objects, pod: Json) -> Stored | None:
    kind = objects.kind(BUDGETS)
    found = [
        budget
        for budget in objects.store.history(kind).all()
        if budget.obj["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and selector_test(inside(budget.obj, "spec.selector"))(labels_of(pod))
    ]
    if len(found) > 1:
        raise internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    return found[0] if found else None


def _sick_and_free(pod: Json, budget: Json) -> bool:
    conditions = inside(pod, "status.conditions") or ()
    if any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions):
        return False
    if inside(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = (inside(budget, f"status.{key}") or 0 for key in ("currentHealthy", "desiredHealthy"))
    return bool(0 < desired <= healthy)


def _spend(objects: Objects, budget: Stored, pod: str, *, dry_run: bool) -> None:
    obj, name = budget.obj, budget.obj["metadata"]["name"]
    status = obj["status"]
    if status.get("observedGeneration", 0) < obj["metadata"]["generation"]:
        raise _over_budget(f"The disruption budget {name} is still being processed by the server.", retry_after=_COUNTING_PAUSE)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _over_budget(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently", retry_after=None)
    disrupted = (status.get("disruptedPods") or {}) | {pod: objects.now()}
    spent = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    if not dry_run:
        objects.rewrite(objects.kind(BUDGETS), budget, obj | {"status": spent})


def _over_budget(why: str, *, retry_after: int | None) -> Refused:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return too_many_requests(message, retry_after=retry_after, causes=[{"reason": "DisruptionBudget", "message": why}])
