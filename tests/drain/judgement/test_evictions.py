"""An eviction makes no verdict True: what the pod's volume kept from being lost is still there."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.vocabulary import Intent, Status
from sidecar.model.nodes import Pod
from tests.harness.drain import worlds


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
