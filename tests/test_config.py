"""Every flag upstream has, every fault alone and all together, where each value came from, and what is only warned about."""

import ast
import dataclasses
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import config, flags
from sidecar.config import FLAGS, TABLE, Config, Parsed, Refused, ShowHelp, ShowVersion, UsageError, help_text, parse
from sidecar.drain.words import Policy

NODE = {"NODE_NAME": "node-1"}
POD = {"NODE_NAME": "node-1", "NAMESPACE": "storage", "POD_NAME": "plugin-x"}


def parsed(*argv: str, environ=NODE) -> Parsed:
    result = parse(["--node-deployment", *argv], environ)
    assert isinstance(result, Parsed)
    return result


def faults(*argv: str, environ=NODE) -> tuple[str, ...]:
    with pytest.raises(Refused) as refused:
        parse(argv, environ)
    assert refused.value.exit_code == 1
    return refused.value.faults


def mistakes(*argv: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as malformed:
        parse(["--node-deployment", *argv], NODE)
    assert malformed.value.exit_code == 2
    return malformed.value.messages


# ---- the table ----

# Name, type and default of all flags of external-provisioner v6.3.0, as its --help lists them.
UPSTREAM = """
automaxprocs - false
capacity-for-immediate-binding - false
capacity-ownerref-level int 1
capacity-poll-interval duration 1m0s
capacity-threads uint 1
cloning-protection-threads uint 1
controller-publish-readonly - false
csi-address string /run/csi/socket
default-fstype string
enable-capacity - false
enable-pprof - false
extra-create-metadata - false
feature-gates mapStringBool
http-endpoint string
immediate-topology - true
kube-api-burst int 10
kube-api-capacity-burst int 5
kube-api-capacity-qps float32 1
kube-api-qps float 5
kubeconfig string
leader-election - false
leader-election-labels stringMap
leader-election-lease-duration duration 15s
leader-election-namespace string
leader-election-renew-deadline duration 10s
leader-election-retry-period duration 5s
log-flush-frequency duration 5s
log-json-info-buffer-size quantity
log-json-split-stream - false
log-text-info-buffer-size quantity
log-text-split-stream - false
logging-format string text
master string
metrics-address string
metrics-path string /metrics
node-deployment - false
node-deployment-base-delay duration 20s
node-deployment-immediate-binding - true
node-deployment-max-delay duration 1m0s
prevent-volume-mode-conversion - true
retry-interval-max duration 5m0s
retry-interval-start duration 1s
snapshot-orphan-sweep-interval duration 5m0s
strict-topology - false
timeout duration 10s
v Level 0
version - false
vmodule pattern=N,...
volume-name-prefix string pvc
volume-name-uuid-length int -1
worker-threads uint 100
""".strip().splitlines()

# What its logging library took in older releases.
KLOG = {
    "add_dir_header", "alsologtostderr", "log_backtrace_at", "log_dir", "log_file", "log_file_max_size", "logtostderr", "one_output",
    "skip_headers", "skip_log_headers", "stderrthreshold",
}  # fmt: skip


@pytest.mark.parametrize("line", UPSTREAM, ids=lambda line: line.split()[0])
def test_upstreams_flags_are_all_there_with_their_types_and_defaults(line):
    name, kind, default = (*line.split(), "")[:3]
    row = FLAGS[name]
    assert (row.kind.name or "-", row.kind.show(row.default)) == (kind, default)


def test_flags_of_our_own_are_few():
    upstream = {line.split()[0] for line in UPSTREAM}
    assert set(FLAGS) - upstream - KLOG == {
        "help",
        "shutdown-timeout",
        "dry-run",
        "capacity-reserve-pending",
        "capacity-stale-after",
        "node-deployment-placement",
        "journal-dir",
        "node-drain-policy",
        "drain-report",
        "drain-publish-zero-capacity",
        "drain-default-policy",
        "evacuation-deadline",
        "evacuation-expiry",
        "max-concurrent-evacuations",
        "drain-gate",
        "drain-gate-image",
        "drain-autoscaler-annotations",
        "drain-untracked-blocks",
    }


def test_table_and_config_have_the_same_fields():
    fields = {field.name for field in dataclasses.fields(Config)} - {"origins", "gates_named"}
    assert {row.field for row in TABLE if row.field} == fields
    assert len([row for row in TABLE if row.field]) == len(fields)


def test_defaults_pass_their_own_checks():
    assert not [row.name for row in TABLE if row.check and row.check(row.default)]
    assert parsed().warnings == ()


SAMPLES = {"": "true", "string": "/x", "int": "1", "uint": "3", "float": "2.5", "float32": "2.5", "Level": "4", "duration": "30s"} | {
    "mapStringBool": "Topology=true", "stringMap": "a:b", "quantity": "1Ki", "pattern=N,...": "a=1"
}  # fmt: skip
SPECIAL = {
    "http-endpoint": ":1",
    "metrics-address": ":1",
    "logging-format": "json",
    "node-deployment-placement": "ranked",
    "volume-name-prefix": "vol",
    "volume-name-uuid-length": "8",
    "node-drain-policy": "Evacuate",
    "drain-default-policy": "AllowIdle",
    "evacuation-expiry": "Override",
}
NEEDS = {
    "drain-gate": ["--drain-report", "--drain-gate-image=pause"],
    "drain-autoscaler-annotations": ["--drain-report"],
    "drain-untracked-blocks": ["--drain-report"],
    "node-drain-policy": ["--drain-report"],
    "evacuation-expiry": ["--evacuation-deadline=10m"],
}


@pytest.mark.parametrize("name", sorted(set(FLAGS) - {"help", "version"}))
def test_each_flag_alone_starts_the_program_and_warns_only_if_it_is_ignored_or_deprecated(name):
    row = FLAGS[name]
    result = parsed(f"--{name}={SPECIAL.get(name, SAMPLES[row.kind.name])}", *NEEDS.get(name, []), environ=POD)
    about_it = [warning for warning in result.warnings if re.match(rf"--?{name}\b", warning)]
    assert len(about_it) == (row.ignored or name in ("metrics-address", "feature-gates"))
    assert result.warnings == tuple(about_it)
    if row.field:
        assert result.config.origins[name] == "flag"


def test_ignored_flags_warn_once_and_say_why():
    (warning,) = parsed("--leader-election", "--leader-election=true").warnings
    assert warning.startswith("--leader-election: accepted and ignored: every node works")


@pytest.mark.parametrize(
    "argument", ["--leader-election=perhaps", "--leader-election-labels=a", "--log-flush-frequency=5", "--log_file_max_size=-1"]
)
def test_a_malformed_value_of_an_ignored_flag_is_part_of_its_warning(argument):
    (warning,) = parsed(argument).warnings
    assert "accepted and ignored" in warning
    assert f'"{argument.partition("=")[2]}" is not' in warning


def test_an_ignored_flag_without_its_value_is_still_a_mistake():
    assert mistakes("--leader-election-namespace") == (
        "--leader-election-namespace: a value is missing; write --leader-election-namespace=<string>",
    )


# ---- values ----


def test_arguments_of_the_hostpath_manifest_are_accepted_as_they_are():
    words = (
        "-v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true --enable-capacity --capacity-ownerref-level=0 "
        "--node-deployment=true --strict-topology=true --immediate-topology=false --worker-threads=5"
    )
    result = parse(words.split(), POD)
    assert isinstance(result, Parsed)
    told = result.config
    assert (told.verbosity, told.csi_address, told.worker_threads, told.capacity_ownerref_level) == (5, "/csi/csi.sock", 5, 0)
    assert (told.enable_capacity, told.node_deployment, told.strict_topology, told.immediate_topology) == (True, True, True, False)
    assert (told.node_name, told.namespace, told.pod_name) == ("node-1", "storage", "plugin-x")
    assert told.gate("Topology")
    assert result.warnings == ("--feature-gates: Topology is generally available; the gate will be removed in a future release",)


def test_the_last_occurrence_wins():
    assert parsed("--timeout=1s", "--timeout", "2s", "--strict-topology", "--strict-topology=false").config.timeout == 2.0
    assert parsed("--strict-topology", "--strict-topology=false").config.strict_topology is False


def test_words_besides_flags_are_warned_about_one_by_one():
    assert [warning.split(":")[0] for warning in parsed("stray", "--", "--timeout=5s").warnings] == ['"stray"', '"--timeout=5s"']


@pytest.mark.parametrize(
    "argument",
    [
        "--timeout=10",
        "--timeout=1d",
        "--worker-threads=-1",
        "--capacity-ownerref-level=one",
        "--v=-1",
        "--strict-topology=yes",
        "--kube-api-qps=nan",
        "--logging-format=xml",
        "--http-endpoint=8080",
        "--metrics-address=:x",
        "--version=maybe",
        "--node-deployment-placement=first",
        "--node-drain-policy=noschedule",
        "--drain-default-policy=Evacuate",
        "--evacuation-expiry=",
        "--max-concurrent-evacuations=-1",
    ],
)
def test_malformed_values_name_their_flag(argument):
    (mistake,) = mistakes(argument)
    flag, _, text = argument.partition("=")
    assert mistake.startswith(f"{flag}: " if flag != "--v" else "-v: ")
    assert f'"{text}" is not' in mistake


def test_all_mistakes_at_once_and_before_any_fault():
    found = mistakes(
        "--tiemout=5s", "--retry-interval-max=1", "--feature-gates=Topologie=true,Topology=si", "--timeout=0s", "-csi-address=/x"
    )
    assert len(found) == 5
    assert "did you mean --timeout?" in found[0]
    assert "did you mean --csi-address?" in found[1]
    assert {one.partition(":")[0] for one in found[2:]} == {"--retry-interval-max", "--feature-gates"}


FREE = [row for row in TABLE if row.field and row.is_flag and row.kind in (flags.BOOL, flags.DURATION, flags.UINT, flags.TEXT, flags.LEVEL)]
VALUES = {
    "": st.sampled_from([("true", True), ("false", False), ("T", True), ("0", False)]),
    "duration": st.integers(1, 10**13).map(lambda ns: (flags.show_duration(ns / 10**9), ns / 10**9)),
    "uint": st.integers(1, 2**64 - 1).map(lambda number: (str(number), number)),
    "Level": st.integers(0, 2**31 - 1).map(lambda number: (str(number), number)),
    "string": st.from_regex(r"/x[a-z]{0,20}", fullmatch=True).map(lambda text: (text, text)),
}


@given(st.data())
def test_any_line_of_known_flags_reads_back(data):
    untouched = {"volume-name-prefix", "retry-interval-start", "node-deployment-base-delay"}
    untouched |= {
        "node-deployment",
        "enable-capacity",
        "drain-gate",
        "drain-autoscaler-annotations",
        "drain-untracked-blocks",
    }  # need others
    rows = data.draw(st.lists(st.sampled_from([row for row in FREE if row.name not in untouched]), unique_by=lambda row: row.name))
    argv: list[str] = []
    wanted = {}
    for row in rows:
        text, wanted[row.field] = data.draw(VALUES[row.kind.name])
        two_words = row.kind.bare is None and data.draw(st.booleans())
        argv += [f"--{row.name}", text] if two_words else [f"--{row.name}={text}"]
    told = parsed(*argv).config
    # The only values that change each other are the two pairs of a start and its limit, whose starts keep their defaults here.
    assert {name: getattr(told, name) for name in wanted} == wanted
    assert {name for name, origin in told.origins.items() if origin == "flag"} == {row.name for row in rows} | {"node-deployment"}


@given(st.lists(st.sampled_from([f"--{name}{rest}" for name in FLAGS for rest in ("", "=", "=1", "=x", "=-1s")]) | st.text(max_size=5)))
def test_any_line_at_all_is_read_or_refused_in_words(argv):
    try:
        result = parse(argv, POD)
    except (UsageError, Refused) as refused:
        assert str(refused)
    else:
        assert isinstance(result, Parsed | ShowHelp | ShowVersion)


# ---- what cannot work ----

UNWORKABLE = [
    ("--metrics-address=:1 --http-endpoint=:2", "--metrics-address and --http-endpoint are both set"),
    ("--enable-capacity --capacity-ownerref-level=-1", "NAMESPACE is not set: --enable-capacity needs it"),
    ("--timeout=0s", "--timeout=0s: must be more than zero"),
    ("--timeout=-1s", "--timeout=-1s: must be more than zero"),
    ("--retry-interval-start=-1s", "--retry-interval-start=-1s: must not be negative"),
    ("--retry-interval-max=0", "--retry-interval-max=0s: must be more than zero"),
    ("--retry-interval-max=-1s", "--retry-interval-max=-1s: must be more than zero"),
    ("--shutdown-timeout=-1s", "--shutdown-timeout=-1s: must not be negative"),
    ("--worker-threads=0", "--worker-threads=0: must be more than zero"),
    ("--volume-name-uuid-length=0", "--volume-name-uuid-length=0: without any of the claim's UID"),
    ("--volume-name-uuid-length=33", "--volume-name-uuid-length=33: a UID has 32 digits"),
    ("--volume-name-uuid-length=-2", "--volume-name-uuid-length=-2: a UID has 32 digits"),
    ("--volume-name-prefix=", "--volume-name-prefix=: no volume could be stored"),
    ("--volume-name-prefix=Vol_1", "--volume-name-prefix=Vol_1: no volume could be stored"),
    (f"--volume-name-prefix={'a' * 217}", f"--volume-name-prefix={'a' * 217}: with the UID of the claim"),
    ("--csi-address=csi.sock", "--csi-address=csi.sock: the driver is reached through a unix socket"),
    (f"--csi-address=/{'a' * 107}", f"--csi-address=/{'a' * 107}: the path of a unix socket has at most 107 bytes"),
    ("--kube-api-burst=-1", "--kube-api-burst=-1: no request could ever be sent"),
    ("--csi-address=/a,b/csi.sock", "--csi-address=/a,b/csi.sock: gRPC takes a path with a comma for two addresses"),
    ("--evacuation-deadline=-1s", "--evacuation-deadline=-1s: must not be negative"),
    ("--drain-autoscaler-annotations", "--drain-autoscaler-annotations needs --drain-report"),
    ("--drain-untracked-blocks", "--drain-untracked-blocks needs --drain-report"),
    ("--node-drain-policy=Evacuate", "NAMESPACE is not set: --node-drain-policy=Evacuate needs it"),
    ("--node-drain-policy=NoSchedule", "NAMESPACE is not set: --node-drain-policy=NoSchedule needs it"),
    ("--http-endpoint=:1 --metrics-path=metrics", "--metrics-path=metrics: an HTTP path begins with '/'"),
    ("--metrics-address=:1 --metrics-path=/m?x", "--metrics-path=/m?x: an HTTP path cannot contain"),
]


@pytest.mark.parametrize(("arguments", "fault"), UNWORKABLE, ids=[arguments[:60] for arguments, _ in UNWORKABLE])
def test_each_fault_alone(arguments, fault):
    (found,) = faults("--node-deployment", *arguments.split())
    assert found.startswith(fault)


def test_a_gate_needs_what_tells_when_it_opens_and_what_it_is_made_of():
    found = faults("--node-deployment", "--drain-gate", environ=POD)
    assert [fault.partition(":")[0] for fault in found] == ["--drain-gate needs --drain-report", "--drain-gate-image is not set"]
    gate = ("--drain-gate", "--drain-report", "--drain-gate-image=pause")
    (fault,) = faults("--node-deployment", *gate)
    assert fault.startswith("NAMESPACE is not set: --drain-gate needs it")
    assert parsed(*gate, environ=POD).config.drain_gate


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("--capacity-threads=0", "must be more than zero"),
        ("--capacity-poll-interval=0s", "must be more than zero"),
        ("--capacity-poll-interval=-1m0s", "must be more than zero"),
        ("--kube-api-capacity-burst=-1", "no request could ever be sent"),
    ],
)
def test_what_would_keep_capacity_from_being_published_matters_only_where_it_is(argument, why):
    (fault,) = faults("--node-deployment", "--enable-capacity", argument, environ=POD)
    assert fault.startswith(f"{argument}: {why}")
    assert parsed(argument).warnings == ()


def test_a_client_that_nobody_uses_can_be_made():
    assert parsed("--kube-api-capacity-burst=-3").config.kube_api_capacity_burst == 1
    assert parsed("--kube-api-capacity-burst=7").config.kube_api_capacity_burst == 7


@pytest.mark.parametrize("path", ["metrics", "", "/m?x"])
def test_where_nothing_is_served_the_path_of_the_metrics_may_be_anything(path):
    assert parsed(f"--metrics-path={path}").warnings == ()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/debug", "/debug/queue", "/debug/metrics", "/debug/pprof", "/metrics/"])
def test_the_metrics_may_be_served_anywhere(path):
    assert parsed(f"--metrics-path={path}", "--http-endpoint=:1").config.metrics_path == path


def test_a_drop_in_decides_nothing_about_drains():
    told = parsed().config
    assert (told.node_drain_policy, told.drain_report, told.drain_gate, told.drain_autoscaler_annotations) == (
        "Ignore",
        False,
        False,
        False,
    )
    assert (told.drain_default_policy, told.evacuation_deadline, told.evacuation_expiry) == ("", 0.0, "Report")
    assert (told.drain_publish_zero_capacity, told.max_concurrent_evacuations, told.drain_untracked_blocks) == (False, 1, False)


def test_without_a_limit_evacuations_need_no_namespace():
    assert parsed("--node-drain-policy=Evacuate", "--max-concurrent-evacuations=0").config.node_drain_policy == "Evacuate"


def test_the_policies_are_those_that_drain_decisions_know():
    assert set(config.VOLUME_POLICIES) == set(Policy)
    assert parsed("--drain-default-policy=").config.drain_default_policy == ""
    (mistake,) = mistakes("--drain-default-policy=Never")
    assert mistake.endswith("use Ignore, Block, AllowIdle, Reprovision, Migrate or nothing")


def test_without_node_deployment_the_program_says_what_it_is_and_what_to_run_instead():
    for argv in ([], ["--node-deployment=false"]):
        (fault,) = faults(*argv)
        assert fault.startswith("--node-deployment is missing")
        assert "no central mode" in fault
        assert "run external-provisioner" in fault


@pytest.mark.parametrize("environ", [{}, {"NODE_NAME": ""}])
def test_without_the_name_of_the_node(environ):
    (fault,) = faults("--node-deployment", environ=environ)
    assert fault.startswith("NODE_NAME is not set")


def test_a_missing_pod_name_matters_only_where_the_pod_leads_to_the_owner():
    environ = {"NODE_NAME": "n", "NAMESPACE": "storage"}
    for level in ("0", "1", "2"):
        (fault,) = faults("--node-deployment", "--enable-capacity", f"--capacity-ownerref-level={level}", environ=environ)
        assert fault.startswith(f"POD_NAME is not set: --enable-capacity with --capacity-ownerref-level={level}")
    assert parsed("--enable-capacity", "--capacity-ownerref-level=-1", environ=environ).config.enable_capacity
    assert parsed("--capacity-ownerref-level=1").config.pod_name == ""


def test_all_faults_at_once():
    everything = (
        "--metrics-address=:1 --http-endpoint=:2 --enable-capacity --timeout=0 --retry-interval-start=-1s --retry-interval-max=-1s "
        "--capacity-poll-interval=0 "
        "--shutdown-timeout=-1s --worker-threads=0 --capacity-threads=0 --drain-autoscaler-annotations --volume-name-uuid-length=40 "
        "--volume-name-prefix= --csi-address=dns:///x --kube-api-burst=-1 --kube-api-capacity-burst=-1 --metrics-path=m"
    )
    found = faults(*everything.split(), environ={})
    assert len(found) == 19
    assert len({fault.split("=")[0].split(" ")[0] for fault in found}) == 19


@pytest.mark.parametrize(
    "argument",
    [
        "--node-deployment-base-delay=0",
        "--node-deployment-max-delay=0",
        "--snapshot-orphan-sweep-interval=0",
        "--snapshot-orphan-sweep-interval=-5m",
        "--shutdown-timeout=0",
        "--volume-name-uuid-length=32",
        "--volume-name-uuid-length=8",
        "--volume-name-prefix=a.b-",
        f"--volume-name-prefix={'a' * 216}",
        "--http-endpoint=[::1]:0",
        "--metrics-path=/",
        "--metrics-path=/debugging",
    ],
)
def test_what_is_at_the_edge_starts(argument):
    parsed(argument)


# ---- what is settled ----


@pytest.mark.parametrize("text", ["/csi/csi.sock", "unix:///csi/csi.sock"])
def test_the_socket_is_a_plain_path(text):
    assert parsed(f"--csi-address={text}").config.csi_address == "/csi/csi.sock"


@pytest.mark.parametrize("client", ["kube-api", "kube-api-capacity"])
def test_rates_follow_client_go(client):
    field = client.replace("-", "_")
    told = parsed(f"--{client}-qps=0", f"--{client}-burst=0").config
    assert (getattr(told, f"{field}_qps"), getattr(told, f"{field}_burst")) == (5.0, 10)
    told = parsed(f"--{client}-qps=-1", f"--{client}-burst=-1").config
    assert getattr(told, f"{field}_qps") < 0


@pytest.mark.parametrize("client", ["kube-api", "kube-api-capacity"])
def test_an_infinite_rate_is_none(client):
    result = parsed(f"--{client}-qps=inf", f"--{client}-burst=-1")
    assert getattr(result.config, f"{client}-qps".replace("-", "_")) == -1 and result.warnings == ()


def test_a_pause_of_nothing_is_the_shortest_one_with_a_warning():
    result = parsed("--retry-interval-start=0")
    assert result.warnings == ("--retry-interval-start=0s: taken as 1ms, which doubles",)
    assert result.config.retry_interval_start == 0.001
    assert parsed("--retry-interval-start=0", "--retry-interval-max=1us").config.retry_interval_start == 1e-6


def test_delays_below_zero_are_none_with_a_warning():
    result = parsed("--node-deployment-base-delay=-5s")
    assert result.warnings == ("--node-deployment-base-delay=-5s: taken as 0",)
    assert (result.config.node_deployment_base_delay, result.config.node_deployment_max_delay) == (0.0, 60.0)
    result = parsed("--node-deployment-max-delay=-5s")
    assert result.warnings[0] == "--node-deployment-max-delay=-5s: taken as 0"
    assert (result.config.node_deployment_base_delay, result.config.node_deployment_max_delay) == (0.0, 0.0)


def test_clones_are_looked_after_however_many_threads_there_are():
    result = parsed("--cloning-protection-threads=0")
    assert result.warnings == ("--cloning-protection-threads=0: taken as 1, or cloned claims could never be deleted",)
    assert result.config.cloning_protection_threads == 1


def test_drain_flags_that_do_nothing_alone_are_warned_about():
    result = parsed("--node-drain-policy=Evacuate", "--evacuation-expiry=Override", environ=POD)
    assert result.warnings == (
        "--node-drain-policy=Evacuate: works as NoSchedule, for nothing is evacuated without --drain-report; add it",
        "--evacuation-expiry=Override: has no effect without a deadline; set --evacuation-deadline",
    )
    assert parsed("--node-drain-policy=NoSchedule", environ=POD).warnings == ()


def test_a_limit_below_its_start_wins_with_a_warning():
    result = parsed("--retry-interval-start=10s", "--retry-interval-max=5s", "--node-deployment-max-delay=5s")
    assert result.warnings == (
        "--retry-interval-max=5s: below --retry-interval-start=10s; every retry waits 5s",
        "--node-deployment-max-delay=5s: below --node-deployment-base-delay=20s; every bid waits at most 5s",
    )
    assert (result.config.retry_interval_start, result.config.node_deployment_base_delay) == (5.0, 5.0)


def test_short_uids_are_warned_about():
    assert "may give two claims the same name" in parsed("--volume-name-uuid-length=7").warnings[0]
    assert parsed("--volume-name-uuid-length=8").warnings == ()


def test_levels_below_minus_one_are_minus_one():
    result = parsed("--capacity-ownerref-level=-3", "--enable-capacity", environ=POD)
    assert result.config.capacity_ownerref_level == -1
    assert "taken as -1" in result.warnings[0]


def test_one_listen_address_whichever_flag_gave_it():
    assert parsed().config.http_address == ""
    assert parsed().config.http_listen is None
    assert parsed("--http-endpoint=:8080").config.http_listen == ("", 8080)
    old = parsed("--metrics-address=[::1]:9090")
    assert (old.config.http_address, old.config.http_listen) == ("[::1]:9090", ("::1", 9090))
    assert old.warnings == ("--metrics-address: deprecated, use --http-endpoint",)
    assert parsed("--metrics-address=", "--http-endpoint=:1").warnings == ()
    assert parsed("--http-endpoint=localhost:http").config.http_address == "localhost:80"


# ---- feature gates ----


def gates(*argv: str) -> dict[str, bool]:
    return dict(parsed(*argv).config.feature_gates)


DEFAULT_GATES = {"Topology": True, "CrossNamespaceVolumeDataSource": False, "VolumeAttributesClass": True}


def test_gates_have_upstreams_defaults():
    assert gates() == DEFAULT_GATES
    assert parsed().config.gates_named == frozenset()


def test_repeated_gates_merge_and_the_last_pair_wins():
    argv = ("--feature-gates= Topology = F ,,CrossNamespaceVolumeDataSource=false", "--feature-gates=CrossNamespaceVolumeDataSource=true")
    assert gates(*argv) == {"Topology": False, "CrossNamespaceVolumeDataSource": True, "VolumeAttributesClass": True}
    assert parsed(*argv).config.gates_named == {"Topology", "CrossNamespaceVolumeDataSource"}


def test_all_alpha_sets_what_is_not_named_itself():
    assert gates("--feature-gates=AllAlpha=true")["CrossNamespaceVolumeDataSource"] is True
    assert gates("--feature-gates=CrossNamespaceVolumeDataSource=false,AllAlpha=true") == DEFAULT_GATES


@pytest.mark.parametrize("name", ["Topology", "VolumeAttributesClass"])
def test_settled_gates_warn(name):
    (warning,) = parsed(f"--feature-gates={name}=true").warnings
    assert f"{name} is generally available" in warning


@pytest.mark.parametrize(
    "name",
    [
        "ReleaseLeaderElectionOnExit",
        "ContextualLogging",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "WatchList",
        "KMSv1",
        "HonorPVReclaimPolicy",
    ],
)
def test_gates_that_mean_nothing_here_are_accepted_with_a_warning(name):
    result = parsed(f"--feature-gates={name}=true")
    assert f"{name} is accepted and ignored" in result.warnings[0]
    assert dict(result.config.feature_gates) == DEFAULT_GATES


def test_all_beta_has_nothing_to_set():
    assert "AllBeta changes nothing" in parsed("--feature-gates=AllBeta=true").warnings[0]


def test_unknown_gates_and_bad_values_are_all_named():
    found = mistakes("--feature-gates=topologie=true,Topology,VolumeAttributesClass=on,QQ=true")
    assert [one.removeprefix("--feature-gates: ") for one in found] == [
        '"topologie" is not a feature gate; did you mean Topology?',
        '"Topology" is not Name=true or Name=false',
        'gate VolumeAttributesClass: "on" is not a boolean; write true or false',
        '"QQ" is not a feature gate; known are CrossNamespaceVolumeDataSource, Topology, VolumeAttributesClass',
    ]


def test_asking_for_a_gate_that_does_not_exist_is_a_bug():
    with pytest.raises(KeyError):
        parsed().config.gate("Topologie")


# ---- origins ----


def test_every_value_knows_its_origin():
    told = parsed("--timeout=10s", "--kubeconfig=/a", environ=POD | {"KUBECONFIG": "/b", "POD_NAMESPACE": ""}).config
    assert told.kubeconfig == "/b"
    assert told.origins["kubeconfig"] == "env KUBECONFIG"
    assert (told.origins["timeout"], told.origins["worker-threads"]) == ("flag", "default")
    assert (told.origins["NODE_NAME"], told.origins["POD_NAMESPACE"]) == ("env NODE_NAME", "default")
    assert {row.name for row in TABLE if row.field} == set(told.origins)
    assert set(parsed("--version=false", "--leader-election").config.origins) == set(told.origins)


def test_kubeconfig_from_the_environment_wins_and_says_so():
    both = parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": "/b"})
    assert both.warnings == ("--kubeconfig=/a: overridden by the environment variable KUBECONFIG=/b",)
    assert parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": "/a"}).warnings == ()
    unset = parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": ""}).config
    assert (unset.kubeconfig, unset.origins["kubeconfig"]) == ("/a", "flag")


def test_the_effective_configuration_has_a_line_for_every_value():
    effective = parsed("--retry-interval-max=1m30s", "--kube-api-qps=0", "--feature-gates=Topology=false").config.effective()
    assert ("retry-interval-max", "1m30s", "flag") in effective
    assert ("kube-api-qps", "5", "flag") in effective
    assert ("feature-gates", "CrossNamespaceVolumeDataSource=false,Topology=false,VolumeAttributesClass=true", "flag") in effective
    assert ("strict-topology", "false", "default") in effective
    assert ("NODE_NAME", "node-1", "env NODE_NAME") in effective
    assert [name for name, _, _ in effective] == [row.name for row in TABLE if row.field]


def test_a_config_is_a_frozen_value():
    told = parsed().config
    assert told == parsed().config
    assert hash(told) == hash(parsed().config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.timeout = 1.0
    with pytest.raises(TypeError):
        told.origins["timeout"] = "flag"


# ---- help and version ----


def test_help_and_version_need_nothing_else_to_be_right():
    assert parse(["--help"], {}) == ShowHelp()
    assert parse(["-h", "--nope"], {}) == ShowHelp()
    assert parse(["--version", "--timeout=0", "--volume-name-prefix="], {}) == ShowVersion()
    assert isinstance(parsed("--version=false"), Parsed)
    assert mistakes("--nope", "--help")
    assert mistakes("--version", "--nope")


def test_help_lists_every_flag_and_variable_with_its_default_on_120_columns():
    text = help_text("csi-node-sidecar")
    assert max(map(len, text.splitlines())) <= 120
    flat = " ".join(text.split())
    for row in TABLE:
        assert (f"--{row.name} " if row.is_flag else f" {row.name} ") in flat
    assert re.search(r"--timeout duration +Limit .* \(default 10s\)", text)
    assert re.search(r'--csi-address string .* \(default "/run/csi/socket"\)', text)
    assert re.search(r"-v, --v Level ", text)
    assert re.search(r"-h, --help ", text)
    assert "(default false)" not in text


def test_help_has_its_groups_in_order():
    groups = [line.removesuffix(":") for line in help_text("x").splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups == [
        "Connection to the driver",
        "Kubernetes API",
        "Provisioning",
        "Node deployment",
        "Capacity",
        "Drain decisions",
        "Observability",
        "This program",
        "Environment",
        "Accepted because external-provisioner takes them; without meaning here",
    ]


# ---- purity ----


@pytest.mark.parametrize("module", [config, flags])
def test_neither_file_can_touch_the_world(module):
    tree = ast.parse(Path(sys.modules[module.__name__].__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    pure = {
        "collections.abc",
        "dataclasses",
        "difflib",
        "itertools",
        "re",
        "textwrap",
        "types",
        "typing",
        "sidecar.errors",
        "sidecar.flags",
    }
    assert imported <= pure
