"""Who uses a volume, and that an eviction makes no volume idle and no verdict True."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.vocabulary import Intent, Reason, Status, VolumeClass
from sidecar.model.nodes import Pod
from tests.harness.drain import samples, worlds

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


def test_an_evicted_pod_that_is_made_again_still_uses_its_volume() -> None:
    for changes in AFTER_EVICTION:
        for policy in ("AllowIdle", None):
            claims = (samples.claim(policy=policy),)
            assert blocking(samples.used(claims=claims)) == blocking(samples.idle(claims=claims, **changes)) == ([], [Reason.VOLUME_IN_USE])


def test_under_block_the_eviction_itself_does_not_free_the_reboot() -> None:
    claims, expected = (samples.claim(policy="Block"),), ([Reason.WOULD_STRAND], [Reason.VOLUME_IN_USE])
    for changes in AFTER_EVICTION:
        assert blocking(samples.used(claims=claims)) == blocking(samples.idle(claims=claims, **changes)) == expected


LATELY = frozenset({"apps/data-0"})


def test_the_message_says_who_uses_it() -> None:
    for changes, says in [
        ({"claimants": (WAITING,)}, "pod apps/db-0, which waits for a node, names its claim"),
        ({"claimants": (ELSEWHERE,)}, "pod apps/reader on node n2 names its claim"),
        ({"attached": frozenset({"pv-0"})}, "it is attached to this node"),
        (
            {"lately_used": LATELY, "lately_named": LATELY},
            "a pod used it until a moment ago: it counts as used for a minute, because that pod may be made again",
        ),
        ({"lately_used": LATELY}, "its sidecar has just begun, so it is not known yet whether a pod used it in the last minute"),
        ({"pods": (samples.pod("db-0", "data-0"),), "attached": frozenset({"pv-0"})}, "used by apps/db-0"),
        (
            {"claimants": tuple(replace(WAITING, name=f"db-{number}") for number in range(4))},
            "pod apps/db-0, which waits for a node, names its claim, and 3 more pods",
        ),
    ]:
        (blocker,) = assess(samples.idle(**changes)).blockers
        assert blocker.message == says
        (volume,) = assess(samples.idle(**changes)).volumes
        assert volume.class_ is VolumeClass.IN_USE


def test_what_names_a_claim_of_the_same_name_that_was_made_later_uses_nothing_here() -> None:
    later = (samples.claim(uid="another", volume_name="pv-9"),)
    for changes in ({"claimants": (WAITING,)}, {"lately_used": frozenset({"apps/data-0"})}):
        (volume,) = assess(samples.idle(claims=later, **changes)).volumes
        assert volume.class_ is VolumeClass.IDLE
    assert assess(samples.idle(claimants=(replace(WAITING, namespace="others"),))).volumes[0].class_ is VolumeClass.IDLE


def test_E6_a_new_volume_blocks_nothing_until_a_pod_asks_for_it() -> None:
    new = {"never_used": frozenset({"pv-0"})}
    assert blocking(samples.idle(**new)) == ([], [])
    assert blocking(samples.idle(**new, claimants=(WAITING,))) == ([], [Reason.VOLUME_IN_USE])


# --- whose claim it is ------------------------------------------------------------------------------------------------


def of_pod(claim: str = "db-0-scratch", **pod: Any) -> dict[str, Any]:
    """A generic ephemeral volume of db-0."""
    owner = replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0")
    return {
        "volumes": (samples.volume("pv-0", claim),),
        "claims": (samples.claim(claim, owner=owner),),
        "pods": (samples.pod("db-0", claim, **{"ephemeral": (claim,)} | pod),),
    }


def test_a_volume_that_its_pod_asked_for_as_ephemeral_goes_with_the_pod() -> None:
    for pod in [{}, {"phase": "Succeeded"}, {"deleting_since": samples.stamp(10)}]:
        assert blocking(samples.used(**of_pod(**pod))) == ([], [])
        waiting = of_pod(**pod)
        assert blocking(samples.used(**waiting | {"pods": (), "claimants": waiting["pods"]})) == ([], [])


def test_a_claim_that_a_pod_owns_but_not_as_ephemeral_is_data() -> None:
    """Spark's driver pod owns the claims of its executors."""
    for changes in ({"ephemeral": ()}, {"uid": "another"}, {"ephemeral": ("db-0-other",)}, {"namespace": "others"}):
        assert blocking(samples.used(**of_pod(**changes)))[1] in ([Reason.VOLUME_IN_USE], [Reason.LAST_COPY])
    unseen = of_pod() | {"pods": ()}
    assert blocking(samples.used(**unseen)) == ([], [Reason.LAST_COPY])


# --- An eviction makes no verdict True: what the pod's volume kept from being lost is still there ---


def made_again(snapshot: Snapshot, pod: Pod) -> Snapshot:
    again = replace(pod, uid=f"{pod.uid}-again", node="", phase="Pending", ready=False, deleting_since="")
    return replace(snapshot, claimants=(*snapshot.claimants, again))


def about_to_be_made_again(snapshot: Snapshot, pod: Pod) -> Snapshot:
    its = {f"{pod.namespace}/{claim}" for claim in pod.claims}
    return replace(snapshot, lately_used=snapshot.lately_used | its, lately_named=snapshot.lately_named | its)


def evicted(snapshot: Snapshot, pod: Pod) -> Snapshot:
    """The API server has granted it, and counts that to the pod's budget."""
    budgets = tuple(replace(budget, allowed=budget.allowed - budget.covers(pod)) for budget in snapshot.budgets or ())
    return replace(snapshot, pods=tuple(other for other in snapshot.pods if other != pod), budgets=budgets)


def may_be_evicted(snapshot: Snapshot) -> list[Pod]:
    """Those that a controller makes again, and that nothing keeps from being evicted now."""
    blocked = {blocker.name for blocker in assess(snapshot).blockers if blocker.kind == "Pod"}
    return [pod for pod in snapshot.pods if pod.owner and not pod.ended and not pod.stays and pod.name not in blocked]


@pytest.mark.parametrize("afterwards", [made_again, about_to_be_made_again])
@given(st.integers(0, 2**32))
def test_no_eviction_makes_a_verdict_true(afterwards: Callable[[Snapshot, Pod], Snapshot], seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    # What a budget with an outdated status allows does not matter any more once its pod is gone.
    snapshot = replace(snapshot, budgets=tuple(replace(budget, observed=True) for budget in snapshot.budgets or ()))
    for pod in may_be_evicted(snapshot):
        before, after = assess(snapshot), assess(afterwards(evicted(snapshot, pod), pod))
        for intent in Intent:
            assert before.verdict(intent).status is Status.TRUE or after.verdict(intent).status is not Status.TRUE, (pod, intent)
