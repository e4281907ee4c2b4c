"""Who uses a volume, as one process sees it: pods elsewhere, pods that were here a moment ago, and volumes that no pod has used."""

import asyncio
from dataclasses import replace
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.claimants_io import Claimants
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.drain.watches import DrainWatches
from sidecar.kube import reflector_state as reflector
from sidecar.kube.api import SNAPSHOT_CONTENTS, Change, Page, Resource
from sidecar.kube.errors import Forbidden
from sidecar.kube.store import Store
from sidecar.local.caches import Caches
from sidecar.local.here import Here, Options
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, ClaimRef, Source, Volume
from tests.harness import samples
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


def test_while_the_node_is_emptied_pods_of_other_nodes_are_listed_uncached() -> None:
    scene = Scene(pod("by-hand", "a", node="n2"))
    assert scene.look("default/a") == []
    assert scene.look("default/a", observed=True) == ["by-hand"]
    assert scene.asked[1] == ("default", "", "")


def test_a_refusal_is_told() -> None:
    scene = Scene()
    scene.refused = True
    assert scene.look("default/a", observed=True) == []
    assert scene.asking.ignorance == ["pods of namespace default: no"]


# --- Whose pod was here a moment ago counts as used for a minute ---


def running(*claims: str) -> Pod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return Pod.of({"metadata": meta("p", namespace="default"), "spec": {"nodeName": "n1", "volumes": volumes}})


class Uses:
    def __init__(self) -> None:
        self.now = 1000.0
        self.recent = RecentUse(clock=lambda: self.now)

    def at(self, now: float, *claims: str, observed: bool = False) -> set[str]:
        self.now = now
        return set(self.recent.among(claims, observed=observed))


def test_a_claim_counts_for_a_minute_after_its_pod_was_seen_last() -> None:
    scene = Uses()
    scene.recent.named(running("a"))
    assert scene.at(1059.9, "default/a", "default/b") == {"default/a"}
    assert scene.recent.ends_at(["default/a"], observed=True) == 1060.0
    assert scene.recent.settled_at("default/a") == float("-inf")
    assert scene.at(1060.0, "default/a") == set()
    assert scene.recent.ends_at(["default/a"], observed=True) is None
    assert scene.recent.settled_at("default/a") == 1060.0, "only a later list can show who made a pod for it in that minute"
    assert scene.at(1120.0, "default/a") == set()
    assert scene.recent.settled_at("default/a") == float("-inf")


def test_a_new_process_takes_all_claims_for_used_while_the_node_is_emptied() -> None:
    """It does not know which pods were evicted right before. In peace a restart changes nothing."""
    scene = Uses()
    assert scene.at(1000.0, "default/a", observed=True) == set(), "without pods nothing is known, and that is said elsewhere"
    scene.recent.began()
    assert scene.at(1059.0, "default/a", observed=True) == {"default/a"}
    assert scene.at(1059.0, "default/a") == set()
    scene.recent.began()
    assert scene.recent.ends_at(["default/a"], observed=True) == 1060.0
    assert scene.recent.ends_at(["default/a"], observed=False) is None
    assert scene.at(1060.0, "default/a", observed=True) == set()
    assert scene.recent.settled_at("default/a") == 1060.0


# --- What counts as never used: only volumes that this process has seen made empty. And what is watched for that ---


def watches(*claims: Claim) -> DrainWatches:
    caches = Caches(claims=Store(), classes=Store(), volumes=Store(), attachments=Store())
    for each in claims:
        caches.claims.apply(Change(each.uid, None, each))
    here = Here("n1", samples.info(), Options(), "me")
    return DrainWatches(here, caches, judges=True, state=lambda resource: reflector.Synced(), clock=lambda: 0.0)


def test_snapshots_are_watched_whatever_the_driver_can_do_today() -> None:
    assert SNAPSHOT_CONTENTS in [item.resource for item in watches().watches()]


CLAIM = replace(samples.claim(), uid="uid-a")
MADE = replace(Volume.of(samples.volume_json()), name="pv-a", identity="me", claim=ClaimRef("uid-a", CLAIM.namespace, CLAIM.name))


def test_only_what_is_known_to_have_been_made_empty_counts_as_never_used() -> None:
    for claims, known in [
        ([CLAIM], True),  # empty
        ([replace(CLAIM, source=Source("VolumeSnapshot", names.SNAPSHOT_GROUP, "s", CLAIM.namespace))], False),  # restored
        ([], False),  # claim gone
    ]:
        seen = watches(*claims)
        seen.volume_changed(Change("pv-a", None, MADE))
        assert ("pv-a" in seen.never_used.names()) is known
