"""Single looks of one neighbour at the gates of others, with something happening in the midst of them."""

import json

from hack.sim.cluster import Call
from sidecar.drain.evacuation.rules import Expiry
from sidecar.drain.facts.node_marks import NodePolicy
from sidecar.drain.leases import identity
from sidecar.kube.api import BUDGETS, LEASES, NODES, PODS
from sidecar.kube.errors import Forbidden, Invalid
from sidecar.model import names
from tests.harness.drain.samples import DRIVER
from tests.harness.drain.takeover_scene import LOOK, NAMESPACE, Scene, play

EXPIRED = 1200.0


def test_an_empty_node_s_gate_is_opened_and_that_is_told_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.guarded("n0")
        assert await scene.looks(await scene.neighbour(), EXPIRED + 3 * LOOK) == []
        assert await scene.left() == [0, 0, 0]
        assert scene.told.reasons() == ["DrainLetGo"]

    play(story)


def test_a_sidecar_that_comes_back_while_it_is_judged_keeps_its_gate() -> None:
    async def story(scene: Scene) -> None:
        node = await scene.guarded("n0")
        back: list[str] = []

        async def happens(call: Call) -> None:
            if call.resource == PODS and not back:
                (lease,) = await scene.all(LEASES)
                version = back.append("back") or lease["metadata"]["resourceVersion"]
                await scene.you.replace(LEASES, scene.lease(node, version), name=lease["metadata"]["name"], namespace=NAMESPACE)

        scene.happens = happens
        await scene.looks(await scene.neighbour(), EXPIRED + 3 * LOOK)
        assert back
        assert await scene.left() == [1, 1, 1]
        (lease,) = await scene.all(LEASES)
        assert lease["spec"]["holderIdentity"] == identity(node.uid, DRIVER)

    play(story)


def test_one_lease_that_cannot_be_taken_keeps_no_other_waiting() -> None:
    async def story(scene: Scene) -> None:
        both = [await scene.guarded(name) for name in ("n0", "n2")]
        stuck = min(both, key=lambda node: names.guard(node.uid, DRIVER))

        async def happens(call: Call) -> None:
            if call.verb == "update" and call.name == names.guard(stuck.uid, DRIVER):
                raise Forbidden("denied by a webhook", status=403)

        scene.happens = happens
        failures = await scene.looks(await scene.neighbour(), EXPIRED + 5 * LOOK)
        assert failures and all("denied by a webhook" in failure for failure in failures)
        assert [item["metadata"]["name"] for item in await scene.all(LEASES)] == [names.guard(stuck.uid, DRIVER)]

    play(story)


def test_a_deadline_opens_the_gate_of_a_dead_sidecar_by_the_nodes_own_clock() -> None:
    async def story(scene: Scene) -> None:
        node = await scene.guarded("n0")
        await scene.volume("pv-a", "n0")
        await scene.evacuate(node)
        late = {"allowed": 3600.0, "expiry": Expiry.OVERRIDE, "policy": NodePolicy.NO_SCHEDULE}
        # The neighbour's clock is an hour ahead of the node's, so by that one the time has been over from the beginning.
        neighbour = await scene.neighbour(ahead=3600.0, **late)
        await scene.looks(neighbour, 3540.0)
        assert (await scene.left())[:2] == [1, 1]
        await scene.looks(neighbour, 180.0)
        assert (await scene.left())[:2] == [0, 0]
        assert "--evacuation-expiry=Override" in scene.told.events[-1][-1]

    play(story)


PROTECTED = {names.SCALE_DOWN_DISABLED: "true", names.DO_NOT_DISRUPT: "true"}
MARKER = names.of_driver(DRIVER, names.AUTOSCALER_MARKER)


def test_the_verdicts_of_a_silent_sidecar_become_unknown_when_their_time_is_over() -> None:
    async def story(scene: Scene) -> None:
        node = await scene.guarded("n0")
        await scene.volume("pv-a", "n0")
        await scene.said(node, "True")
        neighbour = await scene.neighbour()
        while await scene.holder() == "n0":
            assert await scene.statuses("n0") == ["True", "True"]
            await scene.looks(neighbour, LOOK)
        await scene.looks(neighbour, LOOK)
        assert await scene.statuses("n0") == ["Unknown/AgentUnavailable"] * 2
        assert "AgentUnavailable" in await scene.note("n0", names.of_driver(DRIVER, names.DRAIN_SUMMARY))
        assert (await scene.left())[:2] == [1, 1]
        version = await scene.version("n0")
        await scene.looks(neighbour, 10 * LOOK)
        assert await scene.version("n0") == version, "once"

    play(story)


def refusing(scene: Scene, *, of: str, until: float) -> None:
    """As the admission policy does while the verdicts are young; annotations it refuses until the conditions are withdrawn."""

    async def happens(call: Call) -> None:
        if (call.resource, call.verb) == (NODES, "patch"):
            silenced = set(await scene.statuses(of)) == {"Unknown/AgentUnavailable"}
            if scene.now < until if call.subresource == "status" else not silenced:
                raise Invalid("nobody has renewed its verdicts for 10 minutes")

    scene.happens = happens


def test_the_lease_is_kept_until_what_is_said_of_the_node_is_let_through() -> None:
    def case(by_hand: bool, status: str) -> None:
        async def story(scene: Scene) -> None:
            node = await scene.guarded("n0")
            await scene.said(node, status)
            await scene.annotate("n0", {**PROTECTED, MARKER: json.dumps([*PROTECTED])})
            if by_hand:
                await scene.open_by_hand("n0")
            refusing(scene, of="n0", until=scene.now + EXPIRED + 6 * LOOK)
            neighbour = await scene.neighbour()
            await scene.looks(neighbour, EXPIRED + 4 * LOOK)
            assert await scene.left() == [0, 0, 1], "the gate opens all the same"
            await scene.looks(neighbour, 4 * LOOK)
            assert await scene.left() == [0, 0, 0]
            assert await scene.statuses("n0") == ["Unknown/AgentUnavailable"] * 2
            protected = [await scene.note("n0", key) for key in PROTECTED]
            assert protected == (["true", "true"] if by_hand else ["", ""])
            assert len(scene.told.events) == 1

        play(story)

    for by_hand in [
        True,  # found open
        False,  # let go
    ]:
        for status in ["True", "Unknown"]:
            case(by_hand, status)


def test_a_sidecar_that_comes_back_in_the_midst_of_it_is_not_spoken_for() -> None:
    async def story(scene: Scene) -> None:
        node = await scene.guarded("n0")
        await scene.said(node, "False")
        await scene.force_drain("n0")
        back: list[str] = []

        async def happens(call: Call) -> None:
            (lease,) = await scene.all(LEASES)
            if call.resource == BUDGETS and await scene.holder() == "n1" and not back:
                back.append("back")
                version = lease["metadata"]["resourceVersion"]
                await scene.you.replace(LEASES, scene.lease(node, version), name=lease["metadata"]["name"], namespace=NAMESPACE)

        scene.happens = happens
        await scene.looks(await scene.neighbour(), EXPIRED + 2 * LOOK)
        assert back
        assert await scene.left() == [1, 1, 1]
        assert await scene.statuses("n0") == ["False", "False"]

    play(story)
