"""Section 8 of the provisioning cases: one whole program on the simulated API server and driver, in virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hack.lib.programs import claim, storage_class
from hack.sim.cluster import Call
from hack.sim.driver.calls import Fault
from hack.sim.driver.local_driver import LocalDriver, Spec
from hack.sim.world.node import DRIVER, NAMESPACE, TOPOLOGY_KEY
from hack.sim.world.story import Story
from sidecar.csi.api import TOPOLOGY, DriverInfo
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.model.quantity import parse_bytes
from tests.harness.drain import simulated
from tests.harness.drain.simulated import all_of, wait
from tests.harness.virtual import AsyncTest, staged

NODE, ZONE = "n0", f"topology.{DRIVER}/zone"
GIB = 2**30
LABELS = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(NODE)}
POLL = 60.0


def play(told: Callable[[Story], Awaitable[None]], *args: str, **options: Any) -> None:
    """On one node whose driver has 100 GiB, with a class `late`."""
    simulated.play(told, args=args, nodes=(NODE,), **options)


def story(told: AsyncTest) -> Callable[[], None]:
    return staged(play, told)


async def drives(bench: Story, kind: type[LocalDriver] = LocalDriver, **spec: Any) -> None:
    """Another driver, for which the program begins anew."""
    node = bench.nodes[NODE]
    node.lay_down()
    usual = {"node_id": NODE, "name": DRIVER, "pools": {"main": 100 * GIB}, "topology": {TOPOLOGY_KEY: NODE}}
    node.driver = kind(Spec(**{**usual, **spec}))
    node.get_up()
    await wait(bench, 30)


async def class_(bench: Story, name: str, mode: str = LATE, **parameters: str) -> None:
    await bench.you.create(CLASSES, storage_class(name, DRIVER, mode, **parameters))


async def claimed(bench: Story, name: str, class_name: str = "late", *, gib: int = 1) -> None:
    """For which this node is selected."""
    body = claim(name, class_name, size=f"{gib}Gi", annotations={names.SELECTED_NODE: NODE})
    await bench.you.create(CLAIMS, body, namespace=NAMESPACE)


async def made(bench: Story, class_name: str = "late", *, capacity: str = "1Ti", topology: Json | None = None, **meta: Any) -> Json:
    """An object as this program publishes it, by somebody else."""
    place = {TOPOLOGY_KEY: NODE} if topology is None else topology
    figures = {"storageClassName": class_name, "nodeTopology": {"matchLabels": place}, "capacity": capacity, "maximumVolumeSize": capacity}
    body = {"metadata": {"generateName": "csisc-", "labels": LABELS} | meta, **figures}
    return await bench.you.create(CAPACITIES, body, namespace=NAMESPACE)


async def published(bench: Story) -> dict[str, int]:
    """Free GiB by class; it is a failure to have two objects for one."""
    ours = [item for item in await all_of(bench, CAPACITIES) if item["metadata"].get("labels") == LABELS]
    assert len({item["storageClassName"] for item in ours}) == len(ours), ours
    return {item["storageClassName"]: parse_bytes(item["capacity"]) // GIB for item in ours}


async def only(bench: Story) -> Json:
    (item,) = await all_of(bench, CAPACITIES)
    return item


def calls(bench: Story, method: str, since: float = 0.0) -> int:
    return sum(call.method == method and call.at >= since for call in bench.nodes[NODE].reception.record.calls)


def gauges(bench: Story) -> list[float]:
    """What is to be published, what is, and what is there too much."""
    tools = bench.nodes[NODE].tools
    assert tools is not None
    figures = dict(line.split() for line in tools.metrics.render()[0].decode().splitlines() if line.startswith("csistoragecapacities_"))
    return [float(figures[f"csistoragecapacities_{name}"]) for name in ("desired_goal", "desired_current", "obsolete")]


def affinity(*pairs: tuple[str, str], **term: Any) -> Json:
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]
    return {"required": {"nodeSelectorTerms": [term or {"matchExpressions": expressions}]}}


HERE, ELSEWHERE = affinity((TOPOLOGY_KEY, NODE)), affinity((TOPOLOGY_KEY, "bar"))


async def released(bench: Story, nodes: Json | None, *, driver: str = DRIVER) -> str:
    """A volume that is to be deleted: its claim is gone."""
    name = f"old-{len(await all_of(bench, VOLUMES))}"
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": NAMESPACE, "name": "gone", "uid": "gone"},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "late",
        "csi": {"driver": driver, "volumeHandle": f"{name}-handle"},
    }
    spec |= {"nodeAffinity": nodes} if nodes is not None else {}
    await bench.you.create(VOLUMES, {"metadata": {"name": name, "annotations": {names.PROVISIONED_BY: DRIVER}}, "spec": spec})
    return name


async def volumes(bench: Story) -> set[str]:
    return {item["metadata"]["name"] for item in await all_of(bench, VOLUMES)}


# --- what is published ------------------------------------------------------------------------------------------------


@story
async def test_C2_one_class_is_one_object_with_our_labels_and_the_segment(bench: Story) -> None:
    item = await only(bench)
    assert item["metadata"]["name"].startswith("csisc-") and item["metadata"]["generateName"] == "csisc-"
    assert item["metadata"]["labels"] == LABELS
    assert item["nodeTopology"] == {"matchLabels": {TOPOLOGY_KEY: NODE}}
    assert (item["storageClassName"], item["capacity"]) == ("late", "100Gi")
    await class_(bench, "another")
    await wait(bench, 0.1)
    assert gauges(bench) == [2, 1, 0]
    await wait(bench, 5)
    assert gauges(bench) == [2, 2, 0]


@story
async def test_C4_a_class_that_is_made_anew_with_another_mode_changes_sides(bench: Story) -> None:
    for mode, expected in ((IMMEDIATE, []), (LATE, ["late"])):
        await bench.you.delete(CLASSES, "late")
        await class_(bench, "late", mode)
        await wait(bench, 15)
        assert sorted(await published(bench)) == expected


@story
async def test_C9_what_the_parameters_ask_for_is_published_and_old_figures_are_replaced(bench: Story) -> None:
    await bench.you.delete(CLASSES, "late")
    bench.nodes[NODE].lay_down()
    await class_(bench, "gold", pool="fast")
    await class_(bench, "tin", pool="slow")
    old = await made(bench, "gold")
    await drives(bench, pools={"fast": 2 * GIB, "slow": 7 * GIB})
    assert await published(bench) == {"gold": 2, "tin": 7}
    assert old["metadata"]["uid"] in {item["metadata"]["uid"] for item in await all_of(bench, CAPACITIES)}


class Unannounced(LocalDriver):
    """It says where it is, and not that its volumes follow topology."""

    @property
    def info(self) -> DriverInfo:
        told = super().info
        return replace(told, plugin=told.plugin - {TOPOLOGY})


def test_capacity_is_that_of_the_node_also_where_volumes_do_not_follow_topology() -> None:
    """Without a place it would be that of all nodes."""
    for kind, args in ((Unannounced, ()), (LocalDriver, ("--feature-gates=Topology=false",))):

        async def told(bench: Story, kind: type[LocalDriver] = kind) -> None:
            bench.nodes[NODE].lay_down()
            await made(bench, topology={})
            await drives(bench, kind)
            assert (await only(bench))["nodeTopology"] == {"matchLabels": {TOPOLOGY_KEY: NODE}}
            await claimed(bench, "data")
            await wait(bench, 5)
            (volume,) = await all_of(bench, VOLUMES)
            assert "nodeAffinity" not in volume["spec"]

        play(told, *args)


@story
async def test_the_capacity_of_a_driver_without_topology_is_that_of_all_nodes(bench: Story) -> None:
    await drives(bench, knows_topology=False, topology={})
    assert (await only(bench)).get("nodeTopology") in ({}, {"matchLabels": {}}, None)
    assert await published(bench) == {"late": 100}


# --- what others do to it ---------------------------------------------------------------------------------------------


def test_C11_an_object_that_lost_our_labels_is_left_alone_and_a_new_one_made() -> None:
    for labels in ({}, {**LABELS, names.CAPACITY_MANAGER_LABEL: "somebody"}):

        async def told(bench: Story, labels: dict[str, str] = labels) -> None:
            old = await only(bench)
            stripped = {**old, "metadata": {**old["metadata"], "labels": labels}, "capacity": "1Mi"}
            left = await bench.you.replace(CAPACITIES, stripped, name=old["metadata"]["name"], namespace=NAMESPACE)
            await wait(bench, 5 * POLL)
            found = {item["metadata"]["name"]: item for item in await all_of(bench, CAPACITIES)}
            assert found.pop(left["metadata"]["name"])["metadata"] == left["metadata"]
            (new,) = found.values()
            assert (new["metadata"]["labels"], new["capacity"]) == (LABELS, "100Gi")

        play(told)


@story
async def test_C12_an_object_that_somebody_made_again_with_a_wrong_figure_is_corrected(bench: Story) -> None:
    name = (await only(bench))["metadata"]["name"]
    await bench.you.delete(CAPACITIES, name, namespace=NAMESPACE)
    again = await made(bench, generateName="", name=name, capacity="3")
    await wait(bench, 5)
    item = await only(bench)
    assert (item["metadata"]["uid"], item["capacity"]) == (again["metadata"]["uid"], "100Gi")


# --- when it is looked at ---------------------------------------------------------------------------------------------


@story
async def test_C13_what_changes_behind_our_back_is_published_at_the_next_poll(bench: Story) -> None:
    driver = bench.nodes[NODE].driver
    driver.spec = replace(driver.spec, pools={"main": 3 * GIB})
    await wait(bench, POLL - 6)
    assert await published(bench) == {"late": 100}
    await wait(bench, 7)
    assert await published(bench) == {"late": 3}


@story
async def test_C15_a_volume_not_proven_to_be_here_is_neither_deleted_nor_a_reason_to_look(bench: Story) -> None:
    await wait(bench, 5)
    at = bench.clock()
    by_name = affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": [NODE]}])
    excluded = affinity(matchExpressions=[{"key": TOPOLOGY_KEY, "operator": "NotIn", "values": [NODE]}])
    for nodes in (None, by_name, excluded, ELSEWHERE):
        name = await released(bench, nodes)
        await wait(bench, POLL / 8)
        assert name in await volumes(bench)
    assert (calls(bench, "DeleteVolume"), calls(bench, "GetCapacity", at)) == (0, 0)


@story
async def test_C25_a_volume_s_affinity_counts_in_whatever_order_its_keys_are(bench: Story) -> None:
    place = {TOPOLOGY_KEY: NODE, ZONE: "east"}
    await drives(bench, topology=place)
    assert (await only(bench))["nodeTopology"] == {"matchLabels": place}
    for keys in ((TOPOLOGY_KEY, ZONE), (ZONE, TOPOLOGY_KEY)):
        name = await released(bench, affinity(*((key, place[key]) for key in keys)))
        await wait(bench, 5)
        assert name not in await volumes(bench)
    assert calls(bench, "DeleteVolume") == 2


@story
async def test_C17_a_deletion_has_all_classes_looked_at_and_one_that_is_not_ours_none(bench: Story) -> None:
    await class_(bench, "other")
    await wait(bench, 5)
    at = bench.clock()
    await released(bench, HERE, driver="other.example.com")
    await released(bench, ELSEWHERE)
    await wait(bench, 5)
    assert calls(bench, "GetCapacity", at) == 0
    await released(bench, HERE)
    await wait(bench, 5)
    assert calls(bench, "GetCapacity", at) == 2


def test_C24_many_creations_at_once_write_each_object_once_a_second_at_most() -> None:
    written: dict[str, list[float]] = defaultdict(list)

    async def noted(call: Call) -> None:
        if call.resource == CAPACITIES and call.verb == "update":
            written[call.name].append(asyncio.get_running_loop().time())

    async def told(bench: Story) -> None:
        bench.nodes[NODE].reception.faults.set([Fault(method="CreateVolume", delay=0.8)])
        await class_(bench, "late-too")
        for number in range(60):
            await claimed(bench, f"data-{number}", ("late", "late-too")[number % 2])
        await wait(bench, 60)
        assert await published(bench) == {"late": 40, "late-too": 40}

    play(told, "--worker-threads=20", delay=noted)
    assert len(written) == 2
    assert all(other - one >= 0.999 for times in written.values() for one, other in pairwise(times))


@story
async def test_C26_with_another_segment_after_a_restart_the_old_object_goes_and_a_new_one_comes(bench: Story) -> None:
    old = await only(bench)
    place = {TOPOLOGY_KEY: NODE, ZONE: "west"}
    await drives(bench, topology=place)
    new = await only(bench)
    assert new["nodeTopology"] == {"matchLabels": place}
    assert new["metadata"]["uid"] != old["metadata"]["uid"]


# --- what is promised -------------------------------------------------------------------------------------------------


def test_what_a_claim_of_this_node_will_take_is_not_offered_while_it_is_created() -> None:
    for args, meanwhile in (((), "96Gi"), (("--capacity-reserve-pending=false",), "100Gi")):

        async def told(bench: Story, meanwhile: str = meanwhile) -> None:
            bench.nodes[NODE].reception.faults.set([Fault(method="CreateVolume", delay=8)])
            await claimed(bench, "data", gib=4)
            await wait(bench, 3)
            item = await only(bench)
            assert (item["capacity"], item["maximumVolumeSize"]) == (meanwhile, meanwhile)
            await wait(bench, 10)
            assert await published(bench) == {"late": 96}
            await bench.you.delete(CLAIMS, "data", namespace=NAMESPACE)
            await wait(bench, 5)
            assert (await volumes(bench), await published(bench)) == (set(), {"late": 100}), "C17: a deletion gives it back"

        play(told, *args)
