"""What is special about pods, nodes, namespaces, events, leases, budgets, workloads and roles."""

from typing import Final

from hack.sim.cluster.kinds import checks
from hack.sim.cluster.kinds.checks import Causes, inside
from hack.sim.cluster.kinds.schema import QUANTITIES, TIME, WORDS, MapOf
from hack.sim.cluster.refusals import forbidden, not_allowed, required, too_long, unsupported, wrong
from sidecar.kube.api import NAMESPACES
from sidecar.model.objects import Json

_LARGEST_CONFIG: Final = 1024 * 1024
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_BORN_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})
_POD_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FLEXIBLE: Final = ("containers", "initContainers", "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")

_CONTAINER: Final = {"name": str, "image": str, "resources": {"requests": QUANTITIES, "limits": QUANTITIES}}
_POD_SPEC: Final = {
    "containers": [_CONTAINER], "initContainers": [_CONTAINER], "nodeName": str, "nodeSelector": WORDS, "volumes": [dict],
    "terminationGracePeriodSeconds": int, "tolerations": [dict], "priorityClassName": str, "priority": int,
}  # fmt: skip
POD_FIELDS: Final = {"spec": _POD_SPEC, "status": {"phase": str, "conditions": [dict], "reason": str, "message": str}}
NODE_FIELDS: Final = {
    "spec": {"unschedulable": bool, "taints": [dict], "providerID": str, "podCIDR": str},
    "status": {"capacity": QUANTITIES, "allocatable": QUANTITIES, "conditions": [dict], "addresses": [dict]},
}
EVENT_FIELDS: Final = {
    "involvedObject": {"kind": str, "namespace": str, "name": str, "uid": str, "apiVersion": str, "fieldPath": str},
    "reason": str, "message": str, "type": str, "source": {"component": str, "host": str}, "firstTimestamp": TIME, "lastTimestamp": TIME,
    "count": int, "eventTime": TIME, "reportingComponent": str, "reportingInstance": str, "action": str, "related": dict, "series": dict,
}  # fmt: skip
LEASE_FIELDS: Final = {
    "spec": {
        "holderIdentity": str, "leaseDurationSeconds": int, "acquireTime": TIME, "renewTime": TIME, "leaseTransitions": int,
        "strategy": str, "preferredHolder": str,
    },
}  # fmt: skip
BUDGET_FIELDS: Final = {
    "spec": {"selector": dict, "unhealthyPodEvictionPolicy": str},
    "status": {
        "observedGeneration": int, "disruptionsAllowed": int, "currentHealthy": int, "desiredHealthy": int, "expectedPods": int,
        "disruptedPods": MapOf(TIME), "conditions": [dict],
    },
}  # fmt: skip
WORKLOAD_FIELDS: Final = {"spec": {"selector": dict, "template": dict, "replicas": int}, "status": dict}
ROLE_FIELDS: Final = {"rules": [{"verbs": [str], "apiGroups": [str], "resources": [str], "resourceNames": [str]}], "aggregationRule": dict}
BINDING_FIELDS: Final = {"subjects": [{"kind": str, "name": str, "namespace": str, "apiGroup": str}], "roleRef": {"kind": str, "name": str}}
CONFIG_FIELDS: Final = {"data": WORDS, "binaryData": WORDS, "immutable": bool}


def pod_defaults(pod: Json) -> None:
    spec = pod.setdefault("spec", {})
    for container in spec.get("containers") or ():
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "Always" if ":" not in str(container.get("image")) else "IfNotPresent")
    for key, value in _pod_values().items():
        spec.setdefault(key, value)


def _pod_values() -> Json:
    return {
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
        "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
    }  # fmt: skip


def pod_born(pod: Json, _now: str) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerated = {toleration.get("key") for toleration in tolerations}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if key not in tolerated:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    asks = any(container.get("resources") for container in pod["spec"].get("containers") or ())
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable" if asks else "BestEffort"}


def check_pod(pod: Json) -> Causes:
    containers = pod["spec"].get("containers") or []
    found: Causes = [] if containers else [required("spec.containers")]
    for number, container in enumerate(containers):
        found += [required(f"spec.containers[{number}].{key}") for key in ("name", "image") if not container.get(key)]
    names = [container.get("name") for container in containers]
    repeated = [(number, name) for number, name in enumerate(names) if name and name in names[:number]]
    return found + [wrong(f"spec.containers[{number}].name", name, "duplicate") for number, name in repeated]


def check_pod_change(pod: Json, old: Json) -> Causes:
    new, before = pod["spec"], old["spec"]
    same = _rigid(new) == _rigid(before)
    grown = all(toleration in (new.get("tolerations") or ()) for toleration in before.get("tolerations") or ())
    return [] if same and grown else [not_allowed("spec", _POD_IMMUTABLE)]


def _rigid(spec: Json) -> Json:
    """All of it that may not change."""
    bare = [[{**container, "image": ""} for container in spec.get(key) or ()] for key in ("containers", "initContainers")]
    return {"bare": bare} | {key: value for key, value in spec.items() if key not in _FLEXIBLE}


def node_born(node: Json, _now: str) -> None:
    """Nobody shall be scheduled before a kubelet has spoken; the node lifecycle controller takes the taint away."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def check_node(node: Json) -> Causes:
    found: Causes = []
    for number, taint in enumerate(inside(node, "spec.taints") or ()):
        if why := checks.qualified_name(str(taint.get("key") or "")):
            found.append(wrong(f"metadata.taints[{number}].key", taint.get("key") or "", why))
        found += checks.one_of(taint.get("effect"), f"metadata.taints[{number}].effect", _EFFECTS)
    return found


def namespace_born(namespace: Json, _now: str) -> None:
    meta = namespace["metadata"]
    meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def refuse_deletion_of_namespace(name: str) -> None:
    if name in _BORN_NAMESPACES:
        raise forbidden(NAMESPACES, name, "this namespace may not be deleted")


def check_event(event: Json) -> Causes:
    """An event lives where its object does; those of objects without a namespace live in `default`."""
    about, own = inside(event, "involvedObject.namespace") or "", event["metadata"].get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [wrong("involvedObject.namespace", about, "does not match event.namespace")]


def check_config(config: Json) -> Causes:
    size = sum(len(value.encode()) for part in ("data", "binaryData") for value in (config.get(part) or {}).values())
    return [too_long("[]", _LARGEST_CONFIG)] if size > _LARGEST_CONFIG else []


def secret_defaults(secret: Json) -> None:
    secret.setdefault("type", "Opaque")


def check_lease(lease: Json) -> Causes:
    spec, found = lease.get("spec") or {}, []
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if field in spec and spec[field] < least:
            words = "greater than 0" if least else "greater than or equal to 0"
            found.append(wrong(f"spec.{field}", spec[field], f"must be {words}"))
    return found


def budget_born(budget: Json, _now: str) -> None:
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def check_budget(budget: Json) -> Causes:
    spec = budget.get("spec") or {}
    found = checks.label_selector(spec.get("selector"), "spec.selector")
    if "minAvailable" in spec and "maxUnavailable" in spec:
        found.append(wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        found.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")))
    return found


def workload_born(workload: Json, _now: str) -> None:
    workload["status"] = {}


def check_workload(workload: Json) -> Causes:
    selector = inside(workload, "spec.selector")
    if not selector:
        return [required("spec.selector")]
    labels = inside(workload, "spec.template.metadata.labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return [wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]
    return checks.label_selector(selector, "spec.selector")


def check_workload_change(new: Json, old: Json) -> Causes:
    return checks.changed(new, old, "spec.selector")


def check_binding(binding: Json) -> Causes:
    return [] if inside(binding, "roleRef.name") else [required("roleRef.name")]


def check_binding_change(new: Json, old: Json) -> Causes:
    if new.get("roleRef") != old.get("roleRef"):
        return [wrong("roleRef", new.get("roleRef"), "cannot change roleRef")]
    return []
