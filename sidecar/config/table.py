"""Every flag and environment variable, once: name, type, default, help, and what its value must be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sidecar.config.checks import Check, more_than_zero, not_negative, prefix_fault, socket_fault, uuid_length_fault
from sidecar.config.errors import UsageError
from sidecar.config.gates import GATES, STAGES, read_gates, show_gates
from sidecar.config.kinds import ADDRESS, BOOL, DURATION, FLOAT, FLOAT32, INT, LEVEL, TEXT, UINT, Kind, one_of, show_bool
from sidecar.config.words import quoted

RANDOM, RANKED = "random", "ranked"
ALL, LABELLED = "all", "labelled"
IGNORE, NO_SCHEDULE, EVACUATE = "Ignore", "NoSchedule", "Evacuate"
REPORT, OVERRIDE = "Report", "Override"
ORPHAN, CLEANUP = "Orphan", "Cleanup"
RETIRE, REBOOT = "retire", "reboot"
REPROVISION = "Reprovision"
OFF, OBSERVE, ACT = "Off", "Observe", "Act"
DEFAULT_POLICIES = ("Ignore", "Block", "AllowIdle")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: a flag, a flag that takes the place of an environment variable, or an environment variable alone."""

    name: str  # the flag without its dashes; for a row without a flag the environment variable
    kind: Kind
    default: Any
    group: str
    help: str
    field: str = ""  # of Config; empty if nobody reads the value
    env: str = ""
    shorthand: str = ""
    ignored: bool = False  # accepted because external-provisioner takes it; `help` then says why it has no effect here
    check: Check | None = None

    @property
    def is_flag(self) -> bool:
        return self.name != self.env


def _read_labels(text: str) -> str:
    for item in text.split(","):
        if item.count(":") != 1:
            raise UsageError([f"{quoted(item)} is not label:value"])
    return text


_DEFAULT_POLICY = one_of("a policy for volumes", *DEFAULT_POLICIES, "")


def _read_default_policy(text: str) -> str:
    """Reprovision is a policy, and refused later on, with the reason."""
    return text if text == REPROVISION else _DEFAULT_POLICY(text)


FEATURE_GATES = Kind("mapStringBool", read_gates, show_gates, merges=True)
LOGGING_FORMAT = Kind("string", one_of("a log format", "text", "json"), str)
SCOPE = Kind("string", one_of("a scope", ALL, LABELLED), str)
PLACEMENT = Kind("string", one_of("a placement", RANDOM, RANKED), str)
NODE_POLICY = Kind("string", one_of("a policy for nodes", IGNORE, NO_SCHEDULE, EVACUATE), str)
VOLUME_POLICY = Kind("string", _read_default_policy, str)
INTENT = Kind("string", one_of("what can happen to a node", RETIRE, REBOOT), str)
EXPIRY = Kind("string", one_of("what can be done at a deadline", REPORT, OVERRIDE), str)
LEFT_BEHIND = Kind("string", one_of("what can be done with what a gone node has left", ORPHAN, CLEANUP), str)
FAILOVER = Kind("string", one_of("a mode of fail-over", OFF, OBSERVE, ACT), str)
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
MEANINGLESS = "Accepted because external-provisioner takes them; without effect here"


def _show_url(url: str) -> str:
    """Without name and password: the URL is logged. An unquoted password may hold any character, so all before the last @ is cut."""
    return re.sub(r"^([a-z][a-z0-9+.-]*://)?.*@", r"\1", url, flags=re.IGNORECASE | re.DOTALL)


def _setting(group: str, name: str, kind: Kind, default: Any, help: str, **more: Any) -> Row:
    return Row(name, kind, default, group, help, **{"field": name.replace("-", "_"), **more})


def _variable(name: str, help: str) -> Row:
    return Row(name, TEXT, "", ENVIRONMENT, help, field=name.lower(), env=name)


def _ignored(name: str, kind: Kind, default: Any, why: str) -> Row:
    return Row(name, kind, default, MEANINGLESS, why, ignored=True)


# What client-go takes instead of a zero.
USUAL_QPS = 5.0
USUAL_BURST = 10
_RATE = f"0 means {USUAL_QPS:g}, a negative number means no limit."
_BURST = f"0 means {USUAL_BURST}."
_GATE_NAMES = ", ".join(f"{name} ({gate.stage}, default {show_bool(gate.default)})" for name, gate in GATES.items())
_ELECTION = "tunes leader election, which this program does not use"
_ONE_STREAM = "lines are written at once and to one stream"

# fmt: off
TABLE: tuple[Row, ...] = (
    _setting(DRIVER, "csi-address", TEXT, "/run/csi/socket", "Socket of the CSI driver: /path or unix:///path.", check=socket_fault),
    _setting(DRIVER, "timeout", DURATION, 10.0, "Limit of every single call to the driver.",
             check=more_than_zero("no call could ever succeed")),
    _setting(KUBERNETES, "kubeconfig", TEXT, "", "Kubeconfig file, outside a cluster; by default what the variable KUBECONFIG names.",
             env="KUBECONFIG"),
    _setting(KUBERNETES, "master", replace(TEXT, show=_show_url), "", "URL of the API server; overrides the one in the kubeconfig."),
    _setting(KUBERNETES, "kube-api-qps", FLOAT, 5.0, f"Requests per second to the API server. {_RATE}"),
    _setting(KUBERNETES, "kube-api-burst", INT, 10, f"Requests that may go out at once. {_BURST}"),
    _setting(KUBERNETES, "kube-api-capacity-qps", FLOAT32, 1.0, f"The same for CSIStorageCapacity objects alone. {_RATE}"),
    _setting(KUBERNETES, "kube-api-capacity-burst", INT, 5, f"The same for CSIStorageCapacity objects alone. {_BURST}"),
    _setting(PROVISIONING, "provisioning", BOOL, True,
             "Make and delete volumes of this node. false: report only, beside a driver that provisions centrally. Then --drain-report is "
             "needed, for nothing else would be done; --enable-capacity is refused, since the scheduler would count on figures that nobody "
             "publishes here; flags that only tune provisioning have no effect, and one line names them."),
    _setting(PROVISIONING, "worker-threads", UINT, 100, "Claims, and likewise volumes to delete, that are worked on at the same time.",
             check=more_than_zero("nothing would be worked on")),
    _setting(PROVISIONING, "retry-interval-start", DURATION, 1.0, "Pause after the first failure; it doubles with each further one.",
             check=not_negative),
    _setting(PROVISIONING, "retry-interval-max", DURATION, 300.0, "Longest pause between two attempts.",
             check=more_than_zero("failures would be retried without pause")),
    _setting(PROVISIONING, "volume-name-prefix", TEXT, "pvc", "Volumes are named <prefix>-<UID of the claim>.", check=prefix_fault),
    _setting(PROVISIONING, "volume-name-uuid-length", INT, -1,
             "Digits of the claim's UID in a volume's name, 1 to 32; -1 is the whole UID with its dashes.", check=uuid_length_fault),
    _setting(PROVISIONING, "default-fstype", TEXT, "", "File system where the StorageClass names none; by default none is asked for."),
    _setting(PROVISIONING, "extra-create-metadata", BOOL, False, "Tell the driver the names of claim, namespace and volume."),
    _setting(PROVISIONING, "controller-publish-readonly", BOOL, False, "Mark volumes read-only whose claim asks for ReadOnlyMany alone."),
    _setting(PROVISIONING, "prevent-volume-mode-conversion", BOOL, True,
             "Keep a claim from changing the volume mode of the snapshot it is restored from."),
    _setting(PROVISIONING, "snapshot-orphan-sweep-interval", DURATION, 300.0,
             "How often to look for snapshots whose protection was left behind; 0 turns the search off."),
    _setting(PROVISIONING, "feature-gates", FEATURE_GATES, (),
             f"Name=true or Name=false, comma-separated; the flag may be repeated. Gates: {_GATE_NAMES}, {', '.join(STAGES)}."),
    _setting(PROVISIONING, "journal-dir", TEXT, "",
             "Folder on the node for the records of creations under way; by default that of the driver's socket."),
    _setting(NODE, "node-deployment", BOOL, False, "Manage the volumes of this node. Required: this program does nothing else."),
    _setting(NODE, "node-deployment-immediate-binding", BOOL, True, "Also bid for claims with immediate binding."),
    _setting(NODE, "node-deployment-base-delay", DURATION, 20.0, "How long to wait at first before bidding for such a claim."),
    _setting(NODE, "node-deployment-max-delay", DURATION, 60.0, "How long to wait at most before bidding for such a claim."),
    _setting(NODE, "node-deployment-placement", PLACEMENT, RANDOM,
             "Who bids first: random (each node after a random delay) or ranked (in an order that every node knows)."),
    _setting(NODE, "watch-scope", SCOPE, ALL,
             "Which claims to watch: all, or those labelled as this node's or open, where an admission policy labels claims."),
    _setting(NODE, "strict-topology", BOOL, False, "Late binding: ask the driver for the topology of the selected node alone."),
    _setting(NODE, "immediate-topology", BOOL, True, "Has no effect here: a node provisions only claims that have selected it."),
    _setting(CAPACITY, "enable-capacity", BOOL, False, "Publish the driver's free capacity as CSIStorageCapacity objects."),
    _setting(CAPACITY, "capacity-threads", UINT, 1, "CSIStorageCapacity objects that are worked on at the same time."),
    _setting(CAPACITY, "capacity-poll-interval", DURATION, 60.0, "How often to ask the driver for all capacities."),
    _setting(CAPACITY, "capacity-for-immediate-binding", BOOL, False, "Publish also for storage classes with immediate binding."),
    _setting(CAPACITY, "capacity-ownerref-level", INT, 1,
             "Owner of the CSIStorageCapacity objects: -1 nobody, 0 this pod, 1 its DaemonSet or StatefulSet, 2 that one's owner, ..."),
    _setting(CAPACITY, "capacity-reserve-pending", BOOL, True,
             "Subtract from the published capacity what claims of this node will take whose volumes are not created yet."),
    _setting(CAPACITY, "capacity-stale-after", DURATION, 0.0,
             "Delete an object whose figure the driver has not renewed for so long; 0: keep it, and annotate since when it is old.",
             check=not_negative),
    _setting(DRAIN, "node-drain-policy", NODE_POLICY, IGNORE,
             "When this node is cordoned: Ignore, NoSchedule (take no new volumes) or Evacuate (that, and empty the node)."),
    _setting(DRAIN, "drain-report", BOOL, False, "Assess whether this node may be drained or retired, and report it."),
    _setting(DRAIN, "drain-default-policy", VOLUME_POLICY, "",
             f"Policy of volumes that no annotation names one for: {', '.join(DEFAULT_POLICIES)}; "
             "AllowIdle loosens a reboot only; by default AllowIdle if the node comes back, else Block."),
    _setting(DRAIN, "evacuation-deadline", DURATION, 0.0, "How long an evacuation may take; 0: as long as it needs.", check=not_negative),
    _setting(DRAIN, "evacuation-expiry", EXPIRY, REPORT,
             "At the deadline: Report (an Event, and the node stays held) or Override (an Event, and the node is let go)."),
    _setting(DRAIN, "evacuation-evict", BOOL, False,
             "While the node is evacuated to be retired, evict pods whose volumes are ephemeral or may be lost, one at a time."),
    _setting(DRAIN, "node-delete-policy", LEFT_BEHIND, "",
             "What gone nodes have left: Orphan (told) or Cleanup (cleared away if the disks do not come back); by default nobody looks."),
    _setting(DRAIN, "node-gone-after", DURATION, 3600.0, "With Cleanup: how long a node is missed until anything is cleared away.",
             check=not_negative),
    _setting(DRAIN, "allow-reprovision", BOOL, False,
             "Make replicas anew elsewhere whose policy is Reprovision: DELETES their data on this node. Needs --evacuation-evict."),
    _setting(DRAIN, "reprovision-pause", DURATION, 1800.0,
             "How long all other replicas have to be Ready until one is made anew, where no in-sync condition is named.",
             check=not_negative),
    _setting(DRAIN, "max-concurrent-evacuations", UINT, 1, "Nodes that are evacuated at the same time; 0: no limit."),
    _setting(DRAIN, "maintenance", BOOL, False,
             "Carry out on this node the PlannedMaintenances that select it: cordon, drain, and put it back. Needs --drain-report."),
    _setting(DRAIN, "guest-drain", BOOL, False,
             "Drain the Kubernetes nodes in KubeVirt's machines of this node before they are moved. Needs --maintenance."),
    _setting(DRAIN, "failover", FAILOVER, OFF,
             "Pods whose storage is lost on another node: Off, Observe (tell what would be done) or Act (on proof of exclusion, replace "
             "them and detach their volumes). Needs --drain-report."),
    _setting(DRAIN, "drain-gate-image", TEXT, "",
             "Make whoever drains this node wait until it may be retired: image of a pod that does nothing. Needs --drain-report."),
    _setting(DRAIN, "drain-gate-assumes", INTENT, RETIRE,
             "What the gate takes a drain for that nobody has announced: retire (the disks vanish) or reboot (they come back)."),
    _setting(DRAIN, "drain-autoscaler-annotations", BOOL, False,
             "Keep autoscalers from removing this node while it has the only copy of a volume. Needs --drain-report."),
    _setting(OBSERVABILITY, "http-endpoint", ADDRESS, "",
             "host:port of /metrics, /healthz and /readyz; by default none."),
    _setting(OBSERVABILITY, "metrics-address", ADDRESS, "", "Deprecated name of --http-endpoint; only one of the two can be set."),
    _setting(OBSERVABILITY, "debug-endpoint", ADDRESS, "",
             "host:port of /debug/..., for all who reach it: they name claims of all tenants. May be --http-endpoint; by default none."),
    _setting(OBSERVABILITY, "metrics-path", TEXT, "/metrics", "HTTP path of the metrics; one that ends in '/' stands for all below it."),
    _setting(OBSERVABILITY, "v", LEVEL, 0, "How much is logged: a higher number logs more.", field="verbosity", shorthand="v"),
    _setting(OBSERVABILITY, "logging-format", LOGGING_FORMAT, "text", "text or json."),
    _setting(PROGRAM, "shutdown-timeout", DURATION, 25.0,
             "How long to wait for calls in flight when told to stop; keep it below the pod's grace period.", check=not_negative),
    _setting(PROGRAM, "dry-run", BOOL, False, "Decide and log, but change nothing in the cluster or in the driver."),
    _setting(PROGRAM, "version", BOOL, False, "Print the version and end.", field=""),
    _setting(PROGRAM, "help", BOOL, False, "Print this and end.", field="", shorthand="h"),
    _variable("NODE_NAME", "Name of this node (spec.nodeName). Required."),
    _variable("NAMESPACE",
              "Namespace of this pod (metadata.namespace). Required by --enable-capacity, --drain-gate-image, --node-drain-policy, "
              "--node-delete-policy, --maintenance and --failover."),
    _variable("POD_NAME",
              "Name of this pod (metadata.name). Required by --enable-capacity with --capacity-ownerref-level of 0 or more, and by "
              "--maintenance."),
    _ignored("leader-election", BOOL, False,
             "every node works on its own volumes; with one lease for all nodes, a single node would work and all others wait"),
    _ignored("leader-election-labels", LABELS, "", _ELECTION),
    _ignored("leader-election-lease-duration", DURATION, 15.0, _ELECTION),
    _ignored("leader-election-namespace", TEXT, "", _ELECTION),
    _ignored("leader-election-renew-deadline", DURATION, 10.0, _ELECTION),
    _ignored("leader-election-retry-period", DURATION, 5.0, _ELECTION),
    _ignored("cloning-protection-threads", UINT, 1,
             "has no effect: finalizers of cloned claims are removed by the workers of --worker-threads"),
    _ignored("automaxprocs", BOOL, False, "sizes the scheduler of Go programs"),
    _ignored("enable-pprof", BOOL, False, "there is no Go profiler here; --debug-endpoint shows what the program is doing"),
    _ignored("vmodule", PATTERNS, "", "logs are not filtered by source file; use -v"),
    _ignored("log-flush-frequency", DURATION, 5.0, _ONE_STREAM),
    _ignored("log-json-info-buffer-size", QUANTITY, "", _ONE_STREAM),
    _ignored("log-json-split-stream", BOOL, False, _ONE_STREAM),
    _ignored("log-text-info-buffer-size", QUANTITY, "", _ONE_STREAM),
    _ignored("log-text-split-stream", BOOL, False, _ONE_STREAM),
    # klog's own flags, with their underscores: older releases of external-provisioner took them.
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
# What tells only how volumes are made and deleted, claims taken and capacity published.
_BESIDE_PROVISIONING = frozenset(
    {
        "provisioning",
        "retry-interval-start",
        "retry-interval-max",
        "feature-gates",
        "journal-dir",
        "node-deployment",
        "immediate-topology",
        "enable-capacity",
    }
)
_MORE_OF_PROVISIONING = frozenset({"kube-api-capacity-qps", "kube-api-capacity-burst"})
ONLY_PROVISIONING: tuple[Row, ...] = tuple(
    row
    for row in TABLE
    if row.name in _MORE_OF_PROVISIONING or (row.group in (PROVISIONING, NODE, CAPACITY) and row.name not in _BESIDE_PROVISIONING)
)
