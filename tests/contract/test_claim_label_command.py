"""`csi-node-sidecar label` with the rights that its component brings, and no others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import REPOSITORY
from sidecar.commands import label
from tests.contract.claim_policy import ASKED, CLAIMS, LABEL, NODE, claim_with, in_force
from tests.contract.conftest import Server
from tests.contract.http_client import HttpClient, http_client
from tests.contract.objects import storage_class

RIGHTS = REPOSITORY / "deploy" / "components" / "scoped-watches" / "rbac.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS, OTHER, CLASS = "label.example", "other.example", "labelled-late"
BEFORE = {
    "label-late": claim_with("label-late") | {"spec": claim_with("x")["spec"] | {"storageClassName": CLASS}},
    "label-selected": claim_with("label-selected", {NODE: "n1", ASKED: OURS}),
    "label-open": claim_with("label-open", {ASKED: OURS}),
    "label-lies": claim_with("label-lies", {NODE: "n1", ASKED: OURS}, labels={LABEL: "node.n2"}),
}
FOREIGN = {
    "label-foreign": claim_with("label-foreign", {ASKED: OTHER}),
    "label-nobodys": claim_with("label-nobodys"),
}


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[HttpClient]:
    with http_client(server.kubeconfig) as http:
        (role,) = yaml.safe_load_all(RIGHTS.read_text())
        http.send("POST", f"{RBAC}/clusterroles", role)
        http.send("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "labeller"}})
        binding = {
            "metadata": {"name": "labeller"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "labeller", "namespace": "default"}],
        }
        http.send("POST", f"{RBAC}/clusterrolebindings", binding)
        http.send("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(CLASS) | {"provisioner": OURS})
        for obj in (*BEFORE.values(), *FOREIGN.values()):
            http.send("POST", CLAIMS, obj)
        yield http


@pytest.fixture
def kubeconfig(server: Server) -> Path:
    return server.kubeconfig_for(namespace="default", service_account="labeller")


def labels(http: HttpClient) -> dict[str, str | None]:
    return {name: http.send("GET", f"{CLAIMS}/{name}").labels.get(LABEL) for name in (*BEFORE, *FOREIGN)}


def test_it_labels_what_is_older_than_the_policy_and_says_how_far_it_is(
    http: HttpClient, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--driver", OURS, f"--kubeconfig={kubeconfig}", "--kube-api-qps=-1"]
    untouched = labels(http)

    assert label.run(line, {}) == 1, "without the policy"
    assert "is components/scoped-watches installed" in capsys.readouterr().err
    assert labels(http) == untouched

    with in_force(http):
        assert label.run([*line, "--dry-run"], {}) == 0
        told = capsys.readouterr().out
        assert "would label claim default/label-lies: node.n1 instead of node.n2\n" in told
        assert f"{len(BEFORE)} claims of {OURS}; nothing was changed\n" in told
        assert labels(http) == untouched

        assert label.run(line, {}) == 0
        assert f"labelled {len(BEFORE)} of {len(BEFORE)}\n" in capsys.readouterr().out
        shard = f"open.{http.send('GET', f'{CLAIMS}/label-open').body['metadata']['uid'][-2:]}"
        done = {"label-late": "waiting", "label-selected": "node.n1", "label-open": shard, "label-lies": "node.n1"}
        assert labels(http) == done | dict.fromkeys(FOREIGN)

        assert label.run(line, {}) == 0
        assert f"All claims of {OURS} have their label" in capsys.readouterr().out
