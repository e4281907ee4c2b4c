"""Deletion: preconditions, finalizers, grace periods, and what happens to dependents."""

from collections.abc import Mapping
from typing import Any, Final

from hack.sim.cluster.kinds import core_rules
from hack.sim.cluster.kinds.checks import inside
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.refusals import bad_request, conflict, invalid, unsupported, wrong
from hack.sim.cluster.storage.history import Stored
from hack.sim.cluster.writes.objects import Objects
from sidecar.frozen import frozen
from sidecar.kube.api import NAMESPACES, PODS
from sidecar.model.objects import Json

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_FINALIZER_OF: Final = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
_POLICIES: Final = ("Foreground", "Background", "Orphan", "nil")


@frozen(kw_only=True)
class Options:
    uid: str = ""
    resource_version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False


def options_of(body: Any) -> Options:
    """Reads a DeleteOptions object."""
    if not isinstance(body, Mapping):
        raise bad_request("json: cannot unmarshal array into Go value of type v1.DeleteOptions")
    kind = body.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{body.get("apiVersion")}" in scheme "pkg/runtime/scheme.go:111"')
    conditions, grace, policy = body.get("preconditions") or {}, body.get("gracePeriodSeconds"), body.get("propagationPolicy") or ""
    if not isinstance(conditions, Mapping) or not isinstance(grace, int | None) or not isinstance(policy, str):
        raise bad_request("json: cannot unmarshal into Go struct field DeleteOptions of its type")
    orphan = body.get("orphanDependents")
    if orphan is not None and policy:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid("DeleteOptions", "meta.k8s.io", "", [wrong("propagationPolicy", policy, detail)])
    if policy and policy not in _POLICIES[:-1]:
        raise invalid("DeleteOptions", "meta.k8s.io", "", [unsupported("propagationPolicy", policy, _POLICIES)])
    return Options(
        uid=str(conditions.get("uid") or ""),
        resource_version=str(conditions.get("resourceVersion") or ""),
        grace=grace,
        propagation="Orphan" if orphan else policy,
        dry_run=bool(body.get("dryRun")),
    )


def delete(objects: Objects, kind: Kind, old: Stored, options: Options) -> tuple[Stored, bool]:
    """As `Cluster.delete`."""
    meta = old.obj["metadata"]
    if kind.resource == NAMESPACES:
        core_rules.refuse_deletion_of_namespace(meta["name"])
    _check_preconditions(kind, meta, options)
    grace = _grace(kind, old.obj, options)
    finalizers = _finalizers(meta.get("finalizers") or [], options)
    marked = _marked(objects, kind, old.obj, grace=grace, finalizers=finalizers)
    gone = is_over(marked)
    return (Stored(marked) if options.dry_run else objects.rewrite(kind, old, marked)), gone


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
    version = meta["resourceVersion"]
    if options.resource_version and options.resource_version != version:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in record ({version})"
        )
        raise conflict(*what, f"{why}. The object might have been modified")


def _grace(kind: Kind, obj: Json, options: Options) -> int:
    """Only pods get time, and only those that may be running."""
    if kind.resource != PODS or not inside(obj, "spec.nodeName") or inside(obj, "status.phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.grace if options.grace is not None else obj["spec"].get("terminationGracePeriodSeconds", 30)
    return int(asked) if asked >= 0 else 1


def _finalizers(words: list[str], options: Options) -> list[str]:
    wanted = _FINALIZER_OF.get(options.propagation)
    others = [word for word in words if word not in (ORPHAN, FOREGROUND)] if options.propagation else words
    return [*others, wanted] if wanted else others


def _marked(objects: Objects, kind: Kind, obj: Json, *, grace: int, finalizers: list[str]) -> Json:
    """The object marked as deleted. A second deletion can only shorten its grace period."""
    meta = dict(obj["metadata"])
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = objects.time(grace)
        if kind.resource != NAMESPACES:
            meta["deletionGracePeriodSeconds"] = grace
        if kind.counted:
            meta["generation"] = meta.get("generation", 0) + 1
        _set_finalizers(meta, finalizers)
    elif grace < meta.get("deletionGracePeriodSeconds", 0):
        meta |= {"deletionTimestamp": objects.time(grace), "deletionGracePeriodSeconds": grace}
    result = obj | {"metadata": meta}
    if kind.resource == NAMESPACES:
        result["status"] = obj.get("status", {}) | {"phase": "Terminating"}
    return result


def _set_finalizers(meta: Json, words: list[str]) -> None:
    meta.pop("finalizers", None)
    if words:
        meta["finalizers"] = words
