"""Commands that take things away from a cluster name it first, so that a person at the wrong one sees it, also in what they only show."""

import json

import pytest
import yaml

from sidecar.cli import main
from sidecar.kube.api import VOLUMES
from sidecar.model import names
from tests.contract.objects import volume
from tests.harness.drain.listed_cluster import DRIVER
from tests.harness.drain.served import Fault, Scene

SHOWN = {"uninstall": ("--dry-run",), "release-finalizers": ()}
DONE = {"uninstall": (), "release-finalizers": ("--yes", "--force")}
LINES = [(verb, words) for table in (SHOWN, DONE) for verb, words in table.items()]
PASSWORD = "hunter2"


def call(scene: Scene, verb: str, *words: str) -> int:
    return main([verb, f"--driver={DRIVER}", f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000", *words])


def with_something(scene: Scene) -> str:
    """For each command something to take away. Returns the server's address, which has a user name and a password in the kubeconfig."""
    obj = volume("held", finalizers=(names.VOLUME_FINALIZER,), handle="h")
    obj["spec"]["csi"]["driver"] = DRIVER
    scene.act(lambda: scene.cluster.create(VOLUMES, obj))
    scene.annotate("n2", {names.of_driver(DRIVER, names.DRAIN_RECORD): "{}"})
    content = yaml.safe_load(scene.kubeconfig.read_text())
    server = str(content["clusters"][0]["cluster"]["server"])
    content["clusters"][0]["cluster"]["server"] = server.replace("://", f"://me:{PASSWORD}@")
    scene.kubeconfig.write_text(yaml.safe_dump(content))
    return server


@pytest.mark.parametrize(("verb", "words"), LINES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value))
def test_the_first_line_and_the_document_name_the_cluster(
    scene: Scene, verb: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    server = with_something(scene)
    context = yaml.safe_load(scene.kubeconfig.read_text())["current-context"]
    assert call(scene, verb, *words, "-o=json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["cluster"] == {"source": "kubeconfig", "context": context, "server": server}
    assert PASSWORD not in out + err
    assert call(scene, verb, *words) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"cluster: context {context} of the kubeconfig, at {server}"
    assert PASSWORD not in out + err


@pytest.mark.parametrize("verb", DONE)
def test_it_is_named_before_anything_is_asked_or_changed(scene: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_something(scene)
    scene.faults.set(Fault(status=503))
    assert call(scene, verb, *DONE[verb]) == 1
    assert capsys.readouterr().out.startswith("cluster: context ")
