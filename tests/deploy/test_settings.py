"""Several drivers' sidecars in one cluster: what their components bring stands side by side, and says whose it is."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import DEPLOY, Json, rendered

pytestmark = pytest.mark.real_api


@pytest.fixture(scope="module")
def second() -> list[Json]:
    return [item for item in rendered(DEPLOY / "examples" / "second-driver") if item["kind"] != "Namespace"]


def keys(objects: list[Json]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects}


def test_nothing_of_one_driver_overwrites_what_is_another_s(second: list[Json]) -> None:
    base = rendered(DEPLOY / "base")
    first = [item for item in rendered(DEPLOY / "overlays" / "gated") if item not in base and item["kind"] != "DaemonSet"]
    assert len(first) == len(second)
    assert not keys(first) & keys(second), "`kubectl delete -k` of one would take it from the other"


def test_what_is_referred_to_is_there(second: list[Json]) -> None:
    there = {(kind, name) for kind, _, name in keys(second)}
    for item in second:
        if "roleRef" in item:
            assert (item["roleRef"]["kind"], item["roleRef"]["name"]) in there
        elif item["kind"].endswith("PolicyBinding"):
            assert ("ValidatingAdmissionPolicy", item["spec"]["policyName"]) in there
