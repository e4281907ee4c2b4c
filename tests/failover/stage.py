"""A small cluster with a pod on node `a`, its replicated volume, and the sidecar of node `b`, in virtual time."""

import asyncio
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from hack.sim.cluster import ApiServer, Call, InProcessApi
from sidecar.failover import Settings
from sidecar.failover.controller import Failover
from sidecar.failover.evidence import Peer, Resource, Snapshot
from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, CSI_NODES, LEASES, MERGE_PATCH, NAMESPACES, NODES, PODS, VOLUMES, find
from sidecar.kube.errors import AlreadyExists
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from tests.harness.cluster_tools import new_cluster
from tests.harness.doors import Told, tools

DRIVER = "drbd.example"
TAINT = names.of_driver(DRIVER, names.STORAGE_LOST)


class FakeDoor:
    """The storage as node `b` sees it; a test changes it."""

    def __init__(self, clock: Any) -> None:
        self.changed = asyncio.Event()
        self.resources: dict[str, dict[str, Any]] = {}
        self.peers: dict[str, dict[str, Peer]] = {}
        self.clock, self.read_at, self.released = clock, None, list[str]()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def has(self, name: str, *, peers: Iterable[Peer], **facts: Any) -> None:
        usual = {"primary": False, "open": False, "failing_io": False, "may_promote": True, "has_quorum": True}
        usual |= {"forbids_second": True, "up_to_date": True}
        self.resources[name], self.peers[name] = usual | facts, {peer.name: peer for peer in peers}
        self.changed.set()

    def snapshot(self, now: float) -> Snapshot:
        at = now if self.read_at is None else self.read_at
        found = {name: Resource(name, at, peers=MappingProxyType(self.peers[name]), **facts) for name, facts in self.resources.items()}
        return Snapshot(at, True, MappingProxyType(found))

    async def release(self, resource: str) -> str:
        self.released.append(resource)
        return ""


class Stage:
    """`b` acts. `a` is the victim: `lose` cuts its storage off, `go_silent` makes its Node not Ready."""

    def __init__(self, *, acts: bool = True, me: str = "b", after: "Stage | None" = None) -> None:
        """`after`: the same cluster and storage, with another process."""
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self.cluster: ApiServer = after.cluster if after else new_cluster(clock=lambda: 1_767_225_600.0 + self.clock())
        self.calls: list[Call] = []
        self.refuse: Any = lambda call: None
        self.api = InProcessApi(self.cluster, before=self._before)
        self.you = InProcessApi(self.cluster)
        self.told, self.door, self.me = Told(), after.door if after else FakeDoor(self.clock), me
        self.node: Node | None = after.node if after else None
        settings = Settings(node=me, driver=DRIVER, namespace="kube-system", acts=acts)
        given: Any = {"recorder": self.told, "clock": self.clock, "wall": lambda: 1_767_225_600.0 + self.clock()}
        self.sidecar = Failover(tools(self.api, **given), self.api, settings, self.door, own_node=lambda: self.node)
        self._task: asyncio.Task[None] | None = None

    async def _before(self, call: Call) -> None:
        if error := self.refuse(call):
            raise error
        self.calls.append(call)

    async def begin(self, *nodes: str) -> None:
        for space in ("default", "kube-system", "kube-node-lease"):
            await self._made(NAMESPACES, {"metadata": {"name": space}})
        await self._made(CLASSES, {"metadata": {"name": "replicated"}, "provisioner": DRIVER})
        for name in nodes or ("a", "b", "c"):
            await self.add_node(name)
        self.node = Node.of(await self.you.get(NODES, self.me))
        self.start()

    def start(self) -> None:
        self._task = asyncio.create_task(self.sidecar.run())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _made(self, resource: Any, body: Json, namespace: str = "") -> Json:
        try:
            return await self.you.create(resource, body, namespace=namespace)
        except AlreadyExists:
            return await self.you.get(resource, body["metadata"]["name"], namespace=namespace)

    async def add_node(self, name: str) -> None:
        await self.you.create(NODES, {"metadata": {"name": name, "labels": {names.HOSTNAME: name}}})
        await self.status(name, ready="True")
        await self.change(name, {"taints": []})  # that it is not ready yet
        await self.you.create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": [{"name": DRIVER, "nodeID": name}]}})
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": "2026-01-01T00:00:00.000000Z"}}
        await self.you.create(LEASES, lease, namespace="kube-node-lease")

    async def status(self, name: str, *, ready: str, boot: str = "boot-1") -> None:
        said = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": boot}}
        await self.you.patch(NODES, name, {"status": said}, content_type=MERGE_PATCH, subresource="status")

    async def change(self, name: str, spec: Json | None = None, **meta: Any) -> None:
        patch = ({"spec": spec} if spec is not None else {}) | ({"metadata": meta} if meta else {})
        await self.you.patch(NODES, name, patch, content_type=MERGE_PATCH)

    async def volume(self, name: str, *, node: str = "a", modes: tuple[str, ...] = ("ReadWriteOnce",), **notes: str) -> None:
        """Bound, attached there, and a resource of the storage that is healthy."""
        claim = {"metadata": {"name": name, "annotations": notes}, "spec": {"accessModes": list(modes), "storageClassName": "replicated"}}
        claim["spec"] |= {"volumeName": f"pv-{name}", "resources": {"requests": {"storage": "1Gi"}}}
        uid = (await self.you.create(CLAIMS, claim, namespace="default"))["metadata"]["uid"]
        spec: Json = {"accessModes": list(modes), "capacity": {"storage": "1Gi"}, "storageClassName": "replicated"}
        spec |= {"csi": {"driver": DRIVER, "volumeHandle": name}, "claimRef": {"namespace": "default", "name": name, "uid": uid}}
        await self.you.create(VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": spec})
        attached = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": f"pv-{name}"}}
        meta = {"name": attachment_name(name, DRIVER, node)}
        await self.you.create(ATTACHMENTS, {"metadata": meta, "spec": attached})
        self.healthy(name)

    async def pod(self, name: str, *claims: str, node: str = "a", owned: bool = True, volumes: Iterable[Json] = (), **notes: str) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
        meta: Json = {"name": name, "annotations": notes} | ({"ownerReferences": [owner]} if owned else {})
        mounts = [{"name": claim, "mountPath": f"/{claim}"} for claim in claims] + [{"name": v["name"], "mountPath": "/x"} for v in volumes]
        spec = {"containers": [{"name": "main", "image": "none", "volumeMounts": mounts}], "nodeName": node}
        said = [*({"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims), *volumes]
        await self.you.create(PODS, {"metadata": meta, "spec": {**spec, "volumes": said}}, namespace="default")
        await self.you.patch(
            PODS, name, {"status": {"phase": "Running"}}, content_type=MERGE_PATCH, namespace="default", subresource="status"
        )

    def healthy(self, *names_: str, victim: str = "a", **facts: Any) -> None:
        for name in names_:
            peers = (Peer(victim, True, up_to_date=True), Peer("c", True, up_to_date=True))
            self.door.has(name, peers=peers, **({"may_promote": False} | facts))

    def lose(self, *names_: str, victim: str = "a", **facts: Any) -> None:
        for name in names_:
            peers = (Peer(victim, False), Peer("c", True, up_to_date=True))
            self.door.has(name, peers=peers, **facts)

    async def there(self, name: str) -> Json | None:
        return await find(self.you, PODS, name, namespace="default")

    async def is_attached(self, name: str, node: str = "a") -> bool:
        return await find(self.you, ATTACHMENTS, attachment_name(name, DRIVER, node)) is not None

    async def taints(self, node: str = "a") -> dict[str, str]:
        taints = ((await self.you.get(NODES, node)).get("spec") or {}).get("taints") or ()
        return {taint["key"]: taint.get("value", "") for taint in taints}

    def writes(self) -> list[str]:
        verbs = ("create", "update", "patch", "delete")
        return [str(call) for call in self.calls if call.verb in verbs and call.resource != LEASES]
