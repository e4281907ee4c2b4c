"""Values that nobody meant: of an old release, of an odd form, or taken by somebody else. They are refused by name, or do what they say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.charts import CHART, GATE, ON, RELEASE, SIDECAR, Values, helm, templated
from tests.deploy.manifests import DRIVER, Json, the, written

pytestmark = pytest.mark.real_api
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Json = yaml.safe_load((CHART / "values.yaml").read_text())
WITH_DAEMON_SET: Values = {"driver": DRIVER, "daemonSet": {"create": True, "driverContainers": [{"name": "driver", "image": "driver:v1"}]}}


def daemon_set(**values: Any) -> Values:
    return {"driver": DRIVER, "daemonSet": WITH_DAEMON_SET["daemonSet"] | values}


def test_every_value_that_has_a_default_is_required_so_that_none_is_taken_for_empty() -> None:
    """An old release's values lack new ones (`helm upgrade --reuse-values`), and `value: null` takes the default away. A policy for no
    account holds nobody back, and nothing shows it."""
    assert sorted(SCHEMA["required"]) == sorted(DEFAULTS)
    for name, value in DEFAULTS.items():
        if isinstance(value, dict):
            assert sorted(SCHEMA["properties"][name].get("required", [])) == sorted(value), name


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (daemon_set() | {"image": {"tag": "v1\n        command: [sh]"}}, "/image/tag"),
        (daemon_set() | {"image": {"repository": "sidecar # none"}}, "/image/repository"),
        (daemon_set() | {"commonLabels": {"helm.sh/chart": "another"}}, "/commonLabels"),
        (daemon_set(socketFolder="/var: lib\n"), "/daemonSet/socketFolder"),
        (daemon_set(name="a" * 64), "/daemonSet/name"),
        (daemon_set(podLabels={"app.kubernetes.io/name": "another"}), "/daemonSet/podLabels"),
        (daemon_set(driverContainers=[{"name": SIDECAR, "image": "driver:v1"}]), "/daemonSet/driverContainers/0/name"),
        (daemon_set(driverVolumes=[{"name": "plugin"}]), "/daemonSet/driverVolumes/0/name"),
        ({"driver": "a..b"}, "/driver"),
        ({"driver": "a" * 64}, "/driver"),
        ({"driver": DRIVER, "monitoring": ON | {"runbook": "https://x\n        evil: y"}}, "/monitoring/runbook"),
        *(
            ({"driver": DRIVER, "storageClasses": [{"name": "a", key: "b"}]}, "/storageClasses/0")
            for key in ("apiVersion", "kind", "metadata", "provisioner")
        ),
        ({"driver": DRIVER, "ownNode": ON | {"placement": None}}, "/ownNode': missing property 'placement"),
        ({}, "driver is required: the name"),
        ({"driver": DRIVER, "drian": ON}, "drian"),
        ({"driver": DRIVER, "gate": GATE}, "/drain/enabled"),
        ({"driver": DRIVER, "drain": ON, "gate": ON}, "/gate/guardImage"),
        ({"driver": DRIVER, "ownNode": ON | {"placement": "somewhere"}}, "/ownNode/placement"),
        ({"driver": DRIVER, "ownNode": ON | {"secretNamespaces": ["a'b"]}}, "/ownNode/secretNamespaces"),
        ({"driver": DRIVER, "daemonSet": {"create": True}}, "/daemonSet/driverContainers"),
        ({"driver": DRIVER, "reportOnly": ON}, "/drain/enabled"),
        ({"driver": DRIVER, "drain": ON, "reportOnly": ON}, "/reportOnly/socketFolder"),
        ({"driver": DRIVER, "drain": ON, "reportOnly": ON | {"socketFolder": "/a"}, "account": {"create": True}}, "/account/create"),
    ],
)
def test_a_value_that_cannot_be_meant_or_would_become_something_else_is_refused_by_name(values: Values, named: str) -> None:
    done = helm("template", RELEASE, str(CHART), values=values)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize("word", ["12", "1e5", "true", "no", "null", "0x1f"])
def test_a_name_that_reads_like_a_number_stays_a_name(word: str) -> None:
    values = daemon_set(name=word, socketFolder=f"/{word} #1") | {
        "driver": word,
        "image": {"repository": word, "tag": word},
        "account": {"name": word, "create": True},
        "rights": {"create": True},
        "drain": ON,
        "gate": ON | {"guardImage": f"{word}:"},
        "ownNode": ON,
        "scopedWatches": ON,
        "monitoring": ON | {"runbook": word},
        "csiDriver": {"create": True},
        "storageClasses": [{"name": word}],
        "networkPolicy": {"create": True},
    }
    made = templated(values, namespace=word, release=word)
    for item in made:
        names = [item["metadata"]["name"], item["metadata"].get("namespace", word), *item["metadata"].get("labels", {}).values()]
        assert all(isinstance(name, str) for name in names), item
        for subject in item.get("subjects", []):
            assert (subject["name"], subject["namespace"]) == (word, word)
    pod = the("DaemonSet", made)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["containers"][-1]["image"]) == (word, f"{word}:{word}")
    assert pod["containers"][-1]["args"][-1] == f"--drain-gate-image={word}:"
    assert pod["volumes"][1]["hostPath"]["path"] == f"/{word} #1"
    assert the("StorageClass", made)["provisioner"] == the("CSIDriver", made)["metadata"]["name"] == word
    assert the("NetworkPolicy", made)["spec"]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": word}


def test_releases_of_one_name_in_two_namespaces_have_nothing_in_common() -> None:
    """Helm takes no object that another release has. What a cluster has once is left out: the types, and what the README says."""
    values = daemon_set() | {
        "account": {"create": True},
        "rights": {"create": True},
        "drain": ON,
        "gate": GATE,
        "ownNode": ON,
        "monitoring": ON,
        "networkPolicy": {"create": True},
    }
    one, two = (
        {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in templated(values, namespace=namespace)}
        for namespace in ("one", "two")
    )
    assert {kind for kind, *_ in one & two} == {"CustomResourceDefinition"}


def notes_of(values: Values, folder: Path, *more: str) -> str:
    """Helm shows them only beside a cluster, so here a copy of the chart has them in an object."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    notes = chart / "templates" / "NOTES.txt"
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{- define "notes" }}}}{notes.read_text()}{{{{ end }}}}')
    notes.unlink()
    (chart / "templates" / "notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | toJson }}\n')
    done = helm("template", RELEASE, str(chart), "--show-only=templates/notes.yaml", *more, values=values)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["text"])


COMPONENTS = {
    "drain": "drain",
    "emptying": "emptying",
    "maintenance": "maintenance",
    "reprovision": "reprovision",
    "failover": "failover",
    "nodeLoss": "node-loss",
    "gate": "gate",
    "scopedWatches": "scoped-watches",
    "monitoring": "scraped",
}
NEEDS = {name: ["drain"] for name in ("gate", "emptying", "maintenance", "failover", "nodeLoss")} | {"reprovision": ["drain", "emptying"]}
NO_FLAGS = {"node-name", "port-name"}


def flags_of(component: str) -> list[str]:
    data = written("components", component, "flags.yaml")[0]["data"]
    return [flag.replace("=IMAGE", f"={GATE['guardImage']}") for key, flag in data.items() if key not in NO_FLAGS]


@pytest.mark.parametrize("value", [*COMPONENTS, "all", "none"])
def test_the_notes_name_the_flags_that_the_components_give(value: str, tmp_path: Path) -> None:
    on = [*COMPONENTS] if value == "all" else [] if value == "none" else [*NEEDS.get(value, ()), value]
    values: Values = {"driver": DRIVER} | {name: GATE if name == "gate" else ON for name in on}
    wanted = sorted(flag for name in on for flag in flags_of(COMPONENTS[name]))
    notes = notes_of(values, tmp_path)
    assert sorted(line.strip() for line in notes.splitlines() if line.startswith("  --")) == wanted
    assert ("(none)" in notes) == (value == "none")
    assert ('csi-node-sidecar.io/scrape: "true"' in notes) == ("monitoring" in on)


def test_an_upgrade_without_drain_decisions_says_what_takes_their_marks_away(tmp_path: Path) -> None:
    """Who switches them off takes the sidecar's flags and rights away at once, so its marks on nodes, and the gates, stay."""
    wanted = f"csi-node-sidecar uninstall --driver {DRIVER}"
    assert wanted in notes_of(WITH_DAEMON_SET, tmp_path / "a", "--is-upgrade")
    assert wanted not in notes_of(WITH_DAEMON_SET | {"drain": ON}, tmp_path / "b", "--is-upgrade")
    assert wanted not in notes_of(WITH_DAEMON_SET, tmp_path / "c")
