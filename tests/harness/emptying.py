"""A node that is emptied by its sidecar on a simulated API server: what runs there, and every attempt to evict it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, PODS, STATEFUL_SETS, find
from sidecar.kube.errors import ApiError
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.simulated import Story, all_of, with_pod

ARGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule")
EVICTING: Final = (*ARGS, "--evacuation-evict")
SCRATCH: Final = {"name": "scratch", "csi": {"driver": DRIVER}}


class Evictions:
    """Every attempt of a sidecar, by what was sent; and what `refuse` answers."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None) -> None:
        self.calls: list[str] = []
        self._refuse = refuse

    def __call__(self, call: Call) -> ApiError | None:
        if call.subresource == "eviction":
            self.calls.append(call.name)
        assert call.resource != CLAIMS or call.verb != "delete", "a claim is never deleted by emptying a node"
        assert call.resource != PODS or call.verb != "delete", "a pod is evicted and not deleted"
        return self._refuse(call)


def play(story: Callable[[Story], Awaitable[None]], seen: Evictions, *, args: tuple[str, ...] = EVICTING) -> None:
    simulated.play(story, args=args, refuse=seen)


async def app(bench: Story, name: str, *, policy: str = "Ignore", owner: str = "", **spec: Any) -> None:
    """A pod on n0 with a volume of this policy, of a workload of its own, or one replica more of the StatefulSet `owner`."""
    await with_pod(bench, name, **spec)
    await bench.you.patch(CLAIMS, name, _annotated(policy), namespace="default", content_type=MERGE_PATCH)
    of = await one_more(bench, owner) if owner else f"uid-{name}"
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner or name, "uid": of, "controller": True}
    await bench.you.patch(PODS, name, {"metadata": {"ownerReferences": [reference]}}, namespace="default", content_type=MERGE_PATCH)


async def one_more(bench: Story, name: str) -> str:
    """Its uid."""
    before = await find(bench.you, STATEFUL_SETS, name, namespace="default")
    if before is None:
        made = await bench.you.create(STATEFUL_SETS, {"metadata": {"name": name}, "spec": {"replicas": 1}}, namespace="default")
        return str(made["metadata"]["uid"])
    body = {"spec": {"replicas": before["spec"]["replicas"] + 1}}
    await bench.you.patch(STATEFUL_SETS, name, body, namespace="default", content_type=MERGE_PATCH)
    return str(before["metadata"]["uid"])


def _annotated(policy: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {names.DRAIN_POLICY: policy}}}


async def pods(bench: Story) -> set[str]:
    return {pod["metadata"]["name"] for pod in await all_of(bench, PODS) if not pod["metadata"].get("deletionTimestamp")}


def owner(name: str, uid: str = "", kind: str = "StatefulSet") -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid or f"uid-{name}", "controller": True}


async def run(
    bench: Story,
    name: str,
    *,
    namespace: str = "default",
    of: dict[str, Any] | None = None,
    stays: bool = False,
    **spec: Any,
) -> None:
    """A pod on n0 that has nothing of the driver but an inline volume."""
    if await find(bench.you, NAMESPACES, namespace) is None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": namespace}})
    body = {"containers": [{"name": "main", "image": "none"}], "volumes": [SCRATCH], "nodeName": "n0", **spec}
    meta = {"name": name, "ownerReferences": [of or owner(name)], "finalizers": ["example.com/stays"] if stays else []}
    await bench.you.create(PODS, {"metadata": meta, "spec": body}, namespace=namespace)
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await bench.you.patch(PODS, name, status, namespace=namespace, subresource="status", content_type=MERGE_PATCH)
