"""Making replicas anew, led step by step against a simulated API server: a workload played by hand, and what sidecars wrote for it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call
from sidecar.kube.api import CLAIMS, LEASES, MERGE_PATCH, PODS, STATEFUL_SETS
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, Story, all_of, change, wait

ARGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule", "--evacuation-evict")

PAUSING: Final = (*ARGS, "--allow-reprovision")
"""With the pause that is usual between two replicas of one workload."""


ANEW: Final = (*PAUSING, "--reprovision-pause=0")

NODES_THERE: Final = ("n0", "n1", "n2", "n3")

REVISION: Final = "db-1"


class Seen:
    """What sidecars wrote for a replica, in order; and what `refuse` answers."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None) -> None:
        self.did: list[str] = []
        self.requests = 0
        self._refuse = refuse
        self._once: list[tuple[str, bool, Callable[[], object]]] = []

    def at(self, step: str, happens: Callable[[], object], *, after: bool = False) -> None:
        """Once, when that step is about to be taken; `after`: at the first request that follows it."""
        self._once.append((step, after, happens))

    def __call__(self, call: Call) -> ApiError | None:
        what, last = said(call), self.did[-1] if self.did else ""
        for each in list(self._once):
            step, after, happens = each
            if (step == last) if after else (step == what):
                self._once.remove(each)
                happens()
                if not after:
                    return Unavailable("it never came there")
        if error := self._refuse(call):
            return error
        self.requests += call.verb != "watch"
        if what:
            self.did.append(what)
        return None


def said(call: Call) -> str:
    if call.resource == PODS and call.subresource == "eviction":
        return f"evict {call.name}"
    if call.resource == CLAIMS and call.verb == "delete" and not call.dry_run:
        return f"delete {call.name}"
    if call.resource == CLAIMS and call.verb == "patch":
        return f"note {call.name}"
    if call.resource == LEASES and call.verb in ("create", "replace", "update", "delete") and call.name.startswith("reprovision-"):
        return f"{call.verb} lease"
    assert call.resource != PODS or call.verb != "delete", "a pod is evicted and not deleted"
    return ""


class Workload:
    """A StatefulSet of so many replicas, played by hand: db-0 on n0 and so on. What is missing is made again."""

    def __init__(
        self,
        bench: Story,
        replicas: int = 3,
        *,
        templates: tuple[str, ...] = ("data",),
        name: str = "db",
        namespace: str = "default",
        **spec: Any,
    ) -> None:
        self._bench, self._replicas, self._templates, self._name, self._spec = bench, replicas, templates, name, spec
        self._namespace = namespace
        self.uid = ""
        self._stopped = False

    def stop(self) -> None:
        """Nothing is made again any more."""
        self._stopped = True

    async def begin(self) -> None:
        template = {"metadata": {"labels": {"app": self._name}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        claims = [{"metadata": {"name": name}, "spec": _wish()} for name in self._templates]
        spec = {
            "replicas": self._replicas,
            "serviceName": self._name,
            "selector": {"matchLabels": {"app": self._name}},
            "template": template,
        }
        body = {"metadata": {"name": self._name}, "spec": spec | {"volumeClaimTemplates": claims} | self._spec}
        made = await self._bench.you.create(STATEFUL_SETS, body, namespace=self._namespace)
        self.uid = made["metadata"]["uid"]
        status = {"observedGeneration": made["metadata"].get("generation", 1), "replicas": self._replicas, "updateRevision": REVISION}
        await self._bench.you.patch(
            STATEFUL_SETS, self._name, {"status": status}, namespace=self._namespace, subresource="status", content_type=MERGE_PATCH
        )
        for number, node in enumerate(NODES_THERE):
            await change(self._bench, node, {"taints": None}, labels={f"for-{self._name}-{number}": "yes"})
        await self._sync()
        await wait(self._bench, 10)
        for node in NODES_THERE[self._replicas :]:
            await change(self._bench, node, labels={f"for-{self._name}-{number}": "yes" for number in range(self._replicas)})
        self._bench.spawn(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            with contextlib.suppress(NotFound, AlreadyExists, Conflict):
                await (asyncio.sleep(0) if self._stopped else self._sync())

    async def _sync(self) -> None:
        """What is there is not asked for: hours of quiet are to cost nothing."""
        there = self._bench.cluster.store.find
        for number in range(self._replicas):
            name = f"{self._name}-{number}"
            for claim in (f"{template}-{name}" for template in self._templates):
                if there(CLAIMS, claim, self._namespace) is None:
                    meta = {"name": claim, "annotations": {names.DRAIN_POLICY_RETIRE: "Reprovision"}}
                    await self._bench.you.create(CLAIMS, {"metadata": meta, "spec": _wish()}, namespace=self._namespace)
            if there(PODS, name, self._namespace) is None:
                await self._make(name)

    async def _make(self, name: str) -> None:
        of = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": self._name, "uid": self.uid, "controller": True}
        meta = {"name": name, "labels": {"app": self._name, names.POD_REVISION: REVISION}, "ownerReferences": [of]}
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in self._templates]
        # The stand-in for the scheduler knows no taints, so here a label of nodes says where a pod may be.
        where = {f"for-{name}": "yes"}
        spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeSelector": where}
        await self._bench.you.create(PODS, {"metadata": meta, "spec": spec}, namespace=self._namespace)


def _wish() -> dict[str, Any]:
    return {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


Plot = Callable[[Story, Workload], Awaitable[None]]


def play(
    story: Plot,
    seen: Seen,
    *,
    args: tuple[str, ...] = ANEW,
    replicas: int = 3,
    templates: tuple[str, ...] = ("data",),
    nodes: tuple[str, ...] = NODES_THERE,
    delay: Callable[[Call], Awaitable[None]] = simulated.no_time,
    answering: Callable[[Call], Awaitable[None]] = simulated.no_time,
) -> None:
    async def whole(bench: Story) -> None:
        workload = Workload(bench, replicas, templates=templates)
        await workload.begin()
        await wait(bench, 70)
        assert set((await places(bench)).values()) == {f"n{number}" for number in range(replicas)}
        await story(bench, workload)

    simulated.play(whole, args=args, refuse=seen, nodes=nodes, delay=delay, answering=answering)


async def places(bench: Story) -> dict[str, str]:
    """By pod that is Ready: its node."""
    found = {}
    for pod in await all_of(bench, PODS):
        if any(item["type"] == "Ready" and item["status"] == "True" for item in (pod.get("status") or {}).get("conditions") or ()):
            found[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
    return found


async def uids(bench: Story) -> dict[str, str]:
    return {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in await all_of(bench, CLAIMS)}


async def at_rest(bench: Story) -> bool:
    """No Lease of a workload and no mark is left."""
    leases = [lease for lease in await all_of(bench, LEASES) if names.REPROVISION_FOR in (lease["metadata"].get("labels") or {})]
    marked = [claim for claim in await all_of(bench, CLAIMS) if names.REPROVISIONED_BY in (claim["metadata"].get("annotations") or {})]
    return not leases and not marked


async def evacuate(bench: Story, on: bool = True, *others: str) -> None:
    """`others` are workloads besides db, each of which has its first replica here too."""
    labels = {f"for-{name}-0": None if on else "yes" for name in ("db", *others)}
    await change(bench, "n0", {"taints": [EVACUATE] if on else None}, labels=labels)


def metric(bench: Story) -> str:
    tools = bench.nodes["n0"].tools
    assert tools is not None
    return tools.metrics.render()[0].decode()


async def unready(bench: Story, pod: str, on: bool = True, *, namespace: str = "default") -> None:
    found = await bench.you.get(PODS, pod, namespace=namespace)
    others = [item for item in found["status"]["conditions"] if item["type"] != "Ready"]
    status = {"conditions": [*others, {"type": "Ready", "status": "False" if on else "True"}]}
    await bench.you.patch(PODS, pod, {"status": status}, namespace=namespace, subresource="status", content_type=MERGE_PATCH)
