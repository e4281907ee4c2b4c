"""Every flag upstream has, with its type and default; which are ignored; and nothing that touches the world."""

import dataclasses
import re

import pytest

from sidecar.config.config import Config
from sidecar.config.table import FLAGS, TABLE
from tests.harness.config import POD, mistakes, parsed

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


def test_upstreams_flags_are_all_there_with_their_types_and_defaults():
    for line in UPSTREAM:
        name, kind, default = (*line.split(), "")[:3]
        row = FLAGS[name]
        assert (row.kind.name or "-", row.kind.show(row.default)) == (kind, default), name


def test_table_and_config_have_the_same_fields():
    fields = {field.name for field in dataclasses.fields(Config)} - {"origins", "gates_named", "context", "request_timeout"}
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
    "debug-endpoint": ":1",
    "logging-format": "json",
    "node-deployment-placement": "ranked",
    "watch-scope": "labelled",
    "volume-name-prefix": "vol",
    "volume-name-uuid-length": "8",
    "node-drain-policy": "Evacuate",
    "drain-default-policy": "AllowIdle",
    "evacuation-expiry": "Override",
    "node-delete-policy": "Cleanup",
    "drain-gate-assumes": "reboot",
    "failover": "Observe",
}
NEEDS = {
    "drain-gate-image": ["--drain-report"],
    "drain-autoscaler-annotations": ["--drain-report"],
    "evacuation-evict": ["--drain-report", "--node-drain-policy=NoSchedule"],
    "maintenance": ["--drain-report"],
    "failover": ["--drain-report"],
    "guest-drain": ["--drain-report", "--maintenance"],
    "node-delete-policy": ["--drain-report"],
    "node-gone-after": ["--drain-report", "--node-delete-policy=Cleanup"],
    "allow-reprovision": ["--drain-report", "--node-drain-policy=NoSchedule", "--evacuation-evict"],
    "reprovision-pause": ["--drain-report", "--node-drain-policy=NoSchedule", "--evacuation-evict", "--allow-reprovision"],
    "node-drain-policy": ["--drain-report"],
    "evacuation-expiry": ["--evacuation-deadline=10m"],
}


def test_each_flag_alone_starts_the_program_and_warns_only_if_it_is_ignored_or_deprecated():
    for name in sorted(set(FLAGS) - {"help", "version"}):
        row = FLAGS[name]
        result = parsed(f"--{name}={SPECIAL.get(name, SAMPLES[row.kind.name])}", *NEEDS.get(name, []), environ=POD)
        about_it = [warning for warning in result.warnings if re.match(rf"--?{name}\b", warning)]
        assert len(about_it) == (row.ignored or name in ("metrics-address", "feature-gates")), name
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
