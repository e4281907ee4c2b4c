"""What a node does about its own storage: tables beside the stories of `test_story`."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.failover.evidence import Peer, Resource, Snapshot
from sidecar.failover.victim import AddTaint, Evict, Memory, Own, Release, RemoveTaint, decide, is_whole
from sidecar.model.nodes import Pod, Taint
from sidecar.model.objects import ClaimRef, Volume
from tests.failover.test_survivor import DRIVER, pod

NOW = 1000.0
GOOD: dict[str, Any] = {"primary": True, "open": True, "failing_io": False, "has_quorum": True, "peers": {"b": Peer("b", True)}}
FROZEN = {"suspended": frozenset({"quorum"}), "has_quorum": False}
USER = pod()


def resource(name: str = "data", **changes: Any) -> Resource:
    return Resource(name, NOW, **(GOOD | changes))


def volume(name: str = "data") -> Volume:
    made = Volume.of({"metadata": {"name": f"pv-{name}"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": name}}})
    return replace(made, claim=ClaimRef("uid-claim", "ns", name))


def acts(
    *resources: Resource, pods: tuple[Pod, ...] = (USER,), lasts: float = 30.0, ending: float | None = None, before: bool = True, **own: Any
) -> set[type]:
    """`lasts`: for how long it has been as it is; `ending`: for how long its pods are being deleted."""
    snapshot = Snapshot(NOW, True, {each.name: each for each in resources})
    volumes, memory = [volume(each.name) for each in resources], Memory()
    names = {each.name for each in resources}
    if before:  # it was whole once
        memory.see(Snapshot(NOW - lasts - 10, True, {each.name: resource(each.name) for each in resources}), names, NOW - lasts - 10)
    memory.see(replace(snapshot, at=NOW - lasts), names, NOW - lasts)
    if ending is not None:
        memory.see_pods([one for one in pods if one.deleting_since], NOW - ending)
    memory.see(snapshot, names, NOW)
    given = Own(**({"snapshot": snapshot, "volumes": volumes, "pods": pods, "taint": None, "boot_id": "boot-2"} | own))
    return {type(act) for act in decide(given, memory, dict.fromkeys((one.uid for one in pods), 30.0), NOW)}


ENDING = replace(USER, deleting_since="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, True),
        ({"suspended": frozenset({"user"})}, True),
        (FROZEN, False),
        ({"failing_io": True}, False),
        ({"has_quorum": None}, None),
        ({"suspended": None}, None),
        ({"unknown": "the reads disagree"}, None),
    ],
)
def test_whether_a_resource_is_whole(changes: dict[str, Any], value: bool | None) -> None:
    assert is_whole(resource(**changes)) is value


@pytest.mark.parametrize(
    ("found", "pods", "how", "wanted"),
    [
        pytest.param(resource(), (USER,), {}, set(), id="all is well"),
        pytest.param(resource(failing_io=True), (USER,), {}, {Evict, AddTaint}, id="F18 it fails I/O"),
        pytest.param(resource(failing_io=True), (USER,), {"lasts": 29.0}, set(), id="F18 not for long enough"),
        pytest.param(resource(**FROZEN), (USER,), {}, {Evict, AddTaint}, id="it is frozen, and nobody asks the pod to end"),
        pytest.param(resource(**FROZEN), (ENDING,), {"ending": 30.0}, {Release, AddTaint}, id="F15 its pod is past its grace"),
        pytest.param(resource(**FROZEN), (ENDING,), {"ending": 29.0}, {AddTaint}, id="F15 and not before"),
        pytest.param(resource(**FROZEN), (ENDING, replace(USER, uid="r")), {"ending": 90.0}, {Evict, AddTaint}, id="F16 another pod"),
        pytest.param(
            resource(**FROZEN), (ENDING, replace(USER, uid="r", phase="Pending")), {"ending": 90.0}, {Evict, AddTaint}, id="F16 pending"
        ),
        pytest.param(resource(**FROZEN), (), {}, {AddTaint}, id="no pod at all"),
        pytest.param(resource(**FROZEN | {"primary": False}), (ENDING,), {"ending": 90.0}, {AddTaint}, id="it is Secondary"),
        pytest.param(resource(suspended=frozenset({"user", "quorum"}), has_quorum=False), (ENDING,), {"ending": 90.0}, set(), id="F17"),
        pytest.param(resource(failing_io=True), (replace(USER, owner=None),), {}, {AddTaint}, id="F30 nobody would make it again"),
        pytest.param(resource(failing_io=True, peers={}), (USER,), {}, {AddTaint}, id="nobody else has a copy: the pods stay"),
        pytest.param(resource(unknown="the reads disagree"), (USER,), {}, set(), id="it is not known"),
    ],
)
def test_what_is_done_about_trouble(found: Resource, pods: tuple[Pod, ...], how: dict[str, Any], wanted: set[type]) -> None:
    assert acts(found, pods=pods, **how) == wanted


@pytest.mark.parametrize(
    ("value", "resources", "how", "goes"),
    [
        pytest.param("no-quorum", (resource(),), {}, True, id="two readings of storage that is whole"),
        pytest.param("no-quorum", (resource(),), {"lasts": 4.0}, False, id="one of them"),
        pytest.param("no-quorum", (resource(has_quorum=None),), {}, False, id="F40 what is not known heals nothing"),
        pytest.param("no-quorum", (resource(),), {"pods": ()}, False, id="F47 a removed pod's volume is in use here"),
        pytest.param("no-quorum", (resource(primary=False, open=False),), {"pods": ()}, True, id="F47 and now it is not"),
        pytest.param("no-quorum", (), {"lasts": 290.0}, False, id="F40 an empty list after a boot"),
        pytest.param("no-quorum", (), {"lasts": 310.0}, True, id="F48 nothing is left that it could be about"),
        pytest.param("powered-off-boot-1", (resource(has_quorum=None),), {}, True, id="it is another boot"),
        pytest.param("powered-off-boot-2", (resource(),), {}, False, id="it is the boot that was named"),
        pytest.param("powered-off-boot-1", (resource(),), {"boot_id": ""}, False, id="the boot is not known"),
    ],
)
def test_when_the_taint_is_taken_off(value: str, resources: tuple[Resource, ...], how: dict[str, Any], goes: bool) -> None:
    assert (RemoveTaint in acts(*resources, taint=Taint("t", value, "NoSchedule"), before=False, **how)) is goes
