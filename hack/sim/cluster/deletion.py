"""How objects go: deletions with their preconditions, finalizers and grace periods, evictions, and the collection of garbage.

One call does all that the garbage collector would do. Not here: orphaning, and the emptying of namespaces, which stay once deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.kinds import Kind
from hack.sim.cluster.refusals import Refused, conflict, internal, namespace_ends
from hack.sim.cluster.rules import inside
from hack.sim.cluster.selectors import labels_of, selector_test
from hack.sim.cluster.store import Stored
from sidecar.kube.api import BUDGETS, NAMESPACES, PODS
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.cluster.api_server import ApiServer

_COUNTING_PAUSE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    uid: str = ""
    resource_version: str = ""
    grace_period_seconds: int | None = None
    dry_run: bool = False


def options_of(body: Mapping[str, Any]) -> Options:
    """Reads a DeleteOptions object."""
    conditions = body.get("preconditions") or {}
    return Options(
        uid=str(conditions.get("uid") or ""),
        resource_version=str(conditions.get("resourceVersion") or ""),
        grace_period_seconds=body.get("gracePeriodSeconds"),
        dry_run=bool(body.get("dryRun")),
    )


def delete(cluster: ApiServer, kind: Kind, old: Stored, options: Options) -> tuple[Stored, bool]:
    """As `ApiServer.delete`."""
    _check_preconditions(kind, old.obj["metadata"], options)
    marked = _marked(cluster, kind, old.obj, grace=_grace(kind, old.obj, options))
    gone = is_over(marked)
    return (Stored(marked) if options.dry_run else cluster.rewrite(kind, old, marked)), gone


def is_over(obj: Json) -> bool:
    """Whether a deleted object has neither finalizers nor a grace period left."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return obj["kind"] != "Namespace" or not inside(obj, "spec.finalizers")


def _check_preconditions(kind: Kind, meta: Json, options: Options) -> None:
    what = (kind.resource.kind, kind.resource.group, meta["name"])
    if options.uid and options.uid != meta["uid"]:
        why = f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']})"
        raise conflict(*what, f"{why}. The object might have been deleted and then recreated")
    wanted, version = options.resource_version, meta["resourceVersion"]
    if wanted and wanted != version:
        why = f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version})"
        raise conflict(*what, f"{why}. The object might have been modified")


def _grace(kind: Kind, obj: Json, options: Options) -> int:
    """Only pods get time, and only those that may be running."""
    if kind.resource != PODS or not inside(obj, "spec.nodeName") or inside(obj, "status.phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.grace_period_seconds
    if asked is None:
        asked = obj["spec"].get("terminationGracePeriodSeconds", 30)
    return int(asked) if asked >= 0 else 1


def _marked(cluster: ApiServer, kind: Kind, obj: Json, *, grace: int) -> Json:
    """The object marked as deleted. A second deletion can only shorten its grace period."""
    meta = dict(obj["metadata"])
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = cluster.now(grace)
        if kind.resource != NAMESPACES:
            meta["deletionGracePeriodSeconds"] = grace
        if kind.counted:
            meta["generation"] = meta.get("generation", 0) + 1
    elif grace < meta.get("deletionGracePeriodSeconds", 0):
        meta |= {"deletionTimestamp": cluster.now(grace), "deletionGracePeriodSeconds": grace}
    result = obj | {"metadata": meta}
    if kind.resource == NAMESPACES:
        result["status"] = obj.get("status", {}) | {"phase": "Terminating"}
    return result


def post(cluster: ApiServer, kind: Kind, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str) -> Json:
    within = cluster.store.find(NAMESPACES, namespace)
    if within is not None and within["metadata"].get("deletionTimestamp"):
        raise namespace_ends(kind.resource, name, namespace)
    pod = cluster.get(kind.resource, name, namespace=namespace)
    if subresource == "binding":
        _bind(cluster, kind, pod, inside(body, "target.name") or "")
    else:
        _evict(cluster, kind, pod, options_of(body.get("deleteOptions") or {}))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _bind(cluster: ApiServer, kind: Kind, pod: Stored, node: str) -> None:
    name, before = pod.obj["metadata"]["name"], pod.obj["spec"].get("nodeName")
    if before:
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{before}"')
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": cluster.now()}
    others = [item for item in pod.obj["status"].get("conditions") or () if item["type"] != "PodScheduled"]
    status = pod.obj["status"] | {"conditions": [*others, scheduled]}
    cluster.rewrite(kind, pod, pod.obj | {"spec": pod.obj["spec"] | {"nodeName": node}, "status": status})


def _evict(cluster: ApiServer, kind: Kind, pod: Stored, options: Options) -> None:
    """A pod that does not run, or is being deleted already, disrupts nothing."""
    if inside(pod.obj, "status.phase") == "Running" and "deletionTimestamp" not in pod.obj["metadata"]:
        budget = _budget_of(cluster, pod.obj)
        if budget is not None and not _sick_and_free(pod.obj, budget.obj):
            _spend(cluster, budget, pod.obj["metadata"]["name"], dry_run=options.dry_run)
    delete(cluster, kind, pod, options)


def _budget_of(cluster: ApiServer, pod: Json) -> Stored | None:
    kind = cluster.kind(BUDGETS)
    found = [
        budget
        for budget in cluster.store.history(kind).all()
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


def _spend(cluster: ApiServer, budget: Stored, pod: str, *, dry_run: bool) -> None:
    obj, name = budget.obj, budget.obj["metadata"]["name"]
    status = obj["status"]
    if status.get("observedGeneration", 0) < obj["metadata"]["generation"]:
        raise _over_budget(f"The disruption budget {name} is still being processed by the server.", retry_after=_COUNTING_PAUSE)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _over_budget(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently", retry_after=None)
    disrupted = (status.get("disruptedPods") or {}) | {pod: cluster.now()}
    spent = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    if not dry_run:
        cluster.rewrite(cluster.kind(BUDGETS), budget, obj | {"status": spent})


def _over_budget(why: str, *, retry_after: int | None) -> Refused:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    return Refused(429, "TooManyRequests", message, details=details | ({} if retry_after is None else {"retryAfterSeconds": retry_after}))


def collect(cluster: ApiServer) -> int:
    """Deletes dependents whose owners are all gone, until a round changes nothing."""
    went, before = 0, -1
    while before != cluster.revision:
        before = cluster.revision
        everything = [(kind, stored) for kind in cluster.store.kinds.values() for stored in cluster.store.history(kind).all()]
        went += sum(_attend(cluster, kind, stored) for kind, stored in everything)
    return went


def _attend(cluster: ApiServer, kind: Kind, stored: Stored) -> int:
    if "ownerReferences" not in stored.obj["metadata"]:
        return 0  # most objects: what is given one of these meanwhile is met in the next round
    current = cluster.store.stored(kind, stored.obj["metadata"]["name"], stored.obj["metadata"].get("namespace", ""))
    if current is None:
        return 0
    meta = current.obj["metadata"]
    owners = meta.get("ownerReferences") or []
    alive = [owner for owner in owners if _is_alive(cluster, current.obj, owner)]
    if "deletionTimestamp" in meta or len(alive) == len(owners):
        return 0
    if alive:
        cluster.rewrite(kind, current, current.obj | {"metadata": meta | {"ownerReferences": alive}})
        return 0
    return int(delete(cluster, kind, current, Options(uid=meta["uid"]))[1])


def _is_alive(cluster: ApiServer, dependent: Json, owner: Json) -> bool:
    """Of a kind that is not served nobody can say that the owner is gone."""
    for kind in cluster.store.kinds.values():
        if (kind.resource.api_version, kind.resource.kind) == (owner["apiVersion"], owner["kind"]):
            found = cluster.store.stored(kind, owner["name"], dependent["metadata"].get("namespace", ""))
            return found is not None and bool(found.obj["metadata"]["uid"] == owner["uid"])
    return True
