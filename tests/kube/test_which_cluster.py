"""How a cluster is named to a person: by context and address, and by no secret that an address may hold."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.kube.client import open_client
from sidecar.kube.which_cluster import WhichCluster, shown_address

PASSWORDS = ("hunter2", "hunter2@x", "hunter2:x", "hunter2%2Fx", "12/hunter2", "hunter2?", "hunter2#x")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("path", ["", "/", "/k8s/clusters/c-1"])
def test_no_part_of_a_password_is_shown(password: str, path: str) -> None:
    assert "hunter2" not in shown_address(f"https://me:{password}@host:6443{path}")
    assert shown_address(f"https://me:{password}@host:6443{path}").startswith("https://host:6443")


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("https://me:pw@host:6443/k8s/clusters/c-1", "https://host:6443/k8s/clusters/c-1"),
        ("https://host:6443/", "https://host:6443"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("https://host/path?token=hunter2#hunter2", "https://host/path"),
    ],
)
def test_the_rest_of_an_address_stays(server: str, shown: str) -> None:
    assert shown_address(server) == shown


def reached(**options: Any) -> WhichCluster:
    async def main() -> WhichCluster:
        async with await open_client(**options) as kube:
            assert WhichCluster.of(kube.with_limits(qps=1, burst=1).reached) == WhichCluster.of(kube.reached)
            return WhichCluster.of(kube.reached)

    return asyncio.run(main())


def test_a_kubeconfig_names_its_context_and_another_one_if_it_was_asked_for(tmp_path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"http://{name}"}} for name in ("prod", "staging")]
    contexts = [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("prod", "staging")]
    (tmp_path / "f").write_text(json.dumps({"clusters": clusters, "contexts": contexts, "users": [], "current-context": "prod"}))
    file = str(tmp_path / "f")
    assert reached(kubeconfig=file) == WhichCluster("http://prod", "prod")
    assert reached(kubeconfig=file, context="staging") == WhichCluster("http://staging", "staging")
    assert reached(kubeconfig=file, master="http://me:hunter2@other") == WhichCluster("http://other", "prod")


def test_an_address_alone_is_all_there_is() -> None:
    assert reached(master="http://me:hunter2@other:1") == WhichCluster("http://other:1")


def test_a_pod_reaches_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    there = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert reached(service_account=tmp_path, environ=there) == WhichCluster("https://[fd00::1]:443", in_pod=True)


@pytest.mark.parametrize(
    ("cluster", "text", "document"),
    [
        (
            WhichCluster("https://a:1", "staging"),
            "context staging of the kubeconfig, at https://a:1",
            {"source": "kubeconfig", "context": "staging", "server": "https://a:1"},
        ),
        (WhichCluster("https://a:1"), "https://a:1", {"source": "master", "server": "https://a:1"}),
        (
            WhichCluster("https://a:1", in_pod=True),
            "the cluster of this pod, at https://a:1",
            {"source": "pod", "server": "https://a:1"},
        ),
    ],
    ids=["kubeconfig", "master", "pod"],
)
def test_people_and_programs_are_told_the_same(cluster: WhichCluster, text: str, document: dict[str, str]) -> None:
    assert (str(cluster), cluster.as_json()) == (text, document)
