"""What is known of the other contenders, and what is done where nothing is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from sidecar.kube.api import CSI_NODES, Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from sidecar.ownership.controller import Contenders
from sidecar.ownership.shards import heard_shards
from tests.harness import samples
from tests.harness.doors import tools
from tests.harness.virtual import virtual

Json = dict[str, Any]


def csi_node(name: str, *drivers: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"drivers": [{"name": driver, "nodeID": name} for driver in drivers]}}


def capacity(node: str, free: str, class_name: str = "fake-class") -> Json:
    labels = {"csi.storage.k8s.io/drivername": samples.DRIVER, "csi.storage.k8s.io/managed-by": f"external-provisioner-{node}"}
    return {"metadata": {"name": f"csisc-{node}", "labels": labels}, "storageClassName": class_name, "capacity": free}


@dataclass
class Lists:
    """An API server that only lists, in pages of two."""

    nodes: list[Json] = field(default_factory=list)
    capacities: list[Json] = field(default_factory=list)
    failures: dict[str, ApiError] = field(default_factory=dict)
    asked: list[tuple[float, str, str, str]] = field(default_factory=list)

    async def list_page(
        self, resource: Resource, *, label_selector: str = "", continue_token: str = "", resource_version: str = "", **_: object
    ) -> Page:
        self.asked.append((asyncio.get_running_loop().time(), resource.plural, continue_token, resource_version))
        if resource.plural in self.failures:
            raise self.failures[resource.plural]
        items = self.nodes if resource == CSI_NODES else self.capacities
        first = int(continue_token or 0)
        rest = str(first + 2) if len(items) > first + 2 else ""
        return Page(items[first : first + 2], "7", rest)

    def times(self) -> list[float]:
        return [at for at, plural, token, _ in self.asked if plural == "csinodes" and not token]


def lists(count: int) -> Lists:
    return Lists(
        [csi_node(f"n{number}", samples.DRIVER) for number in range(count)] + [csi_node("other", "another-driver"), csi_node("bare")]
    )


@asynccontextmanager
async def at_work(kube: Lists, *, rng: float = 0.5, namespace: str = "ns", **options: Any) -> AsyncIterator[Contenders]:
    room = Contenders(
        tools(kube, clock=asyncio.get_running_loop().time, rng=lambda: rng),
        driver=samples.DRIVER,
        namespace=namespace,
        classes=lambda: {"fake-class": samples.class_(), "twin": samples.class_(), "other": samples.class_(parameters={"a": "b"})},
        **options,
    )
    running = asyncio.create_task(room.run())
    try:
        yield room
    finally:
        running.cancel()


def free(room: Contenders, class_name: str = "fake-class") -> dict[str, int | None]:
    """What is known of each contender."""
    roster = room.roster(class_name)
    return {item.node: item.free for item in roster.contenders} if roster is not None else {}


def pauses(kube: Lists) -> list[int]:
    return [round(after - before) for before, after in pairwise(kube.times())]


@virtual
async def test_the_nodes_whose_driver_is_ours_from_the_servers_cache_page_by_page() -> None:
    kube = lists(5)
    async with at_work(kube) as room:
        await asyncio.sleep(1.0)
        assert room.roster("fake-class") is None, "nobody is known before the first list"
        await asyncio.sleep(9.0)
        assert sorted(free(room)) == ["n0", "n1", "n2", "n3", "n4"]
    asked = [(token, version) for _, plural, token, version in kube.asked if plural == "csinodes"]
    assert asked == [("", "0"), ("2", ""), ("4", ""), ("6", "")]


@virtual
async def test_where_nodes_share_claims_out_those_contend_who_hear_of_the_claim() -> None:
    uid, told = "00000000-0000-4000-8000-0000000000a7", list[int]()
    for by_shards, contend in ((True, 2), (False, 9)):
        told.clear()
        shares = {"by_shards": lambda by_shards=by_shards: by_shards, "listeners": 2}
        async with at_work(lists(9), on_nodes=lambda: told.append(len(room.nodes)), **shares) as room:
            await asyncio.sleep(2000.0)
            roster, whole = room.roster("fake-class", uid), room.roster("fake-class")
            assert roster is not None and whole is not None
            assert (len(roster), roster.cluster, len(whole)) == (contend, 9, 9)
            hear = {node for node in room.nodes if "open.a7" in heard_shards(node, room.nodes, listeners=2)}
            assert hear == set(roster.order("x", 1)[:2]) or not by_shards
            assert told == [9], "it is told of changes alone"


@virtual
async def test_free_space_is_what_the_others_publish_for_the_class_or_for_one_with_its_parameters() -> None:
    kube = lists(3)
    kube.capacities = [capacity("n0", "1Gi"), capacity("n1", "4Gi"), capacity("gone", "9Gi")]
    async with at_work(kube) as room:
        await asyncio.sleep(10.0)
        assert free(room) == free(room, "twin") == {"n0": 2**30, "n1": 2**32, "n2": None}
        assert set(free(room, "other").values()) == {None}


@virtual
async def test_a_list_in_ten_minutes_is_enough_and_that_somebody_is_known_is_told_once() -> None:
    kube, told = lists(3), list[float]()
    async with at_work(kube, on_known=lambda: told.append(asyncio.get_running_loop().time())):
        await asyncio.sleep(3600.0)
    assert 5 <= len(kube.times()) <= 7
    assert told == kube.times()[:1]


def test_without_the_right_to_list_it_says_so_once_and_nobody_is_known(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        kube = lists(3)
        kube.failures["csinodes"] = Forbidden("csinodes is forbidden", status=403)
        async with at_work(kube) as room:
            await asyncio.sleep(3600.0)
            assert room.roster("fake-class") is None

    story()
    assert [item.message for item in caplog.records].count("The contenders cannot be listed") == 1


@virtual
async def test_without_the_right_to_list_capacities_all_have_equal_shares_and_an_outage_keeps_what_is_known() -> None:
    kube = lists(3)
    kube.failures["csistoragecapacities"] = Forbidden("forbidden", status=403)
    async with at_work(kube) as room:
        await asyncio.sleep(100.0)
        assert free(room) == {"n0": None, "n1": None, "n2": None}
        kube.failures["csinodes"] = Unavailable("away")
        await asyncio.sleep(2000.0)
        assert len(free(room)) == 3


@virtual
async def test_what_a_busy_server_refuses_is_listed_again_soon_and_less_soon_while_it_fails() -> None:
    for kind in ("csinodes", "csistoragecapacities"):
        kube = lists(3)
        kube.capacities = [capacity("n0", "1Gi")]
        kube.failures[kind] = TooManyRequests("busy", retry_after=1.0)
        async with at_work(kube, rng=0.0) as room:
            await asyncio.sleep(3600.0)
            assert pauses(kube)[:4] == [2, 4, 8, 16] and pauses(kube)[-1] == 600
            kube.failures.clear()
            await asyncio.sleep(601.0)
            assert free(room) == {"n0": 2**30, "n1": None, "n2": None}
            kube.failures["csistoragecapacities"] = Unavailable("away")
            await asyncio.sleep(599.0)
            assert free(room) == {"n0": 2**30, "n1": None, "n2": None}, "it is what it was"


@virtual
async def test_a_list_without_our_driver_is_no_order_at_all() -> None:
    async with at_work(Lists([csi_node("n0", "another-driver")])) as room:
        await asyncio.sleep(10.0)
        assert room.roster("fake-class") is None
