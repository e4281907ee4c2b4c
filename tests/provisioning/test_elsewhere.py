"""What a live PersistentVolume leads to is never deleted, whatever else its place asks for and in whatever order it was written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sidecar.csi.api import TOPOLOGY, CreatedVolume
from sidecar.model.objects import Json
from sidecar.model.topology import Segment
from tests.harness import samples
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, released, room_for, settle

ZONE = "topology.kubernetes.io/zone"
WITH_ZONE = Segment.of({samples.KEY: samples.NODE, ZONE: "z1"})
ELSEWHERE = Segment.of({samples.KEY: "bar"})


def placed(*expressions: tuple[str, str]) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in expressions]}]
    return {"required": {"nodeSelectorTerms": terms}}


def test_a_volume_that_the_peer_has_stored_in_another_order_is_the_same() -> None:
    for order in [1, -1]:
        room = room_for(driver=OpenDriver(creates=[CreatedVolume("test-volume-id", 100, topologies=(WITH_ZONE,))]), kube=KeepingKube())
        place = placed(*WITH_ZONE.pairs[::order])
        room.add("persistentvolumes", samples.volume_json(spec={"nodeAffinity": place}, status={"phase": "Available"}))
        settle(room)
        assert room.driver.count("delete") == 0
        assert "ProvisioningSucceeded" in str(room.told.events)


def test_what_the_driver_finds_on_another_node_is_left_to_the_volume_there() -> None:
    """Some drivers have names of the whole cluster: the answer is the volume that another node has made for the claim."""
    room = room_for(driver=OpenDriver(creates=[CreatedVolume("h1", 100, topologies=(ELSEWHERE,))]))
    spec = {"csi": {"driver": samples.DRIVER, "volumeHandle": "h1"}, "nodeAffinity": placed((samples.KEY, "bar"))}
    room.add("persistentvolumes", samples.volume_json(spec=spec, status={"phase": "Bound"}))
    settle(room)
    assert room.driver.count("delete") == 0


def test_a_driver_that_says_it_cannot_delete_is_not_asked_to() -> None:
    for said in [samples.info(controller=()), replace(samples.info(), plugin=frozenset({TOPOLOGY}))]:
        room = released(parameters={}, driver=OpenDriver(said))
        room.volume()
        assert room.driver.count("delete") == 0
        assert "capability" in str(room.told.events)


ALLOWED = [{"matchLabelExpressions": [{"key": samples.KEY, "values": [samples.NODE, "bar"]}]}]
FARTHER = Segment.of({samples.KEY: "baz"})
IN_ITS_RACK = Segment.of({samples.KEY: "bar", "rack": "7"})


def answered(*topologies: Segment, allowed: Sequence[Json] = ALLOWED, **options: Any) -> Room:
    room = room_for(driver=OpenDriver(creates=[CreatedVolume("h1", 100, topologies=topologies)]), options=options)
    room.see(class_=samples.class_(allowedTopologies=list(allowed)))
    settle(room)
    return room


def test_a_place_that_the_class_allows_and_the_driver_chose_is_stored_as_it_is() -> None:
    """It was asked for all that the class allows, this node first. The scheduler brings the claim's pods there, or they wait."""
    for places in [(ELSEWHERE,), (IN_ITS_RACK,), (ELSEWHERE, IN_ITS_RACK)]:
        room = answered(*places)
        assert room.driver.count("delete") == 0 and room.driver.count("create") == 1
        terms = room.kube.wrote_volume()["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert [{item["key"]: item["values"] for item in term["matchExpressions"]} for term in terms] == [
            {key: [value] for key, value in place.pairs} for place in places
        ]
        assert room.told.reasons() == ["Provisioning", "ProvisioningSucceeded"]
        assert not room.paper.lines


def test_a_place_that_nobody_asked_for_is_undone_and_told() -> None:
    for places, options in [((FARTHER,), {}), ((ELSEWHERE, FARTHER), {}), ((ELSEWHERE,), {"strict_topology": True})]:
        room = answered(*places, **options)
        assert not room.kube.wrote("create") and room.driver.count("delete") == 1
        assert "it was asked for" in room.said() and str(places[-1]) in room.said()
