"""The drain room as a process runs it, led step by step against a simulated API server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.node import DRIVER
from hack.sim.world.plan import Plan
from hack.sim.world.story import Story
from sidecar.kube.api import DRAIN_REPORTS, MERGE_PATCH, NODES, PODS, Resource
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.objects import LATE

Json = dict[str, Any]
Plot = Callable[[Story], Awaitable[None]]
JUDGING = ("--drain-report", "--node-drain-policy=NoSchedule")
EVACUATING = ("--drain-report", "--node-drain-policy=Evacuate")
STATE, RECORD = names.of_driver(DRIVER, names.EVACUATION_STATE), names.of_driver(DRIVER, names.DRAIN_RECORD)
EVACUATE = {"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}


def no_one(_: Call) -> None:
    return None


async def no_time(_: Call) -> None:
    return None


def play(
    story: Plot,
    *,
    args: tuple[str, ...] = JUDGING,
    nodes: tuple[str, ...] = ("n0", "n1"),
    refuse: Callable[[Call], ApiError | None] = no_one,
    delay: Callable[[Call], Awaitable[None]] = no_time,
    answering: Callable[[Call], Awaitable[None]] = no_time,
) -> None:
    """`refuse` says which requests of sidecars are answered with an error, `delay` how long each is on its way, `answering` its answer."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            bench = Story(group)

            async def before(call: Call) -> None:
                if error := refuse(call):
                    raise error
                await delay(call)

            bench.api = InProcessApi(bench.cluster, before=before, after=answering)
            await bench.begin(Plan(1, nodes, args=args))
            for name in nodes:
                ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
                await bench.you.patch(NODES, name, ready, content_type=MERGE_PATCH, subresource="status")
            await bench.storage_class("late", LATE)
            await wait(bench, 3)
            try:
                await story(bench)
            finally:
                bench.close()

    run_virtual(main())


async def wait(bench: Story, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def with_pod(bench: Story, name: str, *, node: str = "n0", **spec: Any) -> None:
    """A claim and a pod that uses it, on that node."""
    await bench.claim(name, "late")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
    meta = {"name": name, "ownerReferences": [owner]}
    body = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeSelector": {"kubernetes.io/hostname": node}, **spec}
    await bench.you.create(PODS, {"metadata": meta, "spec": body}, namespace="default")


async def running(bench: Story, name: str, *, node: str = "n0", **spec: Any) -> None:
    """The same, once the pod runs."""
    await with_pod(bench, name, node=node, **spec)
    await bench.until_phase(PODS, name, "Running")


async def change(bench: Story, node: str, spec: Json | None = None, **meta: Any) -> None:
    patch = ({"spec": spec} if spec is not None else {}) | ({"metadata": meta} if meta else {})
    await bench.you.patch(NODES, node, patch, content_type=MERGE_PATCH)


async def node_of(bench: Story, name: str = "n0") -> Json:
    return await bench.you.get(NODES, name)


async def report_of(bench: Story, node: str = "n0") -> Json:
    return (await bench.you.get(DRAIN_REPORTS, names.drain_report(node, DRIVER)))["status"]


async def all_of(bench: Story, resource: Resource) -> list[Json]:
    return (await bench.you.list_page(resource)).items


ARGS = (
    "--drain-report",
    "--node-drain-policy=Evacuate",
    "--drain-gate-image=pause",
    "--drain-autoscaler-annotations",
    "--evacuation-deadline=1h",
)
