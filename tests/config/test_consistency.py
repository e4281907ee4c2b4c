"""Every fault alone and all together, and what is settled with a warning."""

import pytest

from sidecar.config.kinds import split_address
from sidecar.config.table import DEFAULT_POLICIES, REPROVISION
from sidecar.drain.words import Policy
from tests.harness.config import POD, faults, mistakes, parsed

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
    ("--csi-address=/a,b/csi.sock", "--csi-address=/a,b/csi.sock: gRPC reads a path with a comma as two addresses"),
    ("--evacuation-deadline=-1s", "--evacuation-deadline=-1s: must not be negative"),
    ("--drain-autoscaler-annotations", "--drain-autoscaler-annotations needs --drain-report"),
    ("--node-delete-policy=Orphan", "--node-delete-policy needs --drain-report"),
    ("--node-gone-after=-1s", "--node-gone-after=-1s: must not be negative"),
    ("--evacuation-evict", "--evacuation-evict needs --drain-report"),
    ("--node-drain-policy=Evacuate", "NAMESPACE is not set: --node-drain-policy=Evacuate needs it"),
    ("--node-drain-policy=NoSchedule", "NAMESPACE is not set: --node-drain-policy=NoSchedule needs it"),
    ("--http-endpoint=:1 --metrics-path=metrics", "--metrics-path=metrics: an HTTP path begins with '/'"),
    ("--metrics-address=:1 --metrics-path=/m?x", "--metrics-path=/m?x: an HTTP path cannot contain"),
]


@pytest.mark.parametrize(("arguments", "fault"), UNWORKABLE, ids=[arguments[:60] for arguments, _ in UNWORKABLE])
def test_each_fault_alone(arguments, fault):
    (found,) = faults("--node-deployment", *arguments.split())
    assert found.startswith(fault)


def test_a_gate_needs_what_tells_when_it_opens_and_where_it_is_made():
    (fault,) = faults("--node-deployment", "--drain-gate-image=pause", environ=POD)
    assert fault.startswith("--drain-gate-image needs --drain-report")
    gate = ("--drain-report", "--drain-gate-image=pause")
    (fault,) = faults("--node-deployment", *gate)
    assert fault.startswith("NAMESPACE is not set: --drain-gate-image needs it")
    assert parsed(*gate, environ=POD).config.drain_gate_image == "pause"


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


REPORT_ONLY = ("--provisioning=false", "--drain-report")


def test_report_only_and_capacity_contradict_each_other_in_one_line():
    (fault,) = faults("--node-deployment", *REPORT_ONLY, "--enable-capacity", "--capacity-poll-interval=0s")
    assert fault.startswith("--enable-capacity contradicts --provisioning=false")


def test_report_only_reports():
    (fault,) = faults("--node-deployment", "--provisioning=false")
    assert fault.startswith("--provisioning=false needs --drain-report")
    assert parsed(*REPORT_ONLY).warnings == ()
    assert parsed().config.provisioning and not parsed(*REPORT_ONLY).config.provisioning


def test_report_only_names_in_one_line_what_has_no_effect_beside_it():
    """Such as the flags of a DaemonSet that used to provision."""
    given = (
        *("--worker-threads=5", "--extra-create-metadata", "--strict-topology=true", "--default-fstype=xfs"),
        *("--node-deployment-placement=ranked", "--watch-scope=labelled", "--capacity-ownerref-level=0", "--kube-api-capacity-qps=2"),
    )
    (warning,) = parsed(*REPORT_ONLY, *given).warnings
    text, _, named = warning.rpartition(": ")
    assert text == "--provisioning=false: without effect beside it"
    assert set(named.split(", ")) == {flag.partition("=")[0] for flag in given}
    assert parsed(*REPORT_ONLY, f"--volume-name-prefix={'a' * 217}").warnings == (f"{text}: --volume-name-prefix",)
    used = ("--retry-interval-max=2s", "--timeout=20s", "--immediate-topology=false", "--journal-dir=/j", "--kube-api-qps=9")
    assert parsed(*REPORT_ONLY, *used, "--worker-threads=100").warnings == ()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/debug", "/debug/queue", "/debug/metrics", "/debug/pprof", "/metrics/"])
def test_the_metrics_may_be_served_anywhere(path):
    assert parsed(f"--metrics-path={path}", "--http-endpoint=:1").config.metrics_path == path


def test_a_drop_in_decides_nothing_about_drains():
    told = parsed().config
    assert (told.node_drain_policy, told.drain_report, told.drain_gate_image) == ("Ignore", False, "")
    assert not told.drain_autoscaler_annotations
    assert (told.drain_default_policy, told.evacuation_deadline, told.evacuation_expiry) == ("", 0.0, "Report")
    assert (told.max_concurrent_evacuations, told.node_delete_policy, told.node_gone_after) == (1, "", 3600.0)


def test_without_a_limit_evacuations_need_no_namespace():
    assert parsed("--node-drain-policy=Evacuate", "--max-concurrent-evacuations=0").config.node_drain_policy == "Evacuate"


def test_a_default_never_deletes():
    (fault,) = faults("--node-deployment", "--drain-default-policy=Reprovision")
    assert fault.startswith("--drain-default-policy=Reprovision: a default never deletes data")


def test_replicas_are_made_anew_only_where_pods_are_evicted_and_leases_can_be_kept():
    anew = ("--node-deployment", "--drain-report", "--allow-reprovision")
    (fault,) = faults(*anew, environ=POD)
    assert fault.startswith("--allow-reprovision needs --evacuation-evict")
    (fault,) = faults(*anew, "--evacuation-evict", environ={"NODE_NAME": "n"})
    assert fault.startswith("NAMESPACE is not set: --allow-reprovision needs it")
    told = parsed(*anew, "--evacuation-evict", environ=POD).config
    assert (told.allow_reprovision, told.reprovision_pause) == (True, 1800.0)
    assert (parsed().config.allow_reprovision, parsed().config.evacuation_evict) == (False, False)


def test_the_policies_are_those_that_drain_decisions_know():
    assert {*DEFAULT_POLICIES, REPROVISION} == set(Policy)
    assert parsed("--drain-default-policy=").config.drain_default_policy == ""
    for word in ("Never", "Migrate"):
        (mistake,) = mistakes(f"--drain-default-policy={word}")
        assert mistake.endswith("use Ignore, Block, AllowIdle or nothing"), "nothing that is refused afterwards"


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


def test_maintenance_has_to_know_its_own_pod():
    flags = ("--node-deployment", "--drain-report", "--maintenance")
    for lacking in ("NAMESPACE", "POD_NAME"):
        environ = {name: "x" for name in ("NODE_NAME", "NAMESPACE", "POD_NAME") if name != lacking}
        (fault,) = faults(*flags, environ=environ)
        assert fault.startswith(f"{lacking} is not set: --maintenance needs it")


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


@pytest.mark.parametrize("text", ["/csi/csi.sock", "unix:///csi/csi.sock"])
def test_the_socket_is_a_plain_path(text):
    assert parsed(f"--csi-address={text}").config.csi_address == "/csi/csi.sock"


@pytest.mark.parametrize("client", ["kube-api", "kube-api-capacity"])
def test_rates_follow_client_go(client):
    field = client.replace("-", "_")
    told = parsed(f"--{client}-qps=0", f"--{client}-burst=0").config
    assert (getattr(told, f"{field}_qps"), getattr(told, f"{field}_burst")) == (5.0, 10)
    for rate in ("-1", "inf"):
        told = parsed(f"--{client}-qps={rate}", f"--{client}-burst=-1").config
        assert getattr(told, f"{field}_qps") == -1


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
    (warning,) = parsed("--cloning-protection-threads=0").warnings
    assert warning.startswith("--cloning-protection-threads: accepted and ignored: has no effect") and "--worker-threads" in warning


def test_drain_flags_that_do_nothing_alone_are_warned_about():
    result = parsed("--node-drain-policy=Evacuate", "--evacuation-expiry=Override", environ=POD)
    assert result.warnings == (
        "--node-drain-policy=Evacuate: works as NoSchedule, because nothing is evacuated without --drain-report; add it",
        "--evacuation-expiry=Override: has no effect without a deadline; set --evacuation-deadline",
    )
    assert parsed("--node-drain-policy=NoSchedule", environ=POD).warnings == ()


def test_a_node_that_is_never_evacuated_is_never_emptied_which_is_told():
    flags = ("--drain-report", "--evacuation-evict")
    (warning,) = parsed(*flags, environ=POD).warnings
    assert warning == (
        "--evacuation-evict: empties no node with --node-drain-policy=Ignore, but those that say otherwise; use NoSchedule or Evacuate"
    )
    assert parsed(*flags, "--node-drain-policy=NoSchedule", environ=POD).warnings == ()


@pytest.mark.parametrize(
    ("flag", "needs", "more"),
    [
        ("--reprovision-pause=1h0m0s", "--allow-reprovision", ("--evacuation-evict",)),
        ("--node-gone-after=5m0s", "--node-delete-policy=Cleanup", ("--node-delete-policy=Orphan",)),
    ],
)
def test_what_only_tunes_what_is_off_is_warned_about(flag, needs, more):
    """Somebody believes that it is on."""
    base = ("--drain-report", "--node-drain-policy=NoSchedule", *more, flag)
    assert parsed(*base, environ=POD).warnings == (f"{flag}: has no effect without {needs}",)
    assert parsed(*base, needs, environ=POD).warnings == ()


def test_what_a_gate_may_assume_is_nothing_where_the_policy_says_what_a_cordon_means():
    flags = ("--node-drain-policy=Evacuate", "--drain-report", "--drain-gate-assumes=reboot")
    (warning,) = parsed(*flags, environ=POD).warnings
    assert warning == "--drain-gate-assumes=reboot: has no effect with --node-drain-policy=Evacuate, by which a cordon means retire"
    assert parsed("--node-drain-policy=NoSchedule", *flags[1:], environ=POD).warnings == ()


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
    assert split_address(parsed("--http-endpoint=:8080").config.http_address) == ("", 8080)
    old = parsed("--metrics-address=[::1]:9090")
    assert (old.config.http_address, split_address(old.config.http_address)) == ("[::1]:9090", ("::1", 9090))
    assert old.warnings == ("--metrics-address: deprecated, use --http-endpoint",)
    assert parsed("--metrics-address=", "--http-endpoint=:1").warnings == ()
    assert parsed("--http-endpoint=localhost:http").config.http_address == "localhost:80"
