"""Drain cases D9 and D10 and what belongs to them: a node that is being emptied takes no volumes, and passes on none without end."""

import math
from dataclasses import replace
from typing import Any

from sidecar.csi.api import CapacityAnswer, CapacityQuery, CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.api import Resource, always
from sidecar.kube.errors import Forbidden, Invalid, Unavailable, Withdrawn
from sidecar.model.names import HANDED_BACK, SELECTED_NODE
from sidecar.model.nodes import Taint
from sidecar.model.standing import OPEN, Standing
from sidecar.provisioning.creations.creation_record import CreationRecord
from tests.harness import samples
from tests.harness.provisioning.bench import UID, create, rpc
from tests.harness.provisioning.pods import CORDON, pod_json, tolerating
from tests.harness.provisioning.room import Json, KeepingKube, OpenDriver, Room, room_for, settle

CLOSED = Standing(closed=True, why="it is cordoned", since="2026-01-01T00:00:00Z", taints=(CORDON,))
EVACUATION = Taint("csi-node-sidecar.io/evacuate", "retire", "NoSchedule")
WHY = "node foo takes no volumes: it is cordoned"


def late(*pods: Json, **doors: Any) -> Room:
    """A claim that was put on this node, which is closed."""
    return room_for(**{"standing": CLOSED, **doors}).add("pods", *pods)


def immediate(*, selected: str = "", **doors: Any) -> Room:
    notes: dict[str, str | None] = {SELECTED_NODE: selected} if selected else {}
    room = Room(**doors).show(samples.claim_json(annotations=notes))
    room.see(class_=samples.class_(volumeBindingMode="Immediate"))
    return room


def on_server(room: Room) -> dict[str, str]:
    """The claim's annotations."""
    notes: dict[str, str] = room.kube.objects["persistentvolumeclaims", "fake-pvc"]["metadata"]["annotations"]
    return notes


def put_here(room: Room, *, into: Room | None = None) -> Room:
    """The scheduler chooses this node for the claim as it is on the server."""
    obj = room.kube.objects["persistentvolumeclaims", "fake-pvc"]
    obj["metadata"]["annotations"][SELECTED_NODE] = samples.NODE
    obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
    return (into or room).show(obj)


def handed_back(room: Room) -> bool:
    return SELECTED_NODE not in on_server(room) and room.untouched()


def provisioned(room: Room) -> str:
    """What its user was told when it began."""
    assert room.driver.count("create") == 1 and room.told.reasons()[-2:] == ["Provisioning", "ProvisioningSucceeded"]
    return room.told.events[-2][3]


def test_drain_D9_a_claim_put_on_a_closed_node_is_handed_back_once_for_each_closing() -> None:
    room = late(pod_json())
    assert settle(room) is None
    assert handed_back(room) and on_server(room)[HANDED_BACK] == f"foo@{CLOSED.since}"
    assert room.told.events == [
        ("fake-pvc", "Normal", "Provisioning", f"{WHY}; the claim is handed back, so that another node is chosen"),
    ]
    assert room.value("controller_persistentvolumeclaim_provision_failed_total") == 0, "nothing has failed"
    put_here(room)
    assert settle(room) is None
    assert f"{WHY}, but it was already handed back once for this closing and came back" in provisioned(room)


def test_drain_D9_a_pod_that_tolerates_the_cordon_would_only_come_back() -> None:
    agent = pod_json("agent", **tolerating(CORDON))
    room = late(pod_json("another", claim="another"), agent)
    assert settle(room) is None
    assert f"{WHY}, but pod fake-ns/agent tolerates the cordon" in provisioned(room)
    assert [asked[:2] for asked in room.kube.asked if asked[0] == "list"] == [("list", "pods")]


def test_drain_D9_tolerating_the_cordon_alone_is_not_enough_on_an_evacuated_node() -> None:
    room = late(pod_json(**tolerating(CORDON)), standing=replace(CLOSED, taints=(CORDON, EVACUATION)))
    settle(room)
    assert handed_back(room)


def test_drain_D9_without_the_right_to_list_pods_the_claim_is_provisioned() -> None:
    room = late(kube=KeepingKube(failures={"list": [Forbidden("pods is forbidden")]}))
    assert settle(room) is None
    assert "which pods use it is not known" in provisioned(room) and "pods is forbidden" in provisioned(room)


def test_drain_D9_while_the_api_server_is_away_nothing_is_done() -> None:
    room = late(kube=KeepingKube(failures={"list": [Unavailable("no answer")]}))
    until = room.claim()
    assert until is not None and until > room.now
    assert room.untouched() and room.kube.wrote("replace") == [] and room.told.events == []
    room.now = until
    settle(room)
    assert handed_back(room)


def test_drain_D9_a_creation_that_runs_when_the_node_is_closed_is_completed() -> None:
    driver = OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED), CreatedVolume("test-volume-id", 100)])
    room = late(pod_json(), standing=OPEN, driver=driver)
    room.claim()
    room.standing = CLOSED
    assert room.claim() is None
    assert room.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "test-volume-id"
    assert SELECTED_NODE in on_server(room) and room.kube.wrote("replace") == []


def test_drain_D9_and_so_is_one_that_a_former_process_began() -> None:
    room = late(pod_json())
    room.table.records.keep(CreationRecord(UID, "fake-ns", "fake-pvc", "fake-class", create().request, None))
    assert settle(room) is None
    assert "a creation of it was begun here before" in provisioned(room)


def test_a_claim_that_can_be_made_nowhere_is_not_passed_round() -> None:
    room = room_for(samples.claim_json(selector={}), standing=CLOSED)
    room.claim()
    assert room.told.reasons() == ["ProvisioningFailed"] and "selector" in room.said()
    assert room.kube.wrote("replace") == []


def test_a_claim_that_cannot_be_handed_back_is_provisioned() -> None:
    for error in [Forbidden("no update"), Invalid("a policy forbids the annotation")]:
        room = late(pod_json(), kube=KeepingKube(failures={"replace": [error]}))
        until = room.claim()
        assert until is not None
        room.now = until
        assert settle(room) is None
        assert f"it cannot be handed back: {error}" in provisioned(room)


def test_whether_it_was_handed_back_is_found_out_before_anything_else() -> None:
    room = late(pod_json(), kube=KeepingKube(failures={"replace": [Unavailable("no answer")]}))
    room.claim()
    settle(room)
    assert handed_back(room) and on_server(room)[HANDED_BACK] == f"foo@{CLOSED.since}"
    assert len(room.kube.wrote("replace")) == 2


def test_a_dry_run_hands_nothing_back() -> None:
    room = late(pod_json(), dry_run=True)
    room.claim()
    assert room.kube.wrote("replace") == [] and room.untouched()


def test_drain_D9_a_cordoned_node_makes_no_bid_until_it_opens() -> None:
    room = immediate()
    due = room.claim()
    room.standing, room.now = CLOSED, due or math.nan
    until = room.claim()
    assert until is not None and until > room.now
    assert room.driver.asked == [] and room.kube.wrote("replace") == []
    room.standing = OPEN
    again = room.claim()
    assert again is not None and room.now < again < room.now + 60.0, "woken when it opens, it races as if the claim were new"
    room.now = again
    settle(room)
    assert on_server(room)[SELECTED_NODE] == "foo" and room.driver.count("create") == 1


def test_drain_D9_that_all_nodes_are_closed_is_told_to_the_claims_user() -> None:
    room = immediate(standing=CLOSED)
    while (until := room.claim()) is not None:
        assert until <= room.now + 600.0
        room.now = until
    assert room.told.events == [("fake-pvc", "Warning", "NoNodeTakesClaim", f"{WHY}, and no other node has taken the claim")]
    assert room.driver.asked == [] and room.kube.wrote("replace") == []


def test_drain_D9_a_node_that_is_closed_while_it_measures_does_not_bid() -> None:
    room = immediate()

    class Slow(OpenDriver):
        async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
            room.standing = CLOSED
            return await super().get_capacity(query)

    room.driver.__class__ = Slow
    room.now = room.claim() or math.nan
    room.claim()
    assert room.driver.count("capacity") == 1 and room.kube.wrote("replace") == []
    assert room.value("csi_node_sidecar_insufficient_capacity_total") == 0


def test_drain_D9_a_bid_that_waits_for_its_turn_when_the_node_is_closed_is_withdrawn() -> None:
    room = immediate()

    class Busy(KeepingKube):
        async def replace(self, resource: Resource, body: Any, *, name: str, is_current: Any = always, **rest: Any) -> Json:
            room.standing = CLOSED
            if not is_current():
                raise Withdrawn("it is no longer wanted")
            return await super().replace(resource, body, name=name, **rest)

    room.kube.__class__ = Busy
    room.now = room.claim() or math.nan
    until = settle(room)
    assert until is not None and until > room.now
    assert SELECTED_NODE not in on_server(room) and room.kube.wrote("replace") == []


def test_drain_D9_a_claim_that_this_node_won_before_it_was_closed_goes_to_the_others() -> None:
    room = immediate(selected="foo", standing=CLOSED)
    until = settle(room)
    assert handed_back(room) and on_server(room)[HANDED_BACK] == f"foo@{CLOSED.since}"
    assert until is not None and until > room.now, "should nobody take it, its user is told"


def test_drain_D10_deletions_on_a_closed_node_go_on() -> None:
    room = Room(standing=CLOSED).see(volume=samples.volume(), class_=samples.class_())
    assert room.volume() == room.now
    assert room.volume() is None
    assert room.driver.count("delete") == 1 and room.kube.wrote("delete") == ["volume-uid"]
