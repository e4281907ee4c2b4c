"""`csi-node-sidecar release-finalizers`, as a person calls it on the way back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.commands import release_finalizers
from sidecar.model import names
from tests.contract.check_setup import APPS, SetUp, set_up
from tests.contract.conftest import Server
from tests.contract.http_client import HttpClient
from tests.contract.objects import volume

VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture
def cluster(http: HttpClient, server: Server) -> Iterator[SetUp]:
    """With three volumes, of which somebody deletes one."""
    with set_up(http, server) as made:
        for name in ("kept", "bound", "leaving"):
            obj = volume(f"{made.name}-{name}", finalizers=(names.VOLUME_FINALIZER,), handle=name)
            obj["spec"]["csi"]["driver"] = made.driver
            made.make(VOLUMES, obj)
        made.remove(f"{VOLUMES}/{made.name}-leaving")
        yield made
        for name in ("kept", "bound", "leaving"):
            path = f"{VOLUMES}/{made.name}-{name}"
            http.try_to_send("PATCH", path, {"metadata": {"finalizers": None}}, content="application/merge-patch+json")


def holding(cluster: SetUp) -> set[str]:
    items: list[dict[str, Any]] = cluster.http.send("GET", VOLUMES).body["items"]
    ours = [item["metadata"] for item in items if item["spec"]["csi"]["driver"] == cluster.driver]
    return {meta["name"].rpartition("-")[2] for meta in ours if names.VOLUME_FINALIZER in meta.get("finalizers", ())}


def test_the_way_back(cluster: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    line = [f"--driver={cluster.driver}", f"--kubeconfig={cluster.server.kubeconfig}"]
    everything = {"kept", "bound", "leaving"}

    assert release_finalizers.run([*line, "--yes"], {}) == 1
    assert f"puts the finalizer on again: DaemonSet {cluster.name}/sidecars" in capsys.readouterr().err
    capsys.readouterr()
    assert release_finalizers.run(line, {}) == 0
    assert capsys.readouterr().out.startswith("cluster: context ")
    assert holding(cluster) == everything

    cluster.remove(f"{APPS}/namespaces/{cluster.name}/daemonsets/sidecars")
    for node in cluster.nodes:
        cluster.remove(f"/api/v1/namespaces/{cluster.name}/pods/sidecars-{node}")
    assert release_finalizers.run([*line, "--yes", "--dry-run"], {}) == 0
    assert holding(cluster) == everything
    capsys.readouterr()

    assert release_finalizers.run([*line, "--yes", "-o", "json"], {}) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["cluster"]["source"] == "kubeconfig"
    assert {row["result"] for row in document["volumes"]} == {"released", "kept"}
    assert holding(cluster) == {"leaving"}

    assert release_finalizers.run([*line, "--yes", "--terminating"], {}) == 0
    assert holding(cluster) == set()
    assert release_finalizers.run([*line, "--yes"], {}) == 0
