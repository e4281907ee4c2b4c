"""Looks at all values together: brings them into the form in which they are used, and finds what could never work."""

from collections.abc import Iterator, Mapping
from typing import Any

from sidecar.config.checks import metrics_path_fault, socket_path
from sidecar.config.config import Config
from sidecar.config.gates import resolve_gates
from sidecar.config.kinds import show_duration
from sidecar.config.table import (
    ACT,
    CLEANUP,
    EVACUATE,
    FLAGS,
    IGNORE,
    NO_SCHEDULE,
    OFF,
    ONLY_PROVISIONING,
    OVERRIDE,
    REPROVISION,
    RETIRE,
    USUAL_BURST,
    USUAL_QPS,
)

_NO_LIMIT = -1.0
_SHORTEST_PAUSE = 0.001
_LONGEST_NAME = 253
_WHOLE_UID = 36


def settle(values: dict[str, Any]) -> list[str]:
    """Changes values in place as upstream's libraries would, and returns a warning for each change that may surprise."""
    values["csi_address"] = socket_path(values["csi_address"]) or values["csi_address"]
    values["feature_gates"], warnings = resolve_gates(values["feature_gates"])
    _settle_rates(values)
    return [*warnings, *_settle_pauses(values), *_settle_names(values), *_idle_drain_flags(values), *_idle_flags_of_provisioning(values)]


def _settle_rates(values: dict[str, Any]) -> None:
    for client in ("kube_api", "kube_api_capacity"):
        qps = values[f"{client}_qps"] or USUAL_QPS
        values[f"{client}_qps"] = _NO_LIMIT if qps == float("inf") else qps
        values[f"{client}_burst"] = values[f"{client}_burst"] or USUAL_BURST
    if not values["enable_capacity"]:
        # That client is made and never used, so what could not work must not keep the program from starting.
        values["kube_api_capacity_burst"] = max(1, values["kube_api_capacity_burst"])


def _settle_pauses(values: dict[str, Any]) -> Iterator[str]:
    if values["retry_interval_start"] == 0:
        yield f"{_assignment('retry_interval_start', values)}: taken as {show_duration(_SHORTEST_PAUSE)}, which doubles"
        values["retry_interval_start"] = _SHORTEST_PAUSE
    for delay in ("node_deployment_base_delay", "node_deployment_max_delay"):
        if values[delay] < 0:
            yield f"{_assignment(delay, values)}: taken as 0"
            values[delay] = 0.0
    for first, limit, what in (
        ("retry_interval_start", "retry_interval_max", "every retry waits"),
        ("node_deployment_base_delay", "node_deployment_max_delay", "every bid waits at most"),
    ):
        if values[first] > values[limit]:
            yield f"{_assignment(limit, values)}: below {_assignment(first, values)}; {what} {show_duration(values[limit])}"
            values[first] = values[limit]


def _settle_names(values: dict[str, Any]) -> Iterator[str]:
    if 1 <= values["volume_name_uuid_length"] < 8:
        yield f"{_assignment('volume_name_uuid_length', values)}: so few digits may give two claims the same name; use 8 or more"
    if values["capacity_ownerref_level"] < -1:
        yield f"{_assignment('capacity_ownerref_level', values)}: taken as -1, the objects get no owner"
        values["capacity_ownerref_level"] = -1


def _idle_drain_flags(values: Mapping[str, Any]) -> Iterator[str]:
    if values["node_drain_policy"] == EVACUATE and not values["drain_report"]:
        policy = _assignment("node_drain_policy", values)
        yield f"{policy}: works as {NO_SCHEDULE}, because nothing is evacuated without --drain-report; add it"
    if values["evacuation_evict"] and values["drain_report"] and values["node_drain_policy"] == IGNORE:
        policy = _assignment("node_drain_policy", values)
        yield f"--evacuation-evict: empties no node with {policy}, but those that say otherwise; use {NO_SCHEDULE} or {EVACUATE}"
    for field, flag, on in (
        ("reprovision_pause", "--allow-reprovision", values["allow_reprovision"]),
        ("node_gone_after", f"--node-delete-policy={CLEANUP}", values["node_delete_policy"] == CLEANUP),
    ):
        if not on and values[field] != FLAGS[field.replace("_", "-")].default:
            yield f"{_assignment(field, values)}: has no effect without {flag}"
    if values["evacuation_expiry"] == OVERRIDE and not values["evacuation_deadline"]:
        yield f"{_assignment('evacuation_expiry', values)}: has no effect without a deadline; set --evacuation-deadline"
    if values["node_drain_policy"] == EVACUATE and values["drain_gate_assumes"] != RETIRE:
        policy = _assignment("node_drain_policy", values)
        yield f"{_assignment('drain_gate_assumes', values)}: has no effect with {policy}, by which a cordon means {RETIRE}"


def _idle_flags_of_provisioning(values: Mapping[str, Any]) -> Iterator[str]:
    """In one line, however many: a DaemonSet that used to provision has a dozen."""
    if values["provisioning"]:
        return
    if given := [row.name for row in ONLY_PROVISIONING if values[row.field] != row.default]:
        yield f"--provisioning=false: without effect beside it: {', '.join(f'--{name}' for name in given)}"


def _assignment(name: str, values: Mapping[str, Any]) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}={FLAGS[flag].kind.show(values[name])}"


def contradictions(config: Config) -> Iterator[str]:
    """Faults of values that need each other or exclude each other."""
    if not config.node_deployment:
        yield (
            "--node-deployment is missing: this program manages the volumes of one node and has no central mode; add the flag and run "
            "it beside the driver on every node, or run external-provisioner where one instance is to serve the whole cluster"
        )
    if not config.node_name:
        yield (
            "NODE_NAME is not set: --node-deployment needs it, because without the name of its node the program cannot tell "
            "which claims are its own; set it in the pod's env from fieldRef spec.nodeName"
        )
    if config.metrics_address and config.http_endpoint:
        yield "--metrics-address and --http-endpoint are both set, but there is one server; keep --http-endpoint"
    if config.http_address and (fault := metrics_path_fault(config.metrics_path)):
        yield f"--metrics-path={config.metrics_path}: {fault}"
    yield from _burst_faults("kube-api-burst", config.kube_api_qps, config.kube_api_burst)
    if config.enable_capacity and config.provisioning:
        yield from _burst_faults("kube-api-capacity-burst", config.kube_api_capacity_qps, config.kube_api_capacity_burst)
        yield from _capacity_faults(config)
    if not config.provisioning:
        yield from _report_only_faults(config)
    yield from _drain_faults(config)
    uid_length = _WHOLE_UID if config.volume_name_uuid_length == -1 else config.volume_name_uuid_length
    if config.provisioning and len(config.volume_name_prefix) + 1 + uid_length > _LONGEST_NAME:
        yield (
            f"--volume-name-prefix={config.volume_name_prefix}: with the UID of the claim, names of volumes would have more than the "
            f"{_LONGEST_NAME} characters that Kubernetes allows; use a shorter prefix"
        )


def _burst_faults(name: str, qps: float, burst: int) -> Iterator[str]:
    if qps > 0 and burst < 0:
        yield f"--{name}={burst}: no request could ever be sent; use 1 or more"


def _capacity_faults(config: Config) -> Iterator[str]:
    if config.capacity_threads == 0:
        yield "--capacity-threads=0: must be more than zero: nobody would publish any capacity"
    if config.capacity_poll_interval <= 0:
        poll = show_duration(config.capacity_poll_interval)
        yield f"--capacity-poll-interval={poll}: must be more than zero: the driver would be asked without pause"
    if not config.namespace:
        yield (
            "NAMESPACE is not set: --enable-capacity needs it, because CSIStorageCapacity objects live in a namespace; set it in the pod's "
            "env from fieldRef metadata.namespace"
        )
    if config.capacity_ownerref_level >= 0 and not config.pod_name:
        yield (
            f"POD_NAME is not set: --enable-capacity with --capacity-ownerref-level={config.capacity_ownerref_level} finds the owner "
            "through the pod; set it in the pod's env from fieldRef metadata.name, or use --capacity-ownerref-level=-1"
        )


def _report_only_faults(config: Config) -> Iterator[str]:
    if config.enable_capacity:
        yield (
            "--enable-capacity contradicts --provisioning=false: whoever provisions for the driver publishes its capacity, and two figures "
            "for one node would mislead the scheduler; leave one of the two out"
        )
    if not config.drain_report:
        yield "--provisioning=false needs --drain-report: nothing else is left to do; add it"


def _drain_faults(config: Config) -> Iterator[str]:
    if config.drain_gate_image and not config.drain_report:
        yield "--drain-gate-image needs --drain-report: without an assessment it is not known when the gate may open; add it"
    if config.drain_autoscaler_annotations and not config.drain_report:
        yield "--drain-autoscaler-annotations needs --drain-report: without an assessment nobody knows which copies are the last; add it"
    if config.evacuation_evict and not config.drain_report:
        yield "--evacuation-evict needs --drain-report: without an assessment nothing is evacuated; add it"
    if config.maintenance and not config.drain_report:
        yield "--maintenance needs --drain-report: without an assessment nobody knows which pods may be evicted; add it"
    if config.maintenance and not config.pod_name:
        yield (
            "POD_NAME is not set: --maintenance needs it, because a plan may name DaemonSets' pods, and this pod is none of those that go; "
            "set it in the pod's env from fieldRef metadata.name"
        )
    if config.guest_drain and not config.maintenance:
        yield "--guest-drain needs --maintenance; add it"
    if config.failover != OFF and not config.drain_report:
        yield f"--failover={config.failover} needs --drain-report: without it this node's own state is not watched; add it"
    if config.allow_reprovision and not config.evacuation_evict:
        yield "--allow-reprovision needs --evacuation-evict: a replica is made anew once its pod is evicted; add it"
    if config.drain_default_policy == REPROVISION:
        yield (
            f"--drain-default-policy={REPROVISION}: a default never deletes data; leave it out, and annotate the classes, namespaces or "
            "claims that may be made anew"
        )
    if config.node_delete_policy and not config.drain_report:
        yield "--node-delete-policy needs --drain-report: without it no report on a node is written; add it"
    if config.namespace:
        return
    where = "set it in the pod's env from fieldRef metadata.namespace"
    if config.drain_gate_image:
        yield f"NAMESPACE is not set: --drain-gate-image needs it, because the gate's pods live in a namespace; {where}"
    if config.allow_reprovision:
        yield f"NAMESPACE is not set: --allow-reprovision needs it, because replicas take turns by leases, which live in one; {where}"
    if config.maintenance:
        yield f"NAMESPACE is not set: --maintenance needs it, to know its own pod, and one sidecar tells for all, by a lease; {where}"
    if config.failover == ACT:
        yield f"NAMESPACE is not set: --failover={ACT} needs it, because one sidecar acts at a time, by a lease, which is there; {where}"
    if config.node_delete_policy and config.drain_report:
        yield f"NAMESPACE is not set: --node-delete-policy needs it, because one sidecar looks for all, by a lease, which is there; {where}"
    # NoSchedule needs it too: the taint starts an evacuation under any policy.
    if config.node_drain_policy != IGNORE and config.max_concurrent_evacuations > 0:
        yield (
            f"NAMESPACE is not set: --node-drain-policy={config.node_drain_policy} needs it, because nodes that are evacuated take turns "
            f"by leases, which live in a namespace; {where}, or use --max-concurrent-evacuations=0"
        )
