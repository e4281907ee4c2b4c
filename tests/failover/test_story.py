"""Whole stories of fail-over: the sidecar of node `b` against a simulated API server, with storage that a test changes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CSI_NODES, LEASES, MERGE_PATCH, NODES, PODS
from sidecar.kube.errors import ApiError, Conflict, Forbidden, TooManyRequests, Unavailable
from sidecar.model import names
from tests.failover.stage import TAINT, Stage

Plot = Callable[[Stage], Awaitable[None]]


def play(plot: Plot, **how: Any) -> None:
    async def main() -> None:
        stage = Stage(**how)
        try:
            await stage.begin()
            await stage.volume("data")
            await stage.pod("db-0", "data")
            await asyncio.sleep(5)
            await plot(stage)
        finally:
            await stage.end()

    run_virtual(main(), limit=1e5)


def test_f01_a_dead_nodes_pod_is_replaced_after_five_seconds_of_proof_and_then_its_attachment() -> None:
    async def plot(stage: Stage) -> None:
        await stage.pod("other")
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(4.5)
        assert await stage.there("db-0")
        await asyncio.sleep(5)
        assert not await stage.there("db-0")
        await asyncio.sleep(5)
        assert not await stage.is_attached("data")
        assert await stage.taints() == {TAINT: "peers-took-over"}
        assert await stage.there("other")
        writes = [call for call in stage.writes() if "pods" in call or "attach" in call or "nodes" in call]
        assert [call.split()[0] for call in writes] == ["patch", "delete", "delete"], writes
        assert stage.told.reasons() == ["StorageLost", "PodFailedOver", "VolumeDetachedByFailover"]

    play(plot)


def test_f02_f03_a_ready_nodes_pod_is_evicted_with_its_grace_and_forced_once_the_node_is_not_ready() -> None:
    async def plot(stage: Stage) -> None:
        stage.lose("data")
        await asyncio.sleep(12)
        pod = await stage.there("db-0")
        assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 30
        assert await stage.is_attached("data") and await stage.taints() == {}
        await asyncio.sleep(33)
        assert await stage.there("db-0"), "its kubelet never answers"
        await stage.status("a", ready="Unknown")
        await asyncio.sleep(5)
        assert not await stage.there("db-0")
        await asyncio.sleep(5)
        assert not await stage.is_attached("data")
        assert sum("delete pods" in call for call in stage.writes()) == 1

    play(plot)


@pytest.mark.parametrize("word", ["", "ForceOnExclusion"])
def test_f04_with_force_on_exclusion_a_silent_kubelet_is_enough_before_the_node_is_not_ready(word: str) -> None:
    async def plot(stage: Stage) -> None:
        if word:
            patch = {"metadata": {"annotations": {names.FAILOVER: word}}}
            await stage.you.patch(CLAIMS, "data", patch, content_type=MERGE_PATCH, namespace="default")
        stage.lose("data")
        await asyncio.sleep(25)
        assert bool(await stage.there("db-0")) is not bool(word)

    play(plot)


@pytest.mark.parametrize("ready", ["True", "Unknown"])
@pytest.mark.parametrize("seen", [False, True])
def test_a_pod_that_is_bound_to_the_dead_node_again_is_replaced_at_once_only_if_it_never_ran_and_until_the_node_is_not_ready(
    seen: bool, ready: str
) -> None:
    async def plot(stage: Stage) -> None:
        patch = {"metadata": {"annotations": {names.FAILOVER: "ForceOnExclusion"}}}
        await stage.you.patch(CLAIMS, "data", patch, content_type=MERGE_PATCH, namespace="default")
        stage.lose("data")
        await asyncio.sleep(17)
        assert not await stage.there("db-0")
        await stage.status("a", ready=ready)
        for _ in range(3):
            await stage.pod("db-0", "data")
            status = {"phase": "Pending"} | ({"startTime": "2026-01-01T00:00:00Z"} if seen else {})
            await stage.you.patch(PODS, "db-0", {"status": status}, content_type=MERGE_PATCH, namespace="default", subresource="status")
            await asyncio.sleep(5)
            assert bool(await stage.there("db-0")) is (seen or ready != "True")
            if await stage.there("db-0"):
                break

    play(plot)


def test_f48_of_another_boot_nothing_is_proven_yet() -> None:
    took: dict[str, float] = {}

    def until_it_acts(boot: str) -> Plot:
        async def plot(stage: Stage) -> None:
            await stage.change("a", {"unschedulable": True})  # nothing is done meanwhile
            await stage.status("a", ready="Unknown")
            stage.lose("data")
            await asyncio.sleep(30)
            began = stage.clock()
            await stage.status("a", ready="Unknown", boot=boot)
            await stage.change("a", {"unschedulable": False})
            while not stage.writes():
                await asyncio.sleep(0.1)
            took[boot] = stage.clock() - began

        return plot

    for boot in ("boot-1", "boot-2"):
        play(until_it_acts(boot))
    assert took["boot-2"] >= took["boot-1"] + 5.0


def test_f46_nothing_is_written_once_the_evidence_has_changed_between_decision_and_write() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")

        def heal(call: Any) -> None:
            if call.verb == "update" and call.resource == LEASES:
                stage.healthy("data")

        stage.refuse = heal
        stage.lose("data")
        await asyncio.sleep(30)
        assert stage.writes() == [] and await stage.there("db-0")

    play(plot)


@pytest.mark.parametrize("where", ["pod", "claim", "class", "namespace"])
def test_f18_ignore_anywhere_keeps_the_whole_unit(where: str) -> None:
    async def plot(stage: Stage) -> None:
        from sidecar.kube.api import CLASSES, NAMESPACES

        resource, name, space = {
            "pod": (PODS, "db-0", "default"),
            "claim": (CLAIMS, "data", "default"),
            "class": (CLASSES, "replicated", ""),
            "namespace": (NAMESPACES, "default", ""),
        }[where]
        patch = {"metadata": {"annotations": {names.FAILOVER: "Ignore"}}}
        await stage.you.patch(resource, name, patch, content_type=MERGE_PATCH, namespace=space)
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(60)
        assert stage.writes() == [] and await stage.is_attached("data")
        assert stage.told.reasons() == ["FailoverBlocked"]

    play(plot)


def test_observed_only_it_is_told_and_nothing_is_written() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(60)
        assert [call for call in map(str, stage.calls) if call.split()[0] in ("create", "update", "patch", "delete")] == []
        assert stage.told.reasons() == ["FailoverBlocked"]
        assert "Taint would be next" in stage.told.events[0][3]

    play(plot, acts=False)


def test_f50_a_cordoned_node_whose_power_somebody_has_cut_is_left_alone_for_ten_minutes_and_no_longer() -> None:
    async def plot(stage: Stage) -> None:
        stage.door.resources.clear()
        await stage.change("a", {"unschedulable": True}, labels={names.POWERED_OFF: "boot-1"})
        await stage.status("a", ready="Unknown")
        await asyncio.sleep(590)
        assert await stage.there("db-0")
        await asyncio.sleep(60)
        assert not await stage.there("db-0") and not await stage.is_attached("data")

    play(plot)


@pytest.mark.parametrize("after", ["patch nodes", "delete pods", "delete volumeattachments"])
def test_f43_after_a_kill_behind_any_write_the_next_process_begins_its_debounce_anew_and_does_nothing_twice(after: str) -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        while not any(call.startswith(after) for call in stage.writes()):
            await asyncio.sleep(0.01)
        await stage.end()
        left, first = stage.writes(), Stage(after=stage)
        first.start()
        await asyncio.sleep(4.5)
        assert first.writes() == []
        await asyncio.sleep(30)
        assert not await stage.there("db-0") and not await stage.is_attached("data")
        assert await stage.taints() == {TAINT: "peers-took-over"}
        assert not {call for call in left if call.startswith("delete")} & set(first.writes())
        await first.end()

    play(plot)


def test_f37_an_outage_of_the_api_server_and_most_nodes_not_ready_freeze_all() -> None:
    async def plot(stage: Stage) -> None:
        for name in ("d", "e"):
            await stage.add_node(name)
        for name in ("a", "d", "e"):
            await stage.status(name, ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(120)
        assert stage.writes() == []
        for name in ("d", "e"):
            await stage.status(name, ready="True")
        await asyncio.sleep(50)
        assert stage.writes() == []
        await asyncio.sleep(75)
        assert not await stage.there("db-0")

    play(plot)


def test_after_an_outage_of_the_api_server_nothing_is_done_for_a_hundred_seconds() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        stage.refuse = lambda call: Unavailable("away")
        stage.lose("data")
        await asyncio.sleep(30)
        stage.refuse = lambda call: None
        for ready in ("Unknown", "True"):  # a shorter freeze does not end this one
            for name in ("b", "c"):
                await stage.status(name, ready=ready)
            await asyncio.sleep(15 if ready == "Unknown" else 80)
        assert stage.writes() == []
        await asyncio.sleep(15)
        assert not await stage.there("db-0")

    play(plot)


def test_another_sidecar_that_has_the_lease_is_waited_for() -> None:
    async def plot(stage: Stage) -> None:
        spec = {"holderIdentity": "another/drbd.example", "leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00.000000Z"}
        await stage.you.create(LEASES, {"metadata": {"name": "failover.drbd.example"}, "spec": spec}, namespace="kube-system")
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(25)
        assert stage.writes() == []
        await asyncio.sleep(25)
        assert not await stage.there("db-0"), "it has not renewed it for its term"

    play(plot)


def test_out_of_service_is_left_to_kubernetes_and_a_maintained_node_for_ten_minutes() -> None:
    async def plot(stage: Stage) -> None:
        await stage.change("a", {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]})
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(60)
        assert stage.writes() == []
        await stage.change("a", {"taints": [], "unschedulable": True})
        await asyncio.sleep(500)
        assert stage.writes() == []
        await asyncio.sleep(120)
        assert not await stage.there("db-0")

    play(plot)


# --- this node's own storage ---------------------------------------------------------------------------------------------


def own(plot: Plot, **how: Any) -> None:
    """The sidecar is that of node `a`, and the storage is what `a` sees."""

    async def main() -> None:
        stage = Stage(me="a", **how)
        try:
            await stage.begin()
            await stage.volume("data")
            stage.healthy("data", victim="b", primary=True, open=True)
            await stage.pod("db-0", "data")
            await asyncio.sleep(5)

            async def follow() -> None:
                from sidecar.model.nodes import Node

                while True:
                    stage.node = Node.of(await stage.you.get(NODES, "a"))
                    await asyncio.sleep(0.5)

            task = asyncio.create_task(follow())
            await plot(stage)
            task.cancel()
        finally:
            await stage.end()

    run_virtual(main(), limit=1e5)


def test_f18_failing_io_taints_the_node_and_evicts_and_two_good_readings_take_the_taint_off() -> None:
    async def plot(stage: Stage) -> None:
        stage.healthy("data", victim="b", primary=True, open=True, failing_io=True)
        await asyncio.sleep(25)
        assert stage.writes() == []
        await asyncio.sleep(12)
        assert await stage.taints() == {TAINT: "io-error"}
        pod = await stage.there("db-0")
        assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 30
        stage.healthy("data", victim="b", primary=True, open=True)
        await asyncio.sleep(3)
        assert await stage.taints() == {TAINT: "io-error"}
        await asyncio.sleep(12)
        assert await stage.taints() == {}
        assert stage.told.reasons()[-1] == "StorageRegained"

    own(plot)


def test_f15_frozen_io_is_failed_for_a_pod_past_its_grace_and_not_before() -> None:
    async def plot(stage: Stage) -> None:
        await stage.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=30)
        frozen = {"primary": True, "open": True, "has_quorum": False, "suspended": frozenset({"quorum"})}
        stage.healthy("data", victim="b", **frozen)
        await asyncio.sleep(25)
        assert stage.door.released == []
        await asyncio.sleep(20)
        assert set(stage.door.released) == {"data"}
        count = len(stage.door.released)
        stage.healthy("data", victim="b", **(frozen | {"failing_io": True, "suspended": frozenset()}))
        await asyncio.sleep(30)
        assert len(stage.door.released) == count

    own(plot)


def test_f54_what_one_write_is_refused_is_told_once_and_holds_nothing_else_up() -> None:
    async def plot(stage: Stage) -> None:
        await stage.volume("more")
        await stage.pod("db-1", "more")
        await stage.status("a", ready="Unknown")

        def refuse(call: Any) -> ApiError | None:
            is_refused = call.verb == "delete" and (call.name == "db-0" or call.resource == ATTACHMENTS)
            return Forbidden("a policy says no", status=403) if is_refused else None

        stage.refuse = refuse
        stage.lose("data", "more")
        await asyncio.sleep(30)
        assert await stage.there("db-0") and not await stage.there("db-1")
        await asyncio.sleep(300)
        told = [(name, message) for name, _, reason, message in stage.told.events if reason == names.FAILOVER_BLOCKED]
        assert told == [(name, "it is not failed over: a policy says no") for name in ("db-0", "pv-more")], told
        assert names.VOLUME_DETACHED not in stage.told.reasons()
        stage.refuse = lambda call: None
        await asyncio.sleep(90)
        assert not await stage.there("db-0") and not await stage.is_attached("more")

    play(plot)


@pytest.mark.parametrize("error", [Forbidden("a policy says no", status=403), Conflict("it has changed", status=409)])
def test_f45_a_taint_that_cannot_be_set_holds_up_no_pod_and_a_refused_one_is_not_asked_for_again_and_again(error: ApiError) -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        tried = list[str]()

        def refuse(call: Any) -> Exception | None:
            if call.verb != "patch" or call.resource != NODES:
                return None
            tried.append(call.name)
            return error

        stage.refuse = refuse
        stage.lose("data")
        await asyncio.sleep(15)
        assert not await stage.there("db-0") and not await stage.is_attached("data")
        assert await stage.taints() == {} and names.STORAGE_LOST_HERE not in stage.told.reasons()
        if isinstance(error, Forbidden):
            assert tried == ["a"] and any("a policy says no" in event[3] for event in stage.told.events)

    play(plot)


def test_f54_a_read_that_is_refused_is_no_outage() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        stage.refuse = lambda call: Forbidden("no", status=403) if call.resource == CSI_NODES else None
        stage.lose("data")
        await asyncio.sleep(30)
        assert await stage.there("db-0")
        stage.refuse = lambda call: None
        await asyncio.sleep(70)
        assert not await stage.there("db-0")

    play(plot)


def test_f19_f02_a_budget_that_refuses_is_told_once_it_lasts() -> None:
    async def plot(stage: Stage) -> None:
        refusal = TooManyRequests("Cannot evict pod", retry_after=0.0)
        refusal.causes = {"DisruptionBudget": "the budget allows none"}
        stage.refuse = lambda call: refusal if call.subresource == "eviction" else None
        stage.lose("data")
        await asyncio.sleep(40)
        assert stage.told.reasons() == []
        await asyncio.sleep(300)
        assert stage.told.reasons() == [names.FAILOVER_BLOCKED] and "the budget allows none" in stage.told.events[0][3]
        assert await stage.there("db-0")

    play(plot)


def test_each_stage_is_timed() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(15)
        await stage.pod("db-0", "data", node="b")
        await asyncio.sleep(10)
        timed = {labels[0]: timings for labels, timings in stage.sidecar.numbers.seconds.by.items()}
        assert set(timed) == {"detect", "decide", "delete", "detach", "running"}
        assert all(timing.buckets()[-1][1] == 1 for timing in timed.values()), timed

    play(plot)
