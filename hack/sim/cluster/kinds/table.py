"""The kinds this server knows, one row each. To add a kind, add a row; columns that are left out have the defaults in `kind`."""

from collections.abc import Iterable
from typing import Final

from hack.sim.cluster.kinds import checks, claim_policy, core_rules, storage_rules
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.kinds.schema import BYTES, QUANTITY, WORDS, MapOf
from sidecar.kube import api
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, LEASES, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret", True)
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", True)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)

_EVENT_SELECTABLE: Final = dict.fromkeys(
    [f"involvedObject.{key}" for key in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")]
    + ["reason", "reportingComponent", "source", "type"],
    "",
)
_POD_SELECTABLE: Final = {
    "spec.nodeName": "", "spec.restartPolicy": "", "spec.schedulerName": "", "spec.serviceAccountName": "", "spec.hostNetwork": "false",
    "status.phase": "", "status.podIP": "", "status.nominatedNodeName": "",
}  # fmt: skip


def _workload(resource: Resource, short: tuple[str, ...]) -> Kind:
    return Kind(
        resource=resource,
        short=short,
        fields=core_rules.WORKLOAD_FIELDS,
        status=True,
        counted=True,
        born=core_rules.workload_born,
        check=core_rules.check_workload,
        check_change=core_rules.check_workload_change,
    )


def _role(resource: Resource) -> Kind:
    return Kind(resource=resource, fields=core_rules.ROLE_FIELDS, name_rule=checks.path_segment)


def _binding(resource: Resource) -> Kind:
    return Kind(
        resource=resource,
        fields=core_rules.BINDING_FIELDS,
        name_rule=checks.path_segment,
        check=core_rules.check_binding,
        check_change=core_rules.check_binding_change,
    )


TABLE: Final[Iterable[Kind]] = (
    Kind(
        resource=api.NAMESPACES,
        short=("ns",),
        fields={"spec": {"finalizers": [str]}, "status": {"phase": str, "conditions": [dict]}},
        name_rule=checks.label_name,
        status=True,
        selectable={"status.phase": ""},
        older_words=True,
        born=core_rules.namespace_born,
        subresources={"finalize": "Namespace"},
    ),
    Kind(
        resource=api.NODES,
        short=("no",),
        fields=core_rules.NODE_FIELDS,
        status=True,
        selectable={"spec.unschedulable": "false"},
        older_words=True,
        born=core_rules.node_born,
        check=core_rules.check_node,
    ),
    Kind(
        resource=api.PODS,
        short=("po",),
        fields=core_rules.POD_FIELDS,
        status=True,
        counted=True,
        shown_when_deleted=True,
        selectable=_POD_SELECTABLE,
        older_words=True,
        defaults=core_rules.pod_defaults,
        born=core_rules.pod_born,
        check=core_rules.check_pod,
        check_change=core_rules.check_pod_change,
        subresources={"eviction": "Eviction", "binding": "Binding"},
    ),
    Kind(
        resource=api.CLAIMS,
        short=("pvc",),
        fields=storage_rules.CLAIM_FIELDS,
        status=True,
        shown_when_deleted=True,
        defaults=storage_rules.claim_defaults,
        born=storage_rules.claim_born,
        admit=storage_rules.claim_admit,
        check=storage_rules.check_claim,
        check_change=storage_rules.check_claim_change,
    ),
    Kind(
        resource=api.VOLUMES,
        short=("pv",),
        fields=storage_rules.VOLUME_FIELDS,
        status=True,
        shown_when_deleted=True,
        defaults=storage_rules.volume_defaults,
        born=storage_rules.volume_born,
        check=storage_rules.check_volume,
        check_change=storage_rules.check_volume_change,
    ),
    Kind(
        resource=api.EVENTS,
        short=("ev",),
        fields=core_rules.EVENT_FIELDS,
        selectable=_EVENT_SELECTABLE,
        older_words=True,
        check=core_rules.check_event,
    ),
    Kind(resource=api.CONFIG_MAPS, short=("cm",), fields=core_rules.CONFIG_FIELDS, check=core_rules.check_config),
    Kind(
        resource=SECRETS,
        fields={"data": MapOf(BYTES), "stringData": WORDS, "type": str, "immutable": bool},
        selectable={"type": ""},
        older_words=True,
        defaults=core_rules.secret_defaults,
    ),
    Kind(
        resource=SERVICE_ACCOUNTS,
        short=("sa",),
        fields={"secrets": [dict], "imagePullSecrets": [dict], "automountServiceAccountToken": bool},
        shown_when_deleted=True,
        subresources={"token": "TokenRequest"},
    ),
    Kind(
        resource=api.CLASSES,
        short=("sc",),
        fields={
            "provisioner": str,
            "parameters": WORDS,
            "reclaimPolicy": str,
            "volumeBindingMode": str,
            "mountOptions": [str],
            "allowVolumeExpansion": bool,
            "allowedTopologies": [{"matchLabelExpressions": [dict]}],
        },
        shown_when_deleted=True,
        defaults=storage_rules.class_defaults,
        check=storage_rules.check_class,
        check_change=storage_rules.check_class_change,
    ),
    Kind(
        resource=api.CAPACITIES,
        fields={"storageClassName": str, "nodeTopology": dict, "capacity": QUANTITY, "maximumVolumeSize": QUANTITY},
        unconditional=False,
        check=storage_rules.check_capacity,
        check_change=storage_rules.check_capacity_change,
    ),
    Kind(
        resource=api.ATTACHMENTS,
        fields={
            "spec": {"attacher": str, "nodeName": str, "source": {"persistentVolumeName": str}},
            "status": {"attached": bool, "attachError": dict, "detachError": dict},
        },
        status=True,
        unconditional=False,
        shown_when_deleted=True,
        born=storage_rules.attachment_born,
        check=storage_rules.check_attachment,
        check_change=storage_rules.check_attachment_change,
    ),
    Kind(
        resource=api.CSI_NODES,
        fields={"spec": {"drivers": [{"name": str, "nodeID": str, "topologyKeys": [str], "allocatable": {"count": int}}]}},
        unconditional=False,
        shown_when_deleted=True,
        check=storage_rules.check_csi_node,
    ),
    Kind(
        resource=CSI_DRIVERS,
        fields={"spec": dict},
        unconditional=False,
        shown_when_deleted=True,
        defaults=storage_rules.csi_driver_defaults,
    ),
    # What deploy/components/drain installs.
    Kind(resource=api.DRAIN_REPORTS, fields={"spec": dict, "status": dict}, status=True, counted=True, unconditional=False),
    Kind(resource=LEASES, fields=core_rules.LEASE_FIELDS, unconditional=False, check=core_rules.check_lease),
    Kind(
        resource=BUDGETS,
        short=("pdb",),
        fields=core_rules.BUDGET_FIELDS,
        status=True,
        counted=True,
        unconditional=False,
        born=core_rules.budget_born,
        check=core_rules.check_budget,
    ),
    # What deploy/components/scoped-watches installs.
    Kind(resource=claim_policy.POLICIES, fields={"spec": dict}, counted=True, unconditional=False),
    Kind(resource=claim_policy.BINDINGS, fields={"spec": dict}, counted=True, unconditional=False),
    _workload(DAEMON_SETS, ("ds",)),
    _workload(DEPLOYMENTS, ("deploy",)),
    _workload(REPLICA_SETS, ("rs",)),
    _workload(STATEFUL_SETS, ("sts",)),
    Kind(resource=JOBS, fields={"spec": {"template": dict}, "status": dict}, status=True, counted=True, born=core_rules.workload_born),
    _role(ROLES),
    _role(CLUSTER_ROLES),
    _binding(ROLE_BINDINGS),
    _binding(CLUSTER_ROLE_BINDINGS),
)
