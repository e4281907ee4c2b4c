"""Examples for drivers of other projects: only the image is swapped, and what is added fits their DaemonSet.

That each builds and that a real API server takes it, test_manifests.py shows.
"""

from __future__ import annotations

import copy

import pytest

from sidecar.config.parse import Parsed, parse
from tests.deploy.manifests import DEPLOY, Json, containers, granted, rendered, the, written

pytestmark = pytest.mark.real_api

EXAMPLES = DEPLOY / "examples"
PROJECTS = sorted(folder.parent.name for folder in EXAMPLES.glob("*/theirs"))
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


# --- drivers that provision centrally -----------------------------------------------------------------------------------

# Of their charts: driver, namespace, and the node socket as node plugin and registrar have it.
CENTRAL = {
    "topolvm": ("topolvm.io", "topolvm-system", "/var/lib/kubelet/plugins/topolvm.io/node/csi-topolvm.sock"),
    "lvm-localpv": ("local.csi.openebs.io", "openebs", "/var/lib/kubelet/plugins/lvm-localpv/csi.sock"),
}
central = pytest.mark.parametrize("project", CENTRAL)


def of_central(project: str) -> dict[str, str]:
    return dict(written("examples", project, "reporting", "settings.yaml")[0]["data"])


@central
def test_it_stands_beside_theirs_and_meets_the_driver_at_its_node_socket(project: str) -> None:
    driver, namespace, socket = CENTRAL[project]
    told, objects = of_central(project), variant(project, "reporting")
    assert (told["driver"], told["driver-in-names"], told["namespace"]) == (driver, driver, namespace)
    assert told["user"] == f"system:serviceaccount:{namespace}:{told['account']}"
    found = the("DaemonSet", objects)
    pod, container = found["spec"]["template"]["spec"], sidecar(objects)
    (mounted,), (volume,) = container["volumeMounts"], pod["volumes"]
    (address,) = [word.partition("=")[2] for word in container["args"] if word.startswith("--csi-address=")]
    assert address.replace(mounted["mountPath"], volume["hostPath"]["path"], 1) == socket
    assert volume["hostPath"]["type"] == "Directory", "the driver makes it"
    assert len(containers(found)) == 1
    assert not {item["kind"] for item in objects} & {"Namespace", "CSIDriver", "StorageClass"}, "what is theirs is not in it"


@central
@pytest.mark.parametrize("name", ["reporting", "gated", "monitored"])
def test_the_program_takes_its_flags_without_a_warning(project: str, name: str) -> None:
    container = sidecar(variant(project, name))
    parsed = parse(container["args"], {item["name"]: "x" for item in container["env"]})
    assert isinstance(parsed, Parsed) and parsed.warnings == ()
    assert not parsed.config.provisioning and not parsed.config.enable_capacity
    assert parsed.config.drain_report and bool(parsed.config.drain_gate_image) is (name == "gated")


@central
def test_the_role_can_write_neither_claims_nor_capacity_and_of_volumes_what_people_have_acknowledged(project: str) -> None:
    objects = variant(project, "gated")
    roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    written_to = {resource for role in roles for _, resource, verb in granted(role["rules"]) if verb not in ("get", "list", "watch")}
    assert written_to == {
        *("nodes", "nodes/status", "events", "leases"),
        *("nodedrainreports", "nodedrainreports/status", "poddisruptionbudgets", "deployments", "persistentvolumes"),
    }
