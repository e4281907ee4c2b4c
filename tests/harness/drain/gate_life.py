"""The words of the stories about a gate in the whole program: how it is asked for, and what there is of it."""

from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, CLAIMS, DEPLOYMENTS, LEASES, MERGE_PATCH
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Bench, all_of, change, do, node_of, report_of, wait, with_pod

GATED = (*JUDGING, "--drain-gate", "--drain-gate-image=pause")
SHUT, OPEN, NONE = ["PodDisruptionBudget", "Deployment", "Lease"], ["Lease"], list[str]()


async def dispensable(bench: Bench) -> None:
    """A pod with a volume whose data may be lost: nothing blocks."""
    await with_pod(bench, "a")
    await do(bench, "until running a")
    patch = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
    await bench.you.patch(CLAIMS, "a", patch, content_type=MERGE_PATCH, namespace="default")
    await wait(bench, 20)
    assert await verdict(bench) == "True"


async def verdict(bench: Bench) -> str:
    return str((await report_of(bench))["verdicts"]["retire"]["status"])


async def gate(bench: Bench) -> list[str]:
    """What there is of n0's."""
    name = names.guard((await node_of(bench))["metadata"]["uid"], DRIVER)
    return [kind.kind for kind in (BUDGETS, DEPLOYMENTS, LEASES) for item in await all_of(bench, kind) if item["metadata"]["name"] == name]


async def cordon(bench: Bench, on: bool) -> None:
    await change(bench, "n0", {"unschedulable": on or None})
    await wait(bench, 15)
