"""Acceptance cases F (flags and environment) and B4, as far as the configuration decides them.

The names of nodes and volumes, F8 to F13 and F15, are tested where names are made. F14 is about the lease of leader election,
which a program that runs on every node does not take.
"""

from sidecar.config.config import Config
from sidecar.config.parse import Parsed, parse
from tests.harness.config import POD, faults, mistakes, parsed


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in POD.items() if name not in names}


def started(*argv: str, environ: dict[str, str] = POD) -> Config:
    return parsed(*argv, environ=environ).config


def refused(*argv: str, environ: dict[str, str] = POD) -> str:
    (fault,) = faults("--node-deployment", *argv, environ=environ)
    return fault


def test_F1_node_deployment_without_the_name_of_the_node_is_refused():
    assert "NODE_NAME" in refused(environ=without("NODE_NAME"))


def test_F2_two_listen_addresses_are_refused():
    fault = refused("--metrics-address=:1", "--http-endpoint=:2")
    assert "--metrics-address" in fault
    assert "--http-endpoint" in fault


def test_F3_an_unknown_feature_gate_is_fatal():
    (mistake,) = mistakes("--feature-gates=Nope=true")
    assert '"Nope" is not a feature gate' in mistake


def test_F4_capacity_without_what_it_is_published_under_is_refused():
    for argv, missing in [(["--enable-capacity"], "NAMESPACE"), (["--enable-capacity", "--capacity-ownerref-level=1"], "POD_NAME")]:
        assert missing in refused(*argv, environ=without(missing))


def test_F4_objects_without_owner_need_no_pod_name():
    assert started("--enable-capacity", "--capacity-ownerref-level=-1", environ=without("POD_NAME")).capacity_ownerref_level == -1


def test_F5_both_spellings_are_the_same_socket():
    for address in ["/csi/csi.sock", "unix:///csi/csi.sock"]:
        assert started(f"--csi-address={address}").csi_address == "/csi/csi.sock"


def test_F5_what_is_no_unix_socket_is_refused():
    for address in [
        "dns:///x",
        "tcp://127.0.0.1:10000",
        "127.0.0.1:10000",
        "passthrough:///csi/csi.sock",
        "unix-abstract:csi",
        "unix:/csi/csi.sock",
        "unix://csi/csi.sock",
        "UNIX:///csi/csi.sock",
        "csi.sock",
        "unix://",
        "",
    ]:
        fault = refused(f"--csi-address={address}")
        assert fault.startswith(f"--csi-address={address}: ")
        assert "unix:///csi/csi.sock" in fault


def test_F7_a_uid_can_be_cut_to_1_to_32_characters_or_not_at_all():
    for length in (40, 33, 0, -2):
        assert f"--volume-name-uuid-length={length}" in refused(f"--volume-name-uuid-length={length}")
    for length in (-1, 1, 5, 32):
        assert started(f"--volume-name-uuid-length={length}").volume_name_uuid_length == length


HOSTPATH = (
    "-v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true --enable-capacity --capacity-ownerref-level=0 "
    "--node-deployment=true --strict-topology=true --immediate-topology=false --worker-threads=5"
)


def test_B4_arguments_and_environment_of_the_hostpath_manifest_are_accepted_verbatim():
    result = parse(HOSTPATH.split(), POD)
    assert isinstance(result, Parsed)
    config = result.config
    assert (config.verbosity, config.csi_address, config.worker_threads, config.capacity_ownerref_level) == (5, "/csi/csi.sock", 5, 0)
    assert config.enable_capacity
    assert config.strict_topology
    assert not config.immediate_topology
    assert config.gate("Topology")
