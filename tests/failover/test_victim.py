"""What a node does about its own storage: tables beside the stories of `test_story`."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.failover.evidence import Peer, Resource, Snapshot
from sidecar.failover.victim import AddTaint, Evict, Memory, Own, Release, RemoveTaint, decide, is_whole
from sidecar.model.nodes import Pod, Taint
from sidecar.model.objects import ClaimRef, Volume
from tests.failover.test_survivor import DRIVER, mostly, pod

NOW = 1000.0
GOOD: dict[str, Any] = {"primary": True, "open": True, "failing_io": False, "has_quorum": True, "peers": {"b": Peer("b", True)}}
FROZEN = {"suspended": frozenset({"quorum"}), "has_quorum": False, "peers": {"b": Peer("b", False)}}
SEES = {"peers": {"b": Peer("b", False), "c": Peer("c", True)}}
USER = pod()


def resource(name: str = "data", **changes: Any) -> Resource:
    return Resource(name, NOW, **(GOOD | changes))


def volume(name: str = "data") -> Volume:
    made = Volume.of({"metadata": {"name": f"pv-{name}"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": name}}})
    return replace(made, claim=ClaimRef("uid-claim", "ns", name))


def acts(
    *resources: Resource,
    pods: tuple[Pod, ...] = (USER,),
    lasts: float = 30.0,
    ending: float | None = None,
    before: bool = True,
    complete: bool = True,
    **own: Any,
) -> set[type]:
    """`lasts`: for how long it has been as it is; `ending`: for how long its pods are being deleted."""
    snapshot = Snapshot(NOW, complete, {each.name: each for each in resources})
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
        pytest.param(
            resource(**FROZEN), (ENDING, replace(USER, uid="r", phase="Succeeded")), {"ending": 90.0}, {AddTaint}, id="F16 in any phase"
        ),
        pytest.param(resource(**FROZEN), (ENDING,), {"ending": 90.0, "lasts": 4.9}, set(), id="F15 it is frozen for a moment"),
        pytest.param(resource(**FROZEN), (ENDING,), {"ending": 90.0, "lasts": 5.0}, {Release}, id="F15 and for longer"),
        pytest.param(
            resource(**FROZEN), (ENDING,), {"ending": 90.0, "before": False}, {Release, AddTaint}, id="F15 for a process that began after"
        ),
        pytest.param(resource(**FROZEN | {"failing_io": True}), (ENDING,), {"ending": 90.0}, {AddTaint}, id="F15 its I/O fails already"),
        pytest.param(
            resource(primary=False, has_quorum=False, peers={"b": Peer("b", False)}), (), {}, {AddTaint}, id="it sees no other node"
        ),
        pytest.param(resource(**FROZEN), (), {}, {AddTaint}, id="no pod at all"),
        pytest.param(resource(**FROZEN | {"primary": False}), (ENDING,), {"ending": 90.0}, {AddTaint}, id="it is Secondary"),
        pytest.param(resource(**FROZEN | {"primary": False}), (USER,), {}, {AddTaint, Evict}, id="its pod cannot begin here"),
        pytest.param(resource(**FROZEN | SEES), (USER,), {}, set(), id="another node that it reaches has no quorum either"),
        pytest.param(resource(**FROZEN | SEES), (ENDING,), {"ending": 90.0}, {Release}, id="and still its pods can end"),
        pytest.param(resource(**FROZEN | {"peers": {"b": Peer("b", None)}}), (USER,), {}, set(), id="whether it reaches one is not known"),
        pytest.param(resource(suspended=frozenset({"user", "quorum"}), has_quorum=False), (ENDING,), {"ending": 90.0}, set(), id="F17"),
        pytest.param(resource(failing_io=True), (replace(USER, owner=None),), {}, {AddTaint}, id="F30 nobody would make it again"),
        pytest.param(resource(failing_io=True, peers={}), (USER,), {}, {AddTaint}, id="nobody else has a copy: the pods stay"),
        pytest.param(resource(failing_io=True), (replace(USER, static=True),), {}, {AddTaint}, id="a static pod"),
        pytest.param(resource(failing_io=True), (ENDING,), {}, {AddTaint}, id="it is ending already"),
        pytest.param(resource(has_quorum=False, primary=False), (), {"before": False}, set(), id="F51 it never had quorum: it is new"),
        pytest.param(resource(unknown="the reads disagree"), (USER,), {}, set(), id="it is not known"),
    ],
)
def test_what_is_done_about_trouble(found: Resource, pods: tuple[Pod, ...], how: dict[str, Any], wanted: set[type]) -> None:
    assert acts(found, pods=pods, **how) == wanted


@pytest.mark.parametrize(("pods", "wanted"), [((), set()), ((replace(USER, phase="Succeeded"),), set()), ((USER,), {AddTaint, Evict})])
def test_a_copy_that_no_pod_uses_here_any_more_keeps_no_pods_of_other_volumes_away(pods: tuple[Pod, ...], wanted: set[type]) -> None:
    lost, other = resource(primary=False, has_quorum=False, peers={"b": Peer("b", False)}), resource("other", **SEES)
    assert acts(lost, other, pods=pods) == wanted


def test_a_pod_is_evicted_once_the_taint_keeps_its_next_one_away_and_not_again_if_that_tolerates_it() -> None:
    memory, taint = Memory(), Taint("t", "no-quorum", "NoSchedule")
    for ago, facts in ((90, {}), (60, FROZEN), (0, FROZEN)):
        memory.see(snapshot := Snapshot(NOW - ago, True, {"data": resource(**facts)}), {"data"}, NOW - ago)
    everything = Pod.of({"metadata": {"name": "x"}, "spec": {"tolerations": [{"operator": "Exists"}]}}).tolerations

    def found(user: Pod, taint: Taint | None) -> list[type]:
        return [type(act) for act in decide(Own(snapshot, [volume()], [user], taint, "boot"), memory, {}, NOW)]

    assert found(USER, None) == [AddTaint, Evict] and found(USER, taint) == [Evict]
    assert found(replace(USER, tolerations=everything), taint) == []


@pytest.mark.parametrize(
    ("value", "resources", "how", "goes"),
    [
        pytest.param("no-quorum", (resource(),), {}, True, id="two readings of storage that is whole"),
        pytest.param("no-quorum", (resource(),), {"lasts": 4.0}, False, id="one of them"),
        pytest.param("no-quorum", (resource(has_quorum=None),), {}, False, id="F40 what is not known heals nothing"),
        pytest.param("no-quorum", (resource(primary=None),), {}, False, id="whether it is in use is not known"),
        pytest.param("peers-took-over", (resource(),), {"complete": False}, False, id="F40 a reading that is not complete"),
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


def test_f17_once_the_user_goes_on_what_is_still_frozen_is_frozen_anew() -> None:
    memory, names = Memory(), {"data"}

    def at(now: float, **changes: Any) -> set[type]:
        snapshot = Snapshot(now, True, {"data": replace(resource(**changes), at=now)})
        memory.see(snapshot, names, now)
        own = Own(snapshot, [volume()], [ENDING], None, "boot")
        return {type(act) for act in decide(own, memory, {ENDING.uid: 0.0}, now)}

    memory.see_pods([ENDING], NOW)
    at(NOW)
    both = FROZEN | {"suspended": frozenset({"user", "quorum"})}
    assert at(NOW + 10, **both) == at(NOW + 50, **both) == at(NOW + 50.1, **FROZEN) == at(NOW + 55, **FROZEN) == set()
    assert at(NOW + 55.1, **FROZEN) == {Release}
    assert at(NOW + 80.1, **FROZEN) == {Release, AddTaint}


def test_a_consistency_group_is_released_once_and_not_beside_a_pod_of_another_of_its_volumes() -> None:
    two = [replace(volume(name), handle=f"group/{number}") for number, name in enumerate(("data", "logs"))]
    frozen, memory = resource("group", **FROZEN), Memory()
    snapshot = Snapshot(NOW, True, {"group": frozen})
    memory.see(replace(snapshot, at=NOW - 20), {"group"}, NOW - 20)
    memory.see_pods([ENDING], NOW - 60)

    def released(*pods: Pod) -> list[str]:
        found = decide(Own(snapshot, two, pods, None, "boot"), memory, {ENDING.uid: 30.0}, NOW)
        return [act.resource for act in found if isinstance(act, Release)]

    assert released(ENDING) == ["group"]
    assert released(ENDING, replace(USER, uid="other", claims=("logs",))) == []


def test_f47_a_consistency_group_is_in_use_by_the_pods_of_any_of_its_volumes() -> None:
    two = [replace(volume(name), handle=f"group/{number}") for number, name in enumerate(("data", "logs"))]
    memory, taint = Memory(), Taint("t", "no-quorum", "NoSchedule")
    for now in (NOW - 10, NOW):
        memory.see(snapshot := Snapshot(now, True, {"group": replace(resource("group"), at=now)}), {"group"}, now)
    assert [type(act) for act in decide(Own(snapshot, two, [USER], taint, "boot"), memory, {}, NOW)] == [RemoveTaint]
    assert decide(Own(snapshot, two, [replace(USER, claims=("x",))], taint, "boot"), memory, {}, NOW) == []


@pytest.mark.parametrize("changes", [FROZEN | {"suspended": frozenset({"user", "quorum"})}, {"unknown": "the reads disagree"}, {}])
def test_f17_f46_what_was_seen_before_counts_for_nothing_if_the_last_reading_says_otherwise(changes: dict[str, Any]) -> None:
    memory, names = Memory(), {"data"}
    for ago, facts in ((90, {}), (60, FROZEN), (0, FROZEN)):
        memory.see(Snapshot(NOW - ago, True, {"data": resource(**facts)}), names, NOW - ago)
    memory.see_pods([ENDING], NOW - 60)

    def found(facts: dict[str, Any]) -> set[type]:
        own = Own(Snapshot(NOW, True, {"data": resource(**facts)}), [volume()], [ENDING], None, "boot")
        return {type(act) for act in decide(own, memory, {ENDING.uid: 30.0}, NOW)}

    assert found(FROZEN) == {Release, AddTaint} and found(changes) == set()


def test_f40_a_taint_goes_after_two_whole_readings_and_stays_if_the_last_is_not() -> None:
    memory, taint = Memory(), Taint("t", "no-quorum", "NoSchedule")

    def found(at: float, *, complete: bool = True, see: bool = True, **facts: Any) -> bool:
        snapshot = Snapshot(at, complete, {"data": replace(resource(**facts), at=at)})
        if see:
            memory.see(snapshot, {"data"}, at)
        return any(isinstance(act, RemoveTaint) for act in decide(Own(snapshot, [volume()], [USER], taint, "boot"), memory, {}, at))

    assert not found(NOW) and not found(NOW + 4.9)
    assert not found(NOW + 5, see=False, complete=False) and not found(NOW + 5, see=False, has_quorum=False)
    assert not found(NOW + 5, see=False, unknown="the reads disagree")
    assert found(NOW + 5)
    assert not found(NOW + 6, complete=False), "what is not known begins anew"
    assert not found(NOW + 10.9) and found(NOW + 15.9)


def test_what_is_no_volume_of_kubernetes_keeps_no_taint() -> None:
    memory, taint = Memory(), Taint("t", "no-quorum", "NoSchedule")
    foreign = resource("foreign", has_quorum=False, primary=None)
    for now in (NOW - 10, NOW):
        memory.see(snapshot := Snapshot(now, True, {"data": resource(), "foreign": foreign}), {"data"}, now)
    assert [type(act) for act in decide(Own(snapshot, [volume()], [USER], taint, "boot"), memory, {}, NOW)] == [RemoveTaint]


KNOWN: dict[str, Any] = {
    "primary": mostly(True, False),
    "open": st.booleans(),
    "failing_io": mostly(False, True),
    "has_quorum": st.booleans(),
    "suspended": st.sampled_from([frozenset(), frozenset({"quorum"}), frozenset({"user"}), frozenset({"user", "quorum"})]),
}
USERS = st.lists(
    mostly(ENDING, replace(ENDING, phase="Failed"), replace(USER, owner=None), replace(USER, static=True)), max_size=2
) | st.just([USER])


@settings(max_examples=400)
@given(
    st.fixed_dictionaries(KNOWN),
    USERS,
    st.sampled_from([0.0, 4.0, 5.0, 29.0, 30.0, 30.0, 30.0]),
    mostly(30.0, 10.0, None),
    st.sampled_from([None, Taint("t", "no-quorum", "NoSchedule")]),
    st.booleans(),
)
def test_what_is_not_known_permits_nothing_and_what_is_forgotten_adds_nothing(
    facts: dict[str, Any], users: list[Pod], lasts: float, ending: float | None, taint: Taint | None, before: bool
) -> None:
    pods = tuple(replace(one, uid=f"uid-{number}") for number, one in enumerate(users))

    def of(found: Resource, **how: Any) -> set[type]:
        return acts(found, pods=pods, lasts=lasts, ending=ending, taint=taint, before=before, **how)

    known = of(resource(**facts))
    if Release in known:
        assert facts["primary"] and facts["suspended"] == {"quorum"} and not facts["failing_io"] and lasts >= 5.0
        assert pods and all(one.deleting_since for one in pods) and ending == 30.0
    if known & {Evict, AddTaint}:
        assert lasts >= 30.0 and "user" not in facts["suspended"] and (not facts["has_quorum"] or facts["failing_io"] or facts["suspended"])
    if Evict in known:
        assert any(one.owner and not one.static and not one.deleting_since for one in pods)
    if RemoveTaint in known:
        assert (
            facts["has_quorum"]
            and not facts["failing_io"]
            and (before or lasts >= 5.0)
            and (pods or not (facts["primary"] or facts["open"]))
        )
    for name in facts:
        assert of(resource(**facts | {name: None})) <= known, name
    assert of(resource(**facts, unknown="the reads disagree")) == set()
    assert of(resource(**facts), complete=False) <= known
