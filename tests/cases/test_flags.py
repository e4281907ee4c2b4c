"""Acceptance cases F (flags and environment) and B4, as far as the configuration decides them.

The names of nodes and volumes, F8 to F13 and F15, are tested where names are made. F14 is about the lease of leader election,
which a program that runs on every node does not take.
"""

import pytest

from sidecar.config.config import Config
from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import Parsed, parse

POD = {"NODE_NAME": "node01", "NAMESPACE": "storage", "POD_NAME": "plugin-x7k2p"}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in POD.items() if name not in names}


def started(*argv: str, environ: dict[str, str] = POD) -> Config:
    result = parse(["--node-deployment", *argv], environ)
    assert isinstance(result, Parsed)
    return result.config


def refused(*argv: str, environ: dict[str, str] = POD) -> str:
    with pytest.raises(Refused) as refusal:
        parse(["--node-deployment", *argv], environ)
    assert refusal.value.exit_code == 1
    (fault,) = refusal.value.faults
    return fault


def test_F1_node_deployment_without_the_name_of_the_node_is_refused():
    assert "NODE_NAME" in refused(environ=without("NODE_NAME"))


def test_F2_two_listen_addresses_are_refused():
    fault = refused("--metrics-address=:1", "--http-endpoint=:2")
    assert "--metrics-address" in fault
    assert "--http-endpoint" in fault


def test_F3_an_unknown_feature_gate_is_fatal():
    with pytest.raises(UsageError) as malformed:
        parse(["--node-deployment", "--feature-gates=Nope=true"], POD)
    assert malformed.value.exit_code == 2
    assert '"Nope" is not a feature gate' in str(malformed.value)


@pytest.mark.parametrize(
    ("argv", "missing"),
    [
        pytest.param(["--enable-capacity"], "NAMESPACE", id="F4-namespace"),
        pytest.param(["--enable-capacity", "--capacity-ownerref-level=1"], "POD_NAME", id="F4-pod-name"),
    ],
)
def test_capacity_without_what_it_is_published_under_is_refused(argv, missing):
    assert missing in refused(*argv, environ=without(missing))


def test_F4_objects_without_owner_need_no_pod_name():
    assert started("--enable-capacity", "--capacity-ownerref-level=-1", environ=without("POD_NAME")).capacity_ownerref_level == -1


@pytest.mark.parametrize(
    "address",
    [pytest.param("/csi/csi.sock", id="F5-path"), pytest.param("unix:///csi/csi.sock", id="F5-unix")],
)
def test_both_spellings_are_the_same_socket(address):
    assert started(f"--csi-address={address}").csi_address == "/csi/csi.sock"


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("dns:///x", id="F5-dns"),
        pytest.param("tcp://127.0.0.1:10000", id="F6-tcp"),
        pytest.param("127.0.0.1:10000", id="F6-host-port"),
        pytest.param("passthrough:///csi/csi.sock", id="F6-passthrough"),
        pytest.param("unix-abstract:csi", id="F6-abstract"),
        pytest.param("unix:/csi/csi.sock", id="F6-unix-without-authority"),
        pytest.param("unix://csi/csi.sock", id="F6-unix-relative"),
        pytest.param("UNIX:///csi/csi.sock", id="F6-upper-case"),
        pytest.param("csi.sock", id="F6-relative"),
        pytest.param("unix://", id="F6-unix-empty"),
        pytest.param("", id="F6-empty"),
    ],
)
def test_what_is_no_unix_socket_is_refused(address):
    fault = refused(f"--csi-address={address}")
    assert fault.startswith(f"--csi-address={address}: ")
    assert "unix:///csi/csi.sock" in fault


@pytest.mark.parametrize("length", [pytest.param(length, id=f"F7{length:+d}") for length in (40, 33, 0, -2)])
def test_lengths_that_a_uid_cannot_be_cut_to_are_refused(length):
    assert f"--volume-name-uuid-length={length}" in refused(f"--volume-name-uuid-length={length}")


@pytest.mark.parametrize("length", [pytest.param(length, id=f"F7{length:+d}") for length in (-1, 1, 5, 32)])
def test_lengths_that_a_uid_can_be_cut_to_start(length):
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
