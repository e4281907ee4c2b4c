"""The simulated API server in virtual time: the same dice give the same world, hooks, watches that are cut, garbage.

What servers answer is held against a real one in tests/contract, and not repeated here.
"""

import asyncio
from contextlib import aclosing

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.cluster.deletion import Options
from hack.sim.cluster.reading import Query
from sidecar.kube.api import CAPACITIES, CLAIMS, CONFIG_MAPS, MERGE_PATCH, NODES, PODS, VOLUMES, Resource
from sidecar.kube.errors import Gone, Unavailable
from sidecar.model.objects import Json
from tests.contract.objects import capacity, claim, config_map, pod, volume
from tests.harness.clock import Clock
from tests.harness.cluster_tools import T0, new_cluster, owned, refusal


def make(cluster: ApiServer, resource: Resource, body: Json, namespace: str = "default") -> Json:
    return cluster.create(resource, body, namespace=namespace).obj


def is_there(cluster: ApiServer, resource: Resource, name: str) -> bool:
    return cluster.store.find(resource, name, "default") is not None


# --- objects ----------------------------------------------------------------------------------------------------------


def test_the_same_dice_give_the_same_world() -> None:
    def everything() -> list[Json]:
        cluster = new_cluster()
        make(cluster, CLAIMS, claim("a"))
        make(cluster, CAPACITIES, capacity())
        cluster.patch(CLAIMS, "a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE_PATCH, namespace="default")
        return [stored.obj for resource in (CLAIMS, CAPACITIES) for stored in cluster.list(resource, Query()).items]

    assert everything() == everything()
    assert everything()[0]["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z", "and time is the clock's"


def test_bodies_are_not_shared_with_those_who_hand_them_in() -> None:
    cluster, body = new_cluster(), config_map("a", x="1")
    make(cluster, CONFIG_MAPS, body)
    body["data"]["x"] = "2"
    assert cluster.get(CONFIG_MAPS, "a", namespace="default").obj["data"] == {"x": "1"}
    assert "uid" not in body["metadata"]


def test_a_claim_s_spec_stays_but_for_its_size_once_it_is_bound() -> None:
    cluster = new_cluster()
    made = make(cluster, CLAIMS, claim("a", storage="1024Mi"))
    assert made["spec"]["resources"]["requests"]["storage"] == "1Gi"

    def put(body: Json, subresource: str = "", **spec: object) -> Json:
        body = body | {"spec": body["spec"] | spec}
        return cluster.replace(CLAIMS, body, name="a", namespace="default", subresource=subresource).obj

    named, larger = put(made, volumeName="pv"), {"requests": {"storage": "2Gi"}}
    assert "spec is immutable" in refusal(lambda: put(named, volumeName="other"))[2]
    assert "spec is immutable" in refusal(lambda: put(named, resources=larger))[2], "it is not bound"
    bound = put(named | {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}, "status")
    assert put(bound, resources=larger)["spec"]["resources"] == larger


def test_a_pod_on_a_node_gets_its_time_and_a_second_deletion_can_only_shorten_it() -> None:
    clock = Clock(T0)
    cluster = new_cluster(clock=clock)
    make(cluster, PODS, pod("p") | {"spec": pod("p")["spec"] | {"nodeName": "n"}})

    def delete(grace: int | None = None) -> tuple[Json, bool]:
        stored, gone = cluster.delete(PODS, "p", namespace="default", options=Options(grace_period_seconds=grace))
        return stored.obj["metadata"], gone

    meta, gone = delete()
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"], gone) == ("2026-01-01T00:00:30Z", 30, False)
    assert delete(60)[0] == meta
    clock.now = T0 + 1
    assert delete(5)[0]["deletionTimestamp"] == "2026-01-01T00:00:06Z"
    assert delete(0)[1]


def test_a_new_node_is_tainted_until_somebody_says_it_is_ready() -> None:
    made = new_cluster().create(NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4000m"}}}).obj
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert made["status"]["capacity"] == {"cpu": "4"}, "a kubelet brings its status along"


# --- garbage ----------------------------------------------------------------------------------------------------------


def test_dependents_go_when_the_last_owner_has_gone() -> None:
    cluster = new_cluster()
    owners = [make(cluster, CONFIG_MAPS, config_map(name)) for name in "ab"]
    make(cluster, CONFIG_MAPS, owned(config_map("grandchild"), make(cluster, CAPACITIES, owned(capacity(name="c"), *owners))))
    cluster.delete(CONFIG_MAPS, "a", namespace="default")
    assert cluster.collect_garbage() == 0
    left = cluster.get(CAPACITIES, "c", namespace="default").obj["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in left] == ["b"]
    cluster.delete(CONFIG_MAPS, "b", namespace="default")
    make(cluster, CONFIG_MAPS, config_map("b"))  # made anew it is another
    assert cluster.collect_garbage() == 2
    assert not is_there(cluster, CAPACITIES, "c") and not is_there(cluster, CONFIG_MAPS, "grandchild")


def test_dependents_stay_whose_owner_is_of_a_kind_nobody_serves() -> None:
    cluster = new_cluster()
    stranger = {"apiVersion": "nobody.example/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "u"}}
    make(cluster, CAPACITIES, owned(capacity(name="d"), stranger))
    assert cluster.collect_garbage() == 0
    assert is_there(cluster, CAPACITIES, "d")


def test_a_dependent_with_finalizers_waits_for_them() -> None:
    cluster = new_cluster()
    child = owned(config_map("c"), cluster.create(VOLUMES, volume("owner")).obj)
    child["metadata"]["finalizers"] = ["example.io/a"]
    make(cluster, CONFIG_MAPS, child)
    cluster.patch(VOLUMES, "owner", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    cluster.delete(VOLUMES, "owner")
    assert cluster.collect_garbage() == 0
    assert cluster.get(CONFIG_MAPS, "c", namespace="default").obj["metadata"]["deletionTimestamp"]


# --- as a client sees it, in virtual time -------------------------------------------------------------------------------


def api_of(**how: object) -> InProcessApi:
    return InProcessApi(new_cluster(), **how)  # type: ignore[arg-type]


def test_what_it_gives_away_is_nobody_else_s() -> None:
    async def main() -> None:
        api = api_of()
        made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace="default")
        made["data"]["x"] = "2"
        assert (await api.get(CONFIG_MAPS, "a", namespace="default"))["data"] == {"x": "1"}

    run_virtual(main())


def test_hooks_delay_requests_and_lose_answers() -> None:
    calls: list[str] = []

    async def slow(call: Call) -> None:
        calls.append(str(call))
        await asyncio.sleep(3.0)

    async def lose(call: Call) -> None:
        if call.verb == "create":
            raise Unavailable("the answer was lost")

    async def main() -> None:
        api = api_of(before=slow, after=lose)
        with pytest.raises(Unavailable):
            await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
        assert await api.get(CONFIG_MAPS, "a", namespace="default"), "it was done nevertheless"
        assert asyncio.get_running_loop().time() == 6.0

    run_virtual(main())
    assert calls == ["create configmaps default/a", "get configmaps default/a"]


def test_bookmarks_come_by_the_clock_and_once_before_the_end() -> None:
    async def main() -> None:
        api, now = api_of(watch_for=lambda: 150.0), asyncio.get_running_loop().time
        heard = [(event.type, now()) async for event in api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision))]
        assert heard == [("BOOKMARK", 60.0), ("BOOKMARK", 120.0), ("BOOKMARK", 148.0)]
        assert now() == 150.0

    run_virtual(main())


def test_a_watch_hears_at_once_and_can_be_cut() -> None:
    async def main() -> None:
        api = api_of(watch_for=lambda: 1000.0)
        stream = api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision))
        async with aclosing(stream):
            hearing = asyncio.create_task(anext(stream))
            await asyncio.sleep(1.0)
            await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
            assert (await hearing).object["metadata"]["name"] == "a"
            assert asyncio.get_running_loop().time() == 1.0
            api.cut_watches(Unavailable("cut"))
            with pytest.raises(Unavailable):
                await anext(stream)
        api.cluster.compact()
        with pytest.raises(Gone):
            await anext(api.watch(CONFIG_MAPS, resource_version="1"))

    run_virtual(main())
