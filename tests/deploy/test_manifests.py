"""What lies in deploy/ renders, a real API server takes it to the letter, and it asks for no more rights than deploy/README.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import REPOSITORY, ControlPlane
from hack.sim.driver.serve import read_options
from sidecar.config.kinds import split_address
from sidecar.config.parse import Parsed, parse
from sidecar.kube.credentials import SERVICE_ACCOUNT
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, Json, containers, granted, kustomizations, rendered, the, written

UPSTREAM = REPOSITORY / "tests" / "e2e" / "upstream-role.yaml"
DRY_RUN = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
FOLDERS = [pytest.param(folder, id=str(folder.relative_to(DEPLOY))) for folder in kustomizations()]


# --- the API server's opinion -----------------------------------------------------------------------------------------


def take(plane: ControlPlane, objects: list[Json]) -> str:
    """What the server answers to a dry run. Namespaces are created for real, since what is in them cannot be tried without them; also those
    of projects whose own manifests are no part of it."""
    theirs = {name for item in objects if (name := item["metadata"].get("namespace"))}
    there = {item["metadata"]["name"] for item in objects if item["kind"] == "Namespace"}
    others = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in theirs - there]
    for namespace in (*others, *(item for item in objects if item["kind"] == "Namespace")):
        plane.apply(yaml.safe_dump(namespace))
    return plane.kubectl(*DRY_RUN, input=yaml.safe_dump_all(objects))


@pytest.mark.real_api
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_api_server_takes_every_object(plane: ControlPlane, folder: Path) -> None:
    objects = rendered(folder)
    assert take(plane, objects).count("serverside-applied (server dry run)") == len(objects) > 0


@pytest.mark.real_api
def test_the_base_can_be_applied_twice_and_be_removed(plane: ControlPlane) -> None:
    for _ in range(2):
        plane.kubectl("apply", "-k", str(DEPLOY / "base"))
    plane.kubectl("delete", "-k", str(DEPLOY / "base"), "--wait=false")
    plane.kubectl("wait", "--for=delete", f"csidriver/{DRIVER}", "storageclass/local-late", "clusterrole/csi-node-sidecar", "--timeout=30s")


# --- rights -----------------------------------------------------------------------------------------------------------


def test_the_rights_are_those_of_upstream_s_sample() -> None:
    ours, upstream = written("base", "rbac.yaml"), list(yaml.safe_load_all(UPSTREAM.read_text()))
    for kind in ("ClusterRole", "Role"):
        assert granted(the(kind, ours)["rules"]) == granted(the(kind, upstream)["rules"])


def test_the_rights_are_given_to_the_account_the_pods_run_under() -> None:
    ours = written("base", "rbac.yaml")
    account = {"kind": "ServiceAccount", "name": the("ServiceAccount", ours)["metadata"]["name"], "namespace": NAMESPACE}
    for kind in ("ClusterRole", "Role"):
        binding = the(f"{kind}Binding", ours)
        assert binding["subjects"] == [account]
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, the(kind, ours)["metadata"]["name"])
    pod = the("DaemonSet", written("base", "daemonset.yaml"))["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]


# --- the DaemonSet ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon_set() -> Json:
    return the("DaemonSet", written("base", "daemonset.yaml"))


def test_the_sidecar_stays_on_a_node_that_is_emptied(daemon_set: Json) -> None:
    """Under every taint, its own included, and among the last to be preempted."""
    pod = daemon_set["spec"]["template"]["spec"]
    assert {"operator": "Exists"} in pod["tolerations"]
    assert pod["priorityClassName"] == "system-node-critical"


def downward(container: Json) -> dict[str, str]:
    return {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"]}


def test_the_sidecar_takes_its_flags_without_a_warning(daemon_set: Json) -> None:
    container = containers(daemon_set)["csi-provisioner"]
    assert downward(container) == {"NODE_NAME": "spec.nodeName", "NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    parsed = parse(container["args"], dict.fromkeys(downward(container), "x"))
    assert isinstance(parsed, Parsed)
    assert parsed.warnings == ()
    assert parsed.config.enable_capacity
    assert split_address(parsed.config.http_address) == ("", container["ports"][0]["containerPort"])
    grace = daemon_set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert parsed.config.shutdown_timeout < grace


def test_the_driver_takes_its_flags(daemon_set: Json) -> None:
    options = read_options([word.replace("$(NODE_NAME)", "n1") for word in containers(daemon_set)["driver"]["args"]])
    assert (options.spec.name, options.spec.node_id) == (DRIVER, "n1")
    assert options.state is not None
    assert options.volumes is not None and options.state.is_relative_to(options.volumes)


def test_driver_and_sidecar_use_one_socket_where_the_kubelet_finds_it(daemon_set: Json) -> None:
    pod = daemon_set["spec"]["template"]["spec"]
    both = containers(daemon_set)
    driver, sidecar = (
        dict(word.removeprefix("--").partition("=")[::2] for word in both[name]["args"]) for name in ("driver", "csi-provisioner")
    )
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    of_host = {name: [mount for mount in both[name]["volumeMounts"] if mount["name"] in on_host] for name in both}
    mounts = {name: {mount["mountPath"]: on_host[mount["name"]] for mount in found} for name, found in of_host.items()}
    assert driver["endpoint"] == sidecar["csi-address"] == "/csi/csi.sock"
    assert mounts["driver"]["/csi"] == mounts["csi-provisioner"]["/csi"] == str(Path(driver["kubelet-socket-path"]).parent)
    assert mounts["driver"][driver["kubelet-registration-dir"]] == "/var/lib/kubelet/plugins_registry"
    # Volumes and their journal outlive the pod, and mounts have one path inside and outside.
    for path in (driver["volumes"], "/var/lib/kubelet/pods/x"):
        assert any(Path(path).is_relative_to(inside) and inside == outside for inside, outside in mounts["driver"].items())


def test_only_the_driver_is_privileged(daemon_set: Json) -> None:
    secured = containers(daemon_set)["csi-provisioner"]["securityContext"]
    assert "privileged" not in secured
    assert secured["capabilities"] == {"drop": ["ALL"]}
    assert secured["readOnlyRootFilesystem"] and not secured["allowPrivilegeEscalation"]
    for name, container in containers(daemon_set).items():
        propagated = [mount["name"] for mount in container["volumeMounts"] if "mountPropagation" in mount]
        assert propagated == (["pods"] if name == "driver" else [])
        read_only = {mount["name"] for mount in container["volumeMounts"] if mount.get("readOnly")}
        assert read_only <= {"api-access"}  # the journal lies beside the socket


def test_the_token_is_the_sidecar_s_alone(daemon_set: Json) -> None:
    """A pod has one account for all its containers, and the driver is the one that is privileged."""
    pod = daemon_set["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (volume,) = (item for item in pod["volumes"] if "projected" in item)
    places = {
        name: [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
        for name, container in containers(daemon_set).items()
    }
    assert places == {"driver": [], "csi-provisioner": [str(SERVICE_ACCOUNT)]}
    files = {
        next(iter(source.values())).get("path") or next(iter(source.values()))["items"][0]["path"]
        for source in volume["projected"]["sources"]
    }
    assert files == {"token", "ca.crt", "namespace"}


def test_the_sidecar_has_128_MiB(daemon_set: Json) -> None:
    assert containers(daemon_set)["csi-provisioner"]["resources"]["limits"] == {"memory": "128Mi"}


def test_every_driver_name_is_the_same() -> None:
    classes = written("base", "storageclasses.yaml")
    assert the("CSIDriver", written("base", "csidriver.yaml"))["metadata"]["name"] == DRIVER
    assert {item["metadata"]["name"]: item["volumeBindingMode"] for item in classes} == {
        "local-late": "WaitForFirstConsumer",
        "local-immediate": "Immediate",
    }
    assert {item["provisioner"] for item in classes} == {DRIVER}


@pytest.mark.real_api
@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_applied_again_and_again_is_unchanged(folder: Path) -> None:
    """In lists that are taken as a whole, a default that the API server adds is a difference at each `kubectl apply`, for ever."""
    for item in rendered(folder):
        for rule in item["spec"]["matchConstraints"]["resourceRules"] if item["kind"] == "ValidatingAdmissionPolicy" else ():
            assert rule.get("scope") == "*", item["metadata"]["name"]
        for volume in item["spec"]["template"]["spec"].get("volumes", ()) if item["kind"] == "DaemonSet" else ():
            for source in volume.get("projected", {}).get("sources", ()):
                assert all(told["fieldRef"].get("apiVersion") == "v1" for told in source.get("downwardAPI", {}).get("items", ()))
