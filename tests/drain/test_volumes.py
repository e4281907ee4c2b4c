"""Each thing on the node is found to be one thing, and what follows from that for either intent."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.assessment import Place
from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.drain.volumes import Held, asked_to_end, classify, counts_as_gone, why_blocked
from sidecar.drain.words import Intent, Policy, Reason, VolumeClass
from sidecar.model.objects import ClaimRef, Source
from tests.drain import samples
from tests.drain.samples import NOW

REBOOT, RETIRE = Intent.REBOOT, Intent.RETIRE
FLIGHT = InFlight("uid-new", "apps", "new", "local", 5)


def held(snapshot: Snapshot) -> tuple[Held, ...]:
    return classify(snapshot, snapshot.pods)


def only(snapshot: Snapshot) -> Held:
    (one,) = held(snapshot)
    return one


def blocked(snapshot: Snapshot, *, place: Place | None = None) -> tuple[Reason | None, Reason | None]:
    one = only(snapshot)
    return why_blocked(one, REBOOT, place=place), why_blocked(one, RETIRE, place=place)


@pytest.mark.parametrize(
    ("volume", "class_"),
    [
        ({}, VolumeClass.IDLE),
        ({"phase": ""}, VolumeClass.IDLE),
        ({"phase": "Released"}, VolumeClass.RELEASING),
        ({"phase": "Failed"}, VolumeClass.RELEASING),
        ({"deleting": True}, VolumeClass.RELEASING),
        ({"deleting": True, "reclaim_policy": "Retain"}, VolumeClass.IDLE),
        ({"phase": "Released", "reclaim_policy": "Retain"}, VolumeClass.RETAINED),
        ({"phase": "Failed", "reclaim_policy": "Retain"}, VolumeClass.RETAINED),
        ({"phase": "Available", "claim": None, "reclaim_policy": "Retain"}, VolumeClass.RETAINED),
        ({"phase": "Available", "claim": None}, VolumeClass.IDLE),
    ],
)
def test_volumes_that_no_pod_uses(volume: dict[str, Any], class_: VolumeClass) -> None:
    one = only(samples.idle(volumes=(replace(samples.volume(), **volume),)))
    assert one.class_ is class_ and one.pods == ()


@pytest.mark.parametrize("changes", [{}, {"deleting": True}])
def test_a_volume_that_a_pod_uses_is_in_use_whatever_is_to_become_of_it(changes: dict[str, Any]) -> None:
    one = only(samples.used(volumes=(samples.volume(**changes),)))
    assert one.class_ is VolumeClass.IN_USE and [pod.name for pod in one.pods] == ["db-0"]


def test_a_claim_that_is_being_deleted_counts_by_its_pods() -> None:
    assert only(samples.used(claims=(samples.claim(deleting=True),))).class_ is VolumeClass.IN_USE
    assert only(samples.idle(claims=(samples.claim(deleting=True),))).class_ is VolumeClass.IDLE


def test_a_claim_that_is_not_known_counts_by_its_name_and_the_volume_speaks_for_itself() -> None:
    one = only(samples.used(claims=()))
    assert one.class_ is VolumeClass.IN_USE and (one.object.kind, one.object.name) == ("PersistentVolume", "pv-0")


@pytest.mark.parametrize("changes", [{"uid": "another"}, {"volume_name": "pv-9"}])
def test_a_claim_of_that_name_which_has_another_volume_has_nothing_to_do_with_this_one(changes: dict[str, Any]) -> None:
    one = only(samples.used(claims=(samples.claim(policy="Ignore", **changes),)))
    assert one.class_ is VolumeClass.IDLE and one.object.kind == "PersistentVolume"
    assert one.retire and one.retire.policy is Policy.BLOCK


def test_a_pod_of_another_namespace_with_a_claim_of_that_name_does_not_use_it() -> None:
    assert only(samples.used(pods=(samples.pod("db-0", "data-0", namespace="others"),))).class_ is VolumeClass.IDLE


def test_a_pods_own_claim_is_ephemeral_and_so_is_an_inline_volume_of_the_driver() -> None:
    owned = samples.claim(owner=samples.owner("Pod", "db-0"), policy="Block")
    pod = samples.pod("db-0", "data-0", inline=(samples.DRIVER, "other.example.com", samples.DRIVER))
    found = held(samples.used(claims=(owned,), pods=(pod,)))
    assert [item.class_ for item in found] == [VolumeClass.EPHEMERAL] * 3
    assert {item.fixed_policy for item in found} == {Policy.IGNORE}
    assert all(why_blocked(item, intent, place=None) is None for item in found for intent in Intent)


def test_an_ephemeral_volume_whose_pod_is_gone_is_still_to_be_deleted() -> None:
    released = samples.volume(phase="Released")
    assert blocked(samples.idle(volumes=(released,), claims=())) == (None, Reason.RELEASE_PENDING)


def test_what_has_no_volume_is_named_by_what_it_has() -> None:
    found = held(samples.snapshot(in_flight=(FLIGHT,), contents=(samples.content(),), untracked=("lv-7", "lv-7")))
    assert [(item.name, item.class_, item.object.kind, item.object.name) for item in found] == [
        ("apps/new", VolumeClass.IN_FLIGHT, "PersistentVolumeClaim", "new"),
        ("lv-7", VolumeClass.UNTRACKED, "Volume", "lv-7"),
        ("snap-0", VolumeClass.SNAPSHOT, "VolumeSnapshotContent", "snap-0"),
    ]


def test_what_is_in_flight_is_counted_once() -> None:
    assert [item.name for item in held(samples.snapshot(in_flight=(FLIGHT, FLIGHT)))] == ["apps/new"]


def test_a_volume_that_exists_is_in_flight_no_more() -> None:
    there = samples.volume(claim="new")
    there = replace(there, claim=ClaimRef("uid-new", "apps", "new"))
    assert [item.name for item in held(samples.snapshot(volumes=(there,), in_flight=(FLIGHT, FLIGHT)))] == ["pv-0"]


@pytest.mark.parametrize(
    ("policy", "in_use", "idle"),
    [
        (None, (None, Reason.VOLUME_IN_USE), (None, Reason.LAST_COPY)),
        ("Ignore", (None, None), (None, None)),
        ("AllowIdle", (None, Reason.VOLUME_IN_USE), (None, None)),
        ("Block", (Reason.WOULD_STRAND, Reason.VOLUME_IN_USE), (None, Reason.LAST_COPY)),
        ("Reprovision", (Reason.NOT_AVAILABLE_YET,) * 2, (None, Reason.NOT_AVAILABLE_YET)),
        ("Migrate", (Reason.NOT_AVAILABLE_YET,) * 2, (None, Reason.NOT_AVAILABLE_YET)),
    ],
)
def test_what_a_policy_lets_go(policy: str | None, in_use: tuple[Reason | None, ...], idle: tuple[Reason | None, ...]) -> None:
    claims = (samples.claim(policy=policy),)
    assert blocked(samples.used(claims=claims)) == in_use
    assert blocked(samples.idle(claims=claims)) == idle


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (Place(("pv-0",), "n2", 0, ()), Reason.NOT_AVAILABLE_YET),
        (Place(("pv-0",), "", 7, ()), Reason.NO_CAPACITY),
        (Place(("pv-0",), "", 0, ()), Reason.NO_NODE_FITS),
    ],
)
def test_what_cannot_be_moved_says_whether_it_could_be_elsewhere(place: Place, reason: Reason) -> None:
    assert blocked(samples.used(claims=(samples.claim(policy="Migrate"),)), place=place) == (reason, reason)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (samples.snapshot(in_flight=(FLIGHT,)), (Reason.PROVISIONING_IN_FLIGHT,) * 2),
        (samples.snapshot(contents=(samples.content(),)), (None, Reason.SNAPSHOT_ON_NODE)),
        (samples.snapshot(contents=(samples.content(ack="ticket 12"),)), (None, None)),
        (samples.snapshot(contents=(samples.content(ack=" "),)), (None, Reason.SNAPSHOT_ON_NODE)),
        (samples.snapshot(untracked=("lv-7",)), (None, None)),
        (samples.snapshot(untracked=("lv-7",), untracked_blocks=True), (None, Reason.UNTRACKED_DATA)),
    ],
)
def test_what_is_no_volume_of_a_claim(snapshot: Snapshot, expected: tuple[Reason | None, Reason | None]) -> None:
    assert blocked(snapshot) == expected


@pytest.mark.parametrize(
    ("ack", "policy", "reason"),
    [(None, None, Reason.RECLAIM_RETAIN), ("", None, Reason.RECLAIM_RETAIN), ("ann", None, None), (None, "Ignore", None)],
)
def test_what_was_kept_on_purpose_blocks_until_somebody_says_that_it_may_go(ack: str | None, policy: str | None, reason: Reason) -> None:
    kept = samples.volume(phase="Released", reclaim_policy="Retain", notes=samples.notes(policy, ack=ack))
    assert blocked(samples.idle(volumes=(kept,), claims=())) == (None, reason)


def test_an_acknowledgement_on_a_volume_that_is_in_use_says_nothing() -> None:
    assert blocked(samples.used(volumes=(samples.volume(notes=samples.notes(ack="ann")),))) == (None, Reason.VOLUME_IN_USE)


def test_a_volume_that_only_a_daemon_sets_pod_uses_blocks_no_reboot() -> None:
    staying = samples.pod("agent", "data-0", owner=samples.owner("DaemonSet"))
    claims = (samples.claim(policy="Block"),)
    assert blocked(samples.used(pods=(staying,), claims=claims)) == (None, Reason.VOLUME_IN_USE)
    assert blocked(samples.used(pods=(staying, samples.pod("db-0", "data-0")), claims=claims))[0] is Reason.WOULD_STRAND


def test_a_pod_of_anothers_kind_that_is_called_daemon_set_too_is_evicted() -> None:
    owner, claims = samples.owner("DaemonSet"), (samples.claim(policy="Block"),)
    for version, reason in (("apps/v1beta2", None), ("apps.kruise.io/v1alpha1", Reason.WOULD_STRAND), ("v1", Reason.WOULD_STRAND)):
        pods = (samples.pod("agent", "data-0", owner=replace(owner, api_version=version)),)
        assert blocked(samples.used(pods=pods, claims=claims))[0] is reason, version


def test_a_volume_that_was_never_used_blocks_unless_it_was_filled_or_a_pod_has_come() -> None:
    known = frozenset({"pv-0"})
    assert blocked(samples.idle(never_used=known)) == (None, None)
    filled = samples.claim(source=Source("VolumeSnapshot", "snapshot.storage.k8s.io", "s", "apps"))
    assert blocked(samples.idle(never_used=known, claims=(filled,))) == (None, Reason.LAST_COPY)
    assert blocked(samples.used(never_used=known)) == (None, Reason.VOLUME_IN_USE)


def test_of_an_uncertain_policy_only_that_blocks_which_every_policy_would_have_block() -> None:
    unread = frozenset({"namespace apps"})
    assert blocked(samples.used(unread=unread, default_policy=Policy.BLOCK)) == (None, None)
    assert blocked(samples.idle(unread=unread)) == (None, None)
    released = (samples.volume(phase="Released"),)
    assert blocked(samples.idle(unread=unread, volumes=released, claims=())) == (None, Reason.RELEASE_PENDING)


def test_a_wrong_word_is_the_reason_only_where_nothing_would_block_without_it() -> None:
    assert blocked(samples.used(claims=(samples.claim(policy="Foo"),))) == (Reason.POLICY_CONFLICT, Reason.VOLUME_IN_USE)
    contradiction: dict[str, Any] = {"volumes": (samples.volume(policy="Ignore"),), "claims": (samples.claim(policy="Block"),)}
    assert blocked(samples.used(**contradiction)) == (Reason.POLICY_CONFLICT, Reason.POLICY_CONFLICT)
    harmless: dict[str, Any] = {"volumes": (samples.volume(policy="Ignore"),), "claims": (samples.claim(policy="AllowIdle"),)}
    assert blocked(samples.idle(**harmless)) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"), [(samples.stamp(301), 301.0), (samples.stamp(-30), -30.0), ("", -1.0), ("soon", -1.0), ("9999-99-99", -1.0)]
)
def test_how_long_a_pod_is_overdue(text: str, expected: float) -> None:
    assert asked_to_end(samples.pod(deleting_since=text), NOW) == expected


@pytest.mark.parametrize(("ready", "gone"), [("Unknown", True), ("False", False), ("True", False)])
def test_an_overdue_pod_counts_as_gone_only_where_nobody_could_say_that_it_has_ended(ready: str, gone: bool) -> None:
    overdue = samples.pod(deleting_since=samples.stamp(301))
    assert counts_as_gone(overdue, samples.snapshot(node=samples.node(ready=ready))) is gone
    assert not counts_as_gone(overdue, samples.snapshot(node=None))
