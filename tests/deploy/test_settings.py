"""Several drivers' sidecars in one cluster: what their components bring stands side by side, and says whose it is."""

from __future__ import annotations

import re

import pytest
import yaml

from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, Json, rendered, written

pytestmark = pytest.mark.real_api
SHARED = "CustomResourceDefinition"
"""The same for all drivers, and of one name."""


@pytest.fixture(scope="module")
def first() -> list[Json]:
    base = rendered(DEPLOY / "base")
    return [item for item in rendered(DEPLOY / "overlays" / "gated") if item not in base and item["kind"] != "DaemonSet"]


@pytest.fixture(scope="module")
def second() -> list[Json]:
    return [item for item in rendered(DEPLOY / "examples" / "second-driver") if item["kind"] != "Namespace"]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return dict(written("examples", "second-driver", "settings.yaml")[0]["data"])


def keys(objects: list[Json]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects}


def test_nothing_of_one_driver_overwrites_what_is_another_s(first: list[Json], second: list[Json]) -> None:
    assert len(first) == len(second)
    assert {kind for kind, _, _ in keys(first) & keys(second)} == {SHARED}
    assert [item for item in first if item["kind"] == SHARED] == [item for item in second if item["kind"] == SHARED]


def test_every_cluster_scoped_name_says_driver_and_namespace(first: list[Json], second: list[Json], settings: dict[str, str]) -> None:
    for objects, driver, namespace in ((first, DRIVER, NAMESPACE), (second, settings["driver-in-names"], settings["namespace"])):
        for kind, _, name in keys(objects):
            assert kind == SHARED or name.endswith(f"--{driver}--{namespace}")


def test_what_is_referred_to_is_there(second: list[Json]) -> None:
    there = {(kind, name) for kind, _, name in keys(second)}
    for item in second:
        if "roleRef" in item:
            assert (item["roleRef"]["kind"], item["roleRef"]["name"]) in there
        elif item["kind"].endswith("PolicyBinding"):
            assert ("ValidatingAdmissionPolicy", item["spec"]["policyName"]) in there


def test_all_of_it_is_about_the_other_driver_and_nothing_else_differs(
    first: list[Json], second: list[Json], settings: dict[str, str]
) -> None:
    """But for the settings both are letter by letter the same."""
    text = yaml.safe_dump_all(sorted(first, key=_order))
    text = text.replace(f"system:serviceaccount:{NAMESPACE}:csi-node-sidecar", settings["user"])
    text = text.replace(f"--{DRIVER}--{NAMESPACE}", f"--{settings['driver-in-names']}--{settings['namespace']}")
    text = text.replace(f"'{DRIVER}'", f"'{settings['driver']}'").replace("docker.io/library/pause:dev", settings["guard-image"])
    text = text.replace("'''''.split('' '')'", f"'''{settings['secret-namespaces']}''.split('' '')'")
    text = re.sub(rf"(namespace|metadata.name): {NAMESPACE}\n", rf"\1: {settings['namespace']}\n", text)
    text = text.replace("- kind: ServiceAccount\n  name: csi-node-sidecar\n", f"- kind: ServiceAccount\n  name: {settings['account']}\n")
    assert yaml.safe_dump_all(sorted(second, key=_order)) == text
    assert DRIVER not in text and f"{names.GROUP}:" not in text


def _order(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"].partition("--")[0]
