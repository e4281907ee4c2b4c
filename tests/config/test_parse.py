"""Lines are read, or all that is wrong with them is said; each value knows where it came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import kinds
from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import Parsed, ShowHelp, ShowVersion, parse
from sidecar.config.table import FLAGS, TABLE
from tests.harness.config import NODE, POD, mistakes, parsed


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
        "--watch-scope=some",
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


FREE = [row for row in TABLE if row.field and row.is_flag and row.kind in (kinds.BOOL, kinds.DURATION, kinds.UINT, kinds.TEXT, kinds.LEVEL)]
VALUES = {
    "": st.sampled_from([("true", True), ("false", False), ("T", True), ("0", False)]),
    "duration": st.integers(1, 10**13).map(lambda ns: (kinds.show_duration(ns / 10**9), ns / 10**9)),
    "uint": st.integers(1, 2**64 - 1).map(lambda number: (str(number), number)),
    "Level": st.integers(0, 2**31 - 1).map(lambda number: (str(number), number)),
    "string": st.from_regex(r"/x[a-z]{0,20}", fullmatch=True).map(lambda text: (text, text)),
}


@given(st.data())
def test_any_line_of_known_flags_reads_back(data):
    untouched = {"volume-name-prefix", "retry-interval-start", "node-deployment-base-delay"}
    untouched |= {
        "node-deployment",
        "provisioning",
        "enable-capacity",
        "drain-gate-image",
        "drain-autoscaler-annotations",
        "evacuation-evict",
        "maintenance",
        "guest-drain",
        "failover",
        "node-delete-policy",
        "allow-reprovision",
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


def test_every_value_knows_its_origin():
    told = parsed("--timeout=10s", environ=POD | {"KUBECONFIG": "/b", "POD_NAME": ""}).config
    assert told.kubeconfig == "/b"
    assert told.origins["kubeconfig"] == "env KUBECONFIG"
    assert (told.origins["timeout"], told.origins["worker-threads"]) == ("flag", "default")
    assert (told.origins["NODE_NAME"], told.origins["POD_NAME"]) == ("env NODE_NAME", "default")
    assert {row.name for row in TABLE if row.field} == set(told.origins)
    assert set(parsed("--version=false", "--leader-election").config.origins) == set(told.origins)


def test_the_flag_kubeconfig_wins_over_the_variable_and_says_so():
    both = parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": "/b"})
    assert (both.config.kubeconfig, both.config.origins["kubeconfig"]) == ("/a", "flag")
    assert both.warnings == ("KUBECONFIG=/b: not used, because --kubeconfig=/a is given; external-provisioner would use it",)
    assert parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": "/a"}).warnings == ()
    unset = parsed("--kubeconfig=/a", environ=NODE | {"KUBECONFIG": ""}).config
    assert (unset.kubeconfig, unset.origins["kubeconfig"]) == ("/a", "flag")
    empty = parsed("--kubeconfig=", environ=NODE | {"KUBECONFIG": "/b"})
    assert (empty.config.kubeconfig, empty.config.origins["kubeconfig"], empty.warnings) == ("/b", "env KUBECONFIG", ())


def test_the_effective_configuration_has_a_line_for_every_value():
    effective = parsed("--retry-interval-max=1m30s", "--kube-api-qps=0", "--feature-gates=Topology=false").config.effective()
    assert ("retry-interval-max", "1m30s", "flag") in effective
    assert ("kube-api-qps", "5", "flag") in effective
    assert ("feature-gates", "CrossNamespaceVolumeDataSource=false,Topology=false,VolumeAttributesClass=true", "flag") in effective
    assert ("strict-topology", "false", "default") in effective
    assert ("NODE_NAME", "node-1", "env NODE_NAME") in effective
    assert [name for name, _, _ in effective] == [row.name for row in TABLE if row.field]
