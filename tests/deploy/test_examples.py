"""Examples for drivers of other projects: only the image is swapped, and what is added fits their DaemonSet.

That each builds and that a real API server takes it, test_manifests.py shows.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.config.parse import Parsed, parse
from tests.deploy.manifests import DEPLOY, Json, containers, rendered, the, written

pytestmark = pytest.mark.real_api

EXAMPLES = DEPLOY / "examples"
PROJECTS = sorted(folder.parent.name for folder in EXAMPLES.glob("*/theirs"))
VARIANTS = ["drained", "monitored", "swapped", "theirs"]
OURS = "csi-node-sidecar:dev"
project = pytest.mark.parametrize("project", PROJECTS)


def variant(project: str, name: str) -> list[Json]:
    return rendered(EXAMPLES / project / name)


def settings(project: str) -> dict[str, str]:
    return dict(written("examples", project, "swapped", "settings.yaml")[0]["data"])


def sidecar(objects: list[Json]) -> Json:
    """The one container with our image."""
    (found,) = [item for item in containers(the("DaemonSet", objects)).values() if item["image"] == OURS]
    return found


def test_all_four_are_there() -> None:
    assert PROJECTS == ["csi-driver-host-path", "kubevirt-hpp", "rawfile-localpv", "scylladb-local-csi-driver"]
    for name in PROJECTS:
        folders = {file.name for file in (EXAMPLES / name).iterdir() if file.is_dir()}
        assert folders - {"tried"} == set(VARIANTS)


@project
def test_the_swap_changes_one_image_and_to_go_back_is_to_apply_what_was_there(project: str) -> None:
    theirs, swapped = variant(project, "theirs"), variant(project, "swapped")
    expected = copy.deepcopy(theirs)
    (provisioner,) = [item for item in containers(the("DaemonSet", expected)).values() if "/csi-provisioner:" in item["image"]]
    provisioner["image"] = OURS
    assert swapped == expected


@project
def test_our_program_takes_their_flags_and_environment(project: str) -> None:
    container = sidecar(variant(project, "swapped"))
    environ = {item["name"]: item.get("value", "x") for item in container["env"]}
    args = [word.replace("$(ADDRESS)", environ.get("ADDRESS", "")) for word in container["args"]]
    parsed = parse(args, environ)
    assert isinstance(parsed, Parsed), parsed
    assert parsed.config.enable_capacity and parsed.config.csi_address.endswith("/csi/csi.sock")


@project
def test_the_settings_are_those_of_the_daemon_set(project: str) -> None:
    """Kustomize cannot see it: what the components bring is for this account."""
    told, objects = settings(project), variant(project, "theirs")
    found = the("DaemonSet", objects)
    account = found["spec"]["template"]["spec"]["serviceAccountName"]
    assert (told["namespace"], told["account"]) == (found["metadata"]["namespace"], account)
    assert told["user"] == f"system:serviceaccount:{found['metadata']['namespace']}:{account}"
    assert told["driver"] == the("CSIDriver", objects)["metadata"]["name"]
    assert told["driver-in-names"] == told["driver"].lower()


@project
def test_drain_decisions_get_their_flags_and_a_pod_that_stays(project: str) -> None:
    objects = variant(project, "drained")
    container = sidecar(objects)
    assert container["args"] == [*sidecar(variant(project, "swapped"))["args"], "--node-drain-policy=NoSchedule", "--drain-report=true"]
    pod = the("DaemonSet", objects)["spec"]["template"]["spec"]
    assert {"operator": "Exists"} in pod["tolerations"]
    assert pod["priorityClassName"] == "system-node-critical"
    (subject,) = the("ClusterRoleBinding", objects)["subjects"]
    assert (subject["name"], subject["namespace"]) == (settings(project)["account"], settings(project)["namespace"])


@project
def test_metrics_are_found_and_their_objects_are_in_the_driver_s_namespace(project: str) -> None:
    objects = variant(project, "monitored")
    monitor, found = the("PodMonitor", objects), the("DaemonSet", objects)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= found["spec"]["template"]["metadata"]["labels"].items()
    assert {"name": "http", "containerPort": 8080} in sidecar(objects)["ports"]
    assert "--http-endpoint=:8080" in sidecar(objects)["args"]
    assert {item["metadata"]["namespace"] for item in objects if "namespace" in item["metadata"]} == {settings(project)["namespace"]}
    assert found["spec"]["selector"] == the("DaemonSet", variant(project, "theirs"))["spec"]["selector"]


@project
def test_no_two_containers_of_a_pod_listen_on_one_port(project: str) -> None:
    words = [word for item in containers(the("DaemonSet", variant(project, "monitored"))).values() for word in item.get("args", ())]
    ports = [word.rpartition(":")[2] if ":" in word else word.rpartition("=")[2] for word in words if _listens(word)]
    assert len(set(ports)) == len(ports)


def _listens(word: str) -> bool:
    return word.startswith(("--http-endpoint=", "--health-port=", "--metrics-address="))


@project
def test_the_page_says_how(project: str) -> None:
    """Which version it mirrors, and the account's namespace where a command needs one."""
    page = (EXAMPLES / "README.md").read_text()
    head = (EXAMPLES / project / "theirs" / "daemonset.yaml").read_text().splitlines()[0]
    version = next(word for word in head.replace(",", "").split() if word[:1].isdigit() and "." in word)
    assert version.rstrip(".") in page


def test_what_the_page_gives_for_the_way_back_is_what_kubernetes_takes(plane: Any, tmp_path: Path) -> None:
    text = (EXAMPLES / "README.md").read_text()
    (manifest,) = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    role, binding = yaml.safe_load_all(manifest)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["update"]}]
    told = settings("kubevirt-hpp")
    assert [(item["name"], item["namespace"]) for item in binding["subjects"]] == [(told["account"], told["namespace"])]
    plane.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=manifest)
