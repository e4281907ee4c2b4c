"""Nodes that are gone, led step by step against a simulated API server."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import (
    CLAIMS,
    CSI_NODES,
    DRAIN_REPORTS,
    EVENTS,
    LEASES,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    STATEFUL_SETS,
    VOLUMES,
    Resource,
)
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, JUDGING, Json, Story, all_of, change, node_of, running, wait

TELLING: Final = (*JUDGING, "--node-delete-policy=Orphan")

CLEANING: Final = (*JUDGING, "--node-delete-policy=Cleanup", "--node-gone-after=60s")

REPORT: Final = names.drain_report("n0", DRIVER)

NODES_: Final = ("n0", "n1", "n2")


class Watchman:
    """Fails a story in which a peer touches what it may not, and counts requests; `refuse` says what is answered with an error."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None) -> None:
        self.calls: list[Call] = []
        self._refuse = refuse

    def __call__(self, call: Call) -> ApiError | None:
        self.calls.append(call)
        assert call.resource != PODS or call.verb != "delete", "pods are pod garbage collection's"
        return self._refuse(call)

    def of(self, verb: str, resource: Resource) -> list[str]:
        return [call.name for call in self.calls if (call.verb, call.resource) == (verb, resource)]


def play(
    story: Callable[[Story], Awaitable[None]], seen: Watchman | None = None, *, args: tuple[str, ...] = TELLING, nodes: Any = NODES_
) -> None:
    simulated.play(story, args=args, nodes=nodes, refuse=seen or Watchman())


async def app(bench: Story, name: str = "data-db-0", *, node: str = "n0") -> None:
    """A replica of StatefulSet `db` with a volume on that node, which says where it is."""
    await running(bench, name, node=node)
    await note(bench, name, {names.LIES_ON: f"{node}/{await uid_of(bench, node)}"})


async def replicas(bench: Story, count: int, namespace: str = "default") -> None:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]
    selector = {"matchLabels": {"app": "db"}}
    spec = {"replicas": count, "selector": selector, "serviceName": "db", "template": template, "volumeClaimTemplates": claims}
    await bench.you.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": spec}, namespace=namespace)


async def one_replica(bench: Story) -> None:
    """Its set, its pod and its volume are there, and the sidecar of another node looks for gone nodes."""
    await replicas(bench, 1)
    await app(bench)
    await settled(bench)


async def announce(bench: Story) -> None:
    """Its own sidecar leaves a report that says so."""
    await change(bench, "n0", {"taints": [EVACUATE]})
    await wait(bench, 30)


async def say(bench: Story, text: str, *, name: str = REPORT) -> None:
    """As a person, on the report on the gone node."""
    await bench.you.patch(DRAIN_REPORTS, name, {"metadata": {"annotations": {names.ACKNOWLEDGED: text}}}, content_type=MERGE_PATCH)


async def note(bench: Story, claim: str, annotations: Json) -> None:
    volume = (await bench.you.get(CLAIMS, claim, namespace="default"))["spec"]["volumeName"]
    await bench.you.patch(VOLUMES, volume, {"metadata": {"annotations": annotations}}, content_type=MERGE_PATCH)


async def uid_of(bench: Story, node: str = "n0") -> str:
    return str((await node_of(bench, node))["metadata"]["uid"])


async def vanish(bench: Story, node: str = "n0", *, pods: bool = True, collected: bool = False) -> None:
    """The machine goes, with its sidecar. `pods`: garbage collection has taken its pods; `collected`: and what the Node owned."""
    bench.nodes[node].lay_down()
    await bench.you.delete(NODES, node)
    await bench.you.delete(CSI_NODES, node)
    if pods:
        for pod in await all_of(bench, PODS):
            if pod["spec"].get("nodeName") == node:
                await bench.you.delete(PODS, pod["metadata"]["name"], namespace="default", grace_period_seconds=0)
    if collected:
        bench.cluster.collect_garbage()


async def report(bench: Story) -> Json | None:
    try:
        return await bench.you.get(DRAIN_REPORTS, REPORT)
    except NotFound:
        return None


async def gone(bench: Story) -> Json:
    stored = await report(bench)
    return (stored or {}).get("status", {}).get("gone", {})


async def told(bench: Story) -> list[str]:
    return [event["involvedObject"]["name"] for event in await all_of(bench, EVENTS) if event["reason"] == names.NODE_GONE]


async def there(bench: Story, resource: Resource) -> list[str]:
    return [item["metadata"]["name"] for item in await all_of(bench, resource)]


async def holder(bench: Story) -> str:
    lease = await bench.you.get(LEASES, names.watch(DRIVER), namespace="default")
    held = lease["spec"]["holderIdentity"]
    return next((item["metadata"]["name"] for item in await all_of(bench, NODES) if held == f"{item['metadata']['uid']}/{DRIVER}"), "")


async def settled(bench: Story, *, besides: str = "n0") -> None:
    """Another node than that one has the Lease."""
    for _ in range(20):
        await wait(bench, 100)
        if (found := await holder(bench)) != besides:
            return
        await bench.you.delete(LEASES, names.watch(DRIVER), namespace="default")
        bench.nodes[found].kill()
    raise AssertionError("nobody else takes the Lease")


async def bound(bench: Story, name: str, namespace: str = "default", **notes: str) -> None:
    """A claim and its volume on n0, which says that."""
    size, modes, volume = {"storage": "1Gi"}, ["ReadWriteOnce"], f"pv-{namespace}-{name}"
    made = {names.SELECTED_NODE: "n0", names.STORAGE_PROVISIONER: DRIVER}
    spec: Json = {"accessModes": modes, "storageClassName": "late", "resources": {"requests": size}, "volumeName": volume}
    claim = await bench.you.create(CLAIMS, {"metadata": {"name": name, "annotations": made}, "spec": spec}, namespace=namespace)
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}]}
    spec = {
        "capacity": size,
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": DRIVER, "volumeHandle": volume, "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-n0"}},
        "claimRef": {"kind": names.CLAIM, "namespace": namespace, "name": name, "uid": claim["metadata"]["uid"]},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    meta = {"name": volume, "finalizers": [names.VOLUME_FINALIZER], "annotations": notes}
    await bench.you.create(VOLUMES, {"metadata": meta, "spec": spec})
    bound = {"status": {"phase": "Bound"}}
    await bench.you.patch(VOLUMES, volume, bound, content_type=MERGE_PATCH, subresource="status")


async def database(bench: Story, namespace: str) -> None:
    await bench.you.create(NAMESPACES, {"metadata": {"name": namespace}})
    await replicas(bench, 1, namespace)
