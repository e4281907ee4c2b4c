"""Each thing on the node is of one class, and each pod has one fate."""

from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.blockers import why_blocked
from sidecar.drain.judgement.pod_fates import counts_as_gone, fates_of, is_bare, overdue_seconds
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import Fate, Intent, Policy, Reason, VolumeClass
from sidecar.model.nodes import Pod
from sidecar.model.objects import ClaimRef
from tests.harness.drain import samples
from tests.harness.drain.samples import NOW

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


def test_a_claim_that_is_not_known_counts_by_its_name_and_the_volume_speaks_for_itself() -> None:
    one = only(samples.used(claims=()))
    assert one.class_ is VolumeClass.IN_USE and (one.object.kind, one.object.name) == ("PersistentVolume", "pv-0")


def test_a_claim_of_that_name_which_has_another_volume_has_nothing_to_do_with_this_one() -> None:
    for changes in [{"uid": "another"}, {"volume_name": "pv-9"}]:
        one = only(samples.used(claims=(samples.claim(policy="Ignore", **changes),)))
        assert one.class_ is VolumeClass.IDLE and one.object.kind == "PersistentVolume"
        assert one.retire and one.retire.policy is Policy.BLOCK


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


def test_a_volume_that_exists_is_in_flight_no_more() -> None:
    there = samples.volume(claim="new")
    there = replace(there, claim=ClaimRef("uid-new", "apps", "new"))
    assert [item.name for item in held(samples.snapshot(volumes=(there,), in_flight=(FLIGHT, FLIGHT)))] == ["pv-0"]


# --- Where each pod ends up ---


FITS, NOWHERE = Place(("pv-0",), "n2", 0, ()), Place(("pv-0",), "", 5, ())


def ends(pod: Pod, *, policy: str | None = None, place: Place | None = None, **claim: Any) -> tuple[Fate, Fate]:
    snapshot = samples.used(pods=(pod,), claims=(samples.claim(policy=policy, **claim),))
    outcome = fates_of(pod, [item for item in classify(snapshot, snapshot.pods) if item.pods], place)
    assert outcome.why
    return outcome.reboot, outcome.retire


DB = samples.pod("db-0", "data-0")


def test_a_pod_whose_volume_is_here_stays_pending_until_the_node_is_uncordoned() -> None:
    for policy, retire in [(None, Fate.STRANDED), ("Block", Fate.STRANDED), ("AllowIdle", Fate.STRANDED), ("Ignore", Fate.LOST)]:
        assert ends(DB, policy=policy) == (Fate.RETURNS, retire)


def test_a_pod_goes_with_its_volume_only_where_that_may_go_and_fits() -> None:
    for policy, place, expected in [
        ("Reprovision", FITS, (Fate.RETURNS, Fate.REPROVISIONED)),
        ("Migrate", FITS, (Fate.RETURNS, Fate.MIGRATED)),
        ("Reprovision", NOWHERE, (Fate.RETURNS, Fate.STRANDED)),
        ("Migrate", None, (Fate.RETURNS, Fate.STRANDED)),
        ("Block", FITS, (Fate.RETURNS, Fate.STRANDED)),
    ]:
        assert ends(DB, policy=policy, place=place) == expected


def test_one_volume_that_may_not_go_keeps_the_pod() -> None:
    pod = samples.pod("db-0", "data-0", "log-0")
    claims = (samples.claim("data-0", policy="Reprovision"), samples.claim("log-0", policy="Ignore"))
    snapshot = samples.used(pods=(pod,), claims=claims, volumes=(samples.volume(), samples.volume("pv-1", "log-0")))
    outcome = fates_of(pod, classify(snapshot, snapshot.pods), FITS)
    assert (outcome.reboot, outcome.retire, outcome.stranded) == (Fate.RETURNS, Fate.STRANDED, True)


def test_a_pod_that_no_drain_evicts_stays() -> None:
    for pod in [samples.pod("a", "data-0", owner=samples.owner("DaemonSet")), samples.pod("a", "data-0", static=True)]:
        assert ends(pod) == (Fate.STAYS, Fate.STAYS)


def test_a_pod_that_nobody_makes_again_is_lost() -> None:
    assert ends(samples.pod("a", "data-0", owner=None), policy="Ignore") == (Fate.LOST, Fate.LOST)
    assert ends(samples.pod("a", owner=None)) == (Fate.LOST, Fate.LOST)


def test_nothing_keeps_a_pod_that_has_no_volume_here_or_takes_its_own_with_it() -> None:
    assert ends(samples.pod("web")) == (Fate.MOVES_FREE, Fate.MOVES_FREE)
    own = replace(samples.owner("Pod", "db-0"), uid=DB.uid)
    assert ends(replace(DB, ephemeral=DB.claims), owner=own) == (
        Fate.MOVES_FREE,
        Fate.MOVES_FREE,
    )


def test_a_bare_pod_has_no_controller_and_was_not_asked_to_end() -> None:
    assert is_bare(samples.pod("a", owner=None))
    assert not is_bare(samples.pod("a"))
    assert not is_bare(samples.pod("a", owner=None, static=True))
    assert not is_bare(samples.pod("a", owner=None, deleting_since=samples.stamp()))


def test_how_long_a_pod_is_overdue() -> None:
    for text, expected in [(samples.stamp(301), 301.0), (samples.stamp(-30), -30.0), ("", -1.0), ("soon", -1.0), ("9999-99-99", -1.0)]:
        assert overdue_seconds(samples.pod(deleting_since=text), NOW) == expected


def test_an_overdue_pod_counts_as_gone_only_where_nobody_could_say_that_it_has_ended() -> None:
    for ready, gone in [("Unknown", True), ("False", False), ("True", False)]:
        overdue = samples.pod(deleting_since=samples.stamp(301))
        assert counts_as_gone(overdue, samples.snapshot(node=samples.node(ready=ready))) is gone
        assert not counts_as_gone(overdue, samples.snapshot(node=None))
