"""What is known of the other contenders, and what is done where nothing is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import CSI_NODES, Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from sidecar.ownership.controller import Contenders
from sidecar.ownership.shards import heard_shards
from tests.harness import samples
from tests.harness.doors import tools

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


def contenders(kube: Lists, *, namespace: str = "", rng: float = 0.5, on_known: Callable[[], None] = lambda: None) -> Contenders:
    """To be made inside the loop, whose clock it goes by."""
    return Contenders(
        tools(kube, clock=asyncio.get_running_loop().time, rng=lambda: rng),
        driver=samples.DRIVER,
        namespace=namespace,
        classes=lambda: {"fake-class": samples.class_(), "twin": samples.class_(), "other": samples.class_(parameters={"a": "b"})},
        on_known=on_known,
    )


def watched(kube: Lists, then: Callable[[Contenders], None], *, seconds: float, namespace: str = "ns") -> None:
    """Lets it run so long, then looks."""

    async def main() -> None:
        room = contenders(kube, namespace=namespace)
        running = asyncio.create_task(room.run())
        await asyncio.sleep(seconds)
        then(room)
        running.cancel()

    run_virtual(main())


def test_the_nodes_whose_driver_is_ours_from_the_servers_cache_page_by_page() -> None:
    kube = lists(5)

    def then(room: Contenders) -> None:
        roster = room.roster("fake-class")
        assert roster is not None and sorted(roster.order("uid", 1)) == ["n0", "n1", "n2", "n3", "n4"]

    watched(kube, then, seconds=10.0)
    assert [(token, version) for _, plural, token, version in kube.asked if plural == "csinodes"] == [
        ("", "0"),
        ("2", ""),
        ("4", ""),
        ("6", ""),
    ]


@pytest.mark.parametrize(("by_shards", "contend"), [(True, 2), (False, 9)])
def test_where_nodes_share_claims_out_those_contend_who_hear_of_the_claim(by_shards: bool, contend: int) -> None:
    uid = "00000000-0000-4000-8000-0000000000a7"

    async def main() -> None:
        told: list[int] = []
        room = Contenders(
            tools(lists(9), clock=asyncio.get_running_loop().time, rng=lambda: 0.5),
            driver=samples.DRIVER,
            namespace="ns",
            classes=lambda: {"fake-class": samples.class_()},
            on_nodes=lambda: told.append(len(room.nodes)),
            by_shards=lambda: by_shards,
            listeners=2,
        )
        running = asyncio.create_task(room.run())
        await asyncio.sleep(2000.0)
        roster, whole = room.roster("fake-class", uid), room.roster("fake-class")
        assert roster is not None and whole is not None
        assert (len(roster), roster.cluster, len(whole)) == (contend, 9, 9)
        assert {node for node in room.nodes if "open.a7" in heard_shards(node, room.nodes, listeners=2)} == set(
            roster.order("x", 1)[:2]
        ) or not by_shards
        assert told == [9], "it is told of changes alone"
        running.cancel()

    run_virtual(main())


def test_those_contend_who_hear_of_the_label_that_a_claim_has_although_its_uid_says_another() -> None:
    """A claim that is made open, as by a restore, has no uid while it is labelled."""
    uid, other = "00000000-0000-4000-8000-0000000000a7", "00000000-0000-4000-8000-000000000000"

    async def main() -> None:
        its = tools(lists(30), clock=asyncio.get_running_loop().time, rng=lambda: 0.5)
        classes = {"fake-class": samples.class_()}
        room = Contenders(its, driver=samples.DRIVER, namespace="", classes=lambda: classes, by_shards=lambda: True, listeners=2)
        running = asyncio.create_task(room.run())
        await asyncio.sleep(10.0)
        who = [roster.contenders for label in ("open.00", "", "waiting") if (roster := room.roster("fake-class", uid, label))]
        by_uid = [roster.contenders for each in (uid, other) if (roster := room.roster("fake-class", each))]
        assert who == [by_uid[1], by_uid[0], by_uid[0]] and by_uid[0] != by_uid[1]
        running.cancel()

    run_virtual(main())


def test_before_the_first_list_nobody_is_known() -> None:
    def then(room: Contenders) -> None:
        assert room.roster("fake-class") is None

    watched(lists(3), then, seconds=1.0)


def test_free_space_is_what_the_others_publish_for_the_class_or_for_one_with_its_parameters() -> None:
    kube = lists(3)
    kube.capacities = [capacity("n0", "1Gi"), capacity("n1", "4Gi"), capacity("gone", "9Gi")]

    def then(room: Contenders) -> None:
        for name in ("fake-class", "twin"):
            roster = room.roster(name)
            assert roster is not None and {item.node: item.free for item in roster.contenders} == {"n0": 2**30, "n1": 2**32, "n2": None}
        other = room.roster("other")
        assert other is not None and {item.free for item in other.contenders} == {None}

    watched(kube, then, seconds=10.0)


def test_a_list_in_ten_minutes_is_enough() -> None:
    kube = lists(3)
    watched(kube, lambda room: None, seconds=3600.0)
    assert 5 <= len(kube.times()) <= 7


def test_a_doubted_order_is_listed_anew_soon_and_less_soon_when_nothing_comes_of_it() -> None:
    kube = lists(3)

    async def main() -> None:
        room = contenders(kube, rng=0.0)
        running = asyncio.create_task(room.run())
        for _ in range(3600):
            await asyncio.sleep(1.0)
            room.doubt()
        running.cancel()

    run_virtual(main())
    pauses = [round(after - before) for before, after in zip(kube.times(), kube.times()[1:], strict=False)]
    assert pauses[:4] == [60, 120, 240, 480]
    assert all(pause >= 480 for pause in pauses[4:])


def test_without_the_right_to_list_it_says_so_once_and_nobody_is_known(caplog: pytest.LogCaptureFixture) -> None:
    kube = lists(3)
    kube.failures["csinodes"] = Forbidden("csinodes is forbidden", status=403)

    def then(room: Contenders) -> None:
        assert room.roster("fake-class") is None

    watched(kube, then, seconds=3600.0)
    assert [item.message for item in caplog.records].count("The contenders cannot be listed") == 1


def test_without_the_right_to_list_capacities_all_have_equal_shares() -> None:
    kube = lists(3)
    kube.failures["csistoragecapacities"] = Forbidden("forbidden", status=403)

    def then(room: Contenders) -> None:
        roster = room.roster("fake-class")
        assert roster is not None and {item.free for item in roster.contenders} == {None}

    watched(kube, then, seconds=10.0)


def test_an_outage_keeps_what_is_known() -> None:
    kube = lists(3)

    def then(room: Contenders) -> None:
        roster = room.roster("fake-class")
        assert roster is not None and len(roster) == 3

    async def later() -> None:
        await asyncio.sleep(100.0)
        kube.failures["csinodes"] = Unavailable("away")

    async def main() -> None:
        room = contenders(kube)
        running, failing = asyncio.create_task(room.run()), asyncio.create_task(later())
        await asyncio.sleep(2000.0)
        then(room)
        running.cancel()
        failing.cancel()

    run_virtual(main())


@pytest.mark.parametrize("kind", ["csinodes", "csistoragecapacities"])
def test_what_a_busy_server_refuses_is_listed_again_soon_and_less_soon_while_it_fails(kind: str) -> None:
    kube = lists(3)
    kube.capacities = [capacity("n0", "1Gi")]
    kube.failures[kind] = TooManyRequests("busy", retry_after=1.0)

    async def main() -> None:
        room = contenders(kube, namespace="ns", rng=0.0)
        running = asyncio.create_task(room.run())
        await asyncio.sleep(3600.0)
        pauses = [round(after - before) for before, after in zip(kube.times(), kube.times()[1:], strict=False)]
        assert pauses[:4] == [2, 4, 8, 16] and pauses[-1] == 600
        del kube.failures[kind]
        await asyncio.sleep(601.0)
        roster = room.roster("fake-class")
        assert roster is not None and {item.node: item.free for item in roster.contenders} == {"n0": 2**30, "n1": None, "n2": None}
        count = len(kube.times())
        await asyncio.sleep(599.0)
        assert len(kube.times()) <= count + 1
        running.cancel()

    run_virtual(main())


def test_free_space_that_cannot_be_listed_for_a_while_is_what_it_was() -> None:
    kube = lists(3)
    kube.capacities = [capacity("n0", "1Gi")]

    async def main() -> None:
        room = contenders(kube, namespace="ns")
        running = asyncio.create_task(room.run())
        await asyncio.sleep(100.0)
        kube.failures["csistoragecapacities"] = Unavailable("away")
        await asyncio.sleep(2000.0)
        roster = room.roster("fake-class")
        assert roster is not None and {item.node: item.free for item in roster.contenders} == {"n0": 2**30, "n1": None, "n2": None}
        running.cancel()

    run_virtual(main())


def test_a_list_without_our_driver_is_no_order_at_all() -> None:
    def then(room: Contenders) -> None:
        assert room.roster("fake-class") is None

    watched(Lists([csi_node("n0", "another-driver")]), then, seconds=10.0)


def test_that_somebody_is_known_after_nobody_was_is_told_once() -> None:
    kube, told = lists(3), []

    async def main() -> None:
        room = contenders(kube, on_known=lambda: told.append(asyncio.get_running_loop().time()))
        running = asyncio.create_task(room.run())
        await asyncio.sleep(3600.0)
        running.cancel()

    run_virtual(main())
    assert len(kube.times()) > 1
    assert told == kube.times()[:1]
