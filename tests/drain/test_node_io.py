"""What is written on the Node: conflicts, refusals, late answers, another machine under the name, and what others write there too."""

import asyncio
import json
from typing import Any

import pytest

from hack.sim.cluster import Call
from sidecar.drain import node_io
from sidecar.drain.marks import Record, State
from sidecar.drain.node_io import HEARTBEAT, OwnNode, needs_protection, nothing_of_ours, protection
from sidecar.drain.settings import Settings
from sidecar.drain.words import Status
from sidecar.kube.api import MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, Change
from sidecar.kube.errors import Conflict, Forbidden, Invalid, Unavailable
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness.drain.own_node import Bench
from tests.harness.drain.samples import DRIVER, NODE, NOW, judged, node
from tests.harness.virtual import virtual

OTHER = "other.example.com"
MARKER, OTHERS_MARKER = (names.of_driver(driver, names.AUTOSCALER_MARKER) for driver in (DRIVER, OTHER))
RECORD, LABEL = names.of_driver(DRIVER, names.DRAIN_RECORD), names.of_driver(DRIVER, names.EVACUATION_STATE)
SAFE, DISRUPT = node_io.PROTECTING
TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN


class Scene:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.nodes: Store[Node] = Store()
        self.own = OwnNode(bench.kube, self.nodes, Settings(NODE, DRIVER, "default", "1"), clock=bench.clock, wall=bench.wall)

    async def show(self) -> Node:
        """The watch shows the Node as it is now."""
        found = await self.bench.node()
        self.nodes.apply(Change(NODE, self.nodes.get(NODE), found))
        return found

    async def tell(self, status: Status) -> None:
        uid = (await self.bench.node()).uid
        self.bench.calls.clear()
        await self.own.write_conditions(judged(uid=uid, drain=status, retire=status))

    async def said(self) -> dict[str, dict[str, str]]:
        found = (await self.bench.you.get(NODES, NODE))["status"]["conditions"]
        return {item["type"].rpartition("/")[2]: item for item in found}


async def begun() -> tuple[Bench, Scene]:
    bench = Bench()
    scene = Scene(bench)
    await scene.show()
    return bench, scene


# --- conditions -------------------------------------------------------------------------------------------------------


@virtual
async def test_conditions_are_written_when_they_change_and_as_a_sign_of_life() -> None:
    bench, scene = await begun()
    await scene.tell(FALSE)
    first = (await scene.said())["RetireReady"]
    await asyncio.sleep(HEARTBEAT - 1)
    await scene.tell(FALSE)
    assert bench.asked() == [], "at rest nothing is written"
    await asyncio.sleep(1)
    await scene.tell(FALSE)
    beat = (await scene.said())["RetireReady"]
    assert beat["lastHeartbeatTime"] > first["lastHeartbeatTime"] and beat["lastTransitionTime"] == first["lastTransitionTime"]
    await scene.tell(TRUE)
    found = await scene.said()
    assert (found["RetireReady"]["status"], found["DrainReady"]["status"], found["Ready"]["status"]) == ("True", "True", "True")
    assert found["RetireReady"]["lastTransitionTime"] > first["lastTransitionTime"]


@virtual
async def test_a_write_that_arrives_late_does_not_bring_an_old_true_back() -> None:
    bench, scene = await begun()
    held: list[tuple[Any, ...]] = []
    patch = bench.kube.patch

    async def lost(*args: Any, **options: Any) -> Any:
        if not held:
            held.append((args, options))
            raise Unavailable("no answer in time")
        return await patch(*args, **options)

    bench.kube.patch = lost  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await scene.tell(TRUE)
    await asyncio.sleep(1)
    await scene.tell(UNKNOWN)
    with pytest.raises(Conflict):
        await patch(*held[0][0], **held[0][1])
    assert (await scene.said())["RetireReady"]["status"] == "Unknown"


@virtual
async def test_an_answer_that_is_lost_is_followed_by_another_write_though_it_would_say_the_same() -> None:
    bench, scene = await begun()
    bench.lose = lambda call: call.verb == "patch"
    with pytest.raises(Unavailable):
        await scene.tell(FALSE)
    bench.lose = lambda _: False
    await asyncio.sleep(1)
    await scene.tell(FALSE)
    assert bench.asked() == ["get nodes", "patch nodes"]


@pytest.mark.parametrize(("conflicts", "written"), [(2, True), (3, False)], ids=["twice", "again and again"])
@virtual
async def test_who_else_writes_the_node_at_that_moment_delays_no_verdict(conflicts: int, written: bool) -> None:
    bench, scene = await begun()
    left = [conflicts]

    def kubelet(call: Call) -> None:
        if call.verb == "patch" and left[0]:
            left[0] -= 1
            beat = {"status": {"conditions": [{"type": "DiskPressure", "status": "False", "message": str(left[0])}]}}
            bench.cluster.patch(NODES, NODE, beat, content_type=STRATEGIC_MERGE_PATCH, subresource="status")

    bench.refuse = kubelet
    if written:
        await scene.tell(FALSE)
    else:
        with pytest.raises(Conflict):
            await scene.tell(FALSE)
    assert ("RetireReady" in await scene.said()) is written


@virtual
async def test_the_conditions_of_an_earlier_machine_are_not_written_on_the_next_one_and_the_next_gets_its_own() -> None:
    bench, scene = await begun()
    await scene.tell(FALSE)
    old = judged(uid=(await bench.node()).uid, drain=TRUE, retire=TRUE)
    await bench.you.delete(NODES, NODE)
    await bench.node()
    with pytest.raises(Invalid):
        await scene.own.write_conditions(old)
    assert "RetireReady" not in await scene.said()
    scene.own = OwnNode(bench.kube, scene.nodes, Settings(NODE, DRIVER, "default", "1"), clock=bench.clock, wall=bench.wall)
    await scene.tell(FALSE)
    await bench.you.delete(NODES, NODE)
    await bench.node()
    await scene.tell(FALSE)
    assert (await scene.said())["RetireReady"]["status"] == "False", "at once, and not with the next heartbeat"


# --- the record -------------------------------------------------------------------------------------------------------


STARTED = Record(State.IN_PROGRESS, NOW - 5, NOW - 9, frozenset({"a"}))


@virtual
async def test_the_record_and_its_label_are_written_at_once_and_taken_away_together() -> None:
    bench, scene = await begun()
    found = await scene.own.write_record(await scene.show(), STARTED)
    assert (found.labels[LABEL], json.loads(found.annotations[RECORD])["state"]) == ("InProgress", "InProgress")
    assert scene.own.known() == found, "what was written is known before the watch shows it"
    bench.calls.clear()
    await scene.own.write_record(found, STARTED)
    assert bench.asked() == []
    bare = await scene.own.write_record(found, Record())
    assert LABEL not in bare.labels and RECORD not in bare.annotations


@virtual
async def test_an_answer_that_is_read_late_rolls_nothing_back() -> None:
    bench, scene = await begun()
    before = await scene.show()
    patch, later = bench.kube.patch, dict[str, Any]()

    async def slow(*args: Any, **options: Any) -> Any:
        answer = await patch(*args, **options)
        await bench.node(**later.get("meta", {}))
        if "gone" in later:
            scene.nodes.apply(Change(NODE, scene.nodes.get(NODE), None))
        else:
            await scene.show()
        return answer

    bench.kube.patch = slow  # type: ignore[method-assign]
    later["meta"] = {"annotations": {names.DRAIN_INTENT: "retire"}}
    await scene.own.write_record(before, STARTED)
    assert (scene.own.known() or before).annotations[names.DRAIN_INTENT] == "retire"
    later["gone"] = True
    await scene.own.write_record(await scene.show(), Record())
    assert scene.own.known() is None, "a Node of which the watch has shown the end does not come back"


@virtual
async def test_a_record_is_not_written_on_another_machine_and_a_refusal_changes_nothing() -> None:
    bench, scene = await begun()
    old = await scene.show()
    bench.refuse = lambda call: Forbidden("cannot patch nodes", status=403) if call.verb == "patch" else None
    with pytest.raises(Forbidden):
        await scene.own.write_record(old, STARTED)
    assert scene.own.known() == old
    bench.refuse = lambda _: None
    await bench.you.delete(NODES, NODE)
    await bench.node()
    with pytest.raises(Invalid):
        await scene.own.write_record(old, STARTED)
    assert RECORD not in (await bench.node()).annotations


# --- autoscalers' annotations -----------------------------------------------------------------------------------------


def marker(*keys: str) -> str:
    return json.dumps(list(keys))


OURS = {SAFE: "true", DISRUPT: "true", MARKER: marker(SAFE, DISRUPT)}


@pytest.mark.parametrize(
    ("stands", "needed", "changed"),
    [
        pytest.param({}, True, OURS, id="set"),
        pytest.param(OURS, True, {}, id="set already"),
        pytest.param(OURS, None, {}, id="not known: all stays"),
        pytest.param(OURS, False, dict.fromkeys(OURS), id="taken away"),
        pytest.param({}, False, {}, id="nothing to take away"),
        pytest.param({SAFE: "true"}, True, {DISRUPT: "true", MARKER: marker(DISRUPT)}, id="what a user has set is the user's"),
        pytest.param({**OURS, SAFE: "false"}, False, {DISRUPT: None, MARKER: None}, id="what a user has changed since stays"),
        pytest.param({SAFE: "false", DISRUPT: "x"}, True, {}, id="a user wants both otherwise"),
        pytest.param({**OURS, OTHERS_MARKER: marker(SAFE)}, False, {DISRUPT: None, MARKER: None}, id="another driver still needs it"),
        pytest.param({SAFE: "true", DISRUPT: "true", OTHERS_MARKER: marker(SAFE, DISRUPT)}, True, {MARKER: OURS[MARKER]}, id="joins"),
        pytest.param({MARKER: marker("kubernetes.io/x"), "kubernetes.io/x": "true"}, False, {MARKER: None}, id="an edited marker"),
        pytest.param({MARKER: "nonsense", SAFE: "true"}, False, {MARKER: None}, id="a marker that nobody can read"),
    ],
)
def test_drain_E7_what_of_the_autoscalers_annotations_is_changed(
    stands: dict[str, str], needed: bool | None, changed: dict[str, str | None]
) -> None:
    assert protection(node(annotations=stands), DRIVER, needed=needed) == changed


@pytest.mark.parametrize(
    ("enabled", "retire", "overridden", "needed"),
    [
        pytest.param(True, FALSE, False, True, id="retiring would lose data"),
        pytest.param(True, UNKNOWN, False, None, id="not known"),
        pytest.param(True, TRUE, False, False, id="nothing would be lost"),
        pytest.param(True, FALSE, True, False, id="overridden"),
        pytest.param(False, FALSE, False, False, id="switched off"),
    ],
)
def test_when_autoscalers_are_asked_to_leave_the_node_alone(enabled: bool, retire: Status, overridden: bool, needed: bool | None) -> None:
    assert needs_protection(enabled=enabled, retire=retire, overridden=overridden) is needed


@virtual
async def test_protection_is_decided_on_the_node_as_it_is_now_and_again_after_a_conflict() -> None:
    bench, scene = await begun()
    stale = await scene.show()
    await bench.node(annotations={SAFE: "true"})
    meanwhile = [{"metadata": {"annotations": {DISRUPT: "false"}}}]

    def user(call: Call) -> None:
        if call.verb == "patch" and meanwhile:
            bench.cluster.patch(NODES, NODE, meanwhile.pop(), content_type=MERGE_PATCH)

    bench.refuse = user
    await scene.own.protect(stale, needed=True)
    assert (await bench.node()).annotations == {SAFE: "true", DISRUPT: "false"}, "both are the user's"
    bench.calls.clear()
    await scene.own.protect(await scene.show(), needed=None)
    assert bench.asked() == []


def test_drain_G7_an_uninstall_takes_away_what_this_drivers_sidecar_has_written_and_nothing_else() -> None:
    others = {names.of_driver(OTHER, names.DRAIN_RECORD): "x", names.DRAIN_INTENT: "retire", names.FORCE_DRAIN: "why"}
    found = node(annotations={**OURS, RECORD: "x", **others}, labels={LABEL: "Pending", "zone": "a"})
    annotations, labels = nothing_of_ours(found, DRIVER)
    assert (annotations, labels) == ({**dict.fromkeys(OURS), RECORD: None}, {LABEL: None})
