"""Disruption budgets, as the API server will apply them when these pods are evicted one after the other."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.assessment import BudgetFall
from sidecar.drain.budgets import Weighed, weigh
from sidecar.model.nodes import Budget, Pod
from sidecar.model.topology import Requirement
from tests.drain import samples

PODS = tuple(samples.pod(f"db-{n}") for n in range(3))
NAMES = tuple(pod.full_name for pod in PODS)


def weighed(*budgets: Budget, pods: Iterable[Pod] = PODS, stranded: Iterable[str] = NAMES) -> Weighed:
    return weigh(budgets, pods, stranded=frozenset(stranded))


def test_each_stranded_pod_takes_one_from_what_the_budget_allows() -> None:
    found = weighed(samples.budget(allowed=2))
    assert found.blocked == {"apps/db-2": "apps/db"}
    assert found.falls == (BudgetFall("apps/db", 2, 3, NAMES),)
    assert found.selecting == dict.fromkeys(NAMES, ("apps/db",))


def test_a_pod_that_becomes_ready_elsewhere_gives_it_back() -> None:
    found = weighed(samples.budget(allowed=1), stranded=["apps/db-2"])
    assert found.blocked == {} and found.falls == (BudgetFall("apps/db", 1, 1, ("apps/db-2",)),)
    assert weighed(samples.budget(allowed=1), stranded=()).falls == ()


def test_where_nothing_is_allowed_every_pod_is_blocked() -> None:
    assert set(weighed(samples.budget(allowed=0), stranded=()).blocked) == set(NAMES)


def test_budgets_that_fall_are_told_by_name() -> None:
    pods = (samples.pod("a", labels={"app": "web"}), samples.pod("b"))
    found = weighed(samples.budget("x"), samples.budget("y", labels={"app": "web"}), pods=pods, stranded=["apps/a", "apps/b"])
    assert [(fall.budget, fall.pods) for fall in found.falls] == [("apps/x", ("apps/b",)), ("apps/y", ("apps/a",))]


def test_a_budget_that_allows_more_than_the_node_takes_does_not_fall() -> None:
    found = weighed(samples.budget(allowed=4))
    assert found.blocked == {} and found.falls == ()


@pytest.mark.parametrize("changes", [{"deleting_since": samples.stamp()}, {"phase": "Pending"}, {"phase": "Succeeded"}])
def test_pods_that_no_budget_is_asked_about_take_nothing(changes: dict[str, Any]) -> None:
    pod = samples.pod("db-0", **changes)
    assert weighed(samples.budget(allowed=0), pods=(pod,)).blocked == {}
    assert weighed(samples.budget(allowed=0), pods=(pod,)).falls == ()
    assert weighed(samples.budget(), samples.budget("also"), pods=(pod,)).doubled(pod) == ()


@pytest.mark.parametrize("changes", [{"static": True}, {"owner": samples.owner("DaemonSet")}])
def test_pods_that_stay_are_selected_and_take_nothing(changes: dict[str, Any]) -> None:
    found = weighed(samples.budget(allowed=0), pods=(samples.pod("db-0", **changes),))
    assert (found.blocked, found.falls, found.selecting) == ({}, (), {"apps/db-0": ("apps/db",)})


def test_the_pods_are_taken_in_the_order_of_their_names() -> None:
    assert set(weighed(samples.budget(allowed=2), pods=reversed(PODS)).blocked) == {"apps/db-2"}


def test_E8_of_a_pod_with_two_budgets_both_are_named_and_neither_is_charged() -> None:
    found = weighed(samples.budget("z", allowed=0), samples.budget("a", allowed=0))
    assert found.doubled(PODS[0]) == ("apps/a", "apps/z")
    assert found.blocked == {} and found.falls == ()
    assert weighed(samples.budget()).doubled(PODS[0]) == ()


def test_what_the_server_has_not_counted_is_not_known() -> None:
    found = weighed(samples.budget(allowed=0, observed=False))
    assert found.uncounted == dict.fromkeys(NAMES, "apps/db") and found.blocked == {} and found.falls == ()


VALUES = st.sampled_from(["a", "b", ""])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), VALUES, max_size=2)
EXPRESSIONS = st.builds(
    Requirement,
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(VALUES, max_size=3).map(tuple),
)
BUDGETS = st.builds(
    lambda number, namespace, labels, expressions, selects: samples.budget(
        f"b{number}", namespace=namespace, labels=labels, expressions=tuple(expressions), selects=selects
    ),
    st.integers(0, 9),
    st.sampled_from(["apps", "others"]),
    LABELS,
    st.lists(EXPRESSIONS, max_size=2),
    st.booleans(),
)


@given(st.lists(BUDGETS, max_size=6, unique_by=lambda item: item.full_name), LABELS)
def test_the_budgets_of_a_pod_are_found_as_if_each_was_looked_at(budgets: list[Budget], labels: dict[str, str]) -> None:
    pod = samples.pod("db-0", labels=labels)
    expected = tuple(sorted(budget.full_name for budget in budgets if budget.covers(pod)))
    assert weighed(*budgets, pods=(pod,)).selecting.get(pod.full_name, ()) == expected
