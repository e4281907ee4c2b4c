"""What is said of each thing that blocks."""

from collections.abc import Iterable
from typing import Any

from sidecar.drain.assessment import Blocker, Place
from sidecar.drain.blockers import in_order, of_pod, of_volume, some
from sidecar.drain.budgets import weigh
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.volumes import classify
from sidecar.drain.words import MEANING, Intent, Policy, Reason, VolumeClass
from sidecar.model.nodes import Budget
from tests.drain import samples
from tests.drain.samples import GIB, NOW

REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE


def about_volumes(snapshot: Snapshot, place: Place | None = None) -> list[Blocker]:
    return [blocker for held in classify(snapshot, snapshot.pods) for blocker in of_volume(held, snapshot, place=place)]


def about_pods(snapshot: Snapshot, budgets: Iterable[Budget] = ()) -> list[Blocker]:
    held = classify(snapshot, snapshot.pods)
    weighed = weigh(budgets, snapshot.pods, stranded=frozenset(pod.full_name for pod in snapshot.pods))
    return [
        blocker for pod in snapshot.pods for blocker in of_pod(pod, [item for item in held if pod in item.pods], snapshot, weighed=weighed)
    ]


def only(blockers: list[Blocker]) -> Blocker:
    (one,) = blockers
    return one


def test_a_blocker_says_what_why_since_when_and_what_to_do() -> None:
    assert only(about_volumes(samples.idle())) == Blocker(
        kind="PersistentVolumeClaim",
        namespace="apps",
        name="data-0",
        uid="uid-apps-data-0",
        volume="pv-0",
        bytes=10 * GIB,
        class_=VolumeClass.IDLE,
        reason=Reason.LAST_COPY,
        policy=Policy.BLOCK,
        policy_source="default",
        blocks=(RETIRE,),
        since=NOW,
        message="no pod of this node uses it",
        remedy=MEANING[Reason.LAST_COPY].remedy,
    )


def test_what_blocks_both_for_one_reason_is_said_once() -> None:
    one = only(about_volumes(samples.used(claims=(samples.claim(policy="Migrate"),))))
    assert (one.reason, one.blocks, one.policy, one.policy_source) == (
        Reason.NOT_AVAILABLE_YET,
        (REBOOT, RETIRE),
        Policy.MIGRATE,
        "PersistentVolumeClaim",
    )


def test_what_was_there_before_keeps_its_time() -> None:
    since = {("PersistentVolumeClaim/uid-apps-data-0", Reason.LAST_COPY): 5.0}
    assert only(about_volumes(samples.idle(since=since))).since == 5.0
    assert only(about_volumes(samples.used(since=since))).since == NOW


def test_the_message_says_where_it_would_fit_what_is_missing_and_who_could_stand_in() -> None:
    snapshot = samples.used(claims=(samples.claim(policy="Reprovision"),), ready_peers={"uid-db": 2})
    assert only(about_volumes(snapshot)).message == (
        "used by apps/db-0; whether it fits elsewhere was not looked at; replicas that are ready on other nodes: 2"
    )
    assert "it would fit on n2" in only(about_volumes(snapshot, Place(("pv-0",), "n2", 0, ()))).message
    assert "77 bytes are missing" in only(about_volumes(snapshot, Place(("pv-0",), "", 77, ()))).message
    assert "n2: it is cordoned" in only(about_volumes(snapshot, Place(("pv-0",), "", 0, (("n2", "it is cordoned"),)))).message


def test_a_wrong_word_is_named_by_whatever_blocks() -> None:
    for blocker in about_volumes(samples.used(claims=(samples.claim(policy="Foo"),))):
        assert "PersistentVolumeClaim says 'Foo', which is no policy" in blocker.message and blocker.policy is Policy.BLOCK


def test_a_bare_pod_blocks_both_and_says_what_it_holds() -> None:
    snapshot = samples.used(pods=(samples.pod("a", "data-0", owner=None),), claims=(samples.claim(policy="Ignore"),))
    one = only(about_pods(snapshot))
    assert (one.kind, one.namespace, one.name, one.volume, one.bytes) == ("Pod", "apps", "a", "pv-0", 10 * GIB)
    assert (one.reason, one.blocks, one.policy) == (Reason.BARE_POD, (REBOOT, RETIRE), Policy.IGNORE)


def test_a_pod_is_spoken_of_though_a_policy_is_not_known_but_not_where_the_claim_may_be_its_own() -> None:
    bare: dict[str, Any] = {"pods": (samples.pod("a", "data-0", owner=None),)}
    assert only(about_pods(samples.used(**bare, unread=frozenset({"namespace apps"})))).reason is Reason.BARE_POD
    assert about_pods(samples.used(**bare, claims=(), unread=frozenset({"claim apps/data-0"}))) == []


def test_E8_two_budgets_block_for_good_and_both_are_named() -> None:
    one = only(about_pods(samples.used(), [samples.budget("a", 5), samples.budget("b", 5)]))
    assert (one.reason, one.blocks, one.message) == (Reason.TWO_BUDGETS, (REBOOT,), "selected by apps/a and apps/b")


def test_a_budget_that_allows_nothing_is_named() -> None:
    one = only(about_pods(samples.used(), [samples.budget(allowed=0)]))
    assert (one.reason, one.blocks, one.message) == (Reason.PDB_BLOCKED, (REBOOT,), "the budget is apps/db")


def test_a_pod_that_does_not_end_is_named_while_its_node_could_say_more() -> None:
    late = samples.used(pods=(samples.pod("db-0", "data-0", deleting_since=samples.stamp(301)),))
    assert only(about_pods(late)).reason is Reason.POD_TERMINATING_TOO_LONG
    assert about_pods(samples.used(pods=(samples.pod("db-0", "data-0", deleting_since=samples.stamp(300)),))) == []
    assert about_pods(samples.used(pods=late.pods, node=samples.node(ready="Unknown"))) == []
    assert about_pods(samples.used(pods=late.pods, node=None)) == []


def test_pods_that_stay_or_hold_nothing_of_ours_are_not_spoken_of() -> None:
    staying = samples.used(pods=(samples.pod("a", "data-0", owner=None, static=True, deleting_since=samples.stamp(999)),))
    free = samples.used(pods=(samples.pod("a", owner=None),))
    assert about_pods(staying, [samples.budget(allowed=0)]) == about_pods(free, [samples.budget(allowed=0)]) == []


def test_reboots_come_first_then_the_greatest() -> None:
    claims = (samples.claim("data-0"), samples.claim("data-1"), samples.claim("data-2", policy="Block"))
    volumes = (samples.volume(gib=1), samples.volume("pv-1", "data-1", gib=7), samples.volume("pv-2", "data-2", gib=2))
    snapshot = samples.used(volumes=volumes, claims=claims, pods=(samples.pod("db-2", "data-2"),))
    ordered = in_order(about_volumes(snapshot))
    assert [(blocker.name, REBOOT in blocker.blocks) for blocker in ordered] == [
        ("data-2", True),
        ("data-1", False),
        ("data-2", False),
        ("data-0", False),
    ]
    assert in_order(reversed(ordered)) == ordered


def test_of_many_the_first_few_are_named() -> None:
    assert (some(["a"]), some(["a", "b", "c"]), some(list("abcde"))) == ("a", "a, b, c", "a, b, c and 2 more")
