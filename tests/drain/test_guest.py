"""The Kubernetes node in a virtual machine, drained through a second API server before the machine is moved. No KubeVirt ran."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from hack.sim.cluster import Call
from sidecar.doors import open_guest
from sidecar.drain.maintenance.guest_io import MAY_TAKE, PASS, GuestDrains
from sidecar.drain.settings import Settings
from sidecar.errors import Fatal
from sidecar.kube.api import INSTANCES, MERGE_PATCH, NAMESPACES, NODES, PODS, SECRETS, find
from sidecar.kube.errors import ApiError, TooManyRequests, Unavailable
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.doors import tools
from tests.harness.drain.own_node import Bench
from tests.harness.drain.samples import DRIVER, NODE
from tests.harness.virtual import virtual

GUEST = "worker-1"


class _Guest:
    """The guest's API server. It is closed as often as it was opened."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.open = bench, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench.kube, name)

    async def aclose(self) -> None:
        self.open -= 1


class Scene:
    def __init__(self) -> None:
        self.host, self.guest = Bench(), Bench()
        self.door = _Guest(self.guest)
        self.given: list[bytes] = []
        self.trouble: Exception | None = None
        self.restart()

    def restart(self) -> None:
        given = tools(kube=self.host.kube, clock=self.host.clock, wall=self.host.wall)
        self.room = GuestDrains(given, Settings(NODE, DRIVER, "default", "1", drains_guests=True), self.opened)

    async def opened(self, content: bytes) -> Any:
        if self.trouble is not None:
            raise self.trouble
        self.given.append(content)
        self.door.open += 1
        return self.door

    async def instance(self, *, evacuated: bool = True, strategy: str = "External", secret: str = "guest") -> None:
        meta: Json = {"name": GUEST, "labels": {"kubevirt.io/nodeName": NODE}, "finalizers": ["kubevirt.io/foreground"]}
        meta |= {"annotations": {names.GUEST_KUBECONFIG: secret}} if secret else {}
        status = {"evacuationNodeName": NODE} if evacuated else {}
        body = {"metadata": meta, "spec": {"evictionStrategy": strategy}, "status": status}
        await self.host.you.create(INSTANCES, body, namespace="vms")

    async def begin(self, *, pods: int = 3, node: bool = True, **more: Any) -> None:
        await self.host.you.create(NAMESPACES, {"metadata": {"name": "vms"}})
        data = {"value": b64encode(b"kubeconfig").decode()}
        await self.host.you.create(SECRETS, {"metadata": {"name": "guest"}, "data": data}, namespace="vms")
        await self.instance(**more)
        if node:
            await self.guest.you.create(NODES, {"metadata": {"name": GUEST}})
        spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": GUEST}
        for number in range(pods):
            await self.guest.you.create(PODS, {"metadata": {"name": f"web-{number}"}, "spec": spec}, namespace="default")
        agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
        await self.guest.you.create(PODS, {"metadata": {"name": "agent", "ownerReferences": [agent]}, "spec": spec}, namespace="default")

    async def passes(self, count: int) -> None:
        for _ in range(count):
            await self.room.turn()
            await asyncio.sleep(PASS)
            for pod in (await self.guest.you.list_page(PODS)).items:
                if "deletionTimestamp" in pod["metadata"]:
                    await self.guest.you.delete(PODS, pod["metadata"]["name"], namespace="default", grace_period_seconds=0)

    async def is_deleted(self) -> bool:
        found = await find(self.host.you, INSTANCES, GUEST, namespace="vms")
        return found is None or "deletionTimestamp" in found["metadata"]

    async def made_again(self) -> None:
        await self.host.you.patch(INSTANCES, GUEST, {"metadata": {"finalizers": None}}, namespace="vms", content_type=MERGE_PATCH)
        assert await find(self.host.you, INSTANCES, GUEST, namespace="vms") is None
        await self.instance(evacuated=False)

    async def cordoned(self) -> bool:
        return bool((await self.guest.you.get(NODES, GUEST))["spec"].get("unschedulable"))


@virtual
async def test_its_guest_is_cordoned_and_emptied_then_it_is_deleted_and_once_it_is_back_the_guest_is_open() -> None:
    scene = Scene()
    await scene.begin()
    await scene.passes(2)
    assert await scene.cordoned() and await scene.is_deleted()
    assert [pod["metadata"]["name"] for pod in (await scene.guest.you.list_page(PODS)).items] == ["agent"], "of a DaemonSet"
    assert set(scene.given) == {b"kubeconfig"} and scene.door.open == 0
    await scene.made_again()
    await scene.passes(2)
    assert not await scene.cordoned()
    assert names.GUEST_CORDONED not in (await scene.guest.you.get(NODES, GUEST))["metadata"].get("annotations", {})


@virtual
async def test_B1_one_that_is_ending_or_that_kubevirt_moves_itself_or_that_nobody_wants_away_is_left_alone() -> None:
    for more in ({"evacuated": False}, {"strategy": "LiveMigrate"}, {"secret": ""}):
        scene = Scene()
        await scene.begin(**more)
        await scene.passes(3)
        assert not await scene.cordoned() and not await scene.is_deleted()
    scene = Scene()
    await scene.begin()
    await scene.host.you.delete(INSTANCES, GUEST, namespace="vms")
    await scene.passes(3)
    assert not await scene.cordoned() and not scene.given


@virtual
async def test_B2_B3_the_deadline_is_noted_on_the_instance_and_no_error_or_restart_puts_it_off() -> None:
    def refuse(call: Call) -> ApiError | None:
        return TooManyRequests("a budget", retry_after=1.0) if call.subresource == "eviction" else None

    for trouble in (None, Fatal("the guest's kubeconfig names no https server"), Unavailable("no route")):
        scene = Scene()
        await scene.begin()
        scene.trouble, scene.guest.refuse = trouble, refuse
        await scene.passes(15)
        scene.restart()
        await scene.passes(int(MAY_TAKE / PASS) - 16)
        assert not await scene.is_deleted()
        await scene.passes(3)
        assert await scene.is_deleted()


@virtual
async def test_a_guest_without_a_node_is_drained_and_one_that_was_cordoned_before_stays_so() -> None:
    scene = Scene()
    await scene.begin(node=False)
    await scene.passes(1)
    assert await scene.is_deleted()
    scene = Scene()
    await scene.begin()
    await scene.guest.you.patch(NODES, GUEST, {"spec": {"unschedulable": True}}, content_type=MERGE_PATCH)
    await scene.passes(2)
    await scene.made_again()
    await scene.passes(2)
    assert await scene.cordoned()


def test_a_kubeconfig_of_a_tenant_reads_no_file_starts_no_program_and_reaches_no_plain_http() -> None:
    def content(server: str, **user: Any) -> bytes:
        whole = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "/etc/passwd"}}],
            "users": [{"name": "u", "user": user}],
        }
        return json.dumps(whole).encode()

    async def opened(text: bytes) -> None:
        await (await open_guest(text)).aclose()

    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    asyncio.run(opened(content("https://guest.example:6443", token="secret", exec=exec_, tokenFile="/nowhere")))
    for wrong in (content("http://guest.example"), b"", b"[]", b"{", b"current-context: a"):
        with pytest.raises(Fatal):
            asyncio.run(opened(wrong))
