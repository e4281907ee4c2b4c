"""Who uses a volume, as one process sees it: pods elsewhere, pods that were here a moment ago, and volumes that no pod has used."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.begun_uses import Missed
from sidecar.drain.facts.claimants_io import Claimants
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.drain.facts.waiting_claims import WaitingClaims
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
from tests.harness.drain.listed_cluster import claim, meta

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


# --- Whose pod was here a moment ago counts as used for a minute, and nothing is remembered for longer than it has to be ---


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


# --- What pods did while nobody watched, and when nobody can tell ---


def test_a_server_with_another_history_cannot_tell_what_happened() -> None:
    """It was put back to an earlier state: what pods did before it got there again is not between those versions."""

    def case(since: str, until: str, lost: bool) -> None:
        async def main() -> Missed | None:
            watched = SimpleNamespace(pod_lists=lambda: 2, pods_version=lambda: until)
            absence = Absence(cast(Any, None), "n0", watched=cast(Any, watched), clock=lambda: 7.0)
            running = asyncio.create_task(absence.run())
            absence.ask(since)
            for _ in range(3):
                await asyncio.sleep(0)
            running.cancel()
            return absence.take()

        assert asyncio.run(main()) == Missed(7.0, lost=lost)

    for since, until, lost in [("50", "50", False), ("51", "50", True), ("", "50", True)]:
        case(since, until, lost)


# --- How long claims have waited here, as far as one process has seen ---


def test_a_claim_waits_from_when_it_was_first_seen_until_it_is_bound_or_goes() -> None:
    now = 100.0
    waiting = WaitingClaims(clock=lambda: now)
    first, second = Claim.of(claim("a", selected="n1")), Claim.of(claim("b", selected="n1"))
    assert waiting.seconds([first]) == {"uid-a": 0.0}
    now = 130.0
    assert waiting.seconds([first, second]) == {"uid-a": 30.0, "uid-b": 0.0}
    assert waiting.seconds([second]) == {"uid-b": 0.0}
    now = 140.0
    assert waiting.seconds([first, second]) == {"uid-a": 0.0, "uid-b": 10.0}
    assert waiting.seconds([Claim.of(claim("a", selected="n1", volume_name="pv"))]) == {}


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


OTHER = ClaimRef("uid-b", "default", "b")


def told(*volumes: Volume, before: tuple[Volume, ...] = ()) -> frozenset[str]:
    """Which count as never used, after `before` and then, if there is none of them yet, MADE, and then `volumes` were seen."""
    seen = watches(CLAIM, replace(CLAIM, uid="uid-b", namespace="default", name="b"))
    known: dict[str, Volume] = {}
    for volume in (*before, *(() if before else (MADE,)), *volumes):
        seen.volume_changed(Change(volume.name, known.get(volume.name), volume))
        known[volume.name] = volume
    return seen.never_used.names()


def test_a_volume_that_another_claim_may_get_does_not_count_as_never_used() -> None:
    for ref in [
        None,  # none
        OTHER,  # b
        replace(OTHER, namespace=CLAIM.namespace, name=CLAIM.name),  # later
    ]:
        assert told(replace(MADE, claim=ref)) == told(replace(MADE, claim=ref), MADE) == frozenset()


def test_of_claims_that_pods_have_named_no_more_than_a_thousand_are_remembered() -> None:
    uses = Uses()
    for number in range(3000):
        uses.now += 1.0
        uses.recent.named(running(f"c{number}"))
    assert len(uses.recent._named_at) <= 1001
