"""Every component, over a DaemonSet that has no name in common with ours: what it promises is there, or the build fails."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, Json, containers, foreign_daemon_set, rendered, the

pytestmark = pytest.mark.real_api

COMPONENTS = DEPLOY / "components"
NAME = "their-provisioner"
SIDECAR: Json = {
    "name": NAME,
    "image": "registry.example/sig-storage/csi-provisioner:v6.3.0",
    "args": ["--csi-address=/csi/csi.sock", "--node-deployment"],
    "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
}
SETTINGS: Json = {
    "driver": "Disks.example.com",
    "driver-in-names": "disks.example.com",
    "namespace": "storage",
    "account": "disks",
    "user": "system:serviceaccount:storage:disks",
    "guard-image": "registry.example/pause:3.10",
    "secret-namespaces": "storage",
    "placement": "any",
    "socket-folder": "/var/lib/kubelet/plugins/disks/node",
    "socket": "node.sock",
    "runbook": "https://wiki.example/storage",
}


def daemon_set(sidecar: Json = SIDECAR) -> Json:
    made = foreign_daemon_set(sidecar)
    made["metadata"]["namespace"] = SETTINGS["namespace"]
    made["spec"]["template"]["spec"]["serviceAccountName"] = SETTINGS["account"]
    return made


def built(work: Path, *components: str, driver: Json | None = None, settings: Json = SETTINGS) -> list[Json]:
    """The user's own kustomization: their DaemonSet, their settings, and these components."""
    resources = {"driver.yaml": driver} if driver else {}
    if settings:
        local = {"name": "csi-node-sidecar-settings", "annotations": {"config.kubernetes.io/local-config": "true"}}
        resources["settings.yaml"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": local, "data": settings}
    for file, item in resources.items():
        (work / file).write_text(yaml.safe_dump(item))
    folders = [os.path.relpath(COMPONENTS / component, work) for component in components]
    (work / "kustomization.yaml").write_text(yaml.safe_dump({"resources": list(resources), "components": folders}))
    return rendered(work)


# --- what each promises -----------------------------------------------------------------------------------------------


def gives(*flags: str) -> Callable[[list[Json]], None]:
    """These flags, after those that were there, to the one container and to no other."""

    def check(objects: list[Json]) -> None:
        before, after = containers(daemon_set()), containers(the("DaemonSet", objects))
        assert after[NAME]["args"] == [*SIDECAR["args"], *flags]
        assert [item for name, item in after.items() if name != NAME] == [item for name, item in before.items() if name != NAME]

    return check


def is_about_the_driver(*kinds: str) -> Callable[[list[Json]], None]:
    """Of what it brings nothing is left that names the base."""

    def check(objects: list[Json]) -> None:
        ours = [item for item in objects if item["kind"] != "DaemonSet"]
        assert {item["kind"] for item in ours} == set(kinds)
        for item in ours:
            assert item["metadata"]["name"].endswith("--disks.example.com--storage")
            assert "local.csi-node-sidecar.io" not in str(item) and "csi-node-sidecar:csi-node-sidecar" not in str(item)
            for subject in item.get("subjects", ()):
                assert (subject["name"], subject["namespace"]) == ("disks", "storage")
            for condition in item["spec"].get("matchConditions", ())[:1] if "spec" in item else ():
                # One is about everybody else.
                assert condition["expression"].replace("!=", "==") == f"request.userInfo.username == '{SETTINGS['user']}'"

    return check


def swaps(objects: list[Json]) -> None:
    assert containers(the("DaemonSet", objects))[NAME]["image"] == "csi-node-sidecar:dev"


def places(objects: list[Json]) -> None:
    variables = [item for policy in objects for item in policy["spec"].get("variables", ())]
    assert {item["expression"] for item in variables if item["name"] == "driver"} == {"'Disks.example.com'"}
    assert {item["expression"] for item in variables if item["name"] == "placement"} == {"'any'"}
    assert {item["expression"] for item in variables if item["name"] == "secretNamespaces"} == {"'storage'.split(' ')"}


def links_to_the_runbook(objects: list[Json]) -> None:
    rules = [rule for group in the("PrometheusRule", objects)["spec"]["groups"] for rule in group["rules"]]
    links = [rule["annotations"]["runbook_url"] for rule in rules]
    assert links == [f"{SETTINGS['runbook']}#{rule['alert'].lower()}" for rule in rules] != []


def reads_drbd(objects: list[Json]) -> None:
    """A container beside theirs, which have the rights and mounts that they had."""
    before, after = containers(daemon_set()), containers(the("DaemonSet", objects))
    reader = after.pop("read-drbd")
    after[NAME]["image"] = before[NAME]["image"]
    assert after == before
    assert reader["args"] == ["--listen=/csi/drbd.sock", "--release"] and reader["securityContext"]["privileged"]
    pod = the("DaemonSet", objects)["spec"]["template"]["spec"]
    (volume,) = [item for item in pod["volumes"] if item["name"] == reader["volumeMounts"][0]["name"]]
    assert volume["hostPath"]["path"] == SETTINGS["socket-folder"] and reader["volumeMounts"][0]["mountPath"] == "/csi"


def is_found(objects: list[Json]) -> None:
    """By what monitoring's PodMonitor looks for; and no selector has changed."""
    found, before = the("DaemonSet", objects)["spec"], daemon_set()["spec"]
    monitor = yaml.safe_load((COMPONENTS / "monitoring" / "podmonitor.yaml").read_text())["spec"]
    wanted = monitor["selector"]["matchLabels"]
    assert wanted and not any(key.startswith("app.kubernetes.io/") for key in wanted)
    assert found["template"]["metadata"]["labels"] == {**before["template"]["metadata"]["labels"], **wanted}
    assert found["selector"] == before["selector"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    (port,) = containers({"spec": found})[NAME]["ports"]
    assert port == {"name": endpoint["port"], "containerPort": 8080}


def reports_beside(objects: list[Json]) -> None:
    """A DaemonSet of its own, with an account of its own. Theirs stays as it was."""
    theirs, ours = (the("DaemonSet", objects, name) for name in ("plugin", SETTINGS["account"]))
    swapped = containers(theirs)
    assert swapped.pop(NAME)["args"] == SIDECAR["args"]
    assert swapped.keys() == containers(daemon_set()).keys() - {NAME}
    pod = ours["spec"]["template"]["spec"]
    assert ours["metadata"]["namespace"] == SETTINGS["namespace"] and pod["serviceAccountName"] == SETTINGS["account"]
    assert ours["spec"]["selector"]["matchLabels"].items() <= ours["spec"]["template"]["metadata"]["labels"].items()
    assert ours["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == SETTINGS["account"]
    (sidecar,) = containers(ours).values()
    assert sidecar["args"][0] == "--csi-address=/csi/node.sock" and "--provisioning=false" in sidecar["args"]
    assert [item["hostPath"]["path"] for item in pod["volumes"]] == [SETTINGS["socket-folder"]]
    assert the("ServiceAccount", objects)["metadata"]["name"] == SETTINGS["account"]


def is_granted_to_the_account(objects: list[Json]) -> None:
    for kind in ("Role", "ClusterRole"):
        role, binding = the(kind, objects), the(f"{kind}Binding", objects)
        assert role["metadata"]["name"] == binding["metadata"]["name"] == binding["roleRef"]["name"]
        assert role["metadata"]["name"].endswith("--disks.example.com--storage")
        assert [(item["name"], item["namespace"]) for item in binding["subjects"]] == [(SETTINGS["account"], SETTINGS["namespace"])]


POLICY = "ValidatingAdmissionPolicy"
IN_THE_CLUSTER = is_about_the_driver("ClusterRole", "ClusterRoleBinding", POLICY, f"{POLICY}Binding")
JUDGES = gives("--node-drain-policy=NoSchedule", "--drain-report=true")
GATE = ("--drain-gate-image=registry.example/pause:3.10",)
PROMISES: dict[str, tuple[Callable[[list[Json]], None], ...]] = {
    "drop-in": (swaps,),
    "drain": (JUDGES, IN_THE_CLUSTER),
    "gate": (gives(*GATE), is_about_the_driver("Role", "RoleBinding", POLICY, f"{POLICY}Binding")),
    "emptying": (gives("--evacuation-evict=true"), is_about_the_driver("ClusterRole", "ClusterRoleBinding")),
    "maintenance": (gives("--maintenance=true"), IN_THE_CLUSTER),
    "reprovision": (gives("--allow-reprovision=true"), IN_THE_CLUSTER),
    "node-loss": (gives("--node-delete-policy=Orphan"), IN_THE_CLUSTER),
    "failover": (gives("--failover=Observe"), IN_THE_CLUSTER),
    "read-drbd": (reads_drbd,),
    "report-only": (reports_beside, is_granted_to_the_account),
    "own-node": (is_about_the_driver(POLICY, f"{POLICY}Binding"), lambda objects: places([o for o in objects if o["kind"] == POLICY])),
    "scoped-watches": (gives("--watch-scope=labelled"),),
    "scoped-watches-v1beta1": (gives("--watch-scope=labelled"),),
    "scraped": (gives("--http-endpoint=:8080"), is_found),
    "monitoring": (gives("--http-endpoint=:8080"), is_found, links_to_the_runbook),
}
WITH_FLAGS = ["drain", "gate", "emptying", "maintenance", "reprovision", "failover", "node-loss"]
WITH_FLAGS += ["scoped-watches", "scoped-watches-v1beta1", "scraped", "monitoring"]
WITH_SETTINGS = {
    "drain": ["driver", "driver-in-names", "namespace", "account", "user"],
    "gate": ["driver", "driver-in-names", "namespace", "account", "user", "guard-image"],
    "emptying": ["driver-in-names", "namespace", "account"],
    "maintenance": ["driver-in-names", "namespace", "account", "user"],
    "node-loss": ["driver", "driver-in-names", "namespace", "account", "user"],
    "failover": ["driver", "driver-in-names", "namespace", "account", "user"],
    "read-drbd": ["socket-folder"],
    "reprovision": ["driver", "driver-in-names", "namespace", "account", "user"],
    "report-only": ["driver-in-names", "namespace", "account", "socket-folder", "socket"],
    "own-node": ["driver", "driver-in-names", "namespace", "user", "placement", "secret-namespaces"],
    "monitoring": ["runbook"],
}


@pytest.mark.parametrize("component", sorted(file.parent.name for file in COMPONENTS.glob("*/kustomization.yaml")))
def test_over_somebody_else_s_daemon_set_it_changes_what_it_promises(tmp_path: Path, component: str) -> None:
    listed = ("drop-in",) if component == "drop-in" else ("drop-in", component)
    objects = built(tmp_path, *listed, driver=daemon_set())
    for promise in PROMISES[component]:
        promise(objects)


# --- what is not there ------------------------------------------------------------------------------------------------


def not_built(work: Path, *components: str, **more: Json) -> str:
    with pytest.raises(AssertionError) as found:
        built(work, *components, **more)
    return str(found.value)


@pytest.mark.parametrize("component", WITH_FLAGS)
def test_where_no_container_has_our_image_the_build_fails(tmp_path: Path, component: str) -> None:
    for image in (SIDECAR["image"], "example.com/csi-node-sidecar-driver:dev", "example.com/my-csi-node-sidecar:v1"):
        assert "unable to find field" in not_built(tmp_path, component, driver=daemon_set({**SIDECAR, "image": image}))


@pytest.mark.parametrize("component", WITH_SETTINGS)
def test_where_a_setting_is_missing_the_build_fails(tmp_path: Path, component: str) -> None:
    assert "csi-node-sidecar-settings" in not_built(tmp_path, "drop-in", component, driver=daemon_set(), settings={})
    for key in WITH_SETTINGS[component]:
        told = {name: value for name, value in SETTINGS.items() if name != key}
        assert f"`data.{key}` is missing" in not_built(tmp_path, "drop-in", component, driver=daemon_set(), settings=told)


@pytest.mark.parametrize("component", [component for component in WITH_FLAGS if component != "scraped"])
def test_where_an_operator_makes_the_daemon_set_the_objects_come_alone(tmp_path: Path, component: str) -> None:
    """Nothing is there that could be given a flag."""
    assert "DaemonSet" not in {item["kind"] for item in built(tmp_path, component)}


# --- what is there already --------------------------------------------------------------------------------------------


def test_a_flag_that_is_there_is_not_given_twice(tmp_path: Path) -> None:
    sidecar = copy.deepcopy(SIDECAR)
    sidecar["args"] += ["--drain-report=false", "--drain-gate-image=other:1", "--http-endpoint=:9000"]
    sidecar["ports"] = [{"name": "metrics", "containerPort": 8080}]
    found = containers(the("DaemonSet", built(tmp_path, "drop-in", "drain", "gate", "scraped", driver=daemon_set(sidecar))))[NAME]
    assert sorted(found["args"]) == sorted(
        {*SIDECAR["args"], "--node-drain-policy=NoSchedule", "--drain-report=true", *GATE, "--http-endpoint=:8080"}
    )
    assert found["ports"] == [{"name": "http", "containerPort": 8080}]


@pytest.mark.parametrize("component", WITH_FLAGS)
def test_over_the_base_it_adds_nothing_twice(tmp_path: Path, component: str) -> None:
    base, folder = (os.path.relpath(DEPLOY / part, tmp_path) for part in ("base", f"components/{component}"))
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "components": [folder]}))
    for container in containers(the("DaemonSet", rendered(tmp_path))).values():
        words = [word.partition("=")[0] for word in container["args"]]
        assert len(set(words)) == len(words)
        assert len({port["name"] for port in container.get("ports", ())}) == len(container.get("ports", ()))
