"""Section 8 of the provisioning cases: one whole program on the simulated API server and driver, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds.table import DAEMON_SETS, REPLICA_SETS
from hack.sim.driver.local_driver import POOL_PARAMETER, LocalDriver
from hack.sim.driver.spec import Spec
from hack.sim.stand_ins import Binder, StandInBase
from sidecar.capacity import controller as capacity
from sidecar.config.parse import Parsed, parse
from sidecar.csi.api import NOTHING, TOPOLOGY, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, NotSent
from sidecar.doors import Doors, Instruments
from sidecar.errors import Fatal
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, PODS, VOLUMES, Page, Resource, WatchEvent
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.model.quantity import parse_bytes
from sidecar.model.standing import Standing
from sidecar.observe.metrics import Metrics
from sidecar.tools import Tools
from sidecar.wiring import Sidecar

NAME, NODE, NAMESPACE = "cases.csi-node-sidecar.io", "foo", "default"
KEY, ZONE = f"topology.{NAME}/node", f"topology.{NAME}/zone"
EPOCH = 1_767_225_600.0
MIB, GIB = 2**20, 2**30
LABELS = {names.CAPACITY_DRIVER_LABEL: NAME, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(NODE)}
POLL = 60.0
DOWN = DriverError(Code.INTERNAL, "the volume group is busy")
Hook = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Write:
    """A request of the program that changes a capacity object."""

    at: float
    verb: str
    name: str
    class_name: str
    landed: bool


class Kube(InProcessApi):
    """The program's own way to the server: a few milliseconds long, and what it does with capacity objects is written down."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        super().__init__(cluster, before=self._travel)
        self._clock = clock
        self.writes: list[Write] = []
        self.asked: list[str] = []
        self.queries: list[tuple[str, str, str]] = []
        self.on_update: Hook | None = None
        """Somebody who is faster, once."""
        self.slow: dict[str, float] = {}
        """Seconds that a write takes, by verb and kind."""
        self.refused: dict[str, ApiError] = {}
        """What is answered instead, likewise."""

    async def _travel(self, call: Any) -> None:
        self.asked.append(f"{call.verb} {call.resource}")
        if error := self.refused.get(f"{call.verb} {call.resource}"):
            raise error
        await asyncio.sleep(self.slow.get(f"{call.verb} {call.resource}", 0.002))

    async def list_page(self, resource: Resource, **query: Any) -> Page:
        self.queries.append((f"list {resource.plural}", query.get("namespace", ""), query.get("label_selector", "")))
        return await super().list_page(resource, **query)

    async def watch(self, resource: Resource, **query: Any) -> AsyncIterator[WatchEvent]:  # type: ignore[override]
        self.queries.append((f"watch {resource.plural}", query.get("namespace", ""), query.get("label_selector", "")))
        async for event in super().watch(resource, **query):
            yield event

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        return await self._noted("create", resource, body, super().create(resource, body, namespace=namespace))

    async def replace(self, resource: Resource, body: Any, **options: Any) -> Json:
        if resource == CAPACITIES and self.on_update is not None:
            first, self.on_update = self.on_update, None
            await first(body)
        return await self._noted("update", resource, body, super().replace(resource, body, **options))

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        await self._noted("delete", resource, {"metadata": {"name": name}}, super().delete(resource, name, **options))

    async def _noted(self, verb: str, resource: Resource, body: Any, doing: Awaitable[Any]) -> Any:
        at, landed = self._clock(), False
        try:
            answer = await doing
            landed = True
            return answer
        finally:
            if resource == CAPACITIES:
                self.writes.append(Write(at, verb, body["metadata"].get("name", ""), body.get("storageClassName", ""), landed))


class Driver:
    """The local driver, which may be slow, fail, or say what the test wants."""

    def __init__(self, spec: Spec, clock: Callable[[], float]) -> None:
        self.local = LocalDriver(spec)
        self._clock = clock
        self.answer: Callable[[CapacityQuery], CapacityAnswer] | None = None
        self.failing: dict[str, DriverError] = {}
        self.takes: dict[str, float] = {}
        self.lacks: frozenset[str] = frozenset()
        """Capabilities that it does not claim, though it does what they are about."""
        self.asked: list[tuple[float, CapacityQuery]] = []
        self.done: list[str] = []

    @property
    def info(self) -> Any:
        return replace(self.local.info, plugin=self.local.info.plugin - self.lacks)

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        await self._meet("create")
        return self.local.create(request)

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        await self._meet("delete")
        self.local.delete(volume_id)

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        self.asked.append((self._clock(), query))
        await self._meet("capacity")
        return self.answer(query) if self.answer is not None else self.local.get_capacity(query)

    async def _meet(self, method: str) -> None:
        await asyncio.sleep(self.takes.get(method, 0.01))
        if method in self.failing:
            raise self.failing[method]
        self.done.append(method)


class Bench:
    """A cluster with one node. The program on it may end and be started again; the driver and the cluster go on."""

    def __init__(self, *args: str, segment: Mapping[str, str] | None = None, pools: Mapping[str, int] | None = None) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.args = [*args] if any("ownerref" in item for item in args) else [*args, "--capacity-ownerref-level=-1"]
        self.cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.api = InProcessApi(self.cluster)
        self.kube = Kube(self.cluster, self.clock)
        self.segment = dict(segment or {KEY: NODE})
        self.driver = Driver(Spec(node_id=NODE, name=NAME, pools=pools or {"main": 10 * GIB}, topology=self.segment), self.clock)
        self.metrics = Metrics("test")
        self._claims = 0

    @asynccontextmanager
    async def running(self, *, settle: float = 5.0) -> AsyncIterator[Sidecar]:
        """One life of the program, from its first quiet moment on."""
        base = StandInBase(self.api, clock=self.clock, rng=random.Random("eyes"))
        Binder(base)
        program = self._assemble()
        tasks = [asyncio.create_task(base.run()), asyncio.create_task(program.run())]
        try:
            await self.pause(settle, watching=tasks[1])
            yield program
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _assemble(self) -> Sidecar:
        self.metrics = Metrics("test")
        dice = random.Random("program").random
        tools = Instruments(metrics=self.metrics, clock=self.clock, wall=lambda: EPOCH + self.clock(), rng=dice)
        flags = ["--node-deployment", "--enable-capacity", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1", *self.args]
        parsed = parse(flags, {"NODE_NAME": NODE, "NAMESPACE": NAMESPACE, "POD_NAME": "pod"})
        assert isinstance(parsed, Parsed), parsed
        recorder = EventRecorder(self.kube, component="test", clock=tools.clock, wall=tools.wall, rng=dice)
        return Sidecar(parsed.config, Doors(self.kube, self.kube, self.driver), tools, recorder=recorder)

    async def pause(self, seconds: float, *, watching: "asyncio.Task[None] | None" = None) -> None:
        """What ends the program before the time is over is raised here."""
        await asyncio.sleep(seconds)
        if watching is not None and watching.done():
            await watching

    async def class_(self, name: str = "late", *, mode: str = LATE, **parameters: str) -> None:
        await self.api.create(
            CLASSES, {"metadata": {"name": name}, "provisioner": NAME, "volumeBindingMode": mode, "parameters": parameters}
        )

    async def object(self, class_name: str = "late", *, capacity: str = "10Gi", maximum: str = "10Gi", **meta: Any) -> Json:
        """A capacity object as this program publishes it, unless told otherwise."""
        topology = meta.pop("topology", self.segment)
        body = {
            "metadata": {"generateName": "csisc-", "labels": LABELS} | meta,
            "storageClassName": class_name,
            "nodeTopology": {"matchLabels": topology},
            "capacity": capacity,
            "maximumVolumeSize": maximum,
        }
        return await self.api.create(CAPACITIES, body, namespace=NAMESPACE)

    async def objects(self) -> list[Json]:
        return (await self.api.list_page(CAPACITIES, namespace=NAMESPACE)).items

    async def published(self) -> dict[str, int]:
        """Free bytes by class; it is a failure to have two objects for one."""
        ours = [item for item in await self.objects() if item["metadata"].get("labels") == LABELS]
        assert len({item["storageClassName"] for item in ours}) == len(ours), ours
        return {item["storageClassName"]: parse_bytes(item["capacity"]) for item in ours}

    async def only(self) -> Json:
        (item,) = await self.objects()
        return item

    async def stale(self) -> str:
        return str(((await self.only())["metadata"].get("annotations") or {}).get(names.STALE_SINCE, ""))

    async def alter(self, item: Json, **changes: Any) -> Json:
        """What somebody else does to an object."""
        return await self.api.replace(CAPACITIES, {**item, **changes}, name=item["metadata"]["name"], namespace=NAMESPACE)

    async def claim(self, class_name: str = "late", *, gib: int = 1, selected: str = NODE) -> str:
        self._claims += 1
        name = f"data-{self._claims}"
        annotations = {names.SELECTED_NODE: selected} if selected else {}
        spec = {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{gib}Gi"}},
        }
        await self.api.create(CLAIMS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec}, namespace=NAMESPACE)
        return name

    async def unclaim(self, name: str) -> None:
        await self.api.delete(CLAIMS, name, namespace=NAMESPACE)

    async def volumes(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.api.list_page(VOLUMES)).items]

    def gauge(self, name: str) -> float:
        lines = self.metrics.render()[0].decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))

    def gauges(self) -> tuple[float, float, float]:
        goal, current, obsolete = (self.gauge(f"csistoragecapacities_{name}") for name in ("desired_goal", "desired_current", "obsolete"))
        return goal, current, obsolete

    def asked_since(self, at: float) -> list[str]:
        """The classes, by their parameter, whose capacity was asked for."""
        return sorted(query.parameters.get(POOL_PARAMETER, "") for when, query in self.driver.asked if when >= at)

    def wrote(self) -> list[str]:
        return [write.verb for write in self.kube.writes]


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(story(), limit=50_000.0)


def affinity(*terms: Json) -> Json:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def here(*pairs: tuple[str, str]) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]}


async def released(bench: Bench, nodes: Json | None, *, driver: str = NAME) -> str:
    """A volume that is to be deleted: its claim is gone."""
    name = f"old-{len(await bench.volumes())}"
    body = {
        "metadata": {"name": name, "annotations": {names.PROVISIONED_BY: NAME}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": NAMESPACE, "name": "gone", "uid": "gone"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "late",
            "csi": {"driver": driver, "volumeHandle": f"{name}-handle"},
        },
    }
    if nodes is not None:
        body["spec"]["nodeAffinity"] = nodes
    await bench.api.create(VOLUMES, body)
    return name


# --- what is published ------------------------------------------------------------------------------------------------


def test_C2_one_class_is_one_object_with_our_labels_and_the_segment() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.answer = lambda _: CapacityAnswer(GIB)
        await bench.class_()
        async with bench.running(settle=0.05):
            assert bench.gauges() == (1, 0, 0)
            await bench.pause(5.0)
            item = await bench.only()
            assert item["metadata"]["name"].startswith("csisc-") and item["metadata"]["generateName"] == "csisc-"
            assert item["metadata"]["labels"] == LABELS
            assert item["nodeTopology"] == {"matchLabels": {KEY: NODE}}
            assert (item["storageClassName"], item["capacity"]) == ("late", "1Gi") and "maximumVolumeSize" not in item
            assert bench.gauges() == (1, 1, 0)

    play(story)


def test_C3_the_largest_volume_is_published_and_a_change_of_it_alone_is_one_update() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.answer = lambda _: CapacityAnswer(GIB, maximum=MIB)
        await bench.class_()
        async with bench.running():
            assert (await bench.only())["maximumVolumeSize"] == "1Mi"
            bench.driver.answer = lambda _: CapacityAnswer(GIB, maximum=2 * MIB)
            await bench.pause(POLL)
            item = await bench.only()
            assert (item["capacity"], item["maximumVolumeSize"]) == ("1Gi", "2Mi")
            assert bench.wrote() == ["create", "update"]

    play(story)


@pytest.mark.parametrize(("flags", "expected"), [((), ["late"]), (("--capacity-for-immediate-binding",), ["immediate", "late"])])
def test_C4_immediate_classes_only_behind_their_flag(flags: tuple[str, ...], expected: list[str]) -> None:
    async def story() -> None:
        bench = Bench(*flags)
        await bench.class_()
        await bench.class_("immediate", mode=IMMEDIATE)
        async with bench.running():
            assert sorted(await bench.published()) == expected

    play(story)


def test_C4_a_class_that_is_made_anew_with_another_mode_changes_sides() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            for mode, expected in ((IMMEDIATE, []), (LATE, ["late"])):
                await bench.api.delete(CLASSES, "late")
                await bench.class_(mode=mode)
                await bench.pause(15.0)
                assert sorted(await bench.published()) == expected

    play(story)


def test_C5_an_equal_object_is_not_written_and_a_different_one_is_replaced_once_under_its_name() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        kept = (await bench.object())["metadata"]
        async with bench.running(settle=10 * POLL):
            assert bench.wrote() == []
            bench.driver.answer = lambda _: CapacityAnswer(5 * GIB)
            await bench.pause(10 * POLL)
            assert bench.wrote() == ["update"]
            item = await bench.only()
            assert (item["metadata"]["name"], item["metadata"]["uid"], item["capacity"]) == (kept["name"], kept["uid"], "5Gi")

    play(story)


def test_C7_objects_of_a_vanished_class_or_segment_are_deleted_and_obsolete_until_then() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        right = await bench.object()
        await bench.object("vanished")
        await bench.object(topology={KEY: "another"})
        bench.kube.slow["delete csistoragecapacities.storage.k8s.io"] = 20.0
        async with bench.running():
            assert bench.gauges() == (1, 1, 2)
            bench.kube.slow.clear()
            await bench.pause(60.0)
            assert (await bench.only())["metadata"]["uid"] == right["metadata"]["uid"]
            assert bench.gauges() == (1, 1, 0)
            await bench.api.delete(CLASSES, "late")
            await bench.pause(15.0)
            assert await bench.objects() == []
            assert bench.gauges() == (0, 0, 0)

    play(story)


@pytest.mark.parametrize("holds", ["finalizer", "no right"])
def test_C7_one_that_will_not_go_does_not_stop_the_poll(holds: str) -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        finalizers = ["example.com/hold"] if holds == "finalizer" else []
        old = await bench.object(topology={KEY: "former"}, finalizers=finalizers)
        if holds == "no right":
            bench.kube.refused["delete csistoragecapacities.storage.k8s.io"] = Forbidden("denied", status=403)
        async with bench.running(settle=20.0):
            bench.driver.answer = lambda _: CapacityAnswer(3 * GIB)
            await bench.pause(1.2 * POLL)
            found = {item["metadata"]["uid"]: item for item in await bench.objects()}
            del found[old["metadata"]["uid"]]
            (right,) = found.values()
            assert (right["nodeTopology"], right["capacity"]) == ({"matchLabels": {KEY: NODE}}, "3Gi")
            await bench.pause(20 * POLL)
            # What is forbidden is tried at polls too, until the back-off has grown beyond them.
            assert bench.wrote().count("delete") == 1 if holds == "finalizer" else 9 <= bench.wrote().count("delete") <= 12

    play(story)


def test_writes_that_failed_for_long_are_made_up_for_within_a_poll() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            bench.kube.refused["update csistoragecapacities.storage.k8s.io"] = Unavailable("away")
            bench.driver.answer = lambda _: CapacityAnswer(3 * GIB)
            await bench.pause(20 * POLL)
            assert await bench.published() == {"late": 10 * GIB}
            bench.kube.refused.clear()
            await bench.pause(POLL + 1.0)
            assert await bench.published() == {"late": 3 * GIB}

    play(story)


def test_C9_what_the_parameters_ask_for_is_published_and_old_figures_are_replaced() -> None:
    async def story() -> None:
        bench = Bench(pools={"fast": 2 * GIB, "slow": 7 * GIB})
        await bench.class_("gold", pool="fast")
        await bench.class_("tin", pool="slow")
        old = await bench.object("gold", capacity="1Ti", maximum="1Ti")
        async with bench.running():
            assert await bench.published() == {"gold": 2 * GIB, "tin": 7 * GIB}
            assert old["metadata"]["uid"] in {item["metadata"]["uid"] for item in await bench.objects()}

    play(story)


def test_C20_the_driver_gets_its_parameters_without_the_reserved_ones_and_this_node_s_segment() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_(pool="main", **{"csi.storage.k8s.io/fstype": "xfs"})
        async with bench.running():
            (_, query), *_ = bench.driver.asked
            assert (dict(query.parameters), query.capabilities) == ({"pool": "main"}, ())
            assert query.segment is not None and query.segment.labels() == {KEY: NODE}

    play(story)


@pytest.mark.parametrize(("flags", "lacks"), [(("--feature-gates=Topology=false",), set()), ((), {TOPOLOGY})], ids=["gate", "capability"])
def test_capacity_is_that_of_the_node_s_segment_also_where_volumes_do_not_follow_it(flags: tuple[str, ...], lacks: set[str]) -> None:
    """Without a place it would be that of all nodes."""

    async def story() -> None:
        bench = Bench(*flags)
        bench.driver.lacks = frozenset(lacks)
        await bench.class_()
        await bench.object(topology={})
        async with bench.running(settle=20.0):
            assert (await bench.only())["nodeTopology"] == {"matchLabels": {KEY: NODE}}
            (_, query), *_ = bench.driver.asked
            assert query.segment is not None and query.segment.labels() == {KEY: NODE}
            await bench.claim()
            await bench.pause(5.0)
            (volume,) = (await bench.api.list_page(VOLUMES)).items
            assert "nodeAffinity" not in volume["spec"]

    play(story)


@pytest.mark.parametrize(
    ("answer", "figures"),
    [
        (CapacityAnswer(-1), ("0", None)),
        (CapacityAnswer(2**63 - 1), (str(2**63 - 1), None)),
        (CapacityAnswer(5 * GIB, maximum=9 * GIB), ("5Gi", "5Gi")),
        (CapacityAnswer(5 * GIB, maximum=-1), ("5Gi", None)),
        (CapacityAnswer(5 * GIB, minimum=6 * GIB), ("0", None)),
        (CapacityAnswer(2**63 - 1, maximum=2**63 - 1, minimum=2**63 - 1), (str(2**63 - 1), str(2**63 - 1))),
    ],
    ids=["negative", "absurd", "maximum above free", "negative maximum", "minimum above free", "all absurd"],
)
def test_an_odd_answer_is_published_as_what_it_can_mean_and_written_once(answer: CapacityAnswer, figures: tuple[str, str | None]) -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.answer = lambda _: answer
        await bench.class_()
        async with bench.running(settle=5 * POLL):
            item = await bench.only()
            assert (item["capacity"], item.get("maximumVolumeSize")) == figures
            assert bench.wrote() == ["create"]

    play(story)


def test_a_node_that_is_to_take_nothing_publishes_zero_and_is_itself_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Standing(publishes_zero=True, why="it is being emptied")

    class Publisher(capacity.CapacityPublisher):
        def __init__(self, tools: Tools, **parts: Any) -> None:
            super().__init__(tools, **{**parts, "standing": lambda: standing})

    monkeypatch.setattr("sidecar.capacity.part.CapacityPublisher", Publisher)

    async def story() -> None:
        nonlocal standing
        bench = Bench()
        await bench.class_()
        await bench.object()
        async with bench.running():
            item = await bench.only()
            assert item["capacity"] == "0" and "maximumVolumeSize" not in item
            assert bench.driver.asked == [], "what the driver would say does not matter"
            standing = Standing()
            await bench.pause(POLL)
            item = await bench.only()
            assert (item["capacity"], item["maximumVolumeSize"]) == ("10Gi", "10Gi")

    play(story)


# --- whose it is ------------------------------------------------------------------------------------------------------


async def own_pod(bench: Bench) -> dict[str, Json]:
    """The program's pod, what controls it, and what controls that, by kind."""
    top = await bench.api.create(DAEMON_SETS, _workload("top"), namespace=NAMESPACE)
    middle = await bench.api.create(REPLICA_SETS, _workload("middle", _reference("apps/v1", "DaemonSet", top)), namespace=NAMESPACE)
    pod = {"metadata": {"name": "pod", "ownerReferences": [_reference("apps/v1", "ReplicaSet", middle)]}, **_POD}
    return {"Pod": await bench.api.create(PODS, pod, namespace=NAMESPACE), "ReplicaSet": middle, "DaemonSet": top}


_POD: Json = {"spec": {"containers": [{"name": "main", "image": "none"}]}}


def _workload(name: str, *owners: Json) -> Json:
    template = {"metadata": {"labels": {"app": name}}, **_POD}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name, "ownerReferences": list(owners)}, "spec": spec}


def _reference(api_version: str, kind: str, obj: Json, *, controller: bool = True) -> Json:
    meta = obj["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": controller}


def test_C6_a_missing_owner_is_added_to_the_ones_that_are_there() -> None:
    async def story() -> None:
        bench = Bench("--capacity-ownerref-level=0")
        owners = await own_pod(bench)
        await bench.class_()
        bare = _reference("apps/v1", "DaemonSet", owners["DaemonSet"], controller=False)
        kept = await bench.object(ownerReferences=[bare])
        async with bench.running():
            item = await bench.only()
            assert item["metadata"]["uid"] == kept["metadata"]["uid"]
            found = [(ref["kind"], ref.get("controller", False)) for ref in item["metadata"]["ownerReferences"]]
            assert found == [("DaemonSet", False), ("Pod", True)]
            assert bench.wrote() == ["update"]

    play(story)


def test_C6_an_owner_that_is_not_asked_for_stays() -> None:
    async def story() -> None:
        bench = Bench("--capacity-ownerref-level=-1")
        owners = await own_pod(bench)
        await bench.class_()
        kept = await bench.object(ownerReferences=[_reference("v1", "Pod", owners["Pod"])])
        async with bench.running(settle=3 * POLL):
            assert (await bench.only())["metadata"]["resourceVersion"] == kept["metadata"]["resourceVersion"]
            assert bench.wrote() == []

    play(story)


@pytest.mark.parametrize(
    ("level", "kind", "gets"),
    [(0, "Pod", ["get pods"]), (1, "ReplicaSet", ["get pods"]), (2, "DaemonSet", ["get pods", "get replicasets.apps"])],
)
def test_C23_the_owner_by_level_fetching_nothing_more_than_needed(level: int, kind: str, gets: list[str]) -> None:
    async def story() -> None:
        bench = Bench(f"--capacity-ownerref-level={level}")
        owners = await own_pod(bench)
        await bench.class_()
        async with bench.running():
            (reference,) = (await bench.only())["metadata"]["ownerReferences"]
            version = "v1" if kind == "Pod" else "apps/v1"
            assert reference == _reference(version, kind, owners[kind]), "and no blockOwnerDeletion"
            assert [item for item in bench.kube.asked if item.startswith("get ")] == gets

    play(story)


@pytest.mark.parametrize(
    ("level", "lacking"), [(0, "pod"), (2, "middle"), (3, "controller")], ids=["no pod", "no middle object", "no controller"]
)
def test_C23_an_owner_that_cannot_be_found_ends_the_program_with_the_reason(level: int, lacking: str) -> None:
    async def story() -> None:
        bench = Bench(f"--capacity-ownerref-level={level}")
        if lacking != "pod":
            await own_pod(bench)
        if lacking == "middle":
            await bench.api.delete(REPLICA_SETS, "middle", namespace=NAMESPACE)
        await bench.class_()
        with pytest.raises(BaseExceptionGroup) as ended:
            async with bench.running():
                pass
        assert ended.group_contains(Fatal, match=f"--capacity-ownerref-level={level}")
        assert await bench.objects() == []

    play(story)


# --- what others do to it ---------------------------------------------------------------------------------------------


def test_C10_an_object_that_somebody_deletes_is_made_again_and_a_duplicate_is_deleted() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            first = (await bench.only())["metadata"]
            await bench.api.delete(CAPACITIES, first["name"], namespace=NAMESPACE)
            await bench.pause(5.0)
            second = (await bench.only())["metadata"]
            assert second["uid"] != first["uid"]
            await bench.object(capacity="77Gi")
            assert len(await bench.objects()) == 2
            await bench.pause(5.0)
            assert await bench.published() == {"late": 10 * GIB}

    play(story)


@pytest.mark.parametrize("labels", [{}, {**LABELS, names.CAPACITY_MANAGER_LABEL: "somebody"}], ids=["no labels", "another manager"])
def test_C11_an_object_that_lost_our_labels_is_left_alone_and_a_new_one_made(labels: dict[str, str]) -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            old = await bench.only()
            left = await bench.alter({**old, "metadata": {**old["metadata"], "labels": labels}}, capacity="1Mi")
            await bench.pause(5 * POLL)
            found = {item["metadata"]["name"]: item for item in await bench.objects()}
            assert found.pop(left["metadata"]["name"])["metadata"] == left["metadata"]
            (new,) = found.values()
            assert (new["metadata"]["labels"], new["capacity"]) == (LABELS, "10Gi")

    play(story)


def test_C12_an_object_that_somebody_made_again_with_a_wrong_figure_is_corrected() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            name = (await bench.only())["metadata"]["name"]
            await bench.api.delete(CAPACITIES, name, namespace=NAMESPACE)
            again = await bench.object(generateName="", name=name, capacity="3")
            await bench.pause(5.0)
            item = await bench.only()
            assert (item["metadata"]["uid"], item["capacity"]) == (again["metadata"]["uid"], "10Gi")
            assert bench.wrote() == ["create", "update"]

    play(story)


def test_C21_who_was_overtaken_looks_again_and_makes_no_second_object() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        await bench.object(capacity="1Gi")

        async def faster(_: Mapping[str, Any]) -> None:
            await bench.alter(await bench.only(), maximumVolumeSize="2Gi")

        bench.kube.on_update = faster
        async with bench.running(settle=10.0):
            item = await bench.only()
            assert (item["capacity"], item["maximumVolumeSize"]) == ("10Gi", "10Gi")
            assert [(write.verb, write.landed) for write in bench.kube.writes] == [("update", False), ("update", True)]

    play(story)


def test_foreign_objects_of_the_same_class_and_node_are_left_alone() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        driver, manager = names.CAPACITY_DRIVER_LABEL, names.CAPACITY_MANAGER_LABEL
        others = [{}, {driver: NAME}, {**LABELS, driver: "other.example.com"}, {**LABELS, manager: names.capacity_manager("bar")}]
        foreign = [await bench.object(labels=labels, capacity="3") for labels in others]
        async with bench.running(settle=5 * POLL):
            found = [item["metadata"] for item in await bench.objects()]
            assert all(item["metadata"] in found for item in foreign) and len(found) == len(foreign) + 1
            assert bench.wrote() == ["create"]

    play(story)


def test_what_others_wrote_on_our_object_survives_our_update() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        notes = {"annotations": {"example.com/note": "kept"}, "labels": {**LABELS, "team": "blue"}, "finalizers": ["example.com/hold"]}
        await bench.object(capacity="3", **notes)
        async with bench.running():
            item = await bench.only()
            assert item["capacity"] == "10Gi"
            assert {key: item["metadata"][key] for key in notes} == notes

    play(story)


# --- when it is looked at ---------------------------------------------------------------------------------------------


def test_C13_what_changes_behind_our_back_is_published_at_the_next_poll() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            bench.driver.answer = lambda _: CapacityAnswer(3 * GIB)
            await bench.pause(POLL - 6.0)
            assert await bench.published() == {"late": 10 * GIB}
            await bench.pause(7.0)
            assert await bench.published() == {"late": 3 * GIB}
            assert bench.wrote() == ["create", "update"]

    play(story)


@pytest.mark.parametrize(
    "nodes",
    [
        None,
        affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}),
        affinity({"matchExpressions": [{"key": KEY, "operator": "NotIn", "values": [NODE]}]}),
        affinity(here((KEY, "bar"))),
    ],
    ids=["no affinity", "match fields", "not in", "elsewhere"],
)
def test_C15_a_volume_not_proven_to_be_here_is_neither_deleted_nor_a_reason_to_look(nodes: Json | None) -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            at = bench.clock()
            name = await released(bench, nodes)
            await bench.pause(POLL / 2)
            assert name in await bench.volumes()
            assert bench.driver.done.count("delete") == 0
            assert bench.asked_since(at) == []

    play(story)


@pytest.mark.parametrize("keys", [(KEY, ZONE), (ZONE, KEY)], ids=["in order", "in the other order"])
def test_C25_a_volume_s_affinity_counts_in_whatever_order_its_keys_are(keys: tuple[str, str]) -> None:
    async def story() -> None:
        segment = {KEY: NODE, ZONE: "east"}
        bench = Bench(segment=segment)
        await bench.class_()
        async with bench.running():
            assert (await bench.only())["nodeTopology"] == {"matchLabels": segment}
            at = bench.clock()
            name = await released(bench, affinity(here(*((key, segment[key]) for key in keys))))
            await bench.pause(POLL / 2)
            assert name not in await bench.volumes()
            assert len(bench.asked_since(at)) == 1

    play(story)


@pytest.mark.parametrize(
    ("failure", "looked_at"),
    [
        (None, ["main", "spare"]),
        (NotSent(Code.UNAVAILABLE, "away"), []),
        (DriverError(Code.INTERNAL, "no"), ["main"]),
        (DriverError(Code.DEADLINE_EXCEEDED, "slow"), ["main"]),
    ],
    ids=["success with affinity", "failure before the call", "final failure", "failure in the middle"],
)
def test_C16_which_classes_a_creation_has_looked_at(failure: DriverError | None, looked_at: list[str]) -> None:
    """That the claim is this node's is a reason of its own, so the looks that it brings about are waited out."""

    async def story() -> None:
        bench = Bench("--retry-interval-start=300s", pools={"main": 10 * GIB, "spare": 5 * GIB})
        await bench.class_(pool="main")
        await bench.class_("other", pool="spare")
        bench.driver.takes["create"] = 5.0
        if failure is not None:
            bench.driver.failing["create"] = failure
        async with bench.running():
            await bench.claim()
            await bench.pause(4.0)
            at = bench.clock()
            await bench.pause(5.0)
            assert sorted(set(bench.asked_since(at))) == looked_at

    play(story)


def test_C16_a_volume_without_affinity_concerns_its_class_alone() -> None:
    async def story() -> None:
        bench = Bench(pools={"main": 10 * GIB, "spare": 5 * GIB})
        spec = Spec(node_id=NODE, name=NAME, pools=bench.driver.local.spec.pools, without=frozenset({"topology"}))
        bench.driver = Driver(spec, bench.clock)
        bench.segment = {}
        await bench.class_(pool="main")
        await bench.class_("other", pool="spare")
        bench.driver.takes["create"] = 5.0
        async with bench.running():
            await bench.claim()
            await bench.pause(4.0)
            at = bench.clock()
            await bench.pause(5.0)
            assert bench.driver.done.count("create") == 1
            assert set(bench.asked_since(at)) == {"main"}

    play(story)


def test_C17_a_deletion_has_all_classes_looked_at_and_one_that_is_not_ours_none() -> None:
    async def story() -> None:
        bench = Bench(pools={"main": 10 * GIB, "spare": 5 * GIB})
        await bench.class_(pool="main")
        await bench.class_("other", pool="spare")
        async with bench.running():
            at = bench.clock()
            await released(bench, affinity(here((KEY, NODE))), driver="other.example.com")
            await released(bench, affinity(here((KEY, "bar"))))
            await bench.pause(5.0)
            assert bench.asked_since(at) == []
            await released(bench, affinity(here((KEY, NODE))))
            await bench.pause(5.0)
            assert bench.asked_since(at) == ["main", "spare"]

    play(story)


def test_C17_a_deletion_gives_the_room_back() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            name = await bench.claim(gib=4)
            await bench.pause(5.0)
            assert await bench.published() == {"late": 6 * GIB}
            await bench.unclaim(name)
            await bench.pause(5.0)
            assert await bench.volumes() == []
            assert await bench.published() == {"late": 10 * GIB}

    play(story)


def test_C24_a_thousand_reasons_during_a_slow_look_are_one_more_look() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running() as program:
            bench.driver.takes["capacity"] = 8.0
            at = bench.clock()
            program.space.changed("late", placed=True)
            await bench.pause(2.0)
            assert len(bench.asked_since(at)) == 1
            for _ in range(1000):
                program.space.changed("late", placed=True)
                await bench.pause(0.005)
            await bench.pause(POLL / 2)
            assert len(bench.asked_since(at)) == 2

    play(story)


def too_close(writes: list[Write]) -> list[tuple[float, float]]:
    """Pairs of writes of one object that are less than a second apart."""
    times: dict[str, list[float]] = {}
    for write in writes:
        times.setdefault(write.class_name, []).append(write.at)
    return [(one, other) for each in times.values() for one, other in pairwise(each) if other - one < 0.999]


@pytest.mark.slow
def test_C24_a_thousand_creations_at_once_write_each_object_once_a_second_at_most() -> None:
    async def story() -> None:
        bench = Bench("--worker-threads=20", pools={"main": 2000 * GIB})
        bench.driver.takes["create"] = 0.2
        for name in ("late", "late-too"):
            await bench.class_(name, pool="main")
        async with bench.running():
            at = bench.clock()
            for number in range(1000):
                await bench.claim(("late", "late-too")[number % 2])
            while bench.driver.done.count("create") < 1000:
                await bench.pause(0.5)
            seconds = bench.clock() - at
            await bench.pause(5.0)
            assert await bench.published() == {"late": 1000 * GIB, "late-too": 1000 * GIB}
            assert too_close(bench.kube.writes) == []
            assert len(bench.wrote()) <= 2 * (seconds + 5.0)

    play(story)


def test_C24_a_driver_that_answers_now_slowly_and_now_fast_makes_it_write_no_faster() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running() as program:
            dice = random.Random(1)
            bench.driver.answer = lambda _: CapacityAnswer(int(bench.clock() * 1000))
            for _ in range(2000):
                bench.driver.takes["capacity"] = dice.choice((0.01, 0.01, 0.7, 3.0))
                program.space.changed("late", placed=True)
                await bench.pause(0.05)
            assert len(bench.kube.writes) > 20
            assert too_close(bench.kube.writes) == []

    play(story)


def test_C26_with_another_segment_after_a_restart_the_old_object_goes_and_a_new_one_comes() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            old = await bench.only()
        bench.segment = {KEY: NODE, ZONE: "west"}
        bench.driver = Driver(Spec(node_id=NODE, name=NAME, pools={"main": 10 * GIB}, topology=bench.segment), bench.clock)
        async with bench.running(settle=20.0):
            new = await bench.only()
            assert new["nodeTopology"] == {"matchLabels": bench.segment}
            assert new["metadata"]["uid"] != old["metadata"]["uid"]
            assert bench.wrote() == ["create", "delete", "create"]

    play(story)


def test_C27_list_and_watch_are_limited_to_the_namespace_and_both_labels() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            selector = f"{names.CAPACITY_DRIVER_LABEL}={NAME},{names.CAPACITY_MANAGER_LABEL}={names.capacity_manager(NODE)}"
            asked = {query for query in bench.kube.queries if "csistoragecapacities" in query[0]}
            assert asked == {(f"{verb} csistoragecapacities", NAMESPACE, selector) for verb in ("list", "watch")}

    play(story)


# --- what is promised -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "meanwhile"), [((), 6), (("--capacity-reserve-pending=false",), 10)], ids=["reserved", "not reserved"])
def test_what_a_claim_of_this_node_will_take_is_not_offered_while_it_is_created(flags: tuple[str, ...], meanwhile: int) -> None:
    async def story() -> None:
        bench = Bench(*flags)
        await bench.class_()
        bench.driver.takes["create"] = 8.0
        async with bench.running():
            await bench.claim(gib=4)
            await bench.pause(3.0)
            item = await bench.only()
            assert (item["capacity"], item["maximumVolumeSize"]) == (f"{meanwhile}Gi", f"{meanwhile}Gi")
            await bench.pause(10.0)
            assert await bench.published() == {"late": 6 * GIB}
            assert bench.wrote() == ["create", "update"]

    play(story)


def test_what_a_claim_that_is_given_back_would_have_taken_is_offered_again() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        bench.driver.takes["create"] = 8.0
        bench.driver.failing["create"] = DriverError(Code.RESOURCE_EXHAUSTED, "somebody was faster")
        async with bench.running():
            await bench.claim(gib=4)
            await bench.pause(3.0)
            assert await bench.published() == {"late": 6 * GIB}
            await bench.pause(10.0)
            assert await bench.published() == {"late": 10 * GIB}

    play(story)


def test_what_a_claim_that_is_deleted_in_time_would_have_taken_is_offered_again() -> None:
    async def story() -> None:
        bench = Bench("--retry-interval-start=30s")
        await bench.class_()
        bench.driver.failing["create"] = NotSent(Code.UNAVAILABLE, "away")
        async with bench.running():
            name = await bench.claim(gib=4)
            await bench.pause(3.0)
            assert await bench.published() == {"late": 6 * GIB}
            await bench.unclaim(name)
            await bench.pause(5.0)
            assert await bench.published() == {"late": 10 * GIB}

    play(story)


@pytest.mark.parametrize("ending", ["created", "given back"])
@pytest.mark.parametrize("mine", ["late", "late-too"])
def test_two_classes_of_one_pool_fall_and_rise_together_once_it_has_been_seen_that_they_are(mine: str, ending: str) -> None:
    """The figure of each has moved with a volume of one. Before that they may be two disks of one size."""

    async def story() -> None:
        bench = Bench()
        await bench.class_("late", fs="xfs")
        await bench.class_("late-too", fs="ext4")
        async with bench.running():
            await bench.pause(3.0)
            await bench.claim("late", gib=1)
            await bench.pause(5.0)
            assert await bench.published() == {"late": 9 * GIB, "late-too": 9 * GIB}
            bench.driver.takes["create"] = 8.0
            if ending == "given back":
                bench.driver.failing["create"] = DriverError(Code.RESOURCE_EXHAUSTED, "somebody was faster")
            await bench.claim(mine, gib=4)
            await bench.pause(3.0)
            assert await bench.published() == {"late": 5 * GIB, "late-too": 5 * GIB}
            await bench.pause(10.0)
            left = 5 if ending == "created" else 9
            assert await bench.published() == {"late": left * GIB, "late-too": left * GIB}

    play(story)


def test_a_claim_that_waits_for_one_disk_does_not_hide_another_of_equal_size() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_("late", fs="xfs")
        await bench.class_("late-too", fs="ext4")
        bench.driver.takes["create"] = 8.0
        async with bench.running():
            await bench.claim("late", gib=4)
            await bench.pause(3.0)
            assert await bench.published() == {"late": 6 * GIB, "late-too": 10 * GIB}

    play(story)


def test_a_raced_for_claim_is_promised_from_the_moment_it_is_won() -> None:
    async def story() -> None:
        bench = Bench("--node-deployment-base-delay=1s", "--node-deployment-max-delay=1s")
        await bench.class_()
        await bench.class_("immediate", mode=IMMEDIATE)
        bench.driver.takes["create"] = 20.0
        async with bench.running():
            await bench.claim("immediate", gib=4, selected="")
            await bench.pause(8.0)
            assert bench.driver.done.count("create") == 0, "it is still being made"
            assert await bench.published() == {"late": 6 * GIB}

    play(story)


def test_a_bid_that_is_lost_gives_back_what_it_held() -> None:
    async def story() -> None:
        bench = Bench("--node-deployment-base-delay=1s", "--node-deployment-max-delay=1s")
        await bench.class_()
        await bench.class_("immediate", mode=IMMEDIATE)
        async with bench.running() as program:
            name = await bench.claim("immediate", gib=4, selected="")
            bench.kube.slow["update persistentvolumeclaims"] = 3.0
            while "update persistentvolumeclaims" not in bench.kube.asked:
                await bench.pause(0.01)
            program.space.changed("late", placed=True)  # something else was made: a look in the middle of the bid
            await bench.pause(1.5)
            assert await bench.published() == {"late": 6 * GIB}
            claim = await bench.api.get(CLAIMS, name, namespace=NAMESPACE)
            claim["metadata"].setdefault("annotations", {})[names.SELECTED_NODE] = "bar"
            await bench.api.replace(CLAIMS, claim, name=name, namespace=NAMESPACE)
            await bench.pause(8.0)
            assert await bench.published() == {"late": 10 * GIB}

    play(story)


# --- a driver that does not answer ------------------------------------------------------------------------------------


def test_a_figure_that_cannot_be_renewed_says_since_when_until_the_driver_answers_again() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            bench.driver.failing["capacity"] = DOWN
            await bench.pause(POLL)
            assert await bench.stale() == ""
            await bench.pause(2.2 * POLL)
            assert await bench.stale() == "2026-01-01T00:01:01Z"
            assert bench.gauge("csi_node_sidecar_capacities_stale") == 1
            await bench.pause(20 * POLL)
            assert await bench.stale() == "2026-01-01T00:01:01Z"
            assert await bench.published() == {"late": 10 * GIB}
            assert bench.wrote() == ["create", "update"]
            bench.driver.failing.clear()
            await bench.pause(1.1 * POLL)
            assert await bench.stale() == ""
            assert bench.gauge("csi_node_sidecar_capacities_stale") == 0
            assert bench.wrote() == ["create", "update", "update"]

    play(story)


def test_a_short_silence_marks_nothing() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        async with bench.running():
            bench.driver.failing["capacity"] = DOWN
            await bench.pause(POLL + 30.0)
            bench.driver.failing.clear()
            await bench.pause(5 * POLL)
            assert bench.wrote() == ["create"]

    play(story)


def test_a_figure_is_withdrawn_when_it_is_too_old_and_published_again_when_there_is_one() -> None:
    async def story() -> None:
        bench = Bench("--capacity-stale-after=5m")
        await bench.class_()
        async with bench.running():
            bench.driver.failing["capacity"] = DOWN
            await bench.pause(4 * POLL)
            assert await bench.stale()
            await bench.pause(3.5 * POLL)
            assert await bench.objects() == []
            bench.driver.failing.clear()
            await bench.pause(1.1 * POLL)
            assert await bench.published() == {"late": 10 * GIB}
            assert bench.wrote() == ["create", "update", "delete", "create"]

    play(story)


def test_after_a_restart_the_time_that_the_process_before_it_wrote_down_counts() -> None:
    async def story() -> None:
        bench = Bench("--capacity-stale-after=5m")
        await bench.class_()
        async with bench.running():
            bench.driver.failing["capacity"] = DOWN
            await bench.pause(4 * POLL)
            assert await bench.stale() == "2026-01-01T00:01:01Z"
        async with bench.running(settle=0.5 * POLL):
            assert await bench.stale() == "2026-01-01T00:01:01Z"
            await bench.pause(2.5 * POLL)
            assert await bench.objects() == [], "five minutes since the first failure, not since the restart"

    play(story)


def test_a_mark_that_nobody_can_read_goes_with_the_next_answer() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.class_()
        await bench.object(annotations={names.STALE_SINCE: "long ago", "example.com/note": "kept"})
        async with bench.running():
            assert (await bench.only())["metadata"]["annotations"] == {"example.com/note": "kept"}
            assert bench.wrote() == ["update"]

    play(story)


def test_a_driver_that_never_answered_publishes_nothing() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.failing["capacity"] = DriverError(Code.UNIMPLEMENTED, "no")
        await bench.class_()
        async with bench.running(settle=30 * POLL):
            assert bench.wrote() == []
            assert len(bench.driver.asked) < 45, "it backs off, though not beyond the poll interval"

    play(story)


def test_nothing_is_left_of_a_class_that_comes_and_goes() -> None:
    async def story() -> None:
        bench = Bench()
        async with bench.running() as program:
            for number in range(20):
                await bench.class_("fleeting", fs=str(number))
                await bench.pause(random.Random(number).choice((0.0, 0.005, 0.5, 3.0)))
                await bench.api.delete(CLASSES, "fleeting")
                await bench.pause(0.0 if number % 2 else 2.0)
            await bench.pause(60.0)
            assert await bench.objects() == []
            with pytest.raises(NotFound):
                await bench.api.get(CLASSES, "fleeting")
            assert program.capacity is not None
            room, space = program.capacity.room, program.space
            assert room is not None
            kept = (room._busy, room._failing, room._settling, space._published, space._bid_for, space._pools._answers)
            assert [dict(each) for each in kept] == [{}] * 6

    play(story)
