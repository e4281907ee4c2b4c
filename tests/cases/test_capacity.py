"""Section 8 of the provisioning cases: one whole program on the simulated API server and driver, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hack.lib.programs import claim, storage_class
from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.driver.local_driver import POOL_PARAMETER, LocalDriver
from hack.sim.driver.spec import Spec
from hack.sim.stand_ins import Binder, StandInBase
from sidecar.config.parse import Parsed, parse
from sidecar.csi.api import NOTHING, TOPOLOGY, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES, Page, Resource, WatchEvent
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.model.quantity import parse_bytes
from sidecar.observe.metrics import Metrics
from sidecar.wiring import Sidecar
from tests.harness.virtual import AsyncTest, staged

NAME, NODE, NAMESPACE = "cases.csi-node-sidecar.io", "foo", "default"
KEY, ZONE = f"topology.{NAME}/node", f"topology.{NAME}/zone"
EPOCH = 1_767_225_600.0
GIB = 2**30
LABELS = {names.CAPACITY_DRIVER_LABEL: NAME, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(NODE)}
POLL = 60.0


class Kube(InProcessApi):
    """The program's own way to the server: a few milliseconds long, and what it asks of capacity objects is written down."""

    def __init__(self, cluster: ApiServer, clock: Callable[[], float]) -> None:
        super().__init__(cluster, before=self._travel)
        self._clock = clock
        self.writes: list[tuple[str, float]] = []
        """Of which class a figure was written, and when."""
        self.queries: set[tuple[str, str, str]] = set()

    async def _travel(self, call: Any) -> None:
        await asyncio.sleep(0.002)

    async def list_page(self, resource: Resource, **query: Any) -> Page:
        self._asks("list", resource, query)
        return await super().list_page(resource, **query)

    async def watch(self, resource: Resource, **query: Any) -> AsyncIterator[WatchEvent]:  # type: ignore[override]
        self._asks("watch", resource, query)
        async for event in super().watch(resource, **query):
            yield event

    def _asks(self, verb: str, resource: Resource, query: Mapping[str, Any]) -> None:
        if resource == CAPACITIES:
            self.queries.add((verb, query.get("namespace", ""), query.get("label_selector", "")))

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        self._writes(resource, body)
        return await super().create(resource, body, namespace=namespace)

    async def replace(self, resource: Resource, body: Any, **options: Any) -> Json:
        self._writes(resource, body)
        return await super().replace(resource, body, **options)

    def _writes(self, resource: Resource, body: Any) -> None:
        if resource == CAPACITIES:
            self.writes.append((body["storageClassName"], self._clock()))


class Driver:
    """The local driver, which may be slow, or say what the test wants."""

    def __init__(self, spec: Spec, clock: Callable[[], float]) -> None:
        self.local = LocalDriver(spec)
        self._clock = clock
        self.answer: Callable[[CapacityQuery], CapacityAnswer] | None = None
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
        self.done.append(method)


class Bench:
    """A cluster with one node. The program on it may end and be started again; the driver and the cluster go on."""

    def __init__(self, *args: str, segment: Mapping[str, str] | None = None, pools: Mapping[str, int] | None = None) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.args = ["--capacity-ownerref-level=-1", *args]
        self.cluster = ApiServer(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.api = InProcessApi(self.cluster)
        self.kube = Kube(self.cluster, self.clock)
        self.segment = dict(segment or {KEY: NODE})
        self.driver = Driver(Spec(node_id=NODE, name=NAME, pools=pools or {"main": 10 * GIB}, topology=self.segment), self.clock)
        self.metrics = Metrics("test")
        self._claims = 0

    @asynccontextmanager
    async def running(self, *, settle: float = 5.0) -> AsyncIterator[None]:
        """One life of the program, from its first quiet moment on."""
        base = StandInBase(self.api, clock=self.clock, rng=random.Random("eyes"))
        Binder(base)
        tasks = [asyncio.create_task(base.run()), asyncio.create_task(self._assemble().run())]
        try:
            await asyncio.sleep(settle)
            yield
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

    async def class_(self, name: str = "late", *, mode: str = LATE, **parameters: str) -> None:
        await self.api.create(CLASSES, storage_class(name, NAME, mode, **parameters))

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

    async def claim(self, class_name: str = "late", *, gib: int = 1) -> str:
        """One for which this node is selected."""
        self._claims += 1
        body = claim(f"data-{self._claims}", class_name, size=f"{gib}Gi", annotations={names.SELECTED_NODE: NODE})
        await self.api.create(CLAIMS, body, namespace=NAMESPACE)
        return f"data-{self._claims}"

    async def volumes(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.api.list_page(VOLUMES)).items]

    def gauges(self) -> list[float]:
        """What is to be published, what is, and what is there too much."""
        figures = dict(line.split() for line in self.metrics.render()[0].decode().splitlines() if line.startswith("csistoragecapacities_"))
        return [float(figures[f"csistoragecapacities_{name}"]) for name in ("desired_goal", "desired_current", "obsolete")]

    def asked_since(self, at: float) -> list[str]:
        """The classes, by their parameter, whose capacity was asked for."""
        return sorted(query.parameters.get(POOL_PARAMETER, "") for when, query in self.driver.asked if when >= at)


def play(told: AsyncTest, *args: str, **options: Any) -> None:
    async def main() -> None:
        await told(Bench(*args, **options))

    run_virtual(main(), limit=50_000.0)


def story(*args: str, **options: Any) -> Callable[[AsyncTest], Callable[[], None]]:
    """A test on such a bench, in virtual time."""
    return lambda told: staged(lambda each: play(each, *args, **options), told)


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


@story()
async def test_C2_C20_C27_one_class_is_one_object_with_our_labels_and_the_segment(bench: Bench) -> None:
    bench.driver.answer = lambda _: CapacityAnswer(GIB)
    await bench.class_(pool="main", **{"csi.storage.k8s.io/fstype": "xfs"})
    async with bench.running(settle=0.05):
        assert bench.gauges() == [1, 0, 0]
        await asyncio.sleep(5.0)
        item = await bench.only()
        assert item["metadata"]["name"].startswith("csisc-") and item["metadata"]["generateName"] == "csisc-"
        assert item["metadata"]["labels"] == LABELS
        assert item["nodeTopology"] == {"matchLabels": {KEY: NODE}}
        assert (item["storageClassName"], item["capacity"]) == ("late", "1Gi") and "maximumVolumeSize" not in item
        assert bench.gauges() == [1, 1, 0]
    (_, query), *_ = bench.driver.asked
    assert (dict(query.parameters), query.segment and query.segment.labels()) == ({"pool": "main"}, {KEY: NODE})
    selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
    assert bench.kube.queries == {(verb, NAMESPACE, selector) for verb in ("list", "watch")}


@story()
async def test_C4_a_class_that_is_made_anew_with_another_mode_changes_sides(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        for mode, expected in ((IMMEDIATE, []), (LATE, ["late"])):
            await bench.api.delete(CLASSES, "late")
            await bench.class_(mode=mode)
            await asyncio.sleep(15.0)
            assert sorted(await bench.published()) == expected


@story(pools={"fast": 2 * GIB, "slow": 7 * GIB})
async def test_C9_what_the_parameters_ask_for_is_published_and_old_figures_are_replaced(bench: Bench) -> None:
    await bench.class_("gold", pool="fast")
    await bench.class_("tin", pool="slow")
    old = await bench.object("gold", capacity="1Ti", maximum="1Ti")
    async with bench.running():
        assert await bench.published() == {"gold": 2 * GIB, "tin": 7 * GIB}
        assert old["metadata"]["uid"] in {item["metadata"]["uid"] for item in await bench.objects()}


def test_capacity_is_that_of_the_node_also_where_volumes_do_not_follow_topology() -> None:
    """Without a place it would be that of all nodes."""

    async def told(bench: Bench) -> None:
        bench.driver.lacks = frozenset() if len(bench.args) > 1 else frozenset({TOPOLOGY})
        await bench.class_()
        await bench.object(topology={})
        async with bench.running(settle=20.0):
            assert (await bench.only())["nodeTopology"] == {"matchLabels": {KEY: NODE}}
            await bench.claim()
            await asyncio.sleep(5.0)
            (volume,) = (await bench.api.list_page(VOLUMES)).items
            assert "nodeAffinity" not in volume["spec"]

    play(told)
    play(told, "--feature-gates=Topology=false")


@story()
async def test_the_capacity_of_a_driver_without_topology_is_that_of_all_nodes(bench: Bench) -> None:
    bench.driver = Driver(Spec(node_id=NODE, name=NAME, pools={"main": 10 * GIB}, knows_topology=False), bench.clock)
    await bench.class_()
    async with bench.running():
        assert (await bench.only()).get("nodeTopology") in ({}, {"matchLabels": {}}, None)
        assert await bench.published() == {"late": 10 * GIB}


# --- what others do to it ---------------------------------------------------------------------------------------------


def test_C11_an_object_that_lost_our_labels_is_left_alone_and_a_new_one_made() -> None:
    for labels in ({}, {**LABELS, names.CAPACITY_MANAGER_LABEL: "somebody"}):

        async def told(bench: Bench, labels: dict[str, str] = labels) -> None:
            await bench.class_()
            async with bench.running():
                old = await bench.only()
                stripped = {**old, "metadata": {**old["metadata"], "labels": labels}, "capacity": "1Mi"}
                left = await bench.api.replace(CAPACITIES, stripped, name=old["metadata"]["name"], namespace=NAMESPACE)
                await asyncio.sleep(5 * POLL)
                found = {item["metadata"]["name"]: item for item in await bench.objects()}
                assert found.pop(left["metadata"]["name"])["metadata"] == left["metadata"]
                (new,) = found.values()
                assert (new["metadata"]["labels"], new["capacity"]) == (LABELS, "10Gi")

        play(told)


@story()
async def test_C12_an_object_that_somebody_made_again_with_a_wrong_figure_is_corrected(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        name = (await bench.only())["metadata"]["name"]
        await bench.api.delete(CAPACITIES, name, namespace=NAMESPACE)
        again = await bench.object(generateName="", name=name, capacity="3")
        await asyncio.sleep(5.0)
        item = await bench.only()
        assert (item["metadata"]["uid"], item["capacity"]) == (again["metadata"]["uid"], "10Gi")


# --- when it is looked at ---------------------------------------------------------------------------------------------


@story()
async def test_C13_what_changes_behind_our_back_is_published_at_the_next_poll(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        bench.driver.answer = lambda _: CapacityAnswer(3 * GIB)
        await asyncio.sleep(POLL - 6.0)
        assert await bench.published() == {"late": 10 * GIB}
        await asyncio.sleep(7.0)
        assert await bench.published() == {"late": 3 * GIB}


@story()
async def test_C15_a_volume_not_proven_to_be_here_is_neither_deleted_nor_a_reason_to_look(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        at = bench.clock()
        for nodes in (
            None,
            affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}),
            affinity({"matchExpressions": [{"key": KEY, "operator": "NotIn", "values": [NODE]}]}),
            affinity(here((KEY, "bar"))),
        ):
            name = await released(bench, nodes)
            await asyncio.sleep(POLL / 8)
            assert name in await bench.volumes()
        assert (bench.driver.done.count("delete"), bench.asked_since(at)) == (0, [])


@story(segment={KEY: NODE, ZONE: "east"})
async def test_C25_a_volume_s_affinity_counts_in_whatever_order_its_keys_are(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        assert (await bench.only())["nodeTopology"] == {"matchLabels": bench.segment}
        for keys in ((KEY, ZONE), (ZONE, KEY)):
            at = bench.clock()
            name = await released(bench, affinity(here(*((key, bench.segment[key]) for key in keys))))
            await asyncio.sleep(POLL / 4)
            assert name not in await bench.volumes()
            assert len(bench.asked_since(at)) == 1


@story(pools={"main": 10 * GIB, "spare": 5 * GIB})
async def test_C17_a_deletion_has_all_classes_looked_at_and_one_that_is_not_ours_none(bench: Bench) -> None:
    await bench.class_(pool="main")
    await bench.class_("other", pool="spare")
    async with bench.running():
        at = bench.clock()
        await released(bench, affinity(here((KEY, NODE))), driver="other.example.com")
        await released(bench, affinity(here((KEY, "bar"))))
        await asyncio.sleep(5.0)
        assert bench.asked_since(at) == []
        await released(bench, affinity(here((KEY, NODE))))
        await asyncio.sleep(5.0)
        assert bench.asked_since(at) == ["main", "spare"]


@story("--worker-threads=20", pools={"main": 2000 * GIB})
async def test_C24_many_creations_at_once_write_each_object_once_a_second_at_most(bench: Bench) -> None:
    bench.driver.takes["create"] = 0.8
    for name in ("late", "late-too"):
        await bench.class_(name, pool="main")
    async with bench.running():
        for number in range(100):
            await bench.claim(("late", "late-too")[number % 2])
        while bench.driver.done.count("create") < 100:
            await asyncio.sleep(0.5)
        await asyncio.sleep(5.0)
        assert await bench.published() == {"late": 1900 * GIB, "late-too": 1900 * GIB}
        for name in ("late", "late-too"):
            times = [at for of, at in bench.kube.writes if of == name]
            assert all(other - one >= 0.999 for one, other in pairwise(times))


@story()
async def test_C26_with_another_segment_after_a_restart_the_old_object_goes_and_a_new_one_comes(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        old = await bench.only()
    bench.segment = {KEY: NODE, ZONE: "west"}
    bench.driver = Driver(Spec(node_id=NODE, name=NAME, pools={"main": 10 * GIB}, topology=bench.segment), bench.clock)
    async with bench.running(settle=20.0):
        new = await bench.only()
        assert new["nodeTopology"] == {"matchLabels": bench.segment}
        assert new["metadata"]["uid"] != old["metadata"]["uid"]


# --- what is promised -------------------------------------------------------------------------------------------------


def test_what_a_claim_of_this_node_will_take_is_not_offered_while_it_is_created() -> None:
    for flags, meanwhile in (((), 6), (("--capacity-reserve-pending=false",), 10)):

        async def told(bench: Bench, meanwhile: int = meanwhile) -> None:
            await bench.class_()
            bench.driver.takes["create"] = 8.0
            async with bench.running():
                name = await bench.claim(gib=4)
                await asyncio.sleep(3.0)
                item = await bench.only()
                assert (item["capacity"], item["maximumVolumeSize"]) == (f"{meanwhile}Gi", f"{meanwhile}Gi")
                await asyncio.sleep(10.0)
                assert await bench.published() == {"late": 6 * GIB}
                await bench.api.delete(CLAIMS, name, namespace=NAMESPACE)
                await asyncio.sleep(5.0)
                assert (await bench.volumes(), await bench.published()) == ([], {"late": 10 * GIB}), "C17: a deletion gives it back"

        play(told, *flags)
