"""What the token of one node may read: RBAC cannot say less than everything, an authorizer in front of it can.

The authorizer is the example of deploy/components/own-node/reads, on an API server of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from hack.lib.control_plane import ControlPlane
from tests.deploy.manifests import DEPLOY, rendered
from tests.harness.persons import WITHOUT_POLICIES
from tests.harness.policies import NOT_INSTALLED, REPORT_TYPE, Secured

PODS = "/api/v1/pods"
EXAMPLE = DEPLOY / "components" / "own-node" / "reads" / "README.md"
REFUSED = "127.0.0.1:1: connect: connection refused"
"""As the API server tells that the authorizer does not answer."""
NOBODY_THERE = """
apiVersion: v1
kind: Config
clusters: [{name: refuse, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: refuse, user: {}}]
contexts: [{name: refuse, context: {cluster: refuse, user: refuse}}]
current-context: refuse
"""


class WithAuthorizer(ControlPlane):
    """The file takes the place of the flag."""

    def _arguments(self, component: str) -> list[str]:
        return [each for each in super()._arguments(component) if not each.startswith("--authorization-mode=")]


@pytest.fixture(scope="module")
def cluster(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("authorizer")
    (folder / "refuse.kubeconfig").write_text(NOBODY_THERE)
    text = EXAMPLE.read_text().partition("```yaml\n")[2].partition("```")[0]
    example = yaml.safe_load(text)
    example["authorizers"][1]["webhook"]["connectionInfo"]["kubeConfigFile"] = str(folder / "refuse.kubeconfig")
    (folder / "authorization.yaml").write_text(yaml.safe_dump(example))
    flags = [f"--authorization-config={folder / 'authorization.yaml'}"]
    with WithAuthorizer(bin_dir, folder / "plane", extra_args={"apiserver": flags}) as plane:
        objects = [item for item in rendered(DEPLOY / "overlays" / "drained") if item["kind"] not in NOT_INSTALLED]
        plane.apply(yaml.safe_dump_all([*REPORT_TYPE, *objects, *yaml.safe_load_all(WITHOUT_POLICIES)]))
        yield Secured(plane)


def of(node: str) -> str:
    return f"{PODS}?limit=1&fieldSelector={quote(f'spec.nodeName={node}')}"


def watched(path: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}watch=true&timeoutSeconds=1"


@pytest.mark.parametrize(
    "path", [of("n1"), of("n1,metadata.name=none"), of(""), "/api/v1/namespaces/default/pods", "/api/v1/persistentvolumes"]
)
def test_what_the_table_has_is_let_through(cluster: Secured, path: str) -> None:
    assert cluster.n1.ask("GET", path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [PODS, of("n2"), f"{PODS}?fieldSelector={quote('spec.nodeName!=n2')}", f"{PODS}?labelSelector={quote('spec.nodeName=n1')}"],
    ids=["all", "another node's", "by another operator", "by a label"],
)
def test_a_wider_list_is_refused(cluster: Secured, path: str) -> None:
    for asked in (path, watched(path)):
        code, answer = cluster.n1.ask("GET", asked)
        assert code == 500 and REFUSED in answer["message"]


def test_a_token_that_names_no_node_lists_none(cluster: Secured) -> None:
    code, answer = cluster.nobody.ask("GET", of("n1"))
    assert code == 500 and REFUSED in answer["message"]


def test_others_are_not_looked_at(cluster: Secured) -> None:
    assert cluster.plane.request("GET", PODS)["kind"] == "PodList"
