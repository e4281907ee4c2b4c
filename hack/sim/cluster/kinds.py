"""The kinds this server knows, one row each. To add a kind, add a row; columns that are left out have the defaults of `Kind`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hack.sim.cluster import checks, claim_policy, rules
from hack.sim.cluster.checks import Causes
from hack.sim.cluster.claim_policy import Others
from hack.sim.cluster.refusals import bad_request
from hack.sim.cluster.schema import ANY, META, QUANTITIES, QUANTITY, TIME, WORDS, MapOf, Schema
from sidecar.drain.maintenance.guest_io import INSTANCES
from sidecar.kube import api
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)


def _nothing(_obj: Json, *_more: object) -> None:
    return None


def _fixed(*fields: str) -> Callable[[Json, Json], Causes]:
    return lambda new, old: checks.changed(new, old, *fields)


def _no_causes(_obj: Json, *_more: object) -> Causes:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object and what is special about it."""

    resource: Resource
    fields: Mapping[str, Schema] = field(default_factory=dict)
    """Its top-level fields besides kind, apiVersion and metadata."""
    name_rule: Callable[[str], str] = checks.subdomain
    status: bool = False
    """It has a /status subresource, which is written separately."""
    counted: bool = False
    """It has a generation, which grows with every change of the spec."""
    unconditional: bool = True
    """It may be replaced without saying which version is meant."""
    selectable: Mapping[str, str] = field(default_factory=dict)
    """Fields a selector may name besides name and namespace, and what stands for each if it is absent."""
    defaults: Callable[[Json], None] = _nothing
    """Fills in what was left open, at every write."""
    born: Callable[[Json, str], None] = _nothing
    """Sets what a new object has, its first status above all; the second argument is the time."""
    admit: Callable[[Json, Json | None, Others], None] = _nothing
    """Admission, which may look at other objects, refuse, and change labels. The second argument is the object as it was; without one it
    is new, has not been checked yet, and may be changed in all its parts."""
    check: Callable[[Json], Causes] = _no_causes
    check_change: Callable[[Json, Json], Causes] = _no_causes
    subresources: Mapping[str, str] = field(default_factory=dict)
    """The subresources besides /status, with the kind of body that each takes."""

    @property
    def all_fields(self) -> Mapping[str, Schema]:
        return {"kind": str, "apiVersion": str, "metadata": META, **self.fields}

    @property
    def all_selectable(self) -> Mapping[str, str]:
        return {"metadata.name": "", "metadata.namespace": "", **self.selectable}

    def refuse_foreign(self, body: Json) -> None:
        """A body may leave out what it is, but not say that it is something else."""
        kind, version = body.get("kind") or self.resource.kind, body.get("apiVersion") or self.resource.api_version
        if (kind, version) != (self.resource.kind, self.resource.api_version):
            raise bad_request(f'{kind} in version "{version}" cannot be handled as a {self.resource.kind}')


_NODE: Final = {
    "spec": {"unschedulable": bool, "taints": [dict], "providerID": str, "podCIDR": str},
    "status": {"capacity": QUANTITIES, "allocatable": QUANTITIES, "conditions": [dict], "addresses": [dict]},
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
_BUDGET: Final = {
    "spec": {"selector": dict, "unhealthyPodEvictionPolicy": str},
    "status": {
        "observedGeneration": int, "disruptionsAllowed": int, "currentHealthy": int, "desiredHealthy": int, "expectedPods": int,
        "disruptedPods": MapOf(TIME), "conditions": [dict],
    },
}  # fmt: skip


def _workload(resource: Resource) -> Kind:
    return Kind(
        resource=resource,
        fields={"spec": {"selector": dict, "template": dict, "replicas": int}, "status": dict},
        status=True,
        counted=True,
        born=rules.workload_born,
    )


TABLE: Final[Iterable[Kind]] = (
    Kind(
        resource=api.NAMESPACES,
        fields={"spec": {"finalizers": [str]}, "status": {"phase": str, "conditions": [dict]}},
        name_rule=checks.label_name,
        status=True,
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
        defaults=rules.pod_defaults,
        born=rules.pod_born,
        check=rules.check_pod,
        check_change=rules.check_pod_change,
        subresources={"eviction": "Eviction", "binding": "Binding"},
    ),
    Kind(
        resource=api.CLAIMS,
        fields=_CLAIM,
        status=True,
        defaults=rules.claim_defaults,
        born=rules.claim_born,
        admit=rules.claim_admit,
        check=rules.check_claim,
        check_change=rules.check_claim_change,
    ),
    Kind(
        resource=api.VOLUMES,
        fields=_VOLUME,
        status=True,
        defaults=rules.volume_defaults,
        born=rules.volume_born,
        check=rules.check_volume,
        check_change=rules.check_volume_change,
    ),
    Kind(resource=api.EVENTS, fields=_EVENT, selectable=_EVENT_SELECTABLE, check=rules.check_event),
    Kind(resource=api.CONFIG_MAPS, fields={"data": WORDS, "binaryData": WORDS, "immutable": bool}),
    Kind(
        resource=api.SECRETS,
        fields={"data": WORDS, "type": str, "immutable": bool},
        selectable={"type": ""},
    ),
    Kind(resource=SERVICE_ACCOUNTS, fields={"secrets": [dict], "imagePullSecrets": [dict], "automountServiceAccountToken": bool}),
    Kind(
        resource=api.CLASSES,
        fields=_CLASS,
        defaults=rules.class_defaults,
        check_change=_fixed("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    ),
    Kind(
        resource=api.CAPACITIES,
        fields={"storageClassName": str, "nodeTopology": dict, "capacity": QUANTITY, "maximumVolumeSize": QUANTITY},
        unconditional=False,
        check=rules.check_capacity,
        check_change=_fixed("nodeTopology", "storageClassName"),
    ),
    Kind(
        resource=api.ATTACHMENTS,
        fields={
            "spec": {"attacher": str, "nodeName": str, "source": {"persistentVolumeName": str}},
            "status": {"attached": bool, "attachError": dict, "detachError": dict},
        },
        status=True,
        unconditional=False,
    ),
    Kind(
        resource=api.CSI_NODES,
        fields={"spec": {"drivers": [{"name": str, "nodeID": str, "topologyKeys": [str], "allocatable": {"count": int}}]}},
        unconditional=False,
    ),
    Kind(resource=api.CSI_DRIVERS, fields={"spec": dict}, unconditional=False, defaults=rules.csi_driver_defaults),
    # What deploy/components/drain installs.
    Kind(resource=api.DRAIN_REPORTS, fields={"spec": dict, "status": dict}, status=True, counted=True, unconditional=False),
    Kind(resource=api.MAINTENANCES, fields={"spec": dict, "status": dict}, status=True, counted=True, unconditional=False),
    Kind(resource=api.DRAIN_RULES, fields={"spec": dict}, counted=True, unconditional=False),
    Kind(resource=INSTANCES, fields={"spec": dict, "status": dict}, counted=True, unconditional=False),
    Kind(resource=api.LEASES, fields=_LEASE, unconditional=False),
    Kind(resource=api.BUDGETS, fields=_BUDGET, status=True, counted=True, unconditional=False, born=rules.budget_born),
    # What deploy/components/scoped-watches installs.
    Kind(resource=claim_policy.POLICIES, fields={"spec": dict}, counted=True, unconditional=False),
    Kind(resource=claim_policy.BINDINGS, fields={"spec": dict}, counted=True, unconditional=False),
    _workload(api.DAEMON_SETS),
    _workload(api.DEPLOYMENTS),
    _workload(api.REPLICA_SETS),
    _workload(api.STATEFUL_SETS),
    Kind(resource=ROLES, fields=dict.fromkeys(("rules", "aggregationRule"), ANY), name_rule=checks.any_name),
    Kind(resource=CLUSTER_ROLES, fields=dict.fromkeys(("rules", "aggregationRule"), ANY), name_rule=checks.any_name),
    Kind(resource=ROLE_BINDINGS, fields=dict.fromkeys(("subjects", "roleRef"), ANY), name_rule=checks.any_name),
    Kind(resource=CLUSTER_ROLE_BINDINGS, fields=dict.fromkeys(("subjects", "roleRef"), ANY), name_rule=checks.any_name),
)
