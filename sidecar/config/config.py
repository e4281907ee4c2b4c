"""What reading a command line results in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sidecar.config.gates import GatePairs
from sidecar.config.table import TABLE


@dataclass(frozen=True, slots=True)
class Config:
    """Every value as the program uses it: durations are seconds, the socket is a plain path, limits are already settled."""

    csi_address: str
    timeout: float
    kubeconfig: str
    master: str
    kube_api_qps: float  # negative: no limit
    kube_api_burst: int
    kube_api_capacity_qps: float  # negative: no limit
    kube_api_capacity_burst: int
    provisioning: bool
    worker_threads: int
    retry_interval_start: float
    retry_interval_max: float
    volume_name_prefix: str
    volume_name_uuid_length: int
    default_fstype: str
    extra_create_metadata: bool
    controller_publish_readonly: bool
    prevent_volume_mode_conversion: bool
    journal_dir: str
    snapshot_orphan_sweep_interval: float  # 0 or less: off
    feature_gates: GatePairs
    node_deployment: bool
    node_deployment_immediate_binding: bool
    node_deployment_base_delay: float
    node_deployment_max_delay: float
    node_deployment_placement: str  # "random" or "ranked"
    watch_scope: str  # "all" or "labelled"
    strict_topology: bool
    immediate_topology: bool
    enable_capacity: bool
    capacity_threads: int
    capacity_poll_interval: float
    capacity_for_immediate_binding: bool
    capacity_ownerref_level: int
    capacity_reserve_pending: bool
    capacity_stale_after: float  # 0: never
    node_drain_policy: str  # "Ignore", "NoSchedule" or "Evacuate"
    drain_report: bool
    drain_default_policy: str  # empty: nobody has chosen one
    evacuation_deadline: float  # 0: none
    evacuation_expiry: str  # "Report" or "Override"
    evacuation_evict: bool
    node_delete_policy: str  # "Orphan", "Cleanup" or empty: nobody looks
    node_gone_after: float
    allow_reprovision: bool
    reprovision_pause: float
    max_concurrent_evacuations: int  # 0: no limit
    maintenance: bool
    guest_drain: bool
    failover: str
    drain_gate_image: str  # empty: no gate
    drain_gate_assumes: str  # "retire" or "reboot"
    drain_autoscaler_annotations: bool
    http_endpoint: str
    metrics_address: str
    debug_endpoint: str
    metrics_path: str
    verbosity: int
    logging_format: str
    shutdown_timeout: float
    dry_run: bool
    node_name: str
    namespace: str
    pod_name: str
    # Gates named on the command line. VolumeAttributesClass is turned off in a cluster without that API only if it is not among them.
    gates_named: frozenset[str] = frozenset()
    # Of commands for people, which have flags for these.
    context: str = ""  # of the kubeconfig; empty: its current one
    request_timeout: float | None = None
    # Flag name (environment variable for values that have no flag) → "default", "flag" or "env NAME".
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on; KeyError for a gate that has no effect here."""
        return dict(self.feature_gates)[name]

    def without_gate(self, name: str) -> "Config":
        return replace(self, feature_gates=tuple((gate, on and gate != name) for gate, on in self.feature_gates))

    @property
    def http_address(self) -> str:
        """Where to serve metrics and health; empty for nowhere."""
        return self.http_endpoint or self.metrics_address

    def effective(self) -> list[tuple[str, str, str]]:
        """Name, value as text and origin of everything that has a value, in the order of the help; no value is a secret."""
        rows = (row for row in TABLE if row.field)
        return [(row.name, row.kind.show(getattr(self, row.field)), self.origins.get(row.name, "default")) for row in rows]
