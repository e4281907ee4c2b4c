"""What is done about a decision, and what is remembered between two looks."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from sidecar.csi.api import CapacityAnswer, CreatedVolume
from sidecar.csi.outcome import Code, NotSent
from sidecar.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, TooManyRequests, Unavailable, Withdrawn
from sidecar.model.names import SELECTED_NODE
from sidecar.ownership.placement import RandomDelay, Ranked
from sidecar.ownership.promises import Promise
from sidecar.ownership.roster import Roster
from sidecar.provisioning.progress import NOT_BEGUN, after_unanswered_hand_back
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube
from tests.harness.provisioning.bench import UID, Bench, immediate, late, released, rpc


def test_M28_success_makes_one_volume_one_object_and_two_events() -> None:
    bench = late()
    assert bench.claim() is None
    assert bench.driver.count("create") == 1
    assert [body["metadata"]["name"] for body in bench.kube.wrote("create")] == ["test-testi"]
    assert bench.told.reasons() == ["Provisioning", "ProvisioningSucceeded"]
    assert bench.value("controller_persistentvolumeclaim_provision_total") == 1
    assert bench.changes == [("fake-class", True)]


def test_M3_a_missing_class_fails_and_backs_off() -> None:
    bench = Bench().see(claim=samples.claim(selected="foo"))
    assert [bench.claim(), bench.claim(), bench.claim()] == [101.0, 102.0, 104.0]
    assert bench.value("controller_persistentvolumeclaim_provision_failed_total") == 3
    assert bench.told.reasons() == ["ProvisioningFailed"] * 2, "the first time it may be on its way"
    assert bench.driver.asked == []


def test_M10_M12_a_creation_that_may_run_on_survives_the_claim() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.DEADLINE_EXCEEDED), CreatedVolume("id", 100)]))
    assert bench.claim() == 101.0
    assert bench.table.in_progress() == 1 and bench.room.concerns(UID)
    bench.forget_claim()
    assert bench.claim() is None
    assert bench.kube.wrote("create")[0]["spec"]["csi"]["volumeHandle"] == "id"
    assert bench.table.in_progress() == 0
    assert bench.claim() is None
    assert not bench.room.concerns(UID)


def test_M16_a_final_answer_ends_the_remembering() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.ABORTED), rpc(Code.FAILED_PRECONDITION)]))
    bench.claim()
    bench.claim()
    assert bench.table.in_progress() == 0
    bench.forget_claim()
    assert bench.claim() == 110.0, "the call before it may still make a volume"
    assert bench.driver.count("create") == 2
    for bench.now in (110.0, 120.0):
        bench.claim()
    assert bench.driver.count("create") == 4 and not bench.room.concerns(UID)


def test_M19_M21_infeasible_arguments_hold_the_claim_off_for_as_long_as_the_longest_retry() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.INVALID_ARGUMENT)]))
    assert bench.claim() == 400.0
    bench.now = 399.0
    assert bench.claim() == 400.0, "whatever wakes it"
    assert bench.driver.count("create") == 1 and len(bench.told.events) == 2
    bench.now = 400.0
    bench.claim()
    assert bench.driver.count("create") == 2


def test_M20_another_class_under_that_name_ends_the_hold_off() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.INVALID_ARGUMENT)]))
    bench.claim()
    bench.see(class_=samples.class_(metadata={"name": "fake-class", "uid": "another"}))
    bench.claim()
    assert bench.driver.count("create") == 2


def test_M15_no_space_gives_the_claim_back() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.RESOURCE_EXHAUSTED)]))
    assert bench.claim() == bench.now
    (body,) = bench.kube.wrote("replace")
    assert b"selected-node" not in body and b"storage-provisioner" in body


def test_M17_giving_back_loses_a_race_and_is_tried_again() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.RESOURCE_EXHAUSTED)]), kube=ScriptedKube(failures={"replace": [Conflict("no")]}))
    assert bench.claim() == 101.0
    assert bench.caches.claims.get(UID) == samples.claim(selected="foo")
    bench.claim()
    assert bench.driver.count("create") == 2


def test_M18_without_topology_no_space_is_a_final_error_here() -> None:
    bench = late(driver=ScriptedDriver(samples.info(topology=False), creates=[rpc(Code.RESOURCE_EXHAUSTED)]))
    assert bench.claim() == 101.0
    assert bench.kube.wrote("replace") == []


def test_M11_a_call_that_was_never_sent_changes_nothing() -> None:
    for remembered in [False, True]:
        answers: list[CreatedVolume | Exception] = [rpc(Code.DEADLINE_EXCEEDED)] if remembered else []
        bench = late(driver=ScriptedDriver(creates=[*answers, NotSent(Code.UNAVAILABLE, "away")]))
        for _ in range(2):
            bench.claim()
        assert bench.table.in_progress() == int(remembered)


def test_what_is_under_way_is_known_before_its_end_is() -> None:
    bench = late(driver=ScriptedDriver(creates=[RuntimeError("a bug")]))
    with pytest.raises(RuntimeError):
        bench.claim()
    bench.forget_claim()
    bench.driver.creates = [CreatedVolume("id", 100)]
    bench.claim()
    assert bench.kube.wrote("create")[0]["spec"]["csi"]["volumeHandle"] == "id"


def test_where_the_driver_has_another_volume_of_that_name_the_event_says_what_to_do() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.ALREADY_EXISTS)]))
    bench.claim()
    assert "AlreadyExists" in bench.told.events[-1][3] and "delete the claim and create it again" in bench.told.events[-1][3]


def test_M22_an_object_that_cannot_be_stored_is_stored_later_without_asking_the_driver_again() -> None:
    bench = late(kube=ScriptedKube(failures={"create": [Unavailable("down"), Forbidden("no")]}))
    assert bench.claim() == 101.0
    assert bench.table.unsaved() == 1 and bench.room.concerns(UID)
    bench.forget_claim()
    assert bench.claim() == 102.0
    assert bench.claim() is None
    assert bench.driver.count("create") == 1 and bench.driver.count("delete") == 0
    assert bench.table.unsaved() == 0


def test_an_api_server_that_does_not_take_the_object_now_is_waited_for_and_asked_for_no_event() -> None:
    for error in [Unavailable("down"), TooManyRequests("slower", retry_after=1.0)]:
        bench = late(kube=ScriptedKube(failures={"create": [error]}))
        assert bench.claim() == 101.0
        assert bench.told.reasons() == ["Provisioning"]
        assert bench.value("persistentvolumeclaim_provision_failed_total") == 0.0
        bench.forget_claim()
        assert bench.claim() is None
        assert bench.told.reasons() == ["Provisioning", "ProvisioningSucceeded"] and bench.driver.count("create") == 1


def test_M24_an_object_of_that_name_is_success_only_if_it_is_ours() -> None:
    for ours in [True, False]:
        created = CreatedVolume("test-volume-id", 100, topologies=(samples.info().segment,))
        bench = late(driver=ScriptedDriver(creates=[created]), kube=ScriptedKube(failures={"create": [AlreadyExists("taken")]}))
        csi = {"driver": samples.DRIVER, "volumeHandle": "test-volume-id" if ours else "another"}
        bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(spec={"csi": csi})
        until = bench.claim()
        assert (until is None) is ours
        assert bench.told.reasons()[-1] == ("ProvisioningSucceeded" if ours else "ProvisioningFailed")


def test_V4_a_volume_that_is_too_small_is_deleted_again() -> None:
    bench = late(driver=ScriptedDriver(creates=[CreatedVolume("small", 99)]))
    assert bench.claim() == 101.0
    assert ("delete", "small") in bench.driver.asked
    assert bench.kube.wrote("create") == []
    assert "deleted again" in bench.told.events[-1][3]


def test_N5_the_race_waits_measures_and_bids_without_creating() -> None:
    bench = immediate()
    until = bench.claim()
    assert until == 110.0 and bench.driver.asked == []
    bench.now = until
    assert bench.claim() == until, "it is looked at again at once: it is known to be ours before the watch says so"
    assert [method for method, _ in bench.driver.asked] == ["capacity"]
    assert b'"volume.kubernetes.io/selected-node":"foo"' in bench.kube.wrote("replace")[0]
    assert bench.kube.wrote("create") == []


def test_a_volume_that_goes_before_it_is_bound_is_made_anew_if_the_claim_is_still_there() -> None:
    bench = late()
    bench.claim()
    bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "foo"})
    bench.room.volume_gone(UID)
    assert bench.claim() is None
    assert bench.driver.count("create") == 2


def test_X2_a_volume_that_goes_because_its_claim_went_is_not_made_anew_on_a_stale_picture() -> None:
    bench = late()
    bench.claim()
    bench.room.volume_gone(UID)
    bench.claim()
    assert bench.driver.count("create") == 1


def test_N16_N31_a_lost_bid_waits_longer_and_ends_with_the_winner() -> None:
    bench = immediate(kube=ScriptedKube(failures={"replace": [Conflict("changed")]}))
    bench.claim()
    bench.now = 110.0
    assert bench.claim() == 110.0 + 30.0
    bench.see(claim=samples.claim(selected="bar"))
    assert bench.room.concerns(UID)
    assert bench.claim() is None
    assert not bench.room.concerns(UID)
    assert [verb for verb, *_ in bench.kube.asked] == ["replace"], "its own bid, and nothing else"
    assert bench.told.events == []
    assert bench.value("csi_node_sidecar_ownership_races_lost_total") == 1


def test_N18_a_bid_that_is_forbidden_is_told_and_backed_off() -> None:
    bench = immediate(kube=ScriptedKube(failures={"replace": [Forbidden("update persistentvolumeclaims: no")]}))
    bench.claim()
    bench.now = 110.0
    assert bench.claim() == 111.0
    assert "update persistentvolumeclaims" in bench.told.events[-1][3]


def test_a_dry_run_decides_and_writes_nothing() -> None:
    for bench in [late(dry_run=True), immediate(dry_run=True), released(dry_run=True)]:
        bench.claim()
        bench.now = 500.0
        bench.claim()
        bench.volume()
        assert bench.kube.asked == [] and bench.told.events == []
        assert not {"create", "delete"} & {method for method, _ in bench.driver.asked}
        assert bench.decisions.rows()


def test_of_two_claims_that_fit_alone_and_not_together_one_is_bid_for() -> None:
    """Both ask for room before either is selected: what the first bids for is promised before the second decides."""
    bench = Bench(driver=ScriptedDriver(capacities=[CapacityAnswer(150)])).see(class_=samples.class_(volumeBindingMode="Immediate"))
    for uid in ("one", "two"):
        bench.see(claim=samples.claim(meta={"uid": uid}))

    async def both() -> None:
        for _ in range(3):
            await asyncio.gather(*(bench.room.handle_claim(uid) for uid in ("one", "two")))
            bench.now += 30.0

    async def slow(resource: Any, body: bytes, **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return dict(json.loads(body))

    bench.kube.replace = slow  # type: ignore[assignment]
    bench.driver.creates = [rpc(Code.INTERNAL)]
    asyncio.run(both())
    assert bench.value("csi_node_sidecar_ownership_bids_total") == 1
    assert len(bench.promises()) == 1


def test_a_bid_that_waits_for_the_limiter_is_withdrawn_once_somebody_has_the_claim() -> None:
    bench = immediate()
    bench.claim()
    bench.now = 110.0

    async def in_line(resource: Any, body: bytes, *, is_current: Any, **_: Any) -> dict[str, Any]:
        assert is_current()
        bench.see(claim=samples.claim(selected="bar", meta={"resourceVersion": "8"}))
        assert not is_current()
        raise Withdrawn("not sent")

    bench.kube.replace = in_line  # type: ignore[assignment]
    assert bench.claim() == 110.0
    assert bench.claim() is None
    assert bench.value("csi_node_sidecar_ownership_races_lost_total") == 1
    assert bench.promises() == {}


def ranked_second(**doors: Any) -> Bench:
    """An open claim for which another node comes first, and this one's turn has come."""
    bench = immediate(**doors)
    roster = next(found for number in range(99) if (found := Roster.of(["foo", f"bar-{number}"], {})).order(UID, 100)[0] != "foo")
    here = samples.here(bench.driver.info)
    placement = Ranked(RandomDelay(20.0, 60.0))
    bench.look_around = lambda: replace(here, options=replace(here.options, placement=placement))
    bench.room._roster = lambda _: roster  # type: ignore[method-assign]
    bench.now = bench.claim() or 0.0
    return bench


def test_who_comes_later_in_the_order_does_not_write_where_the_api_server_says_that_somebody_has_it() -> None:
    bench = ranked_second()
    bench.kube.objects[("persistentvolumeclaims", "fake-pvc")] = samples.claim_json(
        annotations={SELECTED_NODE: "bar"}, meta={"resourceVersion": "8"}
    )
    assert bench.claim() == bench.now
    assert bench.kube.wrote("replace") == []
    assert bench.claim() is None, "what was answered is known, though the watch has not told it"
    assert bench.value("csi_node_sidecar_ownership_races_lost_total") == 1
    assert bench.promises() == {}


def test_a_node_lags_while_its_watch_has_not_shown_its_own_bid() -> None:
    bench = immediate()
    bench.now = bench.claim() or 0.0
    bench.watched = "7"
    bench.kube.answers["replace"] = samples.claim_json(annotations={SELECTED_NODE: "foo"}, meta={"resourceVersion": "8"})
    bench.claim()
    bench.now += 5.0
    assert bench.room.claim_view(UID).local_delay == 5.0
    bench.watched = "8"
    bench.now += 100.0
    assert bench.room.claim_view(UID).local_delay < 0.01


def test_a_bid_that_was_refused_makes_the_node_lag_until_somebody_has_the_claim() -> None:
    for lost in [False, True]:
        bench = immediate(kube=ScriptedKube(failures={"replace": [TooManyRequests("no", retry_after=1.0)]}))
        bench.now = bench.claim() or 0.0
        bench.claim()
        if lost:
            bench.see(claim=samples.claim(selected="bar", meta={"resourceVersion": "8"}))
            bench.claim()
        bench.now += 15.0
        assert bench.room.claim_view(UID).local_delay == (0.0 if lost else 15.0)


def test_N25_a_claim_nobody_has_room_for_gets_one_event_and_is_looked_at_again_when_room_comes() -> None:
    bench = immediate(driver=ScriptedDriver(capacities=[CapacityAnswer(99), CapacityAnswer(99)]))
    for _ in range(20):
        until = bench.claim()
        assert until is not None
        bench.now = max(until, bench.now)
    assert bench.told.reasons() == ["NoNodeTakesClaim"]
    assert bench.told.events[0][3].startswith("no node has taken the claim yet: no room on node foo: 100 bytes needed, 99 free")
    assert bench.kube.asked == []
    bench.driver.capacities = [CapacityAnswer(100)]
    assert bench.room.room_grew(frozenset({"another"}), CapacityAnswer(100), 0) == []
    assert bench.room.room_grew(frozenset({"fake-class"}), CapacityAnswer(99), 0) == []
    assert bench.room.room_grew(frozenset({"fake-class"}), CapacityAnswer(100), 0) == [(UID, bench.now)]
    bench.claim()
    assert len(bench.kube.wrote("replace")) == 1


def test_N23_a_node_that_had_the_claim_and_no_room_for_it_steps_back() -> None:
    bench = Bench(driver=ScriptedDriver(creates=[rpc(Code.RESOURCE_EXHAUSTED)]))
    bench.see(claim=samples.claim(selected="foo"), class_=samples.class_(volumeBindingMode="Immediate"))
    bench.kube.answers["replace"] = samples.claim_json(meta={"resourceVersion": "8"})
    assert bench.claim() == 100.0
    assert bench.claim() == 130.0, "the second delay, not the first"


def test_a_creation_that_may_still_run_outlives_a_tenant_who_takes_the_node_off_the_claim() -> None:
    """No race takes its place: the volume is looked for first, and counts as this node's until it is known to be gone."""
    for selected in ["", "bar"]:
        for handed_back in [False, True]:
            bench = immediate(driver=ScriptedDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)])).see(claim=samples.claim(selected="foo"))
            bench.claim()
            if handed_back:
                bench.table.advance(UID, after_unanswered_hand_back(bench.table.progress(UID), "7"))
            before = bench.table.progress(UID)
            bench.see(claim=samples.claim(selected=selected, meta={"resourceVersion": "8"}))
            bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(
                annotations={SELECTED_NODE: selected or None}, meta={"resourceVersion": "8"}
            )
            for _ in range(3):
                bench.claim_when_due()
                assert bench.table.progress(UID) == before and bench.table.records.get(UID) is not None
                assert bench.table.concerns(UID) and bench.table.takes_space(UID) and bench.table.in_progress() == 1
                assert bench.promises() == {UID: Promise("fake-class", 100)}
            assert bench.kube.wrote("replace") == []
            bench.driver.creates = [CreatedVolume("test-volume-id", 100)]
            bench.claim_when_due()
            assert bench.driver.asked[-1] == ("delete", "test-volume-id")
            assert bench.table.progress(UID) == NOT_BEGUN and bench.table.records.get(UID) is None and bench.promises() == {}


def test_a_creation_is_not_over_when_the_api_server_knows_already_that_the_claim_is_back() -> None:
    """It may have left again before the watch shows it here; then nothing else would lead to the volume."""
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.DEADLINE_EXCEEDED), CreatedVolume("test-volume-id", 100)]))
    bench.claim()
    bench.see(claim=samples.claim(selected="bar"))
    bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(annotations={SELECTED_NODE: "foo"})
    bench.claim_when_due()
    assert bench.driver.count("create") == 1 and bench.table.records.get(UID) is not None
    bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(annotations={SELECTED_NODE: "bar"})
    bench.claim_when_due()
    assert bench.driver.asked[-1] == ("delete", "test-volume-id") and bench.table.records.get(UID) is None


def test_a_claim_whose_giving_back_got_no_answer_is_given_back_again_before_anything_is_created_here() -> None:
    kube = ScriptedKube(failures={"replace": [Unavailable("no answer in time")]})
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.RESOURCE_EXHAUSTED), CreatedVolume("second", 100)]), kube=kube)
    bench.claim()
    bench.claim()
    assert bench.driver.count("create") == 1
    assert len(bench.kube.wrote("replace")) == 2


def test_a_bid_for_a_claim_that_is_gone_ends_quietly() -> None:
    bench = immediate(kube=ScriptedKube(failures={"replace": [NotFound("gone")]}))
    bench.claim()
    bench.now = 110.0
    assert bench.claim() is None
    assert bench.told.events == []


def test_who_comes_later_does_not_take_a_namesake_for_the_claim() -> None:
    bench = ranked_second()
    namesake = samples.claim_json(meta={"uid": "another", "resourceVersion": "9"})
    bench.kube.objects[("persistentvolumeclaims", "fake-pvc")] = namesake
    assert bench.claim() is None
    assert bench.kube.wrote("replace") == []
    held = bench.caches.claims.get(UID)
    assert held is not None and held.uid == UID, "what is held of the old one goes when the watch says so"


def test_a_volume_made_here_for_a_claim_that_has_one_elsewhere_is_deleted_again() -> None:
    bench = late(kube=ScriptedKube(failures={"create": [AlreadyExists("taken")]}))
    bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(spec={"nodeAffinity": samples.placed("bar")})
    bench.claim()
    assert ("delete", "test-volume-id") in bench.driver.asked
    assert bench.table.unsaved() == 0


def test_a_bid_that_waited_for_an_api_server_that_was_away_makes_no_node_lag() -> None:
    bench = immediate(kube=ScriptedKube(failures={"replace": [Unavailable("connection refused")] * 2}))
    bench.now = bench.claim() or 0.0
    for _ in range(2):
        bench.now = bench.claim() or 0.0
    assert bench.room.claim_view(UID).local_delay == 0.0
