"""What blocks, under which policy, and what is said of it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.judgement.assessment import Blocker, Place
from sidecar.drain.judgement.blockers import OF_PODS, OF_VOLUMES, in_order, of_pod, of_volume, why_blocked
from sidecar.drain.judgement.budgets import check_budgets
from sidecar.drain.judgement.volumes import classify
from sidecar.drain.vocabulary import MEANING, Intent, Policy, Reason, VolumeClass
from sidecar.model.nodes import Budget
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB

REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE
FLIGHT = InFlight("uid-new", "apps", "new", "local", 5)


def about_volumes(snapshot: Snapshot, place: Place | None = None) -> list[Blocker]:
    return [blocker for held in classify(snapshot, snapshot.pods) for blocker in of_volume(held, snapshot, place=place)]


def about_pods(snapshot: Snapshot, budgets: Iterable[Budget] = ()) -> list[Blocker]:
    held = classify(snapshot, snapshot.pods)
    findings = check_budgets(budgets, snapshot.pods, stranded=frozenset(pod.full_name for pod in snapshot.pods))
    return [
        blocker
        for pod in snapshot.pods
        for blocker in of_pod(pod, [item for item in held if pod in item.pods], snapshot, findings=findings)
    ]


def only(blockers: list[Blocker]) -> Blocker:
    (one,) = blockers
    return one


def test_a_blocker_says_what_why_and_what_to_do() -> None:
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
        message="no pod uses it",
        remedy=MEANING[Reason.LAST_COPY].remedy,
    )


def test_nobody_moves_data_or_gives_it_up_for_a_reboot() -> None:
    for policy in (Policy.REPROVISION, Policy.MIGRATE):
        one = only(about_volumes(samples.used(claims=(samples.claim(policy=policy),))))
        said = (one.reason, one.blocks, one.policy, one.policy_source)
        assert said == (Reason.NOT_AVAILABLE_YET, (RETIRE,), policy, "PersistentVolumeClaim")


def test_the_message_says_where_it_would_fit_and_what_is_missing() -> None:
    snapshot = samples.used(claims=(samples.claim(policy="Reprovision"),))
    assert only(about_volumes(snapshot)).message == "used by apps/db-0; whether it fits on another node was not checked"
    assert "it would fit on n2" in only(about_volumes(snapshot, Place(("pv-0",), "n2", 0, ()))).message
    assert "77 bytes are missing" in only(about_volumes(snapshot, Place(("pv-0",), "", 77, ()))).message
    assert "n2: it is cordoned" in only(about_volumes(snapshot, Place(("pv-0",), "", 0, (("n2", "it is cordoned"),)))).message


def test_a_pod_blocks_though_a_policy_is_unread_but_not_if_its_claim_is_unread() -> None:
    bare: dict[str, Any] = {"pods": (samples.pod("a", "data-0", owner=None),)}
    assert only(about_pods(samples.used(**bare, unread=frozenset({"namespace apps"})))).reason is Reason.BARE_POD
    assert about_pods(samples.used(**bare, claims=(), unread=frozenset({"claim apps/data-0"}))) == []


def test_a_pod_that_does_not_end_is_named_while_its_node_could_say_more() -> None:
    late = samples.used(pods=(samples.pod("db-0", "data-0", deleting_since=samples.stamp(301)),))
    assert only(about_pods(late)).reason is Reason.POD_TERMINATING_TOO_LONG
    assert about_pods(samples.used(pods=(samples.pod("db-0", "data-0", deleting_since=samples.stamp(300)),))) == []
    assert about_pods(samples.used(pods=late.pods, node=samples.node(ready="Unknown"))) == []
    assert about_pods(samples.used(pods=late.pods, node=None)) == []


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


# --- the tables -------------------------------------------------------------------------------------------------------


def blocked(snapshot: Snapshot, *, place: Place | None = None) -> tuple[Reason | None, Reason | None]:
    (held,) = classify(snapshot, snapshot.pods)
    return why_blocked(held, REBOOT, place=place), why_blocked(held, RETIRE, place=place)


def test_what_a_policy_lets_go() -> None:
    for policy, in_use, idle in [
        (None, (None, Reason.VOLUME_IN_USE), (None, Reason.LAST_COPY)),
        ("Ignore", (None, None), (None, None)),
        ("AllowIdle", (None, Reason.VOLUME_IN_USE), (None, Reason.LAST_COPY)),
        ("Block", (Reason.WOULD_STRAND, Reason.VOLUME_IN_USE), (None, Reason.LAST_COPY)),
        ("Reprovision", (None, Reason.NOT_AVAILABLE_YET), (None, Reason.NOT_AVAILABLE_YET)),
        ("Migrate", (None, Reason.NOT_AVAILABLE_YET), (None, Reason.NOT_AVAILABLE_YET)),
    ]:
        claims = (samples.claim(policy=policy),)
        assert blocked(samples.used(claims=claims)) == in_use
        assert blocked(samples.idle(claims=claims)) == idle


def test_what_is_no_volume_of_a_claim() -> None:
    for snapshot, expected in [
        (samples.snapshot(in_flight=(FLIGHT,)), (Reason.PROVISIONING_IN_FLIGHT,) * 2),
        (samples.snapshot(contents=(samples.content(),)), (None, Reason.SNAPSHOT_ON_NODE)),
        (samples.snapshot(contents=(samples.content(ack="ticket 12"),)), (None, None)),
        (samples.snapshot(contents=(samples.content(ack=" "),)), (None, Reason.SNAPSHOT_ON_NODE)),
        (samples.snapshot(untracked=("lv-7",)), (None, None)),
        (samples.snapshot(untracked=("lv-7",), untracked_blocks=True), (None, Reason.UNTRACKED_DATA)),
    ]:
        assert blocked(snapshot) == expected


def test_what_was_kept_on_purpose_blocks_until_somebody_says_that_it_may_go() -> None:
    for ack, policy, reason in [
        (None, None, Reason.RECLAIM_RETAIN),
        ("", None, Reason.RECLAIM_RETAIN),
        ("ann", None, None),
        (None, "Ignore", None),
    ]:
        kept = samples.volume(phase="Released", reclaim_policy="Retain", notes=samples.notes(policy, ack=ack))
        assert blocked(samples.idle(volumes=(kept,), claims=())) == (None, reason)


def test_a_volume_that_only_a_daemon_sets_pod_uses_blocks_no_reboot() -> None:
    staying = samples.pod("agent", "data-0", owner=samples.owner("DaemonSet"))
    claims = (samples.claim(policy="Block"),)
    assert blocked(samples.used(pods=(staying,), claims=claims)) == (None, Reason.VOLUME_IN_USE)
    assert blocked(samples.used(pods=(staying, samples.pod("db-0", "data-0")), claims=claims))[0] is Reason.WOULD_STRAND


def test_with_an_uncertain_policy_only_what_the_laxest_would_block_blocks() -> None:
    unread = frozenset({"namespace apps"})
    assert blocked(samples.used(unread=unread, default_policy=Policy.BLOCK)) == (None, None)
    assert blocked(samples.idle(unread=unread)) == (None, None)
    released = (samples.volume(phase="Released"),)
    assert blocked(samples.idle(unread=unread, volumes=released, claims=())) == (None, None)


def test_a_wrong_word_is_the_reason_only_where_nothing_would_block_without_it() -> None:
    assert blocked(samples.used(claims=(samples.claim(policy="Foo"),))) == (Reason.POLICY_CONFLICT, Reason.VOLUME_IN_USE)
    contradiction: dict[str, Any] = {"volumes": (samples.volume(policy="Ignore"),), "claims": (samples.claim(policy="Block"),)}
    assert blocked(samples.used(**contradiction)) == (Reason.POLICY_CONFLICT, Reason.POLICY_CONFLICT)
    harmless: dict[str, Any] = {"volumes": (samples.volume(policy="Ignore"),), "claims": (samples.claim(policy="AllowIdle"),)}
    assert blocked(samples.used(**harmless)) == (None, Reason.POLICY_CONFLICT)


def test_every_reason_of_a_blocker_is_in_one_of_the_tables_and_each_is_explained() -> None:
    """The others are of a whole verdict, of an evacuation, or of what people wrote."""
    of_others = {
        *(Reason.POLICY_CONFLICT, Reason.SOURCE_OFFLINE, Reason.NOT_KNOWN, Reason.AGENT_UNAVAILABLE),
        *(Reason.WAITING_FOR_SLOT, Reason.DEADLINE_EXCEEDED, Reason.NOTHING_HERE, Reason.NOTHING_BLOCKS),
    }
    in_tables = {row.reason for row in (*OF_VOLUMES, *OF_PODS)}
    assert in_tables == set(Reason) - of_others
    assert in_tables <= set(MEANING)


def test_where_replicas_are_made_anew_their_volumes_block_until_they_are_gone() -> None:
    for policy, reason in [("Reprovision", Reason.REPROVISION_PENDING), ("Migrate", Reason.NOT_AVAILABLE_YET)]:
        used = replace(samples.used(), claims={"apps/data-0": samples.claim(policy=policy)}, reprovisions=True)
        blocker = only(about_volumes(used, Place(("pv-0",), "n2", 0, ())))
        assert (blocker.reason, blocker.blocks) == (reason, (RETIRE,))
        assert "it would fit on n2" in blocker.message
