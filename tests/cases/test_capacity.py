"""Section 8 of the provisioning cases: one whole program on the simulated API server and driver, in virtual time."""

from itertools import pairwise

import pytest

from hack.sim.driver.local_driver import Spec
from sidecar.csi.api import TOPOLOGY, CapacityAnswer
from sidecar.csi.outcome import Code, DriverError
from sidecar.errors import Fatal
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from tests.harness.capacity_bench import GIB, KEY, LABELS, NAME, NAMESPACE, NODE, POLL, ZONE, Bench, Driver, play, story


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
        await bench.pause(5.0)
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
            await bench.pause(15.0)
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
            await bench.pause(5.0)
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


@story("--capacity-ownerref-level=0")
async def test_C23_an_owner_that_cannot_be_found_ends_the_program_with_the_reason(bench: Bench) -> None:
    await bench.class_()
    with pytest.raises(BaseExceptionGroup) as ended:
        async with bench.running():
            pass
    assert ended.group_contains(Fatal, match="--capacity-ownerref-level=0")
    assert await bench.objects() == []


# --- what others do to it ---------------------------------------------------------------------------------------------


def test_C11_an_object_that_lost_our_labels_is_left_alone_and_a_new_one_made() -> None:
    for labels in ({}, {**LABELS, names.CAPACITY_MANAGER_LABEL: "somebody"}):

        async def told(bench: Bench, labels: dict[str, str] = labels) -> None:
            await bench.class_()
            async with bench.running():
                old = await bench.only()
                left = await bench.alter({**old, "metadata": {**old["metadata"], "labels": labels}}, capacity="1Mi")
                await bench.pause(5 * POLL)
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
        await bench.pause(5.0)
        item = await bench.only()
        assert (item["metadata"]["uid"], item["capacity"]) == (again["metadata"]["uid"], "10Gi")


# --- when it is looked at ---------------------------------------------------------------------------------------------


@story()
async def test_C13_what_changes_behind_our_back_is_published_at_the_next_poll(bench: Bench) -> None:
    await bench.class_()
    async with bench.running():
        bench.driver.answer = lambda _: CapacityAnswer(3 * GIB)
        await bench.pause(POLL - 6.0)
        assert await bench.published() == {"late": 10 * GIB}
        await bench.pause(7.0)
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
            await bench.pause(POLL / 8)
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
            await bench.pause(POLL / 4)
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
        await bench.pause(5.0)
        assert bench.asked_since(at) == []
        await released(bench, affinity(here((KEY, NODE))))
        await bench.pause(5.0)
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
            await bench.pause(0.5)
        await bench.pause(5.0)
        assert await bench.published() == {"late": 1900 * GIB, "late-too": 1900 * GIB}
        for name in ("late", "late-too"):
            times = [write.at for write in bench.kube.writes if write.class_name == name]
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
                await bench.pause(3.0)
                item = await bench.only()
                assert (item["capacity"], item["maximumVolumeSize"]) == (f"{meanwhile}Gi", f"{meanwhile}Gi")
                await bench.pause(10.0)
                assert await bench.published() == {"late": 6 * GIB}
                await bench.api.delete(CLAIMS, name, namespace=NAMESPACE)
                await bench.pause(5.0)
                assert (await bench.volumes(), await bench.published()) == ([], {"late": 10 * GIB}), "C17: a deletion gives it back"

        play(told, *flags)


# --- a driver that does not answer ------------------------------------------------------------------------------------


@story("--capacity-stale-after=5m")
async def test_a_figure_is_withdrawn_when_it_is_too_old_also_after_a_restart(bench: Bench) -> None:
    """Five minutes since the first failure, which the process before has written down, and not since the restart."""
    await bench.class_()
    async with bench.running():
        bench.driver.failing["capacity"] = DriverError(Code.INTERNAL, "the volume group is busy")
        await bench.pause(4 * POLL)
        assert names.STALE_SINCE in (await bench.only())["metadata"]["annotations"]
    async with bench.running(settle=0.5 * POLL):
        assert names.STALE_SINCE in (await bench.only())["metadata"]["annotations"]
        await bench.pause(2.5 * POLL)
        assert await bench.objects() == []
        bench.driver.failing.clear()
        await bench.pause(1.1 * POLL)
        assert await bench.published() == {"late": 10 * GIB}
