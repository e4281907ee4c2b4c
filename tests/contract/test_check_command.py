"""`csi-node-sidecar check`, from outside and on a node: nothing is wrong, or one thing is, and that is named with its remedy."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.lib.programs import OurDriver
from sidecar.commands import check
from sidecar.model.timestamps import to_micro_text
from tests.contract.check_setup import FLAGS, PEER, RBAC, STORAGE, SetUp, set_up
from tests.contract.conftest import Server
from tests.contract.http_client import HttpClient

Json = dict[str, Any]


@pytest.fixture
def cluster(http: HttpClient, server: Server) -> Iterator[SetUp]:
    with set_up(http, server) as made:
        yield made


def told(cluster: SetUp, capsys: pytest.CaptureFixture[str], *words: str, by: Path | None = None, **environ: str) -> tuple[int, Json]:
    """The exit code and the document; the text for people has as many lines."""
    line = [f"--driver={cluster.driver}", f"--kubeconfig={by or cluster.server.kubeconfig}", *words]
    before = check.run(line, environ)
    text = capsys.readouterr().out
    code = check.run([*line, "-o", "json"], environ)
    out, err = capsys.readouterr()
    document: Json = json.loads(out)
    assert (before, err) == (code, "")
    assert len(text.splitlines()) == len(document["checks"]) + 2
    assert document["ok"] is (code == 0)
    return code, document


def wrong(document: Json) -> list[Json]:
    return [line for line in document["checks"] if line["level"] != "ok"]


def test_nothing_is_wrong(cluster: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = told(cluster, capsys)
    assert (code, wrong(document)) == (0, [])
    said = {line["check"] for line in document["checks"]}
    assert said >= {"API server", "flags", "socket", "topology", "CSIDriver", "classes", "capacity", "rights", "provisioners", "clock"}


def test_the_driver_need_not_be_named_where_one_container_of_ours_is_there(cluster: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run([f"--kubeconfig={cluster.server.kubeconfig}"], {}) == 0
    assert cluster.driver in capsys.readouterr().out


# --- what may be wrong, from outside. The rules are in tests/commands/check; here is what has to be read from the server ---


def central(cluster: SetUp) -> None:
    cluster.workload("controller", "--csi-address=/csi/csi.sock", "--leader-election", kind="deployments", image=PEER, nodes=())


def elected(cluster: SetUp) -> None:
    spec = {"holderIdentity": "somebody-1", "renewTime": to_micro_text(time.time())}
    lease = {"metadata": {"name": cluster.driver.replace(".", "-")}, "spec": spec}
    cluster.make(f"/apis/coordination.k8s.io/v1/namespaces/{cluster.name}/leases", lease)


def half_a_secret(cluster: SetUp) -> None:
    grant = {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    subject = {"kind": "ServiceAccount", "name": "csi-node-sidecar", "namespace": cluster.name}
    cluster.make(f"{RBAC}/clusterroles", {"metadata": {"name": f"{cluster.name}-secrets"}, **grant})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{cluster.name}-secrets"}
    cluster.make(f"{RBAC}/clusterrolebindings", {"metadata": {"name": f"{cluster.name}-secrets"}, "roleRef": role, "subjects": [subject]})
    another_class(cluster, HALF_A_SECRET)


def secrets(cluster: SetUp) -> None:
    another_class(cluster, {**HALF_A_SECRET, "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}"})


def another_class(cluster: SetUp, parameters: dict[str, str]) -> None:
    obj = cluster.storage_class(parameters=parameters)
    cluster.make(f"{STORAGE}/storageclasses", obj | {"metadata": {"name": f"{cluster.name}-other"}})


def unlabelled(cluster: SetUp) -> None:
    cluster.patch(f"/api/v1/nodes/{cluster.nodes[1]}", {"metadata": {"labels": {cluster.key: None}}})


LABELLED = "--watch-scope=labelled"
HALF_A_SECRET = {"csi.storage.k8s.io/provisioner-secret-name": "s"}
FROM_OUTSIDE: dict[str, tuple[Callable[[SetUp], object], str, str, str]] = {
    "a right is missing": (lambda c: c.without("persistentvolumes", "create"), "rights", "failed", "create persistentvolumes; off is"),
    "a central one": (central, "provisioners", "failed", "provisions for the whole cluster"),
    "a central one that is seen by its Lease alone": (elected, "provisioners", "failed", "somebody-1 holds Lease"),
    "two pods on one node": (lambda c: c.workload("second", nodes=[c.nodes[0]]), "provisioners", "failed", "two pods provision for"),
    "no CSIDriver": (lambda c: c.remove(f"{STORAGE}/csidrivers/{c.driver}"), "CSIDriver", "failed", "there is no object"),
    "no entry in CSINode": (lambda c: c.remove(f"{STORAGE}/csinodes/{c.nodes[1]}"), "topology", "failed", "CSINode has no entry of"),
    "a node without the label": (unlabelled, "topology", "failed", "the Node has no such label"),
    "a policy that is not there": (lambda c: c.anew(*FLAGS, LABELLED), "claim labels", "warning", f"{LABELLED} does nothing"),
    "a class with half a Secret": (half_a_secret, "classes", "failed", "needs csi.storage.k8s.io/provisioner-secret-namespace beside it"),
    "a class whose Secrets may not be read": (secrets, "rights", "failed", "may not get secrets; off is: classes with secrets"),
}


@pytest.mark.parametrize(("break_it", "which", "level", "text"), FROM_OUTSIDE.values(), ids=FROM_OUTSIDE.keys())
def test_what_is_wrong_is_named_in_one_line_with_its_remedy(
    cluster: SetUp, break_it: Callable[[SetUp], object], which: str, level: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(cluster)
    code, document = told(cluster, capsys)
    (line,) = wrong(document)
    assert (line["check"], line["level"], line["asked"]) == (which, level, True)
    assert text in line["message"] and line["remedy"]
    assert code == (level == "failed")


# --- on a node --------------------------------------------------------------------------------------------------------


@pytest.fixture
def driver(cluster: SetUp, tmp_path: Path) -> Callable[..., OurDriver]:
    """One that serves, as this one says; it ends with the test."""

    def make(*args: str, name: str = cluster.driver) -> OurDriver:
        return OurDriver(tmp_path, node=cluster.nodes[0], name=name, args=args)

    return make


def on_node(cluster: SetUp, capsys: pytest.CaptureFixture[str], address: object, *flags: str) -> tuple[int, Json]:
    """With the sidecar's own rights, and variables as in its pod."""
    node = cluster.nodes[0]
    environ = {"NODE_NAME": node, "NAMESPACE": cluster.name, "POD_NAME": f"sidecars-{node}"}
    return told(cluster, capsys, f"--csi-address={address}", *(flags or FLAGS[1:]), by=cluster.account(), **environ)


MAY_NOT_SEE = {"CSIDriver"}
"""What the sample's role does not show; that is told."""


def test_nothing_is_wrong_on_a_node(cluster: SetUp, driver: Callable[..., OurDriver], capsys: pytest.CaptureFixture[str]) -> None:
    with driver() as running:
        code, document = on_node(cluster, capsys, running.socket)
    assert (code, document["askedFrom"]) == (0, "node")
    assert {line["check"] for line in wrong(document)} == MAY_NOT_SEE
    assert all(not line["asked"] and "forbidden" in line["message"] for line in wrong(document))
    assert {"check": "socket", "level": "ok", "asked": True, "message": "a driver answers", "remedy": ""} in document["checks"]


def test_a_socket_without_driver_and_another_driver_are_named(
    cluster: SetUp, driver: Callable[..., OurDriver], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = on_node(cluster, capsys, tmp_path / "none.sock")
    (line,) = [line for line in document["checks"] if line["check"] == "socket"]
    assert code == 1 and "none.sock does not exist" in line["message"] and "--csi-address" in line["remedy"]
    with driver(name="another.example") as running:
        code, document = on_node(cluster, capsys, running.socket)
    (line,) = [line for line in document["checks"] if line["check"] == "driver"]
    assert code == 1 and f"another.example, not {cluster.driver}" in line["message"]


# --- who may not ask ------------------------------------------------------------------


def test_who_may_not_ask_is_told_so_and_the_rest_is_checked(cluster: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """From outside, with the rights of the sidecar, which are not for that."""
    code, document = told(cluster, capsys, by=cluster.account())
    assert code == 0
    assert {line["check"] for line in wrong(document)} == {"CSIDriver", "flags", "rights", "provisioners"}
    assert not any(line["asked"] for line in wrong(document))
    assert {line["check"] for line in document["checks"] if line["level"] == "ok"} >= {"API server", "topology", "classes", "clock"}
