"""The Kubernetes node in a virtual machine, drained through a second API server before the machine is moved. No KubeVirt ran."""

import asyncio
import json
import tracemalloc
from base64 import b64encode
from typing import Any

import pytest

from hack.sim.cluster import Call
from sidecar.doors import open_guest
from sidecar.drain.maintenance.guest_io import MAY_TAKE, PASS, GuestDrains, OpenGuest
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

    def restart(self, opened: OpenGuest | None = None) -> None:
        given = tools(kube=self.host.kube, clock=self.host.clock, wall=self.host.wall)
        self.room = GuestDrains(given, Settings(NODE, DRIVER, "default", "1", drains_guests=True), opened or self.opened)

    async def opened(self, content: bytes) -> Any:
        if self.trouble is not None:
            raise self.trouble
        self.given.append(content)
        self.door.open += 1
        return self.door

    async def instance(self, name: str = GUEST, *, evacuated: bool = True, strategy: str = "External", secret: str = "guest") -> None:
        meta: Json = {"name": name, "labels": {"kubevirt.io/nodeName": NODE}, "finalizers": ["kubevirt.io/foreground"]}
        meta |= {"annotations": {names.GUEST_KUBECONFIG: secret}} if secret else {}
        status = {"evacuationNodeName": NODE} if evacuated else {}
        body = {"metadata": meta, "spec": {"evictionStrategy": strategy}, "status": status}
        await self.host.you.create(INSTANCES, body, namespace="vms")

    async def evacuate(self, *, on: bool = True) -> None:
        status = {"evacuationNodeName": NODE if on else None}
        await self.host.you.patch(INSTANCES, GUEST, {"status": status}, namespace="vms", content_type=MERGE_PATCH)

    async def secret(self, name: str, content: bytes) -> None:
        data = {"value": b64encode(content).decode()}
        await self.host.you.create(SECRETS, {"metadata": {"name": name}, "data": data}, namespace="vms")

    async def begin(self, *, pods: int = 3, node: bool = True, **more: Any) -> None:
        await self.host.you.create(NAMESPACES, {"metadata": {"name": "vms"}})
        await self.secret("guest", b"kubeconfig")
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


def refuses(call: Call) -> ApiError | None:
    return TooManyRequests("a budget", retry_after=1.0) if call.subresource == "eviction" else None


@virtual
async def test_B2_B3_the_deadline_is_noted_on_the_instance_and_no_error_or_restart_puts_it_off() -> None:
    for trouble in (None, Fatal("the guest's kubeconfig names no https server"), Unavailable("no route")):
        scene = Scene()
        await scene.begin()
        scene.trouble, scene.guest.refuse = trouble, refuses
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


@virtual
async def test_B2_one_that_may_stay_after_all_is_open_again_and_another_evacuation_has_its_whole_ten_minutes() -> None:
    scene = Scene()
    await scene.begin()
    scene.guest.refuse = refuses
    await scene.passes(15)
    await scene.evacuate(on=False)
    await scene.passes(20)
    kept = (await scene.host.you.get(INSTANCES, GUEST, namespace="vms"))["metadata"]["annotations"]
    assert kept == {names.GUEST_KUBECONFIG: "guest"} and not await scene.cordoned()
    await scene.evacuate()
    await scene.passes(int(MAY_TAKE / PASS) - 1)
    assert not await scene.is_deleted() and await scene.cordoned()
    await scene.passes(3)
    assert await scene.is_deleted()


@virtual
async def test_nothing_that_a_guest_says_keeps_another_one_waiting() -> None:
    """Twenty of another tenant, whose server answers what makes no sense, or does not answer."""

    class Nonsense:
        def __getattr__(self, name: str) -> Any:
            async def answer(*_: Any, **__: Any) -> Json:
                return {"metadata": {}}

            return answer

    async def opened(content: bytes) -> Any:
        if content == b"nonsense":
            return Nonsense()
        if content == b"odd":
            raise ValueError("month must be in 1..12")
        if content == b"silent":
            await asyncio.sleep(1000)
        return await Scene.opened(scene, content)

    for bad in ("nonsense", "odd", "silent"):
        scene = Scene()
        scene.restart(opened)
        await scene.begin()
        await scene.secret(bad, bad.encode())
        for number in range(20):
            await scene.instance(f"a-{number}", secret=bad)
        began = scene.host.clock()
        await scene.room.turn()
        assert scene.host.clock() - began < 60.0 and await scene.cordoned(), bad
        await scene.passes(2)
        assert await scene.is_deleted(), bad


@virtual
async def test_a_guest_that_lists_pods_without_end_is_left_at_a_thousand() -> None:
    scene = Scene()
    await scene.begin(pods=1001)
    await scene.room.turn()
    assert not [call for call in scene.guest.calls if call.subresource == "eviction"]
    assert await scene.cordoned() and not await scene.is_deleted()


@virtual
async def test_those_that_have_to_go_are_found_among_more_than_fifty_that_may_stay() -> None:
    scene = Scene()
    await scene.begin(pods=0)
    for number in range(55):
        await scene.instance(f"a-{number:02}", evacuated=False, secret="guest" if number % 2 else "")
    await scene.passes(2)
    assert await scene.is_deleted()


@virtual
async def test_of_more_than_fifty_that_have_to_go_the_one_that_was_begun_first_is_looked_at_first() -> None:
    """It is late, and the last one by its name; the guests of all others do not answer."""

    async def silent(_: bytes) -> Any:
        await asyncio.sleep(1000)

    scene = Scene()
    scene.restart(silent)
    await scene.begin(pods=0)
    await scene.passes(1)
    for number in range(60):
        await scene.instance(f"a-{number:02}")
    await asyncio.sleep(MAY_TAKE)
    began = scene.host.clock()
    turn = asyncio.create_task(scene.room.turn())
    await asyncio.sleep(1.0)
    assert await scene.is_deleted() and scene.host.clock() - began < 2.0 and not turn.done()
    await turn


async def opened_and_closed(text: bytes) -> None:
    await (await open_guest(text)).aclose()


def test_a_kubeconfig_of_a_tenant_reads_no_file_starts_no_program_and_reaches_no_plain_http() -> None:
    def content(server: str, **user: Any) -> bytes:
        whole = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "/etc/passwd"}}],
            "users": [{"name": "u", "user": user}],
        }
        return json.dumps(whole).encode()

    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    asyncio.run(opened_and_closed(content("https://guest.example:6443", token="secret", exec=exec_, tokenFile="/nowhere")))
    for wrong in (content("http://guest.example"), b"", b"[]", b"{", b"current-context: a"):
        with pytest.raises(Fatal):
            asyncio.run(opened_and_closed(wrong))


PLAIN = b"""
clusters: [{name: c, cluster: {server: "https://guest.example:6443"}}]
users: [{name: u, user: {token: TOKEN}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
ALIASES = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else 'x'] * 10)}]\n" for n in range(6)).encode()
MERGES = "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n" if n else "m0: &m0 {k: v}\n" for n in range(6)).encode()


@pytest.mark.parametrize("odd", [b"when: 2026-99-99", b"number: " + b"9" * 5000, b"at: 2026-01-01T99:99:99Z"])
def test_whatever_else_a_tenant_writes_into_a_kubeconfig_raises_nothing_but_fatal(odd: bytes) -> None:
    try:
        asyncio.run(opened_and_closed(odd + PLAIN))
    except Fatal:
        pass


@pytest.mark.parametrize(
    ("before", "token"), [(ALIASES, b"*l5"), (MERGES, b"abc")], ids=["a token of a million aliases", "a hundred thousand merges"]
)
def test_a_small_kubeconfig_of_a_tenant_takes_little_memory(before: bytes, token: bytes) -> None:
    text = before + PLAIN.replace(b"TOKEN", token)
    asyncio.run(opened_and_closed(PLAIN))  # what is read once per process does not count
    tracemalloc.start()
    try:
        asyncio.run(opened_and_closed(text))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_kubeconfig_that_is_longer_than_any_is_not_read() -> None:
    with pytest.raises(Fatal, match="longer"):
        asyncio.run(opened_and_closed(b"x: [" + b"a, " * 100_000 + b"]" + PLAIN))
