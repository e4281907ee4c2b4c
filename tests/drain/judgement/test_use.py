"""Who uses a volume, and that an eviction does not make it idle."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.facts.snapshot import Snapshot, Surroundings
from sidecar.drain.judgement.assess import assess
from sidecar.drain.vocabulary import Intent, Policy, Reason, Status, VolumeClass
from tests.harness.drain import samples

WAITING = samples.pod("db-0", "data-0", node="", phase="Pending", ready=False)
ELSEWHERE = samples.pod("reader", "data-0", node="n2")

AFTER_EVICTION: list[dict[str, Any]] = [
    {"claimants": (WAITING,)},
    {"lately_used": frozenset({"apps/data-0"})},
    {"attached": frozenset({"pv-0"})},
    {"claimants": (ELSEWHERE,)},
]


def blocking(snapshot: Snapshot) -> tuple[list[Reason], list[Reason]]:
    found = assess(snapshot)
    by_intent = {intent: [blocker.reason for blocker in found.blockers if intent in blocker.blocks] for intent in Intent}
    for intent, reasons in by_intent.items():
        assert found.verdict(intent).status is (Status.FALSE if reasons else Status.TRUE)
    return by_intent[Intent.REBOOT], by_intent[Intent.RETIRE]


@pytest.mark.parametrize("changes", AFTER_EVICTION)
def test_an_evicted_pod_that_is_made_again_still_uses_its_volume(changes: dict[str, Any]) -> None:
    for policy in ("AllowIdle", None):
        claims = (samples.claim(policy=policy),)
        assert blocking(samples.used(claims=claims)) == blocking(samples.idle(claims=claims, **changes)) == ([], [Reason.VOLUME_IN_USE])


@pytest.mark.parametrize("changes", AFTER_EVICTION)
def test_under_block_the_eviction_itself_does_not_free_the_reboot(changes: dict[str, Any]) -> None:
    claims = (samples.claim(policy="Block"),)
    expected = [Reason.WOULD_STRAND], [Reason.VOLUME_IN_USE]
    assert blocking(samples.used(claims=claims)) == blocking(samples.idle(claims=claims, **changes)) == expected


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"claimants": (WAITING,)}, "pod apps/db-0, which waits for a node, names its claim"),
        ({"claimants": (ELSEWHERE,)}, "pod apps/reader on node n2 names its claim"),
        ({"attached": frozenset({"pv-0"})}, "it is attached to this node"),
        ({"lately_used": frozenset({"apps/data-0"})}, "a pod used it until a moment ago"),
        ({"pods": (samples.pod("db-0", "data-0"),), "attached": frozenset({"pv-0"})}, "used by apps/db-0"),
        (
            {"claimants": tuple(replace(WAITING, name=f"db-{number}") for number in range(4))},
            "pod apps/db-0, which waits for a node, names its claim, and 3 more pods",
        ),
    ],
)
def test_the_message_says_who_uses_it(changes: dict[str, Any], says: str) -> None:
    (blocker,) = assess(samples.idle(**changes)).blockers
    assert blocker.message == says
    (volume,) = assess(samples.idle(**changes)).volumes
    assert volume.class_ is VolumeClass.IN_USE


def test_the_pods_that_need_a_volume_are_named_wherever_they_are() -> None:
    (volume,) = assess(samples.used(claimants=(ELSEWHERE,))).volumes
    assert volume.pods == ("apps/db-0", "apps/reader")
    assert [pod.name for pod in assess(samples.used(claimants=(ELSEWHERE,))).pods] == ["db-0"]


def test_what_names_a_claim_of_the_same_name_that_was_made_later_uses_nothing_here() -> None:
    later = (samples.claim(uid="another", volume_name="pv-9"),)
    for changes in ({"claimants": (WAITING,)}, {"lately_used": frozenset({"apps/data-0"})}):
        (volume,) = assess(samples.idle(claims=later, **changes)).volumes
        assert volume.class_ is VolumeClass.IDLE
    assert assess(samples.idle(claimants=(replace(WAITING, namespace="others"),))).volumes[0].class_ is VolumeClass.IDLE


def test_a_pod_that_is_seen_on_the_node_and_without_one_is_one_pod() -> None:
    (volume,) = assess(samples.used(claimants=(WAITING,))).volumes
    assert volume.pods == ("apps/db-0",)


def test_a_pod_of_a_daemon_set_that_waits_is_evicted_by_nobody() -> None:
    agent = replace(WAITING, name="agent", owner=samples.owner("DaemonSet"))
    claims = (samples.claim(policy="Block"),)
    assert blocking(samples.idle(claims=claims, claimants=(agent,)))[0] == []
    assert blocking(samples.idle(claims=claims, claimants=(agent, WAITING)))[0] == [Reason.WOULD_STRAND]
    running = replace(agent, node="n1")
    assert blocking(samples.used(claims=claims, pods=(running,), claimants=(WAITING,)))[0] == [Reason.WOULD_STRAND]
    assert blocking(samples.used(claims=claims, pods=(running,), lately_used=frozenset({"apps/data-0"})))[0] == [Reason.WOULD_STRAND]
    assert blocking(samples.used(claims=claims, pods=(running,), attached=frozenset({"pv-0"})))[0] == []


def test_nobody_evicts_a_bare_pod_that_has_no_node() -> None:
    assert blocking(samples.idle(claimants=(replace(WAITING, owner=None),))) == ([], [Reason.VOLUME_IN_USE])


def test_E6_a_new_volume_blocks_nothing_until_a_pod_asks_for_it() -> None:
    new = {"never_used": frozenset({"pv-0"})}
    assert blocking(samples.idle(**new)) == ([], [])
    assert blocking(samples.idle(**new, claimants=(WAITING,))) == ([], [Reason.VOLUME_IN_USE])


def test_an_acknowledgement_says_nothing_while_somebody_uses_the_volume() -> None:
    kept = samples.volume(phase="Released", reclaim_policy="Retain", notes=samples.notes(ack="ann"))
    assert blocking(samples.idle(volumes=(kept,), claims=())) == ([], [])
    assert blocking(samples.idle(volumes=(kept,), claims=(), attached=frozenset({"pv-0"}))) == ([], [Reason.RECLAIM_RETAIN])


def test_volumes_of_a_pod_that_waits_for_a_node_go_together_or_not_at_all() -> None:
    volumes = (samples.volume(policy="Migrate"), samples.volume("pv-1", "data-1", policy="Block"))
    claims = (samples.claim(), samples.claim("data-1"))
    around = Surroundings((samples.node("n2"),), (samples.record("n2"),))
    waiting = replace(WAITING, claims=("data-0", "data-1"))
    (place,) = assess(samples.idle(volumes=volumes, claims=claims, claimants=(waiting,), surroundings=around)).places
    assert place.node == "" and place.excluded == (("pv-1", "its policy Block keeps it here, and pod apps/db-0 with it"),)


# --- whose claim it is ------------------------------------------------------------------------------------------------


def of_pod(claim: str = "db-0-scratch", **pod: Any) -> dict[str, Any]:
    """A generic ephemeral volume of db-0."""
    owner = replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0")
    return {
        "volumes": (samples.volume("pv-0", claim),),
        "claims": (samples.claim(claim, owner=owner),),
        "pods": (samples.pod("db-0", claim, **{"ephemeral": (claim,)} | pod),),
    }


@pytest.mark.parametrize("pod", [{}, {"phase": "Succeeded"}, {"deleting_since": samples.stamp(10)}])
def test_a_volume_that_its_pod_asked_for_as_ephemeral_goes_with_the_pod(pod: dict[str, Any]) -> None:
    assert blocking(samples.used(**of_pod(**pod))) == ([], [])
    waiting = of_pod(**pod)
    assert blocking(samples.used(**waiting | {"pods": (), "claimants": waiting["pods"]})) == ([], [])


def test_a_claim_that_a_pod_owns_and_does_not_ask_for_as_ephemeral_is_data_like_any_other() -> None:
    """Spark's driver pod owns the claims of its executors."""
    for changes in ({"ephemeral": ()}, {"uid": "another"}, {"ephemeral": ("db-0-other",)}, {"namespace": "others"}):
        assert blocking(samples.used(**of_pod(**changes)))[1] in ([Reason.VOLUME_IN_USE], [Reason.LAST_COPY])
    unseen = of_pod() | {"pods": ()}
    assert blocking(samples.used(**unseen)) == ([], [Reason.LAST_COPY])


def test_policies_still_count_for_what_is_in_use_by_a_pod_without_a_node() -> None:
    (volume,) = assess(samples.idle(claims=(samples.claim(policy="Ignore"),), claimants=(WAITING,))).volumes
    assert (volume.class_, volume.policy) == (VolumeClass.IN_USE, Policy.IGNORE)
    assert blocking(samples.idle(claims=(samples.claim(policy="Ignore"),), claimants=(WAITING,))) == ([], [])
