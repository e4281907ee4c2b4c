"""What somebody, or something gone bad, could make of fail-over."""

import asyncio
from typing import Any

import pytest

from sidecar.failover.brakes import Record
from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, LEASES, MERGE_PATCH, NODES, PODS, VOLUMES
from sidecar.kube.errors import Forbidden, Unavailable
from sidecar.model import names
from tests.failover.stage import DRIVER, TAINT, Stage
from tests.failover.test_story import own, play


def test_a_volume_that_is_proven_later_waits_for_no_node_that_was_found_empty() -> None:
    async def plot(stage: Stage) -> None:
        await stage.volume("spare")
        await stage.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=0)
        await stage.status("a", ready="Unknown")
        stage.lose("no-volume")
        await asyncio.sleep(1000)
        await stage.pod("db-1", "data")
        stage.lose("data")
        await asyncio.sleep(20)
        assert not await stage.there("db-1") and not await stage.is_attached("data")

    play(plot)


def test_a_pod_that_has_ended_keeps_no_attachment() -> None:
    async def plot(stage: Stage) -> None:
        await stage.pod("backup", "data")
        ended = {"status": {"phase": "Succeeded"}}
        await stage.you.patch(PODS, "backup", ended, content_type=MERGE_PATCH, namespace="default", subresource="status")
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(60)
        assert not await stage.there("db-0") and await stage.there("backup")
        assert not await stage.is_attached("data")

    play(plot)


def test_a_lease_that_is_not_there_is_no_silent_kubelet() -> None:
    async def plot(stage: Stage) -> None:
        await stage.pod("db-1", "data", **{names.FAILOVER: "ForceOnExclusion"})  # type: ignore[arg-type]
        await stage.you.delete(LEASES, "a", namespace="kube-node-lease")
        stage.lose("data")
        await asyncio.sleep(60)
        assert await stage.there("db-1") and not any("delete pods" in call for call in stage.writes())

    play(plot)


@pytest.mark.parametrize(("space", "is_replaced"), [("default", False), ("kube-system", True)])
def test_a_tenants_pod_gives_no_node_the_name_of_a_satellite(space: str, is_replaced: bool) -> None:
    async def plot(stage: Stage) -> None:
        meta = {"name": "satellite", "labels": {"app.kubernetes.io/component": "linstor-satellite"}}
        spec = {"nodeName": "a", "containers": [{"name": "main", "image": "none"}]}
        await stage.you.create(PODS, {"metadata": meta, "spec": spec}, namespace=space)
        stage.lose("data", victim="satellite")
        await asyncio.sleep(20)
        pod = await stage.there("db-0")
        assert pod is not None and ("deletionTimestamp" in pod["metadata"]) is is_replaced
        assert bool(stage.writes()) is is_replaced

    play(plot)


def test_what_stands_in_the_way_on_a_node_that_the_storage_calls_otherwise_is_counted() -> None:
    async def plot(stage: Stage) -> None:
        meta = {"name": "satellite", "labels": {"app.kubernetes.io/component": "linstor-satellite"}}
        spec = {"nodeName": "a", "containers": [{"name": "main", "image": "none"}]}
        await stage.you.create(PODS, {"metadata": meta, "spec": spec}, namespace="kube-system")
        await stage.change("a", {"unschedulable": True})
        stage.lose("data", victim="satellite")
        await asyncio.sleep(21)
        blocked = next(family for family in stage.sidecar.numbers.collect() if family.name.endswith("failover_blocked"))
        assert [sample.labels["guard"] for sample in blocked.samples if sample.value] == ["others who act"]

    play(plot)


def test_a_pod_that_changes_all_the_time_is_told_of_once_and_fills_no_memory() -> None:
    async def plot(stage: Stage) -> None:
        stage.healthy("data", victim="b", primary=True, open=True, failing_io=True)
        await stage.change("a", {"taints": [{"key": TAINT, "value": "io-error", "effect": "NoSchedule"}]})
        for number in range(60):
            note = {"metadata": {"labels": {"beat": str(number)}}}
            await stage.you.patch(PODS, "db-0", note, content_type=MERGE_PATCH, namespace="default")
            await asyncio.sleep(5)
        assert stage.told.reasons() == [names.FAILOVER_BLOCKED]
        assert len(stage.sidecar._told) == 1

    own(plot, acts=False)


def test_one_good_reading_after_an_outage_of_the_api_server_takes_no_taint_off() -> None:
    async def plot(stage: Stage) -> None:
        await stage.end()
        await stage.change("a", {"taints": [{"key": TAINT, "value": "io-error", "effect": "NoSchedule"}]})
        await asyncio.sleep(1)
        stage.healthy("data", victim="b", primary=True, open=True, has_quorum=False)
        again = Stage(me="a", after=stage)
        again.refuse = lambda call: Unavailable("away")
        again.node = stage.node
        again.start()
        await asyncio.sleep(30)
        again.refuse = lambda call: None
        stage.healthy("data", victim="b", primary=True, open=True)
        seen_at = stage.clock()
        while TAINT in await stage.taints():
            await asyncio.sleep(0.1)
        await again.end()
        assert stage.clock() - seen_at >= 5.0

    own(plot)


@pytest.mark.parametrize("heals", [True, False])
def test_f46_a_deletion_that_is_held_back_until_the_evidence_is_old_is_not_sent(heals: bool) -> None:
    async def plot(stage: Stage) -> None:
        send, held = stage.api.delete, list[str]()

        async def hold_back(resource: Any, name: str, **how: Any) -> None:
            if not held:
                held.append(name)
                await asyncio.sleep(20)
                if heals:
                    stage.healthy("data")
            await send(resource, name, **how)

        stage.api.delete = hold_back  # type: ignore[method-assign]
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(29)
        assert held == ["db-0"] and bool(await stage.there("db-0")) is heals
        assert sum(call.startswith("delete pods") for call in stage.writes()) == (0 if heals else 1)

    play(plot)


@pytest.mark.parametrize("word", ["Ignore", "ForceOnExclusion"])
def test_f18_frozen_io_of_a_claim_that_is_to_be_left_alone_is_not_failed(word: str) -> None:
    async def plot(stage: Stage) -> None:
        note = {"metadata": {"annotations": {names.FAILOVER: word}}}
        await stage.you.patch(CLAIMS, "data", note, content_type=MERGE_PATCH, namespace="default")
        await stage.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=1)
        stage.healthy("data", victim="b", primary=True, open=True, has_quorum=False, suspended=frozenset({"quorum"}))
        await asyncio.sleep(60)
        assert bool(stage.door.released) is (word != "Ignore")

    own(plot)


def test_f46_no_taint_is_set_once_the_evidence_has_changed_while_the_node_was_read_for_it() -> None:
    async def plot(stage: Stage) -> None:
        await stage.status("a", ready="Unknown")

        def heal(call: Any) -> None:
            if (call.verb, call.resource) == ("get", NODES) and (stage.calls[-1].verb, stage.calls[-1].resource) == ("update", LEASES):
                stage.healthy("data")

        stage.refuse = heal
        stage.lose("data")
        await asyncio.sleep(30)
        assert await stage.taints() == {} and names.STORAGE_LOST_HERE not in stage.told.reasons()

    play(plot)


def test_f42_who_has_lost_the_lease_meanwhile_acts_on_no_record_that_lacks_what_others_have_done() -> None:
    async def plot(stage: Stage) -> None:
        replace, victims = stage.api.replace, dict[str, float]()

        async def meanwhile(resource: Any, body: Any, **how: Any) -> Any:
            if not victims and (body["metadata"].get("annotations") or {}).get(names.FAILOVER_RECORD):
                victims.update(dict.fromkeys("xyz", 1_767_225_600.0 + stage.clock()))  # another one has held it, acted, and left it
                note = {"annotations": {names.FAILOVER_RECORD: Record(victims).as_text()}}
                patch = {"metadata": note, "spec": {"holderIdentity": ""}}
                await stage.you.patch(LEASES, how["name"], patch, content_type=MERGE_PATCH, namespace="kube-system")
            return await replace(resource, body, **how)

        stage.api.replace = meanwhile  # type: ignore[method-assign]
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(60)
        assert victims and stage.writes() == []
        await asyncio.sleep(600)
        assert not await stage.there("db-0")

    play(plot)


@pytest.mark.parametrize("where", ["claim", "class"])
@pytest.mark.parametrize("stand", [play, own])
@pytest.mark.parametrize("word", ["Ignore", "ForceOnExclusion"])
def test_f18_what_is_said_of_another_drivers_claim_counts_too(where: str, stand: Any, word: str) -> None:
    async def plot(stage: Stage) -> None:
        said = {"annotations": {names.FAILOVER: word}}
        await stage.you.create(CLASSES, {"metadata": {"name": "shared"} | (said if where == "class" else {}), "provisioner": "other"})
        size, spec = {"storage": "1Gi"}, dict[str, Any](accessModes=["ReadOnlyMany"], storageClassName="shared")
        claim = {
            "metadata": {"name": "logs"} | (said if where == "claim" else {}),
            "spec": spec | {"volumeName": "pv-logs", "resources": {"requests": size}},
        }
        uid = (await stage.you.create(CLAIMS, claim, namespace="default"))["metadata"]["uid"]
        spec |= {
            "capacity": size,
            "csi": {"driver": "other", "volumeHandle": "logs"},
            "claimRef": {"namespace": "default", "name": "logs", "uid": uid},
        }
        await stage.you.create(VOLUMES, {"metadata": {"name": "pv-logs"}, "spec": spec})
        await stage.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=0)
        mount = {"name": "logs", "persistentVolumeClaim": {"claimName": "logs", "readOnly": True}}
        await stage.pod("db-1", "data", volumes=[mount])
        if stand is own:
            stage.healthy("data", victim="b", primary=True, open=True, failing_io=True)
        else:
            await stage.status("a", ready="Unknown")
            stage.lose("data")
        await asyncio.sleep(60)
        pod = await stage.there("db-1")
        assert (pod is not None and "deletionTimestamp" not in pod["metadata"]) is (word == "Ignore")

    stand(plot)


def test_a_policy_that_refuses_the_taint_keeps_the_pods_here_and_that_is_told_once() -> None:
    async def plot(stage: Stage) -> None:
        stage.refuse = lambda call: Forbidden("no taint", status=403) if call.verb == "patch" and call.resource == NODES else None
        stage.healthy("data", victim="b", primary=True, open=True, failing_io=True)
        await asyncio.sleep(120)
        pod = await stage.there("db-0")
        assert pod is not None and "deletionTimestamp" not in pod["metadata"]
        assert [(name, reason) for name, _, reason, _ in stage.told.events] == [("a", names.FAILOVER_BLOCKED)]
        stage.refuse = lambda call: None
        await asyncio.sleep(10)
        pod = await stage.there("db-0")
        assert pod is not None and "deletionTimestamp" in pod["metadata"] and TAINT in await stage.taints()

    own(plot)


def test_what_is_gone_is_not_counted_as_blocked_any_more() -> None:
    async def plot(stage: Stage) -> None:
        await stage.change("a", {"unschedulable": True})
        stage.lose("data")
        await asyncio.sleep(21)
        assert [guard for one in stage.sidecar._suspects.values() for guard in one.guards.values()] == ["others who act"]
        await stage.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=0)
        await stage.you.delete(ATTACHMENTS, attachment_name("data", DRIVER, "a"))
        await asyncio.sleep(20)
        assert not any(one.guards for one in stage.sidecar._suspects.values())

    play(plot)


def test_f35_an_announcement_that_was_left_on_all_other_nodes_keeps_no_pod_where_it_is() -> None:
    """The scheduler does not see it, and people take it off, or forget to."""

    async def plot(stage: Stage) -> None:
        for node in ("b", "c"):
            await stage.change(node, annotations={names.DRAIN_INTENT: "reboot"})
        await stage.status("a", ready="Unknown")
        stage.lose("data")
        await asyncio.sleep(30)
        assert not await stage.there("db-0") and not await stage.is_attached("data")

    play(plot)


def test_f46_no_pod_is_evicted_once_the_storage_has_healed_while_another_one_was() -> None:
    async def plot(stage: Stage) -> None:
        await stage.volume("more")
        await stage.pod("db-1", "more")
        evict, evicted = stage.api.create_subresource, list[str]()

        async def slow(resource: Any, name: str, *how: Any, **more: Any) -> Any:
            evicted.append(name)
            await asyncio.sleep(3)
            stage.healthy("data", "more", victim="b", primary=True, open=True)
            return await evict(resource, name, *how, **more)

        stage.api.create_subresource = slow  # type: ignore[method-assign]
        stage.healthy("data", "more", victim="b", primary=True, open=True, failing_io=True)
        await asyncio.sleep(60)
        assert evicted == ["db-0"]

    own(plot)


def test_f46_the_own_node_is_not_closed_once_the_storage_has_healed_while_it_was_read_for_that() -> None:
    async def plot(stage: Stage) -> None:
        healed = list[float]()

        def heal(call: Any) -> None:
            if (call.verb, call.resource) == ("get", NODES) and stage.calls[-1].resource == PODS:
                stage.healthy("data", victim="b", primary=True, open=True)
                healed.append(stage.clock())

        stage.refuse = heal
        stage.healthy("data", victim="b", primary=True, open=True, failing_io=True)
        await asyncio.sleep(60)
        assert healed and stage.writes() == []

    own(plot)
