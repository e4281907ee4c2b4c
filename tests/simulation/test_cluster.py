"""The simulated API server in virtual time: the same dice give the same world, nothing is shared, garbage.

What servers answer is held against a real one in tests/contract, and not repeated here.
"""

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.cluster.reading import Query
from sidecar.kube.api import CAPACITIES, CLAIMS, CONFIG_MAPS, MERGE_PATCH, Resource
from sidecar.model.objects import Json
from tests.contract.objects import capacity, claim, config_map
from tests.harness.cluster_tools import new_cluster


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


def owned(obj: Json, *owners: Json) -> Json:
    references = [
        {key: owner[key] for key in ("apiVersion", "kind")} | {key: owner["metadata"][key] for key in ("name", "uid")} for owner in owners
    ]
    return obj | {"metadata": obj["metadata"] | {"ownerReferences": references}}


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


def test_what_it_gives_away_is_nobody_else_s() -> None:
    async def main() -> None:
        api = InProcessApi(new_cluster())
        made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace="default")
        made["data"]["x"] = "2"
        assert (await api.get(CONFIG_MAPS, "a", namespace="default"))["data"] == {"x": "1"}

    run_virtual(main())
