"""The kinds this server knows, one row each. To add a kind, add a row; columns that are left out have the defaults of `Kind`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster import claim_policy, rules
from hack.sim.cluster.refusals import bad_request
from hack.sim.cluster.schema import ANY, META, QUANTITIES, QUANTITY, TIME, WORDS, Schema
from sidecar.kube import api
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.cluster.store import Store

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)


def _nothing(*_: object) -> Any:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object and what is special about it."""

    resource: Resource
    fields: Mapping[str, Schema] = field(default_factory=dict)
    """Its top-level fields besides kind, apiVersion and metadata."""
    name_rule: Callable[[str], str] = rules.subdomain
    status: bool = False
    """It has a /status subresource, which is written separately."""
    counted: bool = False
    """It has a generation, which grows with every change of the spec."""
    unconditional: bool = True
    """It may be replaced without saying which version is meant."""
    selectable: Mapping[str, str] = field(default_factory=dict)
    """Fields a selector may name besides name and namespace, and what stands for each if it is absent."""
    defaults: Json = field(default_factory=dict)
    """What is filled in at every write where it was left open."""
    first_status: Json | None = None
    """Of a new object; None: what its creator says."""
    protection: str = ""
    """The finalizer that a new object gets."""
    born: Callable[[Json], None] = _nothing
    """Sets what else a new object has."""
    admit: Callable[[Json, Json | None, Store], None] = _nothing
    """Admission, which may look at other objects, refuse, and change labels. The second argument is the object as it was; without one it
    is new, has not been checked yet, and may be changed in all its parts."""
    check: Callable[[Json], list[str]] = _nothing
    check_change: Callable[[Json, Json], list[str]] = _nothing
    fixed: tuple[str, ...] = ()
    """Fields that may not change."""
    subresources: tuple[str, ...] = ()
    """Besides /status."""

    @property
    def all_fields(self) -> Mapping[str, Schema]:
        return {"kind": str, "apiVersion": str, "metadata": META, **self.fields}

    def bear(self, new: Json) -> None:
        meta = new["metadata"]
        if self.first_status is not None:
            new["status"] = dict(self.first_status)
        if self.protection and self.protection not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), self.protection]
        self.born(new)

    def refuse_foreign(self, body: Json) -> None:
        """A body may leave out what it is, but not say that it is something else."""
        kind, version = body.get("kind") or self.resource.kind, body.get("apiVersion") or self.resource.api_version
        if (kind, version) != (self.resource.kind, self.resource.api_version):
            raise bad_request(f'{kind} in version "{version}" cannot be handled as a {self.resource.kind}')


_NODE: Final = {
    "spec": {"unschedulable": bool, "taints": [dict], "providerID": str, "podCIDR": str},
    "status": {"capacity": QUANTITIES, "allocatable": QUANTITIES, "conditions": [dict], "addresses": [dict], "nodeInfo": dict},
}
_CLAIM: Final = {
    "spec": {
        "accessModes": [str], "storageClassName": str, "volumeName": str, "volumeMode": str, "selector": dict, "dataSource": dict,
        "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    },
    "status": {"phase": str, "capacity": QUANTITIES, "accessModes": [str], "conditions": [dict]},
}  # fmt: skip
_VOLUME: Final = {
    "spec": {
        "accessModes": [str], "capacity": QUANTITIES, "storageClassName": str, "volumeMode": str, "mountOptions": [str],
        "persistentVolumeReclaimPolicy": str, "claimRef": {"name": str, "namespace": str, "uid": str},
        "csi": {"driver": str, "volumeHandle": str, "fsType": str, "volumeAttributes": WORDS},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [dict]}},
    },
    "status": {"phase": str, "message": str, "reason": str},
}  # fmt: skip
_CLASS: Final = {
    "provisioner": str, "parameters": WORDS, "reclaimPolicy": str, "volumeBindingMode": str, "mountOptions": [str],
    "allowVolumeExpansion": bool, "allowedTopologies": [{"matchLabelExpressions": [dict]}],
}  # fmt: skip
_EVENT: Final = {
    "involvedObject": {"kind": str, "namespace": str, "name": str, "uid": str, "apiVersion": str, "fieldPath": str},
    "reason": str, "message": str, "type": str, "source": {"component": str, "host": str}, "firstTimestamp": TIME, "lastTimestamp": TIME,
    "count": int, "eventTime": TIME, "reportingComponent": str, "reportingInstance": str, "action": str, "related": dict, "series": dict,
}  # fmt: skip
_EVENT_SELECTABLE: Final = {
    **{f"involvedObject.{key}": "" for key in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")},
    **dict.fromkeys(("reason", "reportingComponent", "source", "type"), ""),
}
_LEASE: Final = {
    "spec": {
        "holderIdentity": str, "leaseDurationSeconds": int, "acquireTime": TIME, "renewTime": TIME, "leaseTransitions": int,
        "strategy": str, "preferredHolder": str,
    },
}  # fmt: skip
_WORKLOAD: Final = {"spec": {"selector": dict, "template": dict, "replicas": int}, "status": dict}
_RIGHTS: Final = dict.fromkeys(("rules", "aggregationRule", "subjects", "roleRef"), ANY)
_POD_DEFAULTS: Final = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
    "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
}  # fmt: skip


TABLE: Final[Iterable[Kind]] = (
    Kind(
        resource=api.NAMESPACES,
        fields={"spec": {"finalizers": [str]}, "status": {"phase": str, "conditions": [dict]}},
        status=True,
        first_status={"phase": "Active"},
        born=rules.namespace_born,
    ),
    Kind(
        resource=api.NODES,
        fields=_NODE,
        status=True,
        selectable={"spec.unschedulable": "false"},
        born=rules.node_born,
        check=rules.check_node,
    ),
    Kind(
        resource=api.PODS,
        fields={"spec": dict, "status": dict},
        status=True,
        counted=True,
        selectable={"spec.nodeName": "", "spec.schedulerName": "", "status.phase": ""},
        defaults={"spec": _POD_DEFAULTS},
        first_status={"phase": "Pending"},
        born=rules.pod_born,
        check=rules.check_pod,
        fixed=("spec.nodeName",),
        subresources=("eviction", "binding"),
    ),
    Kind(
        resource=api.CLAIMS,
        fields=_CLAIM,
        status=True,
        defaults={"spec": {"volumeMode": "Filesystem", "resources": {}}},
        first_status={"phase": "Pending"},
        protection="kubernetes.io/pvc-protection",
        admit=claim_policy.label,
        check=rules.check_claim,
        check_change=rules.check_claim_change,
    ),
    Kind(
        resource=api.VOLUMES,
        fields=_VOLUME,
        status=True,
        defaults={"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}},
        first_status={"phase": "Pending"},
        protection="kubernetes.io/pv-protection",
        check=rules.check_volume,
        check_change=rules.check_volume_change,
        fixed=("spec.csi", "spec.volumeMode"),
    ),
    Kind(resource=api.EVENTS, fields=_EVENT, selectable=_EVENT_SELECTABLE, check=rules.check_event),
    Kind(resource=api.CONFIG_MAPS, fields={"data": WORDS, "binaryData": WORDS, "immutable": bool}),
    Kind(resource=api.SECRETS, fields={"data": WORDS, "type": str, "immutable": bool}, selectable={"type": ""}),
    Kind(resource=SERVICE_ACCOUNTS, fields={"secrets": [dict], "imagePullSecrets": [dict], "automountServiceAccountToken": bool}),
    Kind(
        resource=api.CLASSES,
        fields=_CLASS,
        defaults={"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
        fixed=("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    ),
    Kind(
        resource=api.CAPACITIES,
        fields={"storageClassName": str, "nodeTopology": dict, "capacity": QUANTITY, "maximumVolumeSize": QUANTITY},
        unconditional=False,
        check=rules.check_capacity,
        fixed=("nodeTopology", "storageClassName"),
    ),
    Kind(resource=api.ATTACHMENTS, fields={"spec": dict, "status": dict}, status=True, unconditional=False),
    Kind(resource=api.CSI_NODES, fields={"spec": {"drivers": [dict]}}, unconditional=False),
    Kind(resource=api.CSI_DRIVERS, fields={"spec": dict}, unconditional=False, defaults={"spec": {"attachRequired": True}}),
    # What deploy/components/drain installs.
    Kind(resource=api.DRAIN_REPORTS, fields={"spec": dict, "status": dict}, status=True, counted=True, unconditional=False),
    Kind(resource=api.MAINTENANCES, fields={"spec": dict, "status": dict}, status=True, counted=True, unconditional=False),
    Kind(resource=api.DRAIN_RULES, fields={"spec": dict}, counted=True, unconditional=False),
    Kind(resource=api.INSTANCES, fields={"spec": dict, "status": dict}, counted=True, unconditional=False),
    Kind(resource=api.LEASES, fields=_LEASE, unconditional=False),
    Kind(
        resource=api.BUDGETS,
        fields={"spec": dict, "status": dict},
        status=True,
        counted=True,
        unconditional=False,
        first_status=dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0),
    ),
    # What deploy/components/scoped-watches installs.
    Kind(resource=claim_policy.POLICIES, fields={"spec": dict}, counted=True, unconditional=False),
    Kind(resource=claim_policy.BINDINGS, fields={"spec": dict}, counted=True, unconditional=False),
    *(
        Kind(resource=resource, fields=_WORKLOAD, status=True, counted=True, first_status={})
        for resource in (api.DAEMON_SETS, api.DEPLOYMENTS, api.REPLICA_SETS, api.STATEFUL_SETS)
    ),
    *(
        Kind(resource=resource, fields=_RIGHTS, name_rule=lambda _: "")
        for resource in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
    ),
)


def fill(obj: Json, defaults: Json) -> None:
    """Sets what is not there."""
    for key, value in defaults.items():
        if isinstance(value, dict):
            fill(obj.setdefault(key, {}), value)
        else:
            obj.setdefault(key, value)
