"""The sidecar of one node is dead, and that of another looks after its gate: whole worlds, in virtual time."""

from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, CLAIMS, DEPLOYMENTS, EVENTS, LEASES, MERGE_PATCH, NODES, PODS
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Bench, Json, all_of, change, node_of, play, report_of, running, wait

GATED = (*JUDGING, "--drain-gate-image=pause")
EXPIRED = 900.0 + 90.0 + 60.0
"""The lease's time, everybody's patience, and the most that one neighbour waits besides."""
LOOK = 75.0
BOUNDARIES = range(1, 8)


async def guarded(bench: Bench, *, node: str = "n0", name: str = "a") -> None:
    """A pod with a volume is on the node, so the gate stands."""
    await running(bench, name, node=node)
    await wait(bench, 20)
    assert len(await gates(bench, node)) == 3


async def gates(bench: Bench, node: str = "n0") -> list[str]:
    """The kinds of what stands for that node."""
    guard = names.guard(node, (await node_of(bench, node))["metadata"]["uid"], DRIVER)
    return [kind.kind for kind in (BUDGETS, DEPLOYMENTS, LEASES) for item in await all_of(bench, kind) if item["metadata"]["name"] == guard]


async def lease(bench: Bench, node: str = "n0") -> Json:
    guard = names.guard(node, (await node_of(bench, node))["metadata"]["uid"], DRIVER)
    return await bench.you.get(LEASES, guard, namespace="default")


async def holder(bench: Bench, node: str = "n0") -> str:
    """The node whose sidecar looks after the gate."""
    held = str((await lease(bench, node))["spec"]["holderIdentity"])
    return next(item["metadata"]["name"] for item in await all_of(bench, NODES) if held == f"{item['metadata']['uid']}/{DRIVER}")


async def told(bench: Bench, reason: str, node: str = "n0") -> list[str]:
    events = [item for item in await all_of(bench, EVENTS) if (item["reason"], item["involvedObject"]["name"]) == (reason, node)]
    return [item["message"] for item in events if "no sign of life" in item["message"]]


async def verdicts(bench: Bench) -> set[tuple[str, str]]:
    conditions = (await node_of(bench))["status"]["conditions"]
    return {(item["status"], item["reason"]) for item in conditions if item["type"].startswith(f"{DRIVER}/")}


def die(bench: Bench, node: str = "n0") -> None:
    """Killed, and not to start again before its driver is back."""
    bench.nodes[node].link.go_down()
    bench.nodes[node].kill()


async def may_vanish(bench: Bench, name: str = "a") -> None:
    patch = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
    await bench.you.patch(CLAIMS, name, patch, content_type=MERGE_PATCH, namespace="default")


def test_the_gate_of_a_dead_sidecar_stays_until_nothing_is_proven_to_block() -> None:
    async def story(bench: Bench) -> None:
        await guarded(bench)
        bench.nodes["n0"].lay_down()
        await wait(bench, 880)
        assert await holder(bench) == "n0"
        await wait(bench, EXPIRED - 880 + 3 * LOOK)
        assert await holder(bench) == "n1"
        await wait(bench, 3600)
        assert await gates(bench) == ["PodDisruptionBudget", "Deployment", "Lease"]
        assert await verdicts(bench) == {("Unknown", "AgentUnavailable")}
        (held,) = await told(bench, names.DRAIN_HELD)
        assert "VolumeInUse" in held and names.FORCE_DRAIN in held
        await may_vanish(bench)
        await wait(bench, 1800 + 2 * LOOK)
        assert await gates(bench) == ["PodDisruptionBudget", "Deployment", "Lease"]
        assert "opens when a drain begins" in (await told(bench, names.DRAIN_HELD))[-1]
        await change(bench, "n0", spec={"unschedulable": True})
        await wait(bench, 3 * LOOK)
        assert await gates(bench) == []
        (opened,) = await told(bench, names.DRAIN_LET_GO)
        assert "NothingBlocks" in opened

    play(story, args=GATED)


def test_a_neighbour_that_is_killed_anywhere_still_opens_the_gate_and_leaves_nothing() -> None:
    def case(boundary: int) -> None:
        async def story(bench: Bench) -> None:
            await guarded(bench)
            await change(bench, "n0", spec={"unschedulable": True})
            await wait(bench, 5)
            assert (await report_of(bench))["held"] == ["default/a"]
            die(bench)
            await wait(bench, EXPIRED + 3 * LOOK)
            assert await holder(bench) == "n1"
            await wait(bench, 200)
            assert (await report_of(bench))["held"] == ["default/a"], "its drain is held, and so are its pods"
            bench.nodes["n1"].doom(boundary)
            await change(bench, "n0", annotations={names.FORCE_DRAIN: "gone"})
            await wait(bench, 600)
            assert await gates(bench) == []
            report = await report_of(bench)
            assert not report.get("held") and not report["heldBecause"], "no pod is held where the gate is open"
            assert bench.nodes["n1"].ends or boundary > 3

        play(story, args=GATED)

    for boundary in BOUNDARIES:
        case(boundary)


def test_drain_E5_the_gate_goes_with_its_node() -> None:
    async def story(bench: Bench) -> None:
        await guarded(bench)
        die(bench)
        await wait(bench, EXPIRED + 3 * LOOK)
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await bench.you.delete(NODES, "n0")
        await wait(bench, 600)
        assert await told(bench, names.DRAIN_LET_GO) == []
        bench.cluster.collect_garbage()
        assert [len(await all_of(bench, kind)) for kind in (BUDGETS, DEPLOYMENTS, LEASES)] == [0, 0, 0]
        await wait(bench, 600)
        assert bench.nodes["n1"].ends == []

    play(story, args=GATED)
