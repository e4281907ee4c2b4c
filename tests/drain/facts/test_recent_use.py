"""Whose pod was here a moment ago counts as used for a minute, and nothing is remembered for longer than it has to be."""

from dataclasses import replace

from sidecar.drain.facts.recent_use import RecentUse
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Owner
from tests.harness.drain.listed_cluster import meta


def pod(*claims: str) -> Pod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return Pod.of({"metadata": meta("p", namespace="default"), "spec": {"nodeName": "n1", "volumes": volumes}})


class Scene:
    def __init__(self) -> None:
        self.now = 1000.0
        self.recent = RecentUse(clock=lambda: self.now)

    def at(self, now: float, *claims: str, observed: bool = False) -> set[str]:
        self.now = now
        return set(self.recent.among(claims, observed=observed))


def test_a_claim_counts_for_a_minute_after_its_pod_was_seen_last() -> None:
    scene = Scene()
    scene.recent.named(pod("a"))
    assert scene.at(1059.9, "default/a", "default/b") == {"default/a"}
    assert scene.recent.ends_at(["default/a"], observed=True) == 1060.0
    assert scene.recent.settled_at("default/a") == float("-inf")
    assert scene.at(1060.0, "default/a") == set()
    assert scene.recent.ends_at(["default/a"], observed=True) is None
    assert scene.recent.settled_at("default/a") == 1060.0, "only a later list can show who made a pod for it in that minute"
    assert scene.at(1120.0, "default/a") == set()
    assert scene.recent.settled_at("default/a") == float("-inf")


def test_a_process_that_has_just_begun_takes_claims_for_used_while_somebody_empties_the_node() -> None:
    """It does not know which pods were evicted right before. In peace a restart changes nothing."""
    scene = Scene()
    assert scene.at(1000.0, "default/a", observed=True) == set(), "without pods nothing is known, and that is said elsewhere"
    scene.recent.began()
    assert scene.at(1059.0, "default/a", observed=True) == {"default/a"}
    assert scene.at(1059.0, "default/a") == set()
    scene.recent.began()
    assert scene.recent.ends_at(["default/a"], observed=True) == 1060.0
    assert scene.recent.ends_at(["default/a"], observed=False) is None
    assert scene.at(1060.0, "default/a", observed=True) == set()
    assert scene.recent.settled_at("default/a") == 1060.0


def test_what_a_pod_names_that_no_drain_evicts_tells_of_no_eviction() -> None:
    scene, of_daemon_set = Scene(), replace(pod("a", "b"), owner=Owner("apps/v1", names.DAEMON_SET, "agent", "u"))
    scene.recent.named(pod("a"))
    scene.now += 30.0
    scene.recent.named(of_daemon_set)
    assert scene.recent.evicted_among(["default/a", "default/b"], observed=True) == {"default/a"}
    scene.now += 30.0
    assert scene.recent.evicted_among(["default/a"], observed=True) == set()
    assert scene.at(1060.0, "default/a", "default/b") == {"default/a", "default/b"}


def test_old_names_are_forgotten() -> None:
    scene = Scene()
    for number in range(3000):
        scene.now += 1.0
        scene.recent.named(pod(f"c{number}"))
    assert len(scene.recent._named_at) <= 1001
