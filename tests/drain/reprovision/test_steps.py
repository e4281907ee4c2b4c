"""The next step of a replica that is made anew, from what is stored and what was just read: each of them, the undo, and what goes wrong."""

from dataclasses import replace
from typing import Any

from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.lock import Lock, Name, Refusal
from sidecar.drain.reprovision.record import ClaimName, Record, Stage
from sidecar.drain.reprovision.steps import (
    Await,
    DeleteClaims,
    Evict,
    Finish,
    Hold,
    Mark,
    Result,
    StepView,
    TakeBack,
    Unmark,
    decide,
)
from sidecar.drain.vocabulary import Hindrance
from tests.harness.drain import samples
from tests.harness.drain.replica import ME, WORKLOAD, claim, facts, found, noted, replica, target
from tests.harness.drain.samples import NOW, stamp

OPEN = (Lock(Name.POLICY, None),)
SHUT = (Lock(Name.POLICY, None), Lock(Name.REPLICAS, Refusal(Hindrance.REPLICA_NOT_READY, "db-2 is not ready")))
MARKED = {"data-db-0": noted(mark="n1/uid-n1")}
ANEW = {"data-db-0": found(claim=claim(uid="uid-new"), volume=None)}
WAITS = replica(0, uid="uid-made-again", ready=False, phase="Pending")
PENDING = replace(WAITS, node="")
KEPT = Refusal(Hindrance.PAUSED, "a webhook denied it")
UNDONE = "it was undone"
TAKEN, EVICTING, DELETING = Stage.TAKEN, Stage.EVICTING, Stage.DELETING


def step(stage: Stage, of: Facts, *, shut: bool = False, **changes: Any) -> Any:
    record = changes.pop("record", Record(target(), stage, NOW - 110, NOW - 100))
    view = StepView(record, of, SHUT if shut else OPEN, ME, undone="", now=NOW)
    return decide(replace(view, **changes))


def there(claims: Any = None, *, pod: Any = None) -> Facts:
    """All three replicas, db-0 on n1."""
    return facts(pod or replica(0), replica(1), replica(2), claims=found_or(claims))


def away(claims: Any = None, *pods: Any) -> Facts:
    """db-0 is gone."""
    return facts(*pods, replica(1), replica(2), claims=found_or(claims))


def found_or(claims: Any) -> Any:
    return {"data-db-0": found()} if claims is None else claims


# --- F1: one step after the other ----------------------------------------------------------------------------------------


def test_drain_F1_it_is_marked_first() -> None:
    decision = step(TAKEN, there())
    assert isinstance(decision, Mark)
    assert [each.claim.name for each in decision.claims] == ["data-db-0"]


def test_drain_F1_then_evicted_by_its_uid() -> None:
    for stage in [TAKEN, EVICTING]:
        decision = step(stage, there(MARKED))
        assert isinstance(decision, Evict)
        assert decision.pod.uid == replica(0).uid


def test_drain_F3_nothing_is_deleted_under_a_pod_that_is_there() -> None:
    for stage in list(Stage):
        assert isinstance(step(stage, there(MARKED)), Evict)
        ending = step(stage, there(MARKED, pod=replica(0, deleting_since=stamp())))
        assert isinstance(ending, Await)
        assert not ending.replacement


def test_drain_F1_the_claims_are_deleted_when_the_pod_is_gone() -> None:
    for pods in [
        (),  # gone
        (PENDING,),  # made again and waiting
    ]:
        for stage in [EVICTING, DELETING]:
            decision = step(stage, away(MARKED, *pods))
            assert isinstance(decision, DeleteClaims)
            assert [each.claim.uid for each in decision.claims] == ["uid-apps-data-db-0"]


def test_a_pod_that_waits_for_a_node_from_the_start_needs_no_eviction() -> None:
    """A drainer has evicted it."""
    waiting = Record(replace(target(), pod_uid=PENDING.uid), TAKEN, NOW, NOW)
    assert isinstance(step(TAKEN, away(None, PENDING), record=waiting), Mark)
    assert isinstance(step(TAKEN, away(MARKED, PENDING), record=waiting), DeleteClaims)


def test_after_the_deletion_the_replacement_is_waited_for() -> None:
    for claims in [
        {},  # gone
        ANEW,  # made again
        {"data-db-0": found(claim=claim(deleting=True))},  # ending
    ]:
        decision = step(DELETING, away(claims, PENDING))
        assert isinstance(decision, Await)
        assert decision.replacement


def test_the_replacement_has_to_be_ready_for_a_while() -> None:
    ready = away(ANEW, replica(0, node="n4", uid="uid-made-again"))
    assert isinstance(step(DELETING, ready, ready_for=9.9), Await)
    decision = step(DELETING, ready, ready_for=10.0)
    assert isinstance(decision, Finish)
    assert (decision.result, decision.pod) == (Result.READY, ready.pods[0])
    slower = replace(ready, workload=replace(WORKLOAD, ready_for=60.0))
    assert isinstance(step(DELETING, slower, ready_for=59.0), Await)


def test_what_is_no_replacement_that_is_ready() -> None:
    for changes in [{"ready": False}, {"node": ""}, {"deleting_since": stamp()}, {"owner": samples.owner(name="x")}]:
        assert isinstance(step(DELETING, away(ANEW, replica(0, **{"node": "n4"} | changes)), ready_for=1e6), Await)


# --- shut locks -----------------------------------------------------------------------------------------------------------
def test_with_a_shut_lock_nobody_is_evicted_and_the_lease_is_given_back() -> None:
    for stage in [TAKEN, EVICTING]:
        decision = step(stage, there(MARKED), shut=True)
        assert isinstance(decision, TakeBack)
        assert [each.claim.name for each in decision.claims] == ["data-db-0"]
        assert Hindrance.REPLICA_NOT_READY in decision.why
        assert step(stage, there(), shut=True).claims == ()


def test_the_lease_is_kept_until_an_eviction_that_was_not_answered_can_come_no_more() -> None:
    """Meanwhile another node would find this pod ready, and send another one away."""
    for how in [
        {"shut": True},  # shut
        {"undone": UNDONE},  # undone
        {"kept": KEPT},  # kept
    ]:
        asked = Record(target(), EVICTING, NOW - 100, NOW - 80)
        decision = step(EVICTING, there(MARKED), record=asked, **how)
        assert isinstance(decision, Hold)
        assert (decision.hindrance, decision.is_overdue) == (Hindrance.POD_LEAVING, False)
        assert isinstance(step(EVICTING, there(MARKED), record=asked, now=NOW + 10, **how), TakeBack)
        assert isinstance(step(TAKEN, there(MARKED), record=replace(asked, stage=TAKEN), **how), TakeBack)
        assert isinstance(step(EVICTING, there(MARKED), record=asked, now=NOW - 400, **how), TakeBack), "a clock that was set back"


def test_where_another_node_is_emptied_and_no_budget_keeps_it_away_the_eviction_waits() -> None:
    """It may have looked before there was a Lease. Those that look later see that."""
    taken = Record(target(), TAKEN, NOW - 100, NOW - 100)
    both = replace(there(MARKED), emptied=frozenset({"n2"}))
    decision = step(TAKEN, both, record=taken)
    assert isinstance(decision, Hold)
    assert decision.hindrance is Hindrance.ANOTHER_NODE_FIRST
    assert "n2" in decision.why
    assert isinstance(step(TAKEN, both, record=taken, now=NOW + 24), Evict)
    assert isinstance(step(TAKEN, replace(both, budgets=(samples.budget(allowed=1),)), record=taken), Evict)
    assert isinstance(step(TAKEN, replace(both, emptied=frozenset({"n9"})), record=taken), Evict)


def test_what_was_evicted_and_is_not_back_in_time_is_told_whatever_it_waits_for() -> None:
    for scene, shut in ((away(MARKED), True), (there(MARKED, pod=replica(0, deleting_since=stamp())), False)):
        decision = step(EVICTING, scene, shut=shut, now=NOW + 1800)
        assert isinstance(decision, Hold)
        assert decision.is_overdue
    unasked = there(MARKED, pod=replica(0, deleting_since=stamp()))
    assert isinstance(step(TAKEN, unasked, now=NOW + 1800), Await), "nobody here has asked it to end"


def test_after_the_eviction_nobody_waits_for_a_replica_that_nobody_wants_any_more() -> None:
    for workload in [None, replace(WORKLOAD, uid="uid-other"), replace(WORKLOAD, start=1, replicas=2)]:
        decision = step(EVICTING, replace(away(MARKED), workload=workload), shut=True)
        assert isinstance(decision, TakeBack)
        assert [each.claim.name for each in decision.claims] == ["data-db-0"]


def test_with_a_shut_lock_nothing_is_deleted_and_the_lease_is_kept() -> None:
    """A replica is away by our doing, so no other node may send one away."""
    for stage in [EVICTING, DELETING]:
        decision = step(stage, away(MARKED), shut=True)
        assert isinstance(decision, Hold)
        assert (decision.hindrance, decision.is_overdue) == (Hindrance.REPLICA_NOT_READY, False)


def test_after_the_timeout_what_is_in_its_way_holds_up_no_others() -> None:
    """Nor does a record that says it was written in the far future."""
    for at in [NOW - 1800, NOW + 1800, 1e300]:
        record = Record(target(), EVICTING, at, at)
        ending = step(EVICTING, there(MARKED, pod=replica(0, deleting_since=stamp())), record=record)
        shut = step(EVICTING, away(MARKED), shut=True, record=record)
        later = replace(away(ANEW, replica(0, node="n4", uid="uid-made-again")), workload=replace(WORKLOAD, ready_for=2.0**31))
        years = step(DELETING, later, record=replace(record, stage=DELETING), ready_for=9e6)
        assert [each.hindrance for each in (ending, shut, years)] == [Hindrance.REPLACEMENT_NOT_READY] * 3
        assert all(each.is_overdue for each in (ending, shut, years))
        assert Hindrance.REPLICA_NOT_READY in shut.why


# --- the undo -------------------------------------------------------------------------------------------------------------
def test_undone_before_the_deletion_the_mark_and_the_lease_go() -> None:
    for scene in [
        there(MARKED),  # there
        away(MARKED),  # gone
        away(MARKED, PENDING),  # waiting
    ]:
        for stage in list(Stage):
            decision = step(stage, scene, undone=UNDONE)
            assert isinstance(decision, TakeBack)
            assert (len(decision.claims), decision.why) == (1, UNDONE)


def test_undone_after_the_deletion_it_is_waited_for_wherever_it_is_ready() -> None:
    assert isinstance(step(DELETING, away(ANEW, PENDING), undone=UNDONE), Await)
    back = step(DELETING, there(ANEW), undone=UNDONE, ready_for=10.0)
    assert isinstance(back, Finish)
    assert back.result is Result.READY


def test_a_pod_that_has_returned_to_its_data_is_left_alone() -> None:
    """Somebody let it in while nobody looked."""
    decision = step(EVICTING, away(MARKED, WAITS))
    assert isinstance(decision, TakeBack)
    assert len(decision.claims) == 1


# --- several claims -------------------------------------------------------------------------------------------------------

BOTH = Record(replace(target(), claims=(*target().claims, ClaimName("logs-db-0", "uid-apps-logs-db-0"))), DELETING, NOW, NOW)
LOGS = replace(noted(mark="n1/uid-n1"), claim=replace(noted(mark="n1/uid-n1").claim, name="logs-db-0", uid="uid-apps-logs-db-0"))


def test_all_claims_of_a_pod_are_deleted_after_a_crash_too() -> None:
    whole = step(DELETING, away({**MARKED, "logs-db-0": LOGS}), record=BOTH)
    assert len(whole.claims) == 2
    half = away({"data-db-0": ANEW["data-db-0"], "logs-db-0": LOGS}, PENDING)
    decision = step(DELETING, half, record=BOTH)
    assert isinstance(decision, DeleteClaims)
    assert [each.claim.name for each in decision.claims] == ["logs-db-0"]
    assert isinstance(step(DELETING, half, record=BOTH, shut=True), Hold)
    late = step(DELETING, half, record=BOTH, shut=True, now=NOW + 1800)
    assert late.is_overdue


def test_undone_in_between_the_claims_nothing_more_is_deleted() -> None:
    half = away({"data-db-0": ANEW["data-db-0"], "logs-db-0": LOGS}, PENDING)
    decision = step(DELETING, half, record=BOTH, undone=UNDONE)
    assert isinstance(decision, Unmark)
    assert [each.claim.name for each in decision.claims] == ["logs-db-0"]
    unmarked = replace(LOGS, claim=replace(LOGS.claim, notes=()))
    rest = replace(half, claims={**half.claims, "logs-db-0": unmarked})
    assert isinstance(step(DELETING, rest, record=BOTH, undone=UNDONE), Await)
    assert isinstance(step(DELETING, rest, record=BOTH), Mark), "asked for again, it is marked again before it is deleted"


def test_between_the_claims_of_an_unwanted_replica_first_the_mark_goes_then_the_lease() -> None:
    for workload in [
        None,  # gone
        replace(WORKLOAD, uid="other"),  # another
        replace(WORKLOAD, start=1),  # scaled
    ]:
        half = replace(away({"data-db-0": ANEW["data-db-0"], "logs-db-0": LOGS}, PENDING), workload=workload)
        assert isinstance(step(DELETING, half, record=BOTH, shut=True), Unmark)
        unmarked = replace(LOGS, claim=replace(LOGS.claim, notes=()))
        over = step(DELETING, replace(half, claims={**half.claims, "logs-db-0": unmarked}), record=BOTH, shut=True)
        assert over.result is Result.GIVEN_UP


# --- bad input ------------------------------------------------------------------------------------------------------------
def test_a_claim_that_somebody_else_deleted_or_made_again_is_not_touched() -> None:
    for claims in [
        {},  # gone
        ANEW,  # another one of its name
    ]:
        for stage in [TAKEN, EVICTING]:
            decision = step(stage, there(claims))
            assert isinstance(decision, TakeBack)
            assert (decision.claims, Hindrance.CLAIM_CHANGED in decision.why) == ((), True)


def test_nobody_waits_for_a_replica_that_nobody_makes() -> None:
    for workload in [
        None,  # gone
        replace(WORKLOAD, uid="other"),  # another one
        replace(WORKLOAD, deleting=True),  # being deleted
        replace(WORKLOAD, replicas=0),  # scaled down
        replace(WORKLOAD, start=1),  # other ordinals
    ]:
        decision = step(DELETING, replace(away(ANEW, PENDING), workload=workload))
        assert isinstance(decision, Finish)
        assert decision.result is Result.GIVEN_UP


def test_drain_G8_a_replacement_is_late_by_this_nodes_clock_and_nothing_is_given_up() -> None:
    assert isinstance(step(DELETING, away(ANEW, PENDING), now=NOW - 100 + 1799), Await)
    decision = step(DELETING, away(ANEW, PENDING), now=NOW - 100 + 1800)
    assert isinstance(decision, Hold)
    assert (decision.hindrance, decision.is_overdue) == (Hindrance.REPLACEMENT_NOT_READY, True)
    assert isinstance(step(DELETING, away(ANEW, PENDING), now=NOW - 400), Await)
    assert isinstance(step(DELETING, away(ANEW, replica(0, node="n4")), now=NOW + 1e6, ready_for=10.0), Finish)


def test_a_pod_that_may_not_be_evicted_is_left_where_it_is() -> None:
    for changes in [{"static": True}, {"owner": samples.owner("DaemonSet", "agent")}]:
        assert isinstance(step(TAKEN, there(MARKED, pod=replica(0, **changes))), TakeBack)
        assert isinstance(step(TAKEN, there(MARKED), ours=frozenset({"apps/db-0"})), TakeBack)


def test_drain_G1_a_pod_of_another_uid_is_another_pod() -> None:
    assert isinstance(step(TAKEN, there(MARKED, pod=replica(0, uid="uid-other"))), TakeBack)
