"""Each thing on the node is found to be of one class."""

from dataclasses import replace

from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.judgement.blockers import why_blocked
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import Intent, Policy, Reason, VolumeClass
from sidecar.model.objects import ClaimRef
from tests.harness.drain import samples

FLIGHT = InFlight("uid-new", "apps", "new", "local", 5)


def held(snapshot: Snapshot) -> tuple[LocalItem, ...]:
    return classify(snapshot, snapshot.pods)


def only(snapshot: Snapshot) -> LocalItem:
    (one,) = held(snapshot)
    return one


def test_volumes_that_no_pod_uses() -> None:
    for volume, class_ in [
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
    ]:
        one = only(samples.idle(volumes=(replace(samples.volume(), **volume),)))
        assert one.class_ is class_ and one.pods == ()


def test_a_volume_that_a_pod_uses_is_in_use_whatever_is_to_become_of_it() -> None:
    for changes in [{}, {"deleting": True}]:
        one = only(samples.used(volumes=(samples.volume(**changes),)))
        assert one.class_ is VolumeClass.IN_USE and [pod.name for pod in one.pods] == ["db-0"]


def test_a_claim_that_is_being_deleted_counts_by_its_pods() -> None:
    assert only(samples.used(claims=(samples.claim(deleting=True),))).class_ is VolumeClass.IN_USE
    assert only(samples.idle(claims=(samples.claim(deleting=True),))).class_ is VolumeClass.IDLE


def test_a_claim_that_is_not_known_counts_by_its_name_and_the_volume_speaks_for_itself() -> None:
    one = only(samples.used(claims=()))
    assert one.class_ is VolumeClass.IN_USE and (one.object.kind, one.object.name) == ("PersistentVolume", "pv-0")


def test_a_claim_of_that_name_which_has_another_volume_has_nothing_to_do_with_this_one() -> None:
    for changes in [{"uid": "another"}, {"volume_name": "pv-9"}]:
        one = only(samples.used(claims=(samples.claim(policy="Ignore", **changes),)))
        assert one.class_ is VolumeClass.IDLE and one.object.kind == "PersistentVolume"
        assert one.retire and one.retire.policy is Policy.BLOCK


def test_a_pod_of_another_namespace_with_a_claim_of_that_name_does_not_use_it() -> None:
    assert only(samples.used(pods=(samples.pod("db-0", "data-0", namespace="others"),))).class_ is VolumeClass.IDLE


def test_a_pods_own_claim_is_ephemeral_and_so_is_an_inline_volume_of_the_driver() -> None:
    owned = samples.claim(owner=replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0"), policy="Block")
    pod = samples.pod("db-0", "data-0", ephemeral=("data-0",), inline=(samples.DRIVER, "other.example.com", samples.DRIVER))
    found = held(samples.used(claims=(owned,), pods=(pod,)))
    assert [item.class_ for item in found] == [VolumeClass.EPHEMERAL] * 3
    assert {item.fixed_policy for item in found} == {Policy.IGNORE}
    assert all(why_blocked(item, intent, place=None) is None for item in found for intent in Intent)


def test_an_ephemeral_volume_whose_pod_is_gone_is_still_to_be_deleted() -> None:
    released = samples.volume(phase="Released")
    left = only(samples.idle(volumes=(released,), claims=()))
    assert [why_blocked(left, intent, place=None) for intent in Intent] == [None, Reason.RELEASE_PENDING]


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
