"""What the program was told: one table of flags and environment variables, read into one frozen Config.

`parse(argv, environ)` returns Parsed, ShowHelp or ShowVersion. It raises UsageError (exit 2) when the line cannot be read
and Refused (exit 1) when it can be read but could never work; both carry everything that is wrong, not the first thing.
Whatever external-provisioner accepts is accepted: what means nothing here is ignored with a warning.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from textwrap import wrap
from types import MappingProxyType
from typing import Any, TypeAlias

from sidecar.errors import SidecarError
from sidecar.flags import (
    ADDRESS,
    BOOL,
    DURATION,
    FLOAT,
    FLOAT32,
    INT,
    LEVEL,
    TEXT,
    UINT,
    Given,
    Kind,
    UsageError,
    closest,
    one_of,
    quoted,
    read_bool,
    scan,
    show_bool,
    show_duration,
    split_address,
)

__all__ = ["KINDS", "SHORTHANDS", "Config", "Parsed", "Refused", "ShowHelp", "ShowVersion", "UsageError", "help_text", "parse"]


class Refused(SidecarError):
    """The line can be read, but what it asks for could never work: every fault, so that one restart cures them all."""

    exit_code = 1

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


# ---- feature gates -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gate:
    default: bool
    stage: str


GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "CrossNamespaceVolumeDataSource": Gate(False, "ALPHA"),
        "Topology": Gate(True, "GA"),
        "VolumeAttributesClass": Gate(True, "GA"),
    }
)
# Each of these sets all gates of one stage that were not named themselves.
_STAGES: Mapping[str, str] = MappingProxyType({"AllAlpha": "ALPHA", "AllBeta": "BETA"})
# What external-provisioner's flag takes besides: the gates of the API server's library, which it links, and of its own frame.
# None of them changes what a provisioner does. HonorPVReclaimPolicy was its own until it was always on; manifests still name it.
# fmt: off
_FOREIGN_GATES = frozenset({
    "HonorPVReclaimPolicy",
    "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions", "ReleaseLeaderElectionOnExit", "APIResponseCompression",
    "APIServerIdentity", "APIServerTracing", "APIServingWithRoutine", "AggregatedDiscoveryRemoveBetaType",
    "AllowParsingUserUIDFromCertAuth", "AllowUnsafeMalformedObjectDeletion", "AnonymousAuthConfigurableEndpoints",
    "AuthorizeWithSelectors", "BtreeWatchCache", "CBORServingAndStorage", "ComponentFlagz", "ComponentStatusz",
    "ConcurrentWatchObjectDecode", "ConsistentListFromCache", "ConstrainedImpersonation", "CoordinatedLeaderElection",
    "DeclarativeValidation", "DeclarativeValidationBeta", "DeclarativeValidationTakeover", "DetectCacheInconsistency", "KMSv1",
    "ListFromCacheSnapshot", "ManifestBasedAdmissionControlConfig", "MutatingAdmissionPolicy", "NativeHistograms", "OpenAPIEnums",
    "RemoteRequestHeaderUID", "ResilientWatchCacheInitialization", "RetryGenerateName", "SeparateCacheWatchRPC", "ShardedListAndWatch",
    "SizeBasedListCostEstimate", "StorageVersionAPI", "StorageVersionHash", "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration",
    "StructuredAuthenticationConfigurationEgressSelector", "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation", "UnauthenticatedHTTP2DOSMitigation", "UnknownVersionInteroperabilityProxy",
    "WatchCacheInitializationPostStartHook", "WatchList",
})
# fmt: on

GatePairs: TypeAlias = tuple[tuple[str, bool], ...]


def _read_gate(pair: str) -> tuple[str, bool]:
    name, equals, text = (part.strip() for part in pair.partition("="))
    known = [*GATES, *_STAGES, *sorted(_FOREIGN_GATES)]
    if not equals:
        raise UsageError([f"{quoted(pair)} is not Name=true or Name=false"])
    if name not in known:
        meant = closest(name, known)
        hint = f"did you mean {meant}?" if meant else f"known are {', '.join(GATES)}"
        raise UsageError([f"{quoted(name)} is not a feature gate; {hint}"])
    try:
        return name, read_bool(text)
    except UsageError as malformed:
        raise UsageError(f"gate {name}: {message}" for message in malformed.messages) from None


def _read_gates(text: str) -> GatePairs:
    """The pairs of one occurrence of the flag, in order; a later pair of the same name wins."""
    pairs: list[tuple[str, bool]] = []
    mistakes: list[str] = []
    for pair in filter(None, text.split(",")):
        try:
            pairs.append(_read_gate(pair))
        except UsageError as mistake:
            mistakes.extend(mistake.messages)
    if mistakes:
        raise UsageError(mistakes)
    return tuple(pairs)


def _show_gates(pairs: GatePairs) -> str:
    return ",".join(f"{name}={show_bool(on)}" for name, on in pairs)


def _resolve_gates(named: GatePairs) -> tuple[GatePairs, list[str]]:
    """Every gate that means something here with its final value, and what to warn of."""
    asked = dict(named)
    of_stage = {_STAGES[name]: on for name, on in asked.items() if name in _STAGES}
    gates = tuple((name, asked.get(name, of_stage.get(gate.stage, gate.default))) for name, gate in GATES.items())
    return gates, list(filter(None, (_gate_warning(name) for name in asked)))


def _gate_warning(name: str) -> str:
    if name in _FOREIGN_GATES:
        return f"--feature-gates: {name} is accepted and ignored: it changes nothing in this program"
    if name == "AllBeta":
        return "--feature-gates: AllBeta changes nothing: no gate of this program is in beta"
    if name in GATES and GATES[name].stage == "GA":
        return f"--feature-gates: {name} is generally available; the gate will be removed in a future release"
    return ""


# ---- what single values must be ----------------------------------------------------------------------------------

Check = Callable[[Any], str]  # what is wrong with this value and what to do; empty if nothing


def _not_negative(value: float) -> str:
    return "must not be negative" if value < 0 else ""


def _more_than_zero(consequence: str) -> Check:
    return lambda value: "" if value > 0 else f"must be more than zero: {consequence}"


_SCHEME = "unix://"
_LONGEST_SOCKET_PATH = 107  # bytes in Linux' sockaddr_un, less the closing zero


def _socket_path(address: str) -> str:
    """The plain absolute path behind /path or unix:///path; empty for anything else."""
    path = address.removeprefix(_SCHEME)
    return path if path.startswith("/") else ""


def _socket_fault(address: str) -> str:
    path = _socket_path(address)
    if not path:
        return "the driver is reached through a unix socket on this node; write an absolute path, /csi/csi.sock or unix:///csi/csi.sock"
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_SOCKET_PATH:
        return f"the path of a unix socket has at most {_LONGEST_SOCKET_PATH} bytes; mount the folder at a shorter path"
    if "," in path:
        return "gRPC takes a path with a comma for two addresses; mount the folder, or name the socket, without one"
    return ""


def _uuid_length_fault(length: int) -> str:
    if length == 0:
        return "without any of the claim's UID all volumes would have the same name; use -1 (the whole UID) or 8 to 32"
    return "" if length == -1 or 1 <= length <= 32 else "a UID has 32 digits; use -1 (the whole UID) or 8 to 32"


# What a PV may be called up to the dash that follows the prefix; the UID behind it is always a valid end.
_NAME_PREFIX = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\.)*[a-z0-9][-a-z0-9]*")
_LONGEST_NAME = 253
_WHOLE_UID = 36


def _prefix_fault(prefix: str) -> str:
    if _NAME_PREFIX.fullmatch(prefix):
        return ""
    return "no volume could be stored under such a name; use lower-case letters, digits, '-' and '.', beginning with a letter or digit"


def _metrics_path_fault(path: str) -> str:
    if not path.startswith("/"):
        return "an HTTP path begins with '/'"
    if re.search(r"[\s?#{}]", path):
        return "an HTTP path cannot contain white space or any of ? # { }"
    return ""


def _read_format(text: str) -> str:
    if text not in ("text", "json"):
        raise UsageError([f"{quoted(text)} is not a log format; use text or json"])
    return text


RANDOM, RANKED = "random", "ranked"
IGNORE, NO_SCHEDULE, EVACUATE = "Ignore", "NoSchedule", "Evacuate"
REPORT, OVERRIDE = "Report", "Override"
VOLUME_POLICIES = ("Ignore", "Block", "AllowIdle", "Reprovision", "Migrate")


def _read_labels(text: str) -> str:
    for item in text.split(","):
        if item.count(":") != 1:
            raise UsageError([f"{quoted(item)} is not label:value"])
    return text


# ---- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that can be set: by a flag, by an environment variable that overrides it, or by such a variable alone."""

    name: str  # the flag without its dashes; for a row without a flag the environment variable
    kind: Kind
    default: Any
    group: str
    help: str
    field: str = ""  # of Config; empty if the value is of no use to anybody
    env: str = ""
    shorthand: str = ""
    ignored: bool = False  # accepted because external-provisioner takes it; `help` then says why it means nothing here
    check: Check | None = None

    @property
    def is_flag(self) -> bool:
        return self.name != self.env


FEATURE_GATES = Kind("mapStringBool", _read_gates, _show_gates, merges=True)
LOGGING_FORMAT = Kind("string", _read_format, str)
PLACEMENT = Kind("string", one_of("a placement", RANDOM, RANKED), str)
NODE_POLICY = Kind("string", one_of("a policy for nodes", IGNORE, NO_SCHEDULE, EVACUATE), str)
VOLUME_POLICY = Kind("string", one_of("a policy for volumes", *VOLUME_POLICIES, ""), str)
EXPIRY = Kind("string", one_of("what can be done at a deadline", REPORT, OVERRIDE), str)
LABELS = Kind("stringMap", _read_labels, str)
QUANTITY = Kind("quantity", str, str)
PATTERNS = Kind("pattern=N,...", str, str)

DRIVER = "Connection to the driver"
KUBERNETES = "Kubernetes API"
PROVISIONING = "Provisioning"
NODE = "Node deployment"
CAPACITY = "Capacity"
DRAIN = "Drain decisions"
OBSERVABILITY = "Observability"
PROGRAM = "This program"
ENVIRONMENT = "Environment"
MEANINGLESS = "Accepted because external-provisioner takes them; without meaning here"


def _show_url(url: str) -> str:
    """Without name and password. One that is not quoted may hold anything, so all before the last @ goes."""
    return re.sub(r"^([a-z][a-z0-9+.-]*://)?.*@", r"\1", url, flags=re.IGNORECASE | re.DOTALL)


def _setting(group: str, name: str, kind: Kind, default: Any, help: str, **more: Any) -> Row:
    return Row(name, kind, default, group, help, **{"field": name.replace("-", "_"), **more})


def _variable(name: str, help: str) -> Row:
    return Row(name, TEXT, "", ENVIRONMENT, help, field=name.lower(), env=name)


def _ignored(name: str, kind: Kind, default: Any, why: str, field: str = "") -> Row:
    return Row(name, kind, default, MEANINGLESS, why, field=field, ignored=True)


# What client-go makes of a zero.
_USUAL_QPS = 5.0
_USUAL_BURST = 10
_NO_LIMIT = -1.0
_SHORTEST_PAUSE = 0.001
_RATE = f"0 means {_USUAL_QPS:g}, a negative number means no limit."
_BURST = f"0 means {_USUAL_BURST}."
_GATE_NAMES = ", ".join(f"{name} ({gate.stage}, default {show_bool(gate.default)})" for name, gate in GATES.items())
_ELECTION = "tunes a leader election, and there is none"
_ONE_STREAM = "lines are written at once and to one stream"

# fmt: off
TABLE: tuple[Row, ...] = (
    _setting(DRIVER, "csi-address", TEXT, "/run/csi/socket", "Socket of the CSI driver: /path or unix:///path.", check=_socket_fault),
    _setting(DRIVER, "timeout", DURATION, 10.0, "Limit of every single call to the driver.",
             check=_more_than_zero("no call could ever succeed")),
    _setting(KUBERNETES, "kubeconfig", TEXT, "", "Kubeconfig file, outside a cluster. The variable KUBECONFIG overrides it.",
             env="KUBECONFIG"),
    _setting(KUBERNETES, "master", replace(TEXT, show=_show_url), "", "URL of the API server; overrides the one in the kubeconfig."),
    _setting(KUBERNETES, "kube-api-qps", FLOAT, 5.0, f"Requests per second to the API server. {_RATE}"),
    _setting(KUBERNETES, "kube-api-burst", INT, 10, f"Requests that may go out at once. {_BURST}"),
    _setting(KUBERNETES, "kube-api-capacity-qps", FLOAT32, 1.0, f"The same for CSIStorageCapacity objects alone. {_RATE}"),
    _setting(KUBERNETES, "kube-api-capacity-burst", INT, 5, f"The same for CSIStorageCapacity objects alone. {_BURST}"),
    _setting(PROVISIONING, "worker-threads", UINT, 100, "Claims, and likewise volumes to delete, that are worked on at the same time.",
             check=_more_than_zero("nobody would do any work")),
    _setting(PROVISIONING, "retry-interval-start", DURATION, 1.0, "Pause after the first failure; it doubles with each further one.",
             check=_not_negative),
    _setting(PROVISIONING, "retry-interval-max", DURATION, 300.0, "Longest pause between two attempts.",
             check=_more_than_zero("failures would be retried without pause")),
    _setting(PROVISIONING, "volume-name-prefix", TEXT, "pvc", "Volumes are named <prefix>-<UID of the claim>.", check=_prefix_fault),
    _setting(PROVISIONING, "volume-name-uuid-length", INT, -1,
             "Digits of the claim's UID in a volume's name, 1 to 32; -1 is the whole UID with its dashes.", check=_uuid_length_fault),
    _setting(PROVISIONING, "default-fstype", TEXT, "", "File system where the StorageClass names none; by default none is asked for."),
    _setting(PROVISIONING, "extra-create-metadata", BOOL, False, "Tell the driver the names of claim, namespace and volume."),
    _setting(PROVISIONING, "controller-publish-readonly", BOOL, False, "Mark volumes read-only whose claim asks for ReadOnlyMany alone."),
    _setting(PROVISIONING, "prevent-volume-mode-conversion", BOOL, True,
             "Keep a claim from changing the volume mode of the snapshot it is restored from."),
    _setting(PROVISIONING, "cloning-protection-threads", UINT, 1, "Finalizers of cloned claims that are removed at the same time."),
    _setting(PROVISIONING, "snapshot-orphan-sweep-interval", DURATION, 300.0,
             "How often to look for snapshots whose protection was left behind; 0 turns the search off."),
    _setting(PROVISIONING, "feature-gates", FEATURE_GATES, (),
             f"Name=true or Name=false, comma-separated; the flag may be repeated. Gates: {_GATE_NAMES}, {', '.join(_STAGES)}."),
    _setting(PROVISIONING, "journal-dir", TEXT, "",
             "Folder on the node in which creations under way are recorded; by default that of the driver's socket."),
    _setting(NODE, "node-deployment", BOOL, False, "Manage the volumes of this node. Required: this program does nothing else."),
    _setting(NODE, "node-deployment-immediate-binding", BOOL, True, "Also compete for claims with immediate binding."),
    _setting(NODE, "node-deployment-base-delay", DURATION, 20.0, "How long to wait at first before bidding for such a claim."),
    _setting(NODE, "node-deployment-max-delay", DURATION, 60.0, "How long to wait at most before bidding for such a claim."),
    _setting(NODE, "node-deployment-placement", PLACEMENT, RANDOM,
             "Who bids first: random (each node after a random delay) or ranked (in an order that every node knows)."),
    _setting(NODE, "strict-topology", BOOL, False, "Late binding: ask the driver for the topology of the selected node alone."),
    _setting(NODE, "immediate-topology", BOOL, True, "Has no effect on a node, which provisions only claims that have selected it."),
    _setting(CAPACITY, "enable-capacity", BOOL, False, "Publish the driver's free capacity as CSIStorageCapacity objects."),
    _setting(CAPACITY, "capacity-threads", UINT, 1, "CSIStorageCapacity objects that are worked on at the same time."),
    _setting(CAPACITY, "capacity-poll-interval", DURATION, 60.0, "How often to ask the driver for all capacities."),
    _setting(CAPACITY, "capacity-for-immediate-binding", BOOL, False, "Publish also for storage classes with immediate binding."),
    _setting(CAPACITY, "capacity-ownerref-level", INT, 1,
             "Owner of the CSIStorageCapacity objects: -1 nobody, 0 this pod, 1 its DaemonSet or StatefulSet, 2 that one's owner, ..."),
    _setting(CAPACITY, "capacity-reserve-pending", BOOL, True,
             "Publish less by what claims of this node will take that are not created yet."),
    _setting(CAPACITY, "capacity-stale-after", DURATION, 0.0,
             "Withdraw a figure that the driver has not renewed for so long; 0 keeps it, with an annotation that says since when.",
             check=_not_negative),
    _setting(DRAIN, "node-drain-policy", NODE_POLICY, IGNORE,
             "When this node is cordoned: Ignore, NoSchedule (take no new volumes) or Evacuate (that, and empty the node)."),
    _setting(DRAIN, "drain-report", BOOL, False, "Assess whether this node may be drained or retired, and report it."),
    _setting(DRAIN, "drain-publish-zero-capacity", BOOL, False,
             "While the node takes no new volumes, publish no free capacity. Keeps off pods too that tolerate the cordon."),
    _setting(DRAIN, "drain-default-policy", VOLUME_POLICY, "",
             f"For volumes of which nobody says anything else: {', '.join(VOLUME_POLICIES)}; "
             "by default AllowIdle if the node comes back, else Block."),
    _setting(DRAIN, "evacuation-deadline", DURATION, 0.0, "How long an evacuation may take; 0 is for ever.", check=_not_negative),
    _setting(DRAIN, "evacuation-expiry", EXPIRY, REPORT,
             "What happens at the deadline: Report (say so and hold the node) or Override (say so and let it go)."),
    _setting(DRAIN, "max-concurrent-evacuations", UINT, 1, "Nodes that are evacuated at the same time; 0 is no limit."),
    _setting(DRAIN, "drain-gate", BOOL, False, "Hold whoever drains this node until it may be retired. Needs --drain-report."),
    _setting(DRAIN, "drain-gate-image", TEXT, "", "Image of the guard pod, which does nothing. Required by --drain-gate."),
    _setting(DRAIN, "drain-autoscaler-annotations", BOOL, False,
             "Keep autoscalers from removing this node while it holds last copies. Needs --drain-report."),
    _setting(DRAIN, "drain-untracked-blocks", BOOL, False,
             "What the driver has here without a PersistentVolume keeps the node from being retired. Needs --drain-report."),
    _setting(OBSERVABILITY, "http-endpoint", ADDRESS, "", "host:port of /metrics, /healthz, /readyz and /debug/...; by default none."),
    _setting(OBSERVABILITY, "metrics-address", ADDRESS, "", "Deprecated name of --http-endpoint; only one of the two can be set."),
    _setting(OBSERVABILITY, "metrics-path", TEXT, "/metrics", "HTTP path of the metrics; one that ends in '/' stands for all below it."),
    _setting(OBSERVABILITY, "v", LEVEL, 0, "How much is logged: the higher, the more.", field="verbosity", shorthand="v"),
    _setting(OBSERVABILITY, "logging-format", LOGGING_FORMAT, "text", "text or json."),
    _setting(PROGRAM, "shutdown-timeout", DURATION, 25.0,
             "How long to wait, when told to stop, for what has been begun; keep it below the pod's grace period.", check=_not_negative),
    _setting(PROGRAM, "dry-run", BOOL, False, "Decide and log, but change nothing in the cluster or in the driver."),
    _setting(PROGRAM, "version", BOOL, False, "Print the version and end.", field=""),
    _setting(PROGRAM, "help", BOOL, False, "Print this and end.", field="", shorthand="h"),
    _variable("NODE_NAME", "Name of this node (spec.nodeName). Required."),
    _variable("NAMESPACE",
              "Namespace of this pod (metadata.namespace). Required by --enable-capacity, --drain-gate and --node-drain-policy."),
    _variable("POD_NAME", "Name of this pod (metadata.name). Required by --enable-capacity with --capacity-ownerref-level of 0 or more."),
    _variable("POD_NAMESPACE", "Namespace of this pod, under the name that leader election uses."),
    _ignored("leader-election", BOOL, False,
             "every node works on its own volumes; with one lease for all nodes a single one would work and the rest would starve"),
    _ignored("leader-election-labels", LABELS, "", _ELECTION),
    _ignored("leader-election-lease-duration", DURATION, 15.0, _ELECTION),
    _ignored("leader-election-namespace", TEXT, "", _ELECTION),
    _ignored("leader-election-renew-deadline", DURATION, 10.0, _ELECTION),
    _ignored("leader-election-retry-period", DURATION, 5.0, _ELECTION),
    _ignored("automaxprocs", BOOL, False, "sizes the scheduler of Go programs"),
    _ignored("enable-pprof", BOOL, False, "there is no Go profiler here; /debug/queue and /debug/decisions tell what the program is doing",
             field="enable_pprof"),
    _ignored("vmodule", PATTERNS, "", "logs are not filtered by source file; use -v", field="vmodule"),
    _ignored("log-flush-frequency", DURATION, 5.0, _ONE_STREAM),
    _ignored("log-json-info-buffer-size", QUANTITY, "", _ONE_STREAM),
    _ignored("log-json-split-stream", BOOL, False, _ONE_STREAM),
    _ignored("log-text-info-buffer-size", QUANTITY, "", _ONE_STREAM),
    _ignored("log-text-split-stream", BOOL, False, _ONE_STREAM),
    # klog's own flags, underscores and all: older releases of external-provisioner took them.
    _ignored("add_dir_header", BOOL, False, _ONE_STREAM),
    _ignored("alsologtostderr", BOOL, False, _ONE_STREAM),
    _ignored("log_backtrace_at", TEXT, "", _ONE_STREAM),
    _ignored("log_dir", TEXT, "", _ONE_STREAM),
    _ignored("log_file", TEXT, "", _ONE_STREAM),
    _ignored("log_file_max_size", UINT, 1800, _ONE_STREAM),
    _ignored("logtostderr", BOOL, True, _ONE_STREAM),
    _ignored("one_output", BOOL, False, _ONE_STREAM),
    _ignored("skip_headers", BOOL, False, _ONE_STREAM),
    _ignored("skip_log_headers", BOOL, False, _ONE_STREAM),
    _ignored("stderrthreshold", TEXT, "", _ONE_STREAM),
)
# fmt: on
FLAGS: Mapping[str, Row] = MappingProxyType({row.name: row for row in TABLE if row.is_flag})
KINDS: Mapping[str, Kind] = MappingProxyType({name: row.kind for name, row in FLAGS.items()})
SHORTHANDS: Mapping[str, str] = MappingProxyType({row.shorthand: name for name, row in FLAGS.items() if row.shorthand})


# ---- the result --------------------------------------------------------------------------------------------------


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
    cloning_protection_threads: int
    snapshot_orphan_sweep_interval: float  # 0 or less: off
    feature_gates: GatePairs
    node_deployment: bool
    node_deployment_immediate_binding: bool
    node_deployment_base_delay: float
    node_deployment_max_delay: float
    node_deployment_placement: str  # "random" or "ranked"
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
    drain_publish_zero_capacity: bool
    drain_default_policy: str  # empty: nobody has chosen one
    evacuation_deadline: float  # 0: none
    evacuation_expiry: str  # "Report" or "Override"
    max_concurrent_evacuations: int  # 0: no limit
    drain_gate: bool
    drain_gate_image: str
    drain_autoscaler_annotations: bool
    drain_untracked_blocks: bool
    http_endpoint: str
    metrics_address: str
    metrics_path: str
    verbosity: int
    logging_format: str
    shutdown_timeout: float
    dry_run: bool
    node_name: str
    namespace: str
    pod_name: str
    pod_namespace: str
    enable_pprof: bool
    vmodule: str
    # Gates that somebody asked for by name: VolumeAttributesClass gives way to a cluster without that API only if nobody did.
    gates_named: frozenset[str] = frozenset()
    # Flag name (environment variable for values that have no flag) → "default", "flag" or "env NAME".
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on; KeyError for a gate that means nothing here."""
        return dict(self.feature_gates)[name]

    def without_gate(self, name: str) -> "Config":
        return replace(self, feature_gates=tuple((gate, on and gate != name) for gate, on in self.feature_gates))

    @property
    def http_address(self) -> str:
        """Where to serve metrics and health; empty for nowhere."""
        return self.http_endpoint or self.metrics_address

    @property
    def http_listen(self) -> tuple[str, int] | None:
        """The same as host (empty: every interface) and port."""
        return split_address(self.http_address) if self.http_address else None

    def effective(self) -> list[tuple[str, str, str]]:
        """Name, value as text and origin of everything that has a value, in the order of the help; no value is a secret."""
        rows = (row for row in TABLE if row.field)
        return [(row.name, row.kind.show(getattr(self, row.field)), self.origins.get(row.name, "default")) for row in rows]


@dataclass(frozen=True, slots=True)
class Parsed:
    config: Config
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowHelp:
    """--help or -h: print help_text() and end with 0. As with pflag, what stands behind it is not looked at."""


@dataclass(frozen=True, slots=True)
class ShowVersion:
    """--version: print name and version and end with 0, whatever the rest of the configuration is worth."""


# ---- reading -----------------------------------------------------------------------------------------------------


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Parsed | ShowHelp | ShowVersion:
    """Read the words behind the program's name, and the environment."""
    line = scan(argv, KINDS, SHORTHANDS)
    values, warnings, mistakes = _read_given(line.given)
    if line.mistakes or mistakes:
        raise UsageError([*line.mistakes, *mistakes])
    if line.help:
        return ShowHelp()
    if values.get("version"):
        return ShowVersion()
    warnings += [f"{quoted(word)}: ignored, this program takes no arguments besides flags" for word in line.positional]
    origins = {row.name: "flag" if row.name in values else "default" for row in TABLE if row.field}
    warnings += _read_environment(environ, values, origins)
    by_field = {row.field: values.get(row.name, row.default) for row in TABLE if row.field}
    faults = list(chain.from_iterable(_faults_of(row, by_field[row.field]) for row in TABLE if row.field))
    warnings += _settle(by_field)
    gates_named = frozenset(name for name, _ in values.get("feature-gates", ()))
    config = Config(**by_field, gates_named=gates_named, origins=MappingProxyType(origins))
    faults += _contradictions(config)
    if faults:
        raise Refused(faults)
    return Parsed(config, tuple(warnings))


def _read_given(given: Iterable[Given]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Values by flag name (the last occurrence wins), warnings (one for each flag that means nothing), and mistakes."""
    values: dict[str, Any] = {}
    warnings: dict[str, str] = {}
    mistakes: list[str] = []
    for one in given:
        flag, row = one.flag, FLAGS[one.flag]
        malformed: tuple[str, ...] = ()
        try:
            value = row.kind.read(one.text)
            values[flag] = values.get(flag, ()) + value if row.kind.merges else value
        except UsageError as mistake:
            malformed = mistake.messages
        if row.ignored:
            # A value that nobody uses may be nonsense: refusing to start over it would help nobody.
            warnings[flag] = f"{_spelled(row)}: accepted and ignored: {'; '.join([row.help, *malformed])}"
        else:
            mistakes += [f"{_spelled(row)}: {message}" for message in malformed]
    if values.get("metrics-address"):
        warnings["metrics-address"] = "--metrics-address: deprecated, use --http-endpoint"
    return values, list(warnings.values()), mistakes


def _read_environment(environ: Mapping[str, str], values: dict[str, Any], origins: dict[str, str]) -> list[str]:
    """Put in what the environment sets; an empty variable counts as unset."""
    warnings = []
    for row in TABLE:
        text = environ.get(row.env, "") if row.env else ""
        if not text:
            continue
        if values.get(row.name, text) != text:
            warnings.append(f"--{row.name}={values[row.name]}: overridden by the environment variable {row.env}={text}")
        values[row.name] = text
        origins[row.name] = f"env {row.env}"
    return warnings


def _spelled(row: Row) -> str:
    return f"-{row.shorthand}" if row.shorthand else f"--{row.name}"


# ---- what cannot work, and what is settled with a warning --------------------------------------------------------


def _faults_of(row: Row, value: Any) -> list[str]:
    fault = row.check(value) if row.check else ""
    return [f"--{row.name}={row.kind.show(value)}: {fault}"] if fault else []


def _settle(values: dict[str, Any]) -> list[str]:
    """Bring values into the form in which they are used, as upstream's libraries would; say so where it may surprise."""
    warnings: list[str] = []
    values["csi_address"] = _socket_path(values["csi_address"]) or values["csi_address"]
    values["feature_gates"], gate_warnings = _resolve_gates(values["feature_gates"])
    warnings += gate_warnings
    for client in ("kube_api", "kube_api_capacity"):
        qps = values[f"{client}_qps"] or _USUAL_QPS
        values[f"{client}_qps"] = _NO_LIMIT if qps == float("inf") else qps
        values[f"{client}_burst"] = values[f"{client}_burst"] or _USUAL_BURST
    if not values["enable_capacity"]:
        values["kube_api_capacity_burst"] = max(1, values["kube_api_capacity_burst"])  # of a client that nobody uses
    if values["retry_interval_start"] == 0:
        warnings.append(f"{_assignment('retry_interval_start', values)}: taken as {show_duration(_SHORTEST_PAUSE)}, which doubles")
        values["retry_interval_start"] = _SHORTEST_PAUSE
    if values["cloning_protection_threads"] == 0:
        warnings.append(f"{_assignment('cloning_protection_threads', values)}: taken as 1, or cloned claims could never be deleted")
        values["cloning_protection_threads"] = 1
    for delay in ("node_deployment_base_delay", "node_deployment_max_delay"):
        if values[delay] < 0:
            warnings.append(f"{_assignment(delay, values)}: taken as 0")
            values[delay] = 0.0
    for first, limit, what in (
        ("retry_interval_start", "retry_interval_max", "every retry waits"),
        ("node_deployment_base_delay", "node_deployment_max_delay", "every bid waits at most"),
    ):
        if values[first] > values[limit]:
            warnings.append(f"{_assignment(limit, values)}: below {_assignment(first, values)}; {what} {show_duration(values[limit])}")
            values[first] = values[limit]
    if 1 <= values["volume_name_uuid_length"] < 8:
        warnings.append(f"{_assignment('volume_name_uuid_length', values)}: so few digits may give two claims the same name; use 8 or more")
    if values["capacity_ownerref_level"] < -1:
        warnings.append(f"{_assignment('capacity_ownerref_level', values)}: taken as -1, the objects get no owner")
        values["capacity_ownerref_level"] = -1
    return warnings + list(_idle_drain_flags(values))


def _idle_drain_flags(values: Mapping[str, Any]) -> Iterator[str]:
    if values["node_drain_policy"] == EVACUATE and not values["drain_report"]:
        yield f"{_assignment('node_drain_policy', values)}: works as {NO_SCHEDULE}, for nothing is evacuated without --drain-report; add it"
    if values["evacuation_expiry"] == OVERRIDE and not values["evacuation_deadline"]:
        yield f"{_assignment('evacuation_expiry', values)}: has no effect without a deadline; set --evacuation-deadline"


def _assignment(name: str, values: Mapping[str, Any]) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}={FLAGS[flag].kind.show(values[name])}"


def _contradictions(config: Config) -> Iterator[str]:
    """What no single value shows: faults of values that need each other, or exclude each other."""
    if not config.node_deployment:
        yield (
            "--node-deployment is missing: this program manages the volumes of one node and has no central mode; add the flag and run "
            "it beside the driver on every node, or run external-provisioner where one instance is to serve the whole cluster"
        )
    if not config.node_name:
        yield (
            "NODE_NAME is not set: --node-deployment needs it, for without the name of its node the program cannot tell which claims "
            "are its own; set it in the pod's env from fieldRef spec.nodeName"
        )
    if config.metrics_address and config.http_endpoint:
        yield "--metrics-address and --http-endpoint are both set, but there is one server; keep --http-endpoint"
    if config.http_address and (fault := _metrics_path_fault(config.metrics_path)):
        yield f"--metrics-path={config.metrics_path}: {fault}"
    yield from _burst_faults("kube-api-burst", config.kube_api_qps, config.kube_api_burst)
    if config.enable_capacity:
        yield from _burst_faults("kube-api-capacity-burst", config.kube_api_capacity_qps, config.kube_api_capacity_burst)
        yield from _capacity_faults(config)
    yield from _drain_faults(config)
    uid_length = _WHOLE_UID if config.volume_name_uuid_length == -1 else config.volume_name_uuid_length
    if len(config.volume_name_prefix) + 1 + uid_length > _LONGEST_NAME:
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
            "NAMESPACE is not set: --enable-capacity needs it, for CSIStorageCapacity objects live in a namespace; set it in the pod's "
            "env from fieldRef metadata.namespace"
        )
    if config.capacity_ownerref_level >= 0 and not config.pod_name:
        yield (
            f"POD_NAME is not set: --enable-capacity with --capacity-ownerref-level={config.capacity_ownerref_level} finds the owner "
            "through the pod; set it in the pod's env from fieldRef metadata.name, or use --capacity-ownerref-level=-1"
        )


def _drain_faults(config: Config) -> Iterator[str]:
    if config.drain_gate and not config.drain_report:
        yield "--drain-gate needs --drain-report: without an assessment nobody could say when the gate may open; add it"
    if config.drain_autoscaler_annotations and not config.drain_report:
        yield "--drain-autoscaler-annotations needs --drain-report: without an assessment nobody knows of last copies; add it"
    if config.drain_untracked_blocks and not config.drain_report:
        yield "--drain-untracked-blocks needs --drain-report: without an assessment nothing is blocked; add it"
    if config.drain_gate and not config.drain_gate_image:
        yield "--drain-gate-image is not set: --drain-gate needs it, for the gate is a pod; name an image that does nothing, such as pause"
    if config.namespace:
        return
    where = "set it in the pod's env from fieldRef metadata.namespace"
    if config.drain_gate:
        yield f"NAMESPACE is not set: --drain-gate needs it, for guard pods live in a namespace; {where}"
    # With NoSchedule too: the taint starts an evacuation.
    if config.node_drain_policy != IGNORE and config.max_concurrent_evacuations > 0:
        yield (
            f"NAMESPACE is not set: --node-drain-policy={config.node_drain_policy} needs it, for nodes that are evacuated take turns by "
            f"leases, which live in a namespace; {where}, or use --max-concurrent-evacuations=0"
        )


# ---- help --------------------------------------------------------------------------------------------------------

_HELP_WIDTH = 120
_HELP_COLUMN = 44


def help_text(program: str) -> str:
    """All flags in groups, each with its type and default in pflag's manner."""
    groups: dict[str, list[str]] = {}
    for row in TABLE:
        groups.setdefault(row.group, []).append(_help_entry(row))
    sections = ("\n".join([f"{group}:", *entries]) for group, entries in groups.items())
    return "\n\n".join([f"Usage: {program} --node-deployment [flags]", *sections]) + "\n"


def _help_entry(row: Row) -> str:
    dashes = f"  -{row.shorthand}, --" if row.shorthand else "      --" if row.is_flag else "      "
    names = f"{dashes}{row.name} {row.kind.name if row.is_flag else ''}".rstrip()
    shown = row.kind.show(row.default)
    if row.kind.name == "string":
        shown = quoted(shown)
    default = f" (default\N{NO-BREAK SPACE}{shown})" if row.default else ""
    text = wrap(row.help + default, _HELP_WIDTH - _HELP_COLUMN, break_on_hyphens=False)
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in text]
    if len(names) + 2 > _HELP_COLUMN:
        lines.insert(0, "")
    return "\n".join((names if index == 0 else "").ljust(_HELP_COLUMN if text else 0) + text for index, text in enumerate(lines))
