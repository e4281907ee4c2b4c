"""kubectl itself: what people do with manifests sees nothing of the label, and what they do to the label has no effect."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import binaries
from sidecar.kube.api import MERGE_PATCH
from tests.contract.claim_policy import CLAIMS, LABEL, NODE, claim_with, in_force
from tests.contract.conftest import SERVERS, Server
from tests.contract.http_client import HttpClient, http_client

# The embedded server does not describe its kinds, which kubectl asks for before it writes.
pytestmark = pytest.mark.parametrize("server", SERVERS[:1], indirect=True)

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[HttpClient]:
    with http_client(server.kubeconfig) as http, in_force(http):
        yield http


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    program = binaries("core") / "kubectl"
    environment = {**os.environ, "HOME": str(tmp_path)}

    def kubectl(*args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(program), f"--kubeconfig={server.kubeconfig}", "--namespace=default", *args]
        return subprocess.run(command, input=input, capture_output=True, text=True, check=False, env=environment, timeout=60)

    return kubectl


@pytest.mark.parametrize("kept", [{}, {LABEL: "waiting"}], ids=["without it", "with it"])
@pytest.mark.parametrize("flags", [(), ("--server-side", "--field-manager=people")], ids=["client-side", "server-side"])
def test_apply_and_diff_see_no_drift(http: HttpClient, kubectl: Kubectl, flags: tuple[str, ...], kept: dict[str, str]) -> None:
    """Also where the manifest has the label, as happens to those who keep what kubectl printed."""
    name = f"applied-{len(flags)}-{len(kept)}"
    manifest = yaml.safe_dump(claim_with(name, labels={"app": "db"} | kept))
    made = kubectl("apply", *flags, "-f", "-", input=manifest)
    assert made.returncode == 0, made.stderr
    http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": {NODE: "n1"}}}, content=MERGE_PATCH)
    compared = kubectl("diff", *flags, "-f", "-", input=manifest)
    assert (compared.returncode, compared.stdout) == (0, ""), compared.stderr
    again = kubectl("apply", *flags, "-f", "-", input=manifest)
    assert again.returncode == 0, again.stderr
    assert kept or again.stdout.split()[1] in ("unchanged", "serverside-applied"), again.stdout
    assert http.send("GET", f"{CLAIMS}/{name}").labels == {"app": "db", LABEL: "node.n1"}


def test_who_labels_by_hand_is_overruled(http: HttpClient, kubectl: Kubectl) -> None:
    http.send("POST", CLAIMS, claim_with("by-hand", {NODE: "n1"}))
    for wish in (f"{LABEL}=node.n2", f"{LABEL}-"):
        assert kubectl("label", "pvc", "by-hand", "--overwrite", wish).returncode == 0
        assert http.send("GET", f"{CLAIMS}/by-hand").labels == {LABEL: "node.n1"}


def test_the_smallest_write_as_the_page_says_it(http: HttpClient, kubectl: Kubectl) -> None:
    http.send("POST", CLAIMS, claim_with("touched", {NODE: "n1"}))
    tried = kubectl("patch", "pvc", "touched", "--type=merge", "-p", "{}", "--dry-run=server", "-o", "yaml")
    assert yaml.safe_load(tried.stdout)["metadata"]["labels"] == {LABEL: "node.n1"}
    assert kubectl("patch", "pvc", "touched", "--type=merge", "-p", "{}").returncode == 0
    listed = kubectl("get", "pvc", "-A", "-l", f"{LABEL}=node.n1", "-o", "name").stdout.split()
    assert "persistentvolumeclaim/touched" in listed
