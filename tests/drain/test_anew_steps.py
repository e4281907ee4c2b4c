"""Which replicas come into question, what is stored of one, and its next step: each of them, the undo, and what goes wrong."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain import anew
from sidecar.drain.anew import Do, Facts, Record, Result, Stage, StepView, left_of, record_of
from sidecar.drain.empty import Hold
from sidecar.drain.statefulset import MOST_CLAIMS
from sidecar.drain.things import classify
from sidecar.drain.words import Reason
from sidecar.model import names
from sidecar.model.objects import Owner
from tests.harness.drain import samples
from tests.harness.drain.replica import ME, TAINTED, claim, facts, found, noted, replica, stateful_set, target
from tests.harness.drain.samples import DRIVER, NOW, stamp

MARKED = {"data-db-0": noted(mark=ME)}
FOREIGN = {"data-db-0": noted(mark="n9/uid-n9")}
ANEW = {"data-db-0": found(claim=claim(uid="uid-new"), volume=None)}
BACK = replica(0, uid="uid-made-again", ready=False, phase="Pending")
PENDING = replace(BACK, node="")
SHUT = Hold(Reason.REPLICA_NOT_READY, "apps/db-0", "apps/db-2 is not ready")
UNDONE = "it was undone"
TAKEN, EVICTING, DELETING = Stage.TAKEN, Stage.EVICTING, Stage.DELETING
BEFORE = pytest.mark.parametrize("stage", [TAKEN, EVICTING])
ANY = pytest.mark.parametrize("stage", list(Stage))


def step(stage: Stage, of: Facts, **changes: Any) -> Any:
    record = changes.pop("record", Record(target(), stage, NOW - 110, NOW - 100))
    base = StepView(record, of, None, ME, "n1", undone="", now=NOW)
    return anew.step(replace(base, **changes))


def there(claims: Any = None, **pod: Any) -> Facts:
    """All three replicas, db-0 on n1."""
    return facts(replica(0, **pod), replica(1), replica(2), claims={"data-db-0": found()} if claims is None else claims)


def away(claims: Any = None, *pods: Any, **changes: Any) -> Facts:
    """db-0 is gone."""
    return facts(*pods, replica(1), replica(2), claims={"data-db-0": found()} if claims is None else claims, **changes)


def named(decision: Any) -> list[str]:
    return [each.claim.name for each in decision.claims]


# --- one step after the other -----------------------------------------------------------------------------------------


def test_drain_F1_it_is_marked_first() -> None:
    decision = step(TAKEN, there())
    assert decision.do is Do.MARK
    assert named(decision) == ["data-db-0"]


@BEFORE
def test_drain_F1_then_its_pod_is_evicted_by_its_uid(stage: Stage) -> None:
    decision = step(stage, there(MARKED))
    assert decision.do is Do.EVICT
    assert decision.pod.uid == replica(0).uid


@ANY
def test_drain_F3_nothing_is_deleted_under_a_pod_that_is_there(stage: Stage) -> None:
    assert step(stage, there(MARKED)).do is Do.EVICT
    assert step(stage, there(MARKED, deleting_since=stamp())).do is Do.AWAIT


@pytest.mark.parametrize("pods", [(), (PENDING,)], ids=["gone", "made again and waiting"])
@pytest.mark.parametrize("stage", [EVICTING, DELETING])
def test_drain_F1_the_claims_are_deleted_when_the_pod_is_gone(stage: Stage, pods: Any) -> None:
    decision = step(stage, away(MARKED, *pods))
    assert decision.do is Do.DELETE
    assert [each.claim.uid for each in decision.claims] == ["uid-apps-data-db-0"]


def test_a_pod_that_waits_for_a_node_from_the_start_needs_no_eviction() -> None:
    """A drainer has evicted it."""
    waiting = Record(replace(target(), pod_uid=PENDING.uid), TAKEN, NOW, NOW)
    assert step(TAKEN, away(None, PENDING), record=waiting).do is Do.MARK
    assert step(TAKEN, away(MARKED, PENDING), record=waiting).do is Do.DELETE


@pytest.mark.parametrize(
    "claims", [{}, ANEW, {"data-db-0": found(claim=claim(deleting=True))}], ids=["gone", "made again", "being deleted"]
)
def test_after_the_deletion_the_replacement_is_waited_for(claims: Any) -> None:
    assert step(DELETING, away(claims, PENDING)).do is Do.AWAIT


def test_the_replacement_has_to_be_ready_for_a_while() -> None:
    ready = away(ANEW, replica(0, node="n4", uid="uid-made-again"))
    assert step(DELETING, ready, ready_for=9.9).do is Do.AWAIT
    decision = step(DELETING, ready, ready_for=10.0)
    assert decision.do is Do.FINISH
    assert decision.result is Result.READY
    slower = replace(ready, workload=stateful_set(ready_for=60.0))
    assert step(DELETING, slower, ready_for=59.0).do is Do.AWAIT


@pytest.mark.parametrize(
    "changes",
    [{"ready": False}, {"node": ""}, {"deleting_since": stamp()}, {"phase": "Failed"}, {"owner": samples.owner(name="x")}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_no_replacement_that_is_ready(changes: Any) -> None:
    assert step(DELETING, away(ANEW, replica(0, **{"node": "n4"} | changes)), ready_for=1e6).do is Do.AWAIT


# --- shut locks -------------------------------------------------------------------------------------------------------


@BEFORE
def test_with_a_shut_lock_nobody_is_evicted_and_the_lease_is_given_back(stage: Stage) -> None:
    decision = step(stage, there(MARKED), shut=SHUT)
    assert decision.do is Do.TAKE_BACK
    assert (named(decision), Reason.REPLICA_NOT_READY in decision.why) == (["data-db-0"], True)
    assert step(stage, there(), shut=SHUT).claims == ()


@pytest.mark.parametrize("how", [{"shut": SHUT}, {"undone": UNDONE}], ids=["shut", "undone"])
def test_the_lease_is_kept_until_an_eviction_that_was_not_answered_can_come_no_more(how: Any) -> None:
    """Meanwhile another node would find this pod ready, and send another one away."""
    asked = Record(target(), EVICTING, NOW - 80, NOW - 100)
    decision = step(EVICTING, there(MARKED), record=asked, **how)
    assert isinstance(decision, Hold)
    assert (decision.reason, decision.lasting) == (Reason.POD_TERMINATING, False)
    assert step(EVICTING, there(MARKED), record=asked, now=NOW + 10, **how).do is Do.TAKE_BACK
    assert step(TAKEN, there(MARKED), record=replace(asked, stage=TAKEN), **how).do is Do.TAKE_BACK
    assert step(EVICTING, there(MARKED), record=asked, now=NOW - 400, **how).do is Do.TAKE_BACK, "a clock that was set back"


@pytest.mark.parametrize("stage", [EVICTING, DELETING])
def test_with_a_shut_lock_nothing_is_deleted_and_the_lease_is_kept(stage: Stage) -> None:
    """A replica is away by our doing, so no other node may send one away."""
    decision = step(stage, away(MARKED), shut=SHUT)
    assert isinstance(decision, Hold)
    assert (decision.reason, decision.lasting) == (SHUT.reason, False)
    assert SHUT.why in decision.why


def test_a_pod_that_nobody_here_has_evicted_is_given_up_at_a_shut_lock() -> None:
    waiting = Record(replace(target(), pod_uid=PENDING.uid), TAKEN, NOW, NOW)
    decision = step(TAKEN, away(MARKED, PENDING), record=waiting, shut=SHUT)
    assert decision.do is Do.TAKE_BACK
    assert named(decision) == ["data-db-0"]


@pytest.mark.parametrize(
    "workload",
    [None, stateful_set(uid="uid-other"), stateful_set(deleting=True), stateful_set(start=1, replicas=2)],
    ids=["gone", "another one", "being deleted", "scaled"],
)
def test_nobody_waits_for_a_replica_that_nobody_wants_any_more(workload: Any) -> None:
    before = step(EVICTING, away(MARKED, workload=workload), shut=SHUT)
    assert before.do is Do.TAKE_BACK
    assert named(before) == ["data-db-0"]
    after = step(DELETING, away(ANEW, PENDING, workload=workload))
    assert after.do is Do.FINISH
    assert after.result is Result.GIVEN_UP


@pytest.mark.parametrize("at", [NOW - 1800, NOW + 1800, 1e300], ids=["long ago", "in the future", "in the far future"])
def test_after_the_timeout_what_is_in_its_way_is_told_and_gives_nothing_up(at: float) -> None:
    record = Record(target(), EVICTING, at, at)
    ending = step(EVICTING, there(MARKED, deleting_since=stamp()), record=record)
    shut = step(EVICTING, away(MARKED), shut=SHUT, record=record)
    waits = step(DELETING, away(ANEW, PENDING), record=replace(record, stage=DELETING))
    later = away(ANEW, replica(0, node="n4", uid="uid-made-again"), workload=stateful_set(ready_for=2.0**31))
    years = step(DELETING, later, record=replace(record, stage=DELETING), ready_for=9e6)
    for each in (ending, shut, waits, years):
        assert isinstance(each, Hold)
        assert (each.reason, each.lasting) == (Reason.REPLICA_NOT_READY, True)
    assert "apps/db-2 is not ready" in shut.why
    assert step(DELETING, away(ANEW, replica(0, node="n4")), record=replace(record, stage=DELETING), ready_for=10.0).do is Do.FINISH
    unasked = step(TAKEN, there(MARKED, deleting_since=stamp()), record=replace(record, stage=TAKEN))
    assert unasked.do is Do.AWAIT, "nobody here has asked it to end"


# --- the undo ---------------------------------------------------------------------------------------------------------


@ANY
@pytest.mark.parametrize("scene", [there(MARKED), away(MARKED), away(MARKED, PENDING)], ids=["there", "gone", "waiting"])
def test_undone_before_the_deletion_the_mark_and_the_lease_go(stage: Stage, scene: Facts) -> None:
    decision = step(stage, scene, undone=UNDONE)
    assert decision.do is Do.TAKE_BACK
    assert (named(decision), decision.why) == (["data-db-0"], UNDONE)


def test_undone_after_the_deletion_it_is_waited_for_wherever_it_is_ready() -> None:
    assert step(DELETING, away(ANEW, PENDING), undone=UNDONE).do is Do.AWAIT
    back = step(DELETING, there(ANEW), undone=UNDONE, ready_for=10.0)
    assert back.do is Do.FINISH
    assert back.result is Result.READY


def test_a_pod_that_has_returned_to_its_data_is_left_alone() -> None:
    """Somebody let it in while nobody looked."""
    decision = step(EVICTING, away(MARKED, BACK))
    assert decision.do is Do.TAKE_BACK
    assert named(decision) == ["data-db-0"]
    assert step(TAKEN, there(MARKED, uid="uid-other")).do is Do.TAKE_BACK, "nor another pod under its name"


@pytest.mark.parametrize(
    ("scene", "changes"),
    [
        pytest.param(there(FOREIGN), {"undone": UNDONE}, id="undone"),
        pytest.param(there(FOREIGN), {"shut": SHUT}, id="shut"),
        pytest.param(away(FOREIGN, BACK), {}, id="returned"),
        pytest.param(away(FOREIGN, workload=None), {}, id="nobody makes it"),
        pytest.param(away(FOREIGN), {"shut": SHUT, "record": Record(target(), TAKEN, NOW, NOW)}, id="shut while it waits"),
    ],
)
def test_the_mark_of_another_machine_is_left_alone(scene: Facts, changes: Any) -> None:
    decision = step(EVICTING, scene, **changes)
    assert decision.do is Do.TAKE_BACK
    assert decision.claims == ()


# --- several claims ---------------------------------------------------------------------------------------------------

BOTH = Record(replace(target(), claims=(*target().claims, ("logs-db-0", "uid-apps-logs-db-0"))), DELETING, NOW, NOW)
LOGS = replace(noted(mark=ME), claim=replace(noted(mark=ME).claim, name="logs-db-0", uid="uid-apps-logs-db-0"))
HALF = away({"data-db-0": ANEW["data-db-0"], "logs-db-0": LOGS}, PENDING)
UNMARKED = replace(HALF, claims={**HALF.claims, "logs-db-0": replace(LOGS, claim=replace(LOGS.claim, notes=()))})


def test_all_claims_of_a_pod_are_deleted_after_a_crash_too() -> None:
    assert len(step(DELETING, away({**MARKED, "logs-db-0": LOGS}), record=BOTH).claims) == 2
    decision = step(DELETING, HALF, record=BOTH)
    assert decision.do is Do.DELETE
    assert named(decision) == ["logs-db-0"]
    assert left_of(BOTH, HALF).claims == (("logs-db-0", "uid-apps-logs-db-0"),)
    assert step(DELETING, HALF, record=BOTH, shut=SHUT) == SHUT
    assert step(DELETING, HALF, record=BOTH, shut=SHUT, now=NOW + 1800).lasting


def test_undone_in_between_the_claims_nothing_more_is_deleted() -> None:
    decision = step(DELETING, HALF, record=BOTH, undone=UNDONE)
    assert decision.do is Do.UNMARK
    assert named(decision) == ["logs-db-0"]
    assert step(DELETING, UNMARKED, record=BOTH, undone=UNDONE).do is Do.AWAIT
    assert step(DELETING, UNMARKED, record=BOTH).do is Do.MARK, "asked for again, it is marked again before it is deleted"


def test_between_the_claims_of_an_unwanted_replica_first_the_mark_goes_then_the_lease() -> None:
    assert step(DELETING, replace(HALF, workload=None), record=BOTH, shut=SHUT).do is Do.UNMARK
    over = step(DELETING, replace(UNMARKED, workload=None), record=BOTH, shut=SHUT)
    assert over.result is Result.GIVEN_UP


@BEFORE
@pytest.mark.parametrize("claims", [{}, ANEW], ids=["gone", "another one of its name"])
def test_a_claim_that_somebody_else_deleted_or_made_again_is_not_touched(stage: Stage, claims: Any) -> None:
    decision = step(stage, there(claims))
    assert decision.do is Do.TAKE_BACK
    assert decision.claims == ()


# --- the record -------------------------------------------------------------------------------------------------------

RECORD = Record(target(), EVICTING, 1000.0, 1001.5)
LEASE = names.reprovision("uid-db", DRIVER)


def read(text: str, lease: str = LEASE, driver: str = DRIVER) -> Record | None:
    return record_of(text, lease=lease, driver=driver)


def test_what_is_written_is_read_again_under_its_own_name_alone() -> None:
    assert read(RECORD.as_text()) == RECORD
    assert read(RECORD.as_text(), lease="reprovision-other") is None
    assert read(RECORD.as_text(), driver="other.example.com") is None


def test_garbage_is_no_record() -> None:
    texts = ["", "{", "null", "[]", "7", '"x"', "{}", "[" * 100_000, "9" * 20_000]
    claims: list[Any] = [[], {}, ["data"], [["data"]], [["data", ""]], [["data", "u", "v"]], [["data", 7]], [["data", "u"]] * 33]
    wrong: dict[str, list[Any]] = {"stage": ["Deleted", None, ...], "pod": ["", 7, ...], "workload": [None], "claims": claims}
    wrong |= {"at": ["now", True, float("nan")], "begunAt": [float("inf"), None], "workloadUID": ["uid-of-another"]}
    whole = json.loads(RECORD.as_text())
    for key, values in wrong.items():
        texts += [json.dumps({k: v for k, v in (whole | {key: value}).items() if v is not ...}) for value in values]
    for text in texts:
        assert read(text) is None, text[:200]


# --- candidates -------------------------------------------------------------------------------------------------------


def candidates(count: int = 1, *, node: str = "n1", **pod: Any) -> Any:
    """Of one pod that uses so many claims which are to be made anew."""
    each = [(f"pv-{number}", f"c{number:03}-{'x' * 200}-db-0") for number in range(count)]
    user = samples.pod("db-0", *(claim for _, claim in each), node=node, **pod)
    snapshot = samples.snapshot(
        node=TAINTED,
        volumes=tuple(samples.volume(name, claim) for name, claim in each),
        claims=tuple(samples.claim(claim, policy="Reprovision", volume_name=name) for name, claim in each),
        **{"pods": (user,)} if node == "n1" else {"claimants": (user,)},
    )
    return anew.replicas_to_make(snapshot, classify(snapshot))


@pytest.mark.parametrize("count", [1, MOST_CLAIMS])
@pytest.mark.parametrize("node", ["n1", ""], ids=["here", "waiting for a node"])
def test_a_record_of_all_claims_of_a_candidate_can_be_read_again(count: int, node: str) -> None:
    (found_target,), refused = candidates(count, node=node)
    assert not refused
    written = Record(found_target, TAKEN, 1.0, 2.0)
    assert read(written.as_text()) == written


@pytest.mark.parametrize(
    ("count", "pod"),
    [
        pytest.param(MOST_CLAIMS + 1, {}, id="more claims than a record has"),
        pytest.param(1, {"owner": samples.owner("ReplicaSet")}, id="of a ReplicaSet"),
        pytest.param(1, {"owner": Owner("example.com/v1", "StatefulSet", "db", "uid-db")}, id="of another group's StatefulSet"),
        pytest.param(1, {"owner": None}, id="of nobody"),
    ],
)
def test_a_pod_that_is_kept_for_ever_is_told_and_is_none(count: int, pod: Any) -> None:
    targets, (refused,) = candidates(count, **pod)
    assert not targets
    assert (refused.reason, refused.lasting) == (Reason.CLAIM_KEPT, True)


def test_a_pod_that_stays_and_one_of_another_node_are_none() -> None:
    assert candidates(static=True) == candidates(owner=samples.owner("DaemonSet")) == candidates(node="n2") == ([], [])


def test_a_pod_with_another_volume_that_is_kept_is_none() -> None:
    snapshot = samples.snapshot(
        node=TAINTED,
        volumes=(samples.volume("pv-0", "data-db-0"), samples.volume("pv-1", "logs")),
        claims=(claim(), samples.claim("logs", policy="Ignore", volume_name="pv-1")),
        pods=(samples.pod("db-0", "data-db-0", "logs"),),
    )
    targets, (refused,) = anew.replicas_to_make(snapshot, classify(snapshot))
    assert (targets, "pv-1, which the pod uses too" in refused.why) == ([], True)
