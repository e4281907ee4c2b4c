"""Pods elsewhere that name claims of volumes here: who is asked for them, how often, and what of the answer is kept."""

import asyncio
from typing import Any

import pytest

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.claimants_io import Claimants
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import Forbidden
from sidecar.model.nodes import Pod
from tests.harness.drain.listed_cluster import meta

Json = dict[str, Any]


def pod(name: str, claim: str, *, node: str = "", namespace: str = "default", phase: str = "Pending") -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"volumes": volumes} | ({"nodeName": node} if node else {})
    return {"metadata": meta(name, namespace=namespace), "spec": spec, "status": {"phase": phase}}


class Scene:
    """An API server with pods, a clock, and the part that asks."""

    def __init__(self, *pods: Json) -> None:
        self.pods, self.now, self.asked = list(pods), 1000.0, list[tuple[str, str, str]]()
        self.asking = Asking(clock=lambda: self.now)
        self.recent = RecentUse(clock=lambda: self.now)
        self.part = Claimants(self, self.asking, self.recent)  # type: ignore[arg-type]
        self.refused = False

    async def list_page(self, resource: Resource, *, namespace: str, field_selector: str, resource_version: str, **_: Any) -> Page:
        self.asked.append((namespace, field_selector, resource_version))
        if self.refused:
            raise Forbidden("no", status=403)
        of = [obj for obj in self.pods if obj["metadata"]["namespace"] == namespace]
        return Page([obj for obj in of if not (field_selector and obj["spec"].get("nodeName"))], "1", "")

    def look(self, *claims: str, observed: bool = False) -> list[str]:
        self.asking.begin()
        return [found.name for found in asyncio.run(self.part.of(claims, observed=observed))]


def test_a_pod_without_a_node_that_names_a_claim_is_found_once_a_minute() -> None:
    scene = Scene(pod("waits", "a"), pod("other", "b"), pod("there", "a", namespace="elsewhere"))
    assert [scene.look("default/a") for _ in range(5)] == [["waits"]] * 5
    assert scene.asked == [("default", "spec.nodeName=", "0")]
    scene.now += 60
    scene.look("default/a")
    assert len(scene.asked) == 2


def test_while_somebody_empties_the_node_pods_of_other_nodes_count_and_the_cache_is_not_asked() -> None:
    scene = Scene(pod("by-hand", "a", node="n2"))
    assert scene.look("default/a") == []
    assert scene.look("default/a", observed=True) == ["by-hand"]
    assert scene.asked[1] == ("default", "", "")


def test_without_an_idle_claim_nobody_is_asked() -> None:
    scene = Scene(pod("waits", "a"))
    assert (scene.look(), scene.asked) == ([], [])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_uses_nothing(phase: str) -> None:
    assert Scene(pod("job", "a", phase=phase)).look("default/a") == []


def test_a_claim_that_becomes_idle_later_is_asked_for_at_once() -> None:
    scene = Scene(pod("p", "a"), pod("q", "b"))
    assert scene.look("default/a") == ["p"]
    assert scene.look("default/a", "default/b") == ["p", "q"]
    assert scene.look("default/b") == ["q"]
    assert len(scene.asked) == 2


def test_a_pod_that_was_made_again_while_its_claim_counted_as_used_is_not_overlooked() -> None:
    """The list was made right before it came, and would be trusted when the claim counts no more."""
    scene = Scene()
    scene.recent.named(Pod.of(pod("p", "a", node="n1")))
    scene.now += 20
    assert scene.look("default/a", observed=True) == []
    scene.pods.append(pod("p", "a"))
    scene.now += 39
    assert scene.look("default/a", observed=True) == []
    assert scene.recent.among(["default/a"], observed=True)
    scene.now += 1
    assert not scene.recent.among(["default/a"], observed=True)
    assert scene.look("default/a", observed=True) == ["p"]


def test_a_refusal_is_told() -> None:
    scene = Scene()
    scene.refused = True
    assert scene.look("default/a", observed=True) == []
    assert scene.asking.ignorance == ["pods of namespace default: no"]
