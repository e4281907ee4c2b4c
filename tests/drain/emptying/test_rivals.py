"""Nodes that are emptied at once: which of them goes first with a workload that has pods on several."""

from itertools import permutations

import pytest

from sidecar.drain.emptying.rivals import SETTLED, Rivals
from sidecar.drain.facts.own_notes import State
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER

HERE, THERE, ELSEWHERE = "n1", "n2", "n3"
ROLES = (("primary", HERE), ("rest", THERE))
BEGUN = {HERE: "2026-01-01T00:00:05Z", THERE: "2026-01-01T00:00:00Z", ELSEWHERE: "2026-01-01T00:00:09Z"}


def emptied(*nodes: str, state: State = State.IN_PROGRESS) -> list[Node]:
    label, start = names.of_driver(DRIVER, names.EVACUATION_STATE), names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
    return [samples.node(name=name, labels={label: state}, annotations={start: BEGUN[name]}) for name in nodes]


def objection(*nodes: str, on: tuple[str, ...] = (THERE,), here: str = HERE, seconds: float = SETTLED, **budget: int) -> str:
    rivals = Rivals.of(emptied(*nodes), DRIVER, seconds=seconds)
    others = [samples.pod(f"db-{number}", node=node) for number, node in enumerate(on, start=1)]
    return rivals.objection(pod(here), others, [samples.budget("db", **budget)] if budget else [])


def pod(node: str = HERE, *, ready: bool = True) -> Pod:
    return samples.pod("db-0", node=node, ready=ready)


def test_alone_a_node_waits_for_nobody() -> None:
    assert objection(HERE, on=(THERE, ELSEWHERE), seconds=0.0) == ""


def test_where_replicas_are_not_on_nodes_that_are_emptied_too_nobody_waits() -> None:
    assert objection(HERE, THERE, on=(ELSEWHERE, HERE), seconds=0.0) == ""


def test_whose_evacuation_began_first_goes_first_and_the_others_wait() -> None:
    assert "n2, which is being emptied too" in objection(HERE, THERE)
    assert objection(HERE, ELSEWHERE, on=(ELSEWHERE,)) == ""


@pytest.mark.parametrize("listed", list(permutations(BEGUN)))
def test_of_all_that_have_replicas_exactly_one_goes(listed: tuple[str, ...]) -> None:
    places = tuple(BEGUN)
    going = [here for here in places if not objection(*listed, on=tuple(node for node in places if node != here), here=here)]
    assert going == [THERE]


def test_the_first_goes_only_when_all_others_have_seen_it() -> None:
    assert "may not have seen" in objection(HERE, ELSEWHERE, on=(ELSEWHERE,), seconds=SETTLED - 1.0)


def test_a_node_that_is_not_among_those_that_are_emptied_as_everybody_sees_it_waits() -> None:
    assert objection(ELSEWHERE, on=(ELSEWHERE,)) != ""


def test_one_that_only_waits_for_its_slot_is_no_rival() -> None:
    rivals = Rivals.of([*emptied(HERE), *emptied(THERE, state=State.PENDING)], DRIVER, seconds=0.0)
    assert rivals.objection(pod(), [samples.pod("db-1", node=THERE)], []) == ""


def test_a_budget_that_allows_one_keeps_nodes_apart() -> None:
    assert objection(HERE, THERE, allowed=1, seconds=0.0) == ""


@pytest.mark.parametrize("budgets", [[{"allowed": 2}], [{"allowed": 1, "observed": False}], [{"allowed": 1}, {"allowed": 1}]], ids=str)
def test_a_budget_that_allows_two_or_of_which_that_is_not_known_does_not(budgets: list[dict[str, int]]) -> None:
    made = [samples.budget(f"db-{number}", **each) for number, each in enumerate(budgets)]
    rivals = Rivals.of(emptied(HERE, THERE), DRIVER, seconds=SETTLED)
    assert rivals.objection(pod(), [samples.pod("db-1", node=THERE)], made) != ""


def test_a_budget_of_some_of_the_replicas_does_not() -> None:
    """Operators make one for the primary and another one for the rest, and some one for each pod."""
    mine, other = (samples.budget(name, allowed=1, labels={"app": "db", "role": name}) for name in ("primary", "rest"))
    rivals = Rivals.of(emptied(HERE, THERE), DRIVER, seconds=SETTLED)
    primary, replica = (samples.pod(f"db-{role}", node=node, labels={"app": "db", "role": role}) for role, node in ROLES)
    assert rivals.objection(primary, [replica], [mine, other]) != ""
    assert rivals.objection(primary, [replica], [samples.budget("all", allowed=1)]) == ""


def test_a_budget_is_not_asked_about_a_pod_that_is_not_ready() -> None:
    rivals = Rivals.of(emptied(HERE, THERE), DRIVER, seconds=SETTLED)
    assert rivals.objection(pod(ready=False), [samples.pod("db-1", node=THERE)], [samples.budget("db", allowed=1)]) != ""
