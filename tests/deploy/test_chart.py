"""The Helm chart says what the kustomizations say, object by object; settings that cannot be meant are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hack.charts import files
from hack.lib.control_plane import ControlPlane
from sidecar import __version__
from tests.deploy.charts import CHART, GATE, ON, RELEASE, SIDECAR, Values, helm, templated
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, Json, containers, rendered, the, written

pytestmark = pytest.mark.real_api
DEV = {"tag": "dev"}
CRD = "CustomResourceDefinition"
HELMS_LABELS = ("helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by")


def by_name(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Without namespaces, which Helm makes itself if asked to, and without the labels of Helm, which all have or none."""
    names = {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in objects}
    assert len(names) == len(objects)
    labels = [item["metadata"].get("labels", {}) for item in objects if item["kind"] != CRD]
    assert {sum(each.pop(label, "") != "" for label in HELMS_LABELS) for each in labels} in ({0}, {len(HELMS_LABELS)})
    return {key: item for key, item in names.items() if key[0] != "Namespace"}


@pytest.fixture(scope="module")
def base() -> Values:
    """Values by which the chart is the base."""
    objects = rendered(DEPLOY / "base")
    daemon_set = the("DaemonSet", objects)
    pod = daemon_set["spec"]["template"]["spec"]
    return {
        "driver": DRIVER,
        "image": DEV,
        "account": {"create": True},
        "rights": {"create": True},
        "daemonSet": {
            "create": True,
            "driverContainers": [item for name, item in containers(daemon_set).items() if name != SIDECAR],
            "driverVolumes": [item for item in pod["volumes"] if item["name"] not in ("api-access", "plugin")],
        },
        "csiDriver": {"create": True},
        "storageClasses": [
            {"name": item["metadata"]["name"]} | {key: item[key] for key in ("volumeBindingMode", "reclaimPolicy")}
            for item in objects
            if item["kind"] == "StorageClass"
        ],
        "networkPolicy": {"create": True},
    }


OVERLAYS: dict[str, Values] = {
    "base": {},
    "overlays/drained": {"drain": ON},
    "overlays/gated": {"drain": ON, "gate": GATE, "ownNode": ON},
    "overlays/monitored": {"monitoring": ON},
    "overlays/own-node": {"ownNode": ON},
}


TYPES = [f"{name}.csi-node-sidecar.io" for name in ("drainrules", "nodedrainreports", "plannedmaintenances")]
"""Helm installs them whatever is switched on, and never takes them away; by kustomize they are applied by themselves."""


def without_types(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    assert sorted(item["metadata"]["name"] for item in objects if item["kind"] == CRD) == TYPES
    return by_name([item for item in objects if item["kind"] != CRD])


def _of_the_release(item: Json) -> Json:
    """The chart's role for the whole cluster is called as the release and its namespace."""
    if not item["kind"].startswith("ClusterRole") or item["metadata"]["name"] != RELEASE:
        return item
    name = f"{RELEASE}--{NAMESPACE}"
    role = {"roleRef": item["roleRef"] | {"name": name}} if "roleRef" in item else {}
    return item | role | {"metadata": item["metadata"] | {"name": name}}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_it_says_what_the_kustomization_says(folder: str, base: Values) -> None:
    made = without_types(templated(base | OVERLAYS[folder]))
    wanted = by_name([_of_the_release(item) for item in rendered(DEPLOY / folder)])
    assert made.keys() == wanted.keys()
    for key, item in wanted.items():
        assert made[key] == item, key


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_it_labels_claims_as_the_component_does(version: str, base: Values, tmp_path: Path) -> None:
    component = "scoped-watches" if version == "v1" else "scoped-watches-v1beta1"
    values = base | {"scopedWatches": {"enabled": True, "policyVersion": version}}
    made = without_types(templated(values))
    folder = DEPLOY / f".test-{tmp_path.name}"
    folder.mkdir()
    try:
        build = {"kind": "Kustomization", "resources": ["../base"], "components": [f"../components/{component}"]}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
        assert made == by_name([_of_the_release(item) for item in rendered(folder)])
    finally:
        (folder / "kustomization.yaml").unlink()
        folder.rmdir()


def test_beside_a_driver_it_brings_what_the_components_bring() -> None:
    data = written("examples", "second-driver", "settings.yaml")[0]["data"]
    values = {
        "driver": data["driver"],
        "account": {"name": data["account"]},
        "drain": ON,
        "gate": ON | {"guardImage": data["guard-image"]},
        "ownNode": ON | {"placement": data["placement"], "secretNamespaces": data["secret-namespaces"].split()},
    }
    made = without_types(templated(values, namespace=data["namespace"], release="anything"))
    assert made == by_name(rendered(DEPLOY / "examples" / "second-driver"))


@pytest.mark.parametrize(("folder", "more"), [("reporting", {}), ("gated", {"gate": ON | {"guardImage": "registry.k8s.io/pause:3.10"}})])
@pytest.mark.parametrize("project", ["topolvm", "lvm-localpv"])
def test_beside_a_driver_that_provisions_centrally_it_reports(project: str, folder: str, more: Values) -> None:
    data = written("examples", project, "reporting", "settings.yaml")[0]["data"]
    values: Values = {
        "driver": data["driver"],
        "image": DEV,
        "account": {"name": data["account"]},
        "drain": ON,
        "reportOnly": ON | {"socketFolder": data["socket-folder"], "socket": data["socket"]},
    }
    made = without_types(templated(values | more, namespace=data["namespace"], release="anything"))
    assert made == by_name(rendered(DEPLOY / "examples" / project / folder))


def test_what_is_switched_off_is_not_there() -> None:
    assert sorted(item["metadata"]["name"] for item in templated({"driver": DRIVER})) == TYPES


def test_lint_has_nothing_to_say(base: Values) -> None:
    for values in (*(base | overlay for overlay in OVERLAYS.values()), {"driver": DRIVER}):
        done = helm("lint", "--strict", "--quiet", str(CHART), values=values)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("which", ["daemonSet", "reportOnly"])
def test_what_helm_users_set_is_where_it_belongs(which: str, base: Values) -> None:
    said: Values = {
        "priorityClassName": "ours",
        "nodeSelector": {"kubernetes.io/os": "plan9"},
        "tolerations": [{"key": "a"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    }
    other: Values = {"securityContext": {"runAsUser": 7}, "resources": {"limits": {"memory": "1Gi"}}}
    other |= {"updateStrategy": {"type": "OnDelete"}, "podSecurityContext": {"fsGroup": 8}}
    own = {"env": [{"name": "LANG", "value": "C"}], "extraVolumes": [{"name": "more", "emptyDir": {}}]}
    own |= {"extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]}
    values = dict(base) if which == "daemonSet" else {"driver": DRIVER, "drain": ON, "reportOnly": ON | {"socketFolder": "/a"}}
    values |= {"image": {"pullSecrets": [{"name": "login"}]}, "commonLabels": {"team": "12"}, "kubeletDir": "/k"}
    values |= {"daemonSet": base["daemonSet"] | {"create": which == "daemonSet"} | said | other | own, "nameOverride": "node"}
    values["monitoring"] = ON | {"labels": {"release": "prometheus", "team": "theirs"}}
    made = [item for item in templated(values) if item["kind"] != CRD]
    spec = the("DaemonSet", made)["spec"]
    pod, sidecar = spec["template"]["spec"], spec["template"]["spec"]["containers"][-1]
    assert said.items() <= pod.items()
    found = (
        spec["updateStrategy"]["type"],
        pod["securityContext"],
        sidecar["securityContext"]["runAsUser"],
        sidecar["resources"]["limits"],
    )
    assert found == ("OnDelete", {"fsGroup": 8}, 7, {"memory": "1Gi"})
    assert (sidecar["image"], pod["imagePullSecrets"]) == (f"csi-node-sidecar:v{__version__}", [{"name": "login"}])
    asked = {item["kind"]: item["metadata"]["labels"] for item in made if item["kind"] in ("PodMonitor", "PrometheusRule")}
    assert [(labels["release"], labels["team"]) for labels in asked.values()] == [("prometheus", "theirs")] * 2
    assert {item["metadata"]["labels"]["team"] for item in made if item["kind"] not in asked} == {"12"}
    if which == "daemonSet":
        assert own["env"][0] in sidecar["env"] and own["extraVolumes"][0] in pod["volumes"]
        assert own["extraVolumeMounts"][0] in sidecar["volumeMounts"]
        assert f"/k/plugins/{DRIVER}" in [item.get("hostPath", {}).get("path") for item in pod["volumes"]]
        assert spec["template"]["metadata"]["labels"]["team"] == "12"
        assert the("NetworkPolicy", made)["metadata"]["name"] == f"{RELEASE}-node"
        assert the("NetworkPolicy", templated(values | {"fullnameOverride": "it"}))["metadata"]["name"] == "it"


def test_the_page_has_every_value() -> None:
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| `")]
    for name, value in yaml.safe_load((CHART / "values.yaml").read_text()).items():
        for word in value if isinstance(value, dict) and value else [name]:
            assert any(f"`{name}" in row and (f".{word}`" in row or word == name) for row in rows), f"{name}: {word}"


def test_its_files_are_those_that_their_sources_make() -> None:
    assert [file.name for file, text in files().items() if file.read_text() != text] == []


def test_two_drivers_releases_are_installed_upgraded_and_taken_away(plane: ControlPlane, base: Values) -> None:
    """By Helm, on a real API server. What the second release leaves behind is what the first one uses, and nothing else."""
    first = base | {"drain": ON, "ownNode": ON}
    second: Values = {"driver": "disks.example.com", "account": {"name": "disks"}, "drain": ON, "ownNode": ON}
    where = (f"--kubeconfig={plane.kubeconfig}", "--create-namespace")
    for name, values in (("one", first), ("two", second)):
        for action in ("install", "upgrade"):
            done = helm(action, name, str(CHART), f"--namespace=chart-{name}", *where[: 2 if action == "install" else 1], values=values)
            assert done.returncode == 0, done.stderr
    assert "--node-drain-policy=NoSchedule" in done.stdout
    done = helm("uninstall", "two", "--namespace=chart-two", where[0])
    assert done.returncode == 0, done.stderr
    left = json.loads(plane.kubectl("get", "validatingadmissionpolicies", "-l=app.kubernetes.io/part-of=csi-node-sidecar", "-o=json"))
    assert {item["metadata"]["name"].partition("--")[2] for item in left["items"]} >= {f"{DRIVER}--chart-one"}
    assert not any("disks.example.com" in item["metadata"]["name"] for item in left["items"])
    plane.kubectl("get", "customresourcedefinition", "nodedrainreports.csi-node-sidecar.io")
    assert helm("uninstall", "one", "--namespace=chart-one", where[0]).returncode == 0
