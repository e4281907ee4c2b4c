"""Where the controller of a StatefulSet waits for the replica that is to be made anew: what is not waited for then, and what is told."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.reprovision.lock import Name, Refusal
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod
from tests.drain.reprovision.scenes import LABELS, WORKLOAD, facts, replica, view

OLD = LABELS | {names.POD_REVISION: "db-0"}
ORDERED = replace(WORKLOAD, ordered=True, one_by_one=True)
PARALLEL = replace(ORDERED, ordered=False)


def waits(**changes: Any) -> Pod:
    return replica(0, node="", ready=False, **changes)


def refusal(name: Name, *pods: Pod, workload: Workload) -> Refusal | None:
    return next(lock.refusal for lock in look(view(facts(*pods, workload=workload))) if lock.name == name)


# --- a rollout ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [LABELS, OLD])
@pytest.mark.parametrize("other", [LABELS, OLD])
def test_the_rollout_of_an_ordered_set_stops_at_a_pod_that_is_not_ready(own: dict[str, str], other: dict[str, str]) -> None:
    assert refusal(Name.NOT_ROLLING, waits(labels=own), replica(1, labels=other), replica(2), workload=ORDERED) is None


@pytest.mark.parametrize(
    ("pods", "is_open"),
    [
        pytest.param((waits(), replica(1), replica(2)), True, id="it is the last one"),
        pytest.param((waits(labels=OLD), replica(1), replica(2)), False, id="it is replaced itself"),
        pytest.param((waits(), replica(1), replica(2, labels=OLD)), False, id="a later one is replaced first"),
    ],
)
def test_that_of_any_other_set_comes_from_its_last_pod_down(pods: tuple[Pod, ...], *, is_open: bool) -> None:
    assert (refusal(Name.NOT_ROLLING, *pods, workload=PARALLEL) is None) is is_open


def test_an_earlier_pod_that_is_still_to_be_rolled_out_waits_too() -> None:
    pods = (replica(0, labels=OLD), replica(1, node="", ready=False), replica(2))
    of = view(facts(*pods, workload=PARALLEL))
    target = replace(of.target, pod="db-1", pod_uid=pods[1].uid)
    found = next(lock.refusal for lock in look(replace(of, target=target)) if lock.name == Name.NOT_ROLLING)
    assert found is None


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        pytest.param(replica(0, labels=OLD), ORDERED, id="it runs"),
        pytest.param(waits(labels=OLD, deleting_since="2026-01-01T00:00:00Z"), ORDERED, id="it is being replaced"),
        pytest.param(waits(labels=OLD), replace(ORDERED, one_by_one=False), id="several may be away at once, or nobody replaces them"),
        pytest.param(waits(labels=OLD), replace(ORDERED, observed=False), id="the controller has not seen the last change"),
        pytest.param(waits(labels=OLD), replace(ORDERED, revision=""), id="nobody says which revision is wanted"),
    ],
)
def test_where_the_rollout_may_take_another_one_away_its_end_is_waited_for(pod: Pod, workload: Workload) -> None:
    found = refusal(Name.NOT_ROLLING, pod, replica(1), replica(2), workload=workload)
    assert found is not None and found.hindrance is Hindrance.WORKLOAD_ROLLING


@pytest.mark.parametrize(
    ("spec", "ordered", "one_by_one"),
    [
        ({}, True, True),
        (
            {"podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
            True,
            True,
        ),
        ({"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}, False, True),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}, True, False),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}}, True, False),
        ({"updateStrategy": {"type": "OnDelete"}}, True, False),
    ],
)
def test_how_a_set_is_rolled_out(spec: dict[str, Any], *, ordered: bool, one_by_one: bool) -> None:
    found = Workload.of({"metadata": {"name": "db", "uid": "uid-db"}, "spec": spec})
    assert (found.ordered, found.one_by_one) == (ordered, one_by_one)


# --- replicas that wait for one another -------------------------------------------------------------------------------------


def test_a_later_replica_that_is_made_only_after_this_one_is_told_and_not_simply_waited_for() -> None:
    """Its data may be the only other copy, so this one's is kept all the same."""
    found = refusal(Name.REPLICAS, waits(), replica(1), workload=ORDERED)
    assert found is not None and found.hindrance is Hindrance.EACH_WAITS
    assert "db-2 does not exist, and is made only once db-0 is ready" in found.why


@pytest.mark.parametrize(
    ("pods", "workload"),
    [
        pytest.param((replica(0), replica(1)), ORDERED, id="this one is ready"),
        pytest.param((waits(), replica(1)), PARALLEL, id="all are made at once"),
        pytest.param((waits(), replica(1), replica(2, ready=False)), ORDERED, id="it is there"),
    ],
)
def test_any_other_replica_that_is_missing_or_not_ready_comes_by_itself(pods: tuple[Pod, ...], workload: Workload) -> None:
    found = refusal(Name.REPLICAS, *pods, workload=workload)
    assert found is not None and found.hindrance is Hindrance.REPLICA_NOT_READY
