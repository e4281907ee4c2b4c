"""What sidecars have put on nodes is taken away, and nothing else, when nobody is there to do it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.commands import uninstall
from sidecar.commands.uninstall import Step, _take, _uninstall, steps
from sidecar.config.parse import Parsed, parse
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    DEPLOYMENTS,
    DRAIN_REPORTS,
    LEASES,
    MAINTENANCES,
    MERGE_PATCH,
    NODES,
    PODS,
    STRATEGIC_MERGE_PATCH,
    VOLUMES,
    Resource,
)
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model import names
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.simulated import ARGS, EVACUATE, Json, all_of, change, node_of, play, wait, with_pod


def test_g7_nothing_of_ours_is_left_and_all_that_others_wrote_is() -> None:
    async def story(bench: Story) -> None:
        await change(bench, "n0", annotations={names.NODE_DRAIN_POLICY: "Evacuate", names.SCALE_DOWN_DISABLED: "true", "mine": "1"})
        before = await node_of(bench)
        await with_pod(bench, "a")
        await bench.until_phase(PODS, "a", "Running")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        assert all([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS, LEASES, DRAIN_REPORTS)])
        bench.nodes["n0"].stop()
        await wait(bench, 0.3)
        async for step in steps(bench.you, DRIVER):
            assert isinstance(step, Step) and await _take(bench.you, step)
        assert not any([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS, LEASES, DRAIN_REPORTS)])
        after = await node_of(bench)
        theirs = {key: value for key, value in before["metadata"]["annotations"].items() if DRIVER not in key}
        assert after["metadata"]["annotations"] == theirs
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert after["spec"]["taints"] == [EVACUATE]
        assert [condition["type"] for condition in after["status"]["conditions"]] == ["Ready"]
        assert [step async for step in steps(bench.you, DRIVER)] == []

    play(story, args=ARGS, nodes=("n0",))


@pytest.mark.parametrize("before", [False, True], ids=["open before", "cordoned before"])
def test_a_cordon_of_a_maintenance_is_ended_where_the_record_says_that_it_is_ours(before: bool) -> None:
    """Also the conditions go, and somebody else's of the same type stays."""

    async def story(bench: Story) -> None:
        await change(bench, "n0", {"unschedulable": before or None})
        theirs = {
            "type": names.MAINTENANCE_PLANNED,
            "status": "True",
            "reason": "Provider",
            "message": "",
            "lastTransitionTime": "2023-01-01T00:00:00Z",
        }
        body = {"status": {"conditions": [theirs]}}
        await bench.you.patch(NODES, "n0", body, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        spec = {"nodes": ["n0"], "stage": "Cordon", "intent": "reboot"}
        await bench.you.create(MAINTENANCES, {"metadata": {"name": "m1"}, "spec": spec})
        await wait(bench, 70)
        bench.nodes["n0"].stop()
        await wait(bench, 0.3)
        cordoned = await node_of(bench)
        assert (
            cordoned["spec"]["unschedulable"] and names.of_driver(DRIVER, names.MAINTENANCE_RECORD) in cordoned["metadata"]["annotations"]
        )
        assert names.MAINTENANCE_IN_PROGRESS in [condition["type"] for condition in cordoned["status"]["conditions"]]
        said = [step async for step in steps(bench.you, DRIVER)]
        for step in said:
            assert isinstance(step, Step) and await _take(bench.you, step)
        after = await node_of(bench)
        assert bool(after["spec"].get("unschedulable")) is before
        assert any("the cordon of its maintenance" in step.what for step in said) is not before
        assert {condition["type"] for condition in after["status"]["conditions"]} == {"Ready", names.MAINTENANCE_PLANNED}
        assert not [key for key in after["metadata"].get("annotations") or {} if DRIVER in key]

    play(story, args=(*ARGS, "--maintenance"), nodes=("n0",))


@dataclass
class Opened:
    """The doors that `uninstall` opens, as far as it uses them."""

    kube: Any

    def __post_init__(self) -> None:
        self.kube.reached = SimpleNamespace(server="http://simulated", context="here", in_pod=False)

    async def close(self) -> None:
        """There is nothing to close."""


async def uninstalled(bench: Story, patch: pytest.MonkeyPatch, refused: Resource, error: ApiError) -> int:
    """The exit code, where lists of one kind are answered with an error."""

    async def before(call: Call) -> None:
        if (call.verb, call.resource) == ("list", refused):
            raise error

    async def open_doors(*_: object, **__: object) -> Opened:
        return Opened(InProcessApi(bench.cluster, before=before))

    patch.setattr(uninstall, "open_doors", open_doors)
    parsed = parse(["--node-deployment"], {"NODE_NAME": "-"})
    assert isinstance(parsed, Parsed)
    return await _uninstall(parsed, DRIVER)


KINDS = (BUDGETS, DEPLOYMENTS, LEASES, NODES, DRAIN_REPORTS, VOLUMES)


@pytest.mark.parametrize("refused", KINDS, ids=str)
def test_what_may_not_be_listed_is_told_and_the_rest_is_taken_away(
    refused: Resource, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(bench: Story) -> None:
        await with_pod(bench, "a")
        await bench.until_phase(PODS, "a", "Running")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        bench.nodes["n0"].stop()
        await wait(bench, 0.3)
        capsys.readouterr()
        assert await uninstalled(bench, monkeypatch, refused, Forbidden(f"list {refused}: not yours", status=403)) == 1
        left = {step.resource async for step in steps(bench.you, DRIVER) if isinstance(step, Step)}
        assert left == {refused}
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == (4 if refused == LEASES else 1)  # slots, turns, signs of life, and that of fail-over
        for line in lines:
            assert f"list {refused}: not yours; run it again with more rights" in line

    play(story, args=ARGS, nodes=("n0",))


RECORD = names.of_driver(DRIVER, names.DRAIN_RECORD)


def unmarked(meanwhile: Callable[[int], Json | None]) -> tuple[bool, Json]:
    """Whether a node's marks were taken away, and its annotations then. `meanwhile` says what somebody changes ahead of each try."""
    cluster, tries = new_cluster(), list[int]()
    cluster.create(NODES, {"metadata": {"name": "n0", "annotations": {RECORD: "{}", "mine": "1"}}})
    you = InProcessApi(cluster)

    async def before(call: Call) -> None:
        if call.verb == "patch" and (changes := meanwhile(len(tries))) is not None:
            await you.patch(NODES, "n0", {"metadata": changes}, content_type=MERGE_PATCH)
        tries.extend([1] if call.verb == "patch" else [])

    async def main() -> tuple[bool, Json]:
        (step,) = [step async for step in steps(you, DRIVER)]
        assert isinstance(step, Step)
        taken = await _take(InProcessApi(cluster, before=before), step)
        return taken, (await you.get(NODES, "n0"))["metadata"]["annotations"]

    return run_virtual(main())


def test_a_node_that_changes_meanwhile_is_looked_at_again() -> None:
    assert unmarked(lambda tries: {"labels": {"beat": str(tries)}} if tries < 2 else None) == (True, {"mine": "1"})


@pytest.mark.parametrize("noted", [{}, {RECORD: "{}"}], ids=["nothing else", "a record too"])
def test_the_taint_of_fail_over_goes_and_others_stay(noted: dict[str, str]) -> None:
    cluster, theirs = new_cluster(), {"key": names.of_driver(f"x.{DRIVER}", names.STORAGE_LOST), "effect": "NoSchedule"}
    ours = {"key": names.of_driver(DRIVER, names.STORAGE_LOST), "value": "io-error", "effect": "NoSchedule"}
    cluster.create(NODES, {"metadata": {"name": "n0", "annotations": noted}, "spec": {"taints": [ours, theirs, EVACUATE]}})
    you = InProcessApi(cluster)

    async def main() -> Json:
        (step,) = [step async for step in steps(you, DRIVER)]
        assert isinstance(step, Step) and f"taint {ours['key']} of node n0" in step.what and await _take(you, step)
        assert [step async for step in steps(you, DRIVER)] == []
        return dict(await you.get(NODES, "n0"))

    node = run_virtual(main())
    assert [taint for taint in node["spec"]["taints"] if taint in (ours, theirs, EVACUATE)] == [theirs, EVACUATE]
    assert not node["metadata"].get("annotations")


def test_a_node_that_never_stands_still_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    taken, annotations = unmarked(lambda tries: {"labels": {"beat": str(tries)}} if tries < 9 else None)
    assert not taken and annotations == {RECORD: "{}", "mine": "1"}
    assert "run it again" in capsys.readouterr().err


def test_without_the_kind_of_reports_there_are_none_and_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(bench: Story) -> None:
        capsys.readouterr()
        assert await uninstalled(bench, monkeypatch, DRAIN_REPORTS, NotFound("no such kind", status=404)) == 0
        assert capsys.readouterr().err == ""
        assert await uninstalled(bench, monkeypatch, NODES, NotFound("no such kind", status=404)) == 1

    play(story, args=ARGS, nodes=("n0",))


def test_what_was_misspelt_does_not_look_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And what a sidecar that still runs will write again does not either."""

    async def ended(bench: Story, driver: str) -> str:
        monkeypatch.setattr(uninstall, "open_doors", lambda *_, **__: opened(bench))
        line = parse(["--node-deployment", "--dry-run"], {"NODE_NAME": "-"})
        assert isinstance(line, Parsed)
        capsys.readouterr()
        assert await _uninstall(line, driver) == 0
        return capsys.readouterr().out.splitlines()[-1]

    async def opened(bench: Story) -> Opened:
        return Opened(bench.you)

    async def story(bench: Story) -> None:
        await wait(bench, 10)
        assert "nothing of misspelt.example.com" in await ended(bench, "misspelt.example.com")
        assert f"A sidecar of {DRIVER} that still runs" in await ended(bench, DRIVER)

    play(story, args=ARGS, nodes=("n0",))


def stored(cluster: Any, resource: Resource, name: str, *, namespace: str = "", spec: Json | None = None, **notes: str) -> None:
    meta = {"name": name, "annotations": notes}
    cluster.create(resource, {"metadata": meta, "spec": spec or {}}, namespace=namespace)


_SIZE, _MODES = {"storage": "1Gi"}, ["ReadWriteOnce"]
CLAIMED = {"accessModes": _MODES, "resources": {"requests": _SIZE}}
LOCAL = {"accessModes": _MODES, "capacity": _SIZE, "local": {"path": "/x"}}


def of(driver: str) -> Json:
    return {"accessModes": _MODES, "capacity": _SIZE, "csi": {"driver": driver, "volumeHandle": "h"}}


MACHINE = "n0/uid-n0"


def test_notes_on_volumes_and_claims_are_taken_away_and_nothing_else_of_them() -> None:
    cluster = new_cluster()
    noted = {names.LIES_ON: MACHINE}
    said = {names.DRAIN_POLICY: "Ignore", names.ALLOW_CLAIM_DELETION: "true", names.REPROVISION_PEERS: "1"}
    marked = {names.REPROVISIONED_BY: MACHINE, names.LOST_WITH: MACHINE}
    stored(cluster, VOLUMES, "ours", spec=of(DRIVER), **noted, **said)
    stored(cluster, VOLUMES, "garbage", spec=of(DRIVER), **{names.LIES_ON: ""})
    stored(cluster, VOLUMES, "theirs", spec=of("other.example.com"), **noted)
    stored(cluster, VOLUMES, "no-driver", spec=LOCAL, **noted)
    stored(cluster, CLAIMS, "ours", namespace="default", spec=CLAIMED, **marked, **said, **{names.STORAGE_PROVISIONER: DRIVER})
    stored(cluster, CLAIMS, "theirs", namespace="default", spec=CLAIMED, **marked, **{names.STORAGE_PROVISIONER: "other.example.com"})
    you = InProcessApi(cluster)

    async def main() -> dict[str, Json]:
        found = [step async for step in steps(you, DRIVER)]
        assert [isinstance(step, Step) and (step.resource, step.namespace, step.name) for step in found] == [
            (VOLUMES, "", "garbage"),
            (VOLUMES, "", "ours"),
            (CLAIMS, "default", "ours"),
        ]
        for step in found:
            assert isinstance(step, Step) and await _take(you, step)
        assert [step async for step in steps(you, DRIVER)] == []
        left = [*(await you.list_page(VOLUMES)).items, *(await you.list_page(CLAIMS)).items]
        return {
            f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}": obj["metadata"].get("annotations") or {} for obj in left
        }

    left = run_virtual(main())
    assert left["/ours"] == said
    assert left["/garbage"] == {}
    assert left["/theirs"] == left["/no-driver"] == noted
    assert left["default/ours"] == said | {names.STORAGE_PROVISIONER: DRIVER}
    assert left["default/theirs"] == marked | {names.STORAGE_PROVISIONER: "other.example.com"}


def test_a_volume_that_is_made_anew_under_its_name_keeps_its_notes() -> None:
    cluster = new_cluster()
    stored(cluster, VOLUMES, "ours", spec=of(DRIVER), **{names.LIES_ON: MACHINE})
    you = InProcessApi(cluster)

    async def main() -> Json:
        (step,) = [step async for step in steps(you, DRIVER)]
        assert isinstance(step, Step)
        cluster.patch(VOLUMES, "ours", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        cluster.delete(VOLUMES, "ours")
        stored(cluster, VOLUMES, "ours", spec=of("other.example.com"), **{names.LIES_ON: MACHINE})
        assert await _take(you, step)
        annotations: Json = (await you.get(VOLUMES, "ours"))["metadata"]["annotations"]
        return annotations

    assert run_virtual(main()) == {names.LIES_ON: MACHINE}


def test_leases_are_known_by_the_driver_in_their_labels() -> None:
    cluster, keys = new_cluster(), (names.SLOT_FOR, names.REPROVISION_FOR, names.NODE_LOSS_FOR, names.FAILOVER_FOR)
    for number, key in enumerate(keys):
        for driver in (DRIVER, f"x.{DRIVER}"):
            meta = {"name": f"{number}.{driver}", "labels": {key: driver}}
            cluster.create(LEASES, {"metadata": meta, "spec": {}}, namespace="kube-system")
    stored(cluster, LEASES, names.watch(DRIVER), namespace="kube-system")
    you = InProcessApi(cluster)

    async def main() -> list[str]:
        for step in [step async for step in steps(you, DRIVER)]:
            assert isinstance(step, Step) and await _take(you, step)
        return sorted(lease["metadata"]["name"] for lease in (await you.list_page(LEASES)).items)

    assert run_virtual(main()) == [*(f"{number}.x.{DRIVER}" for number in range(len(keys))), names.watch(DRIVER)]


def test_volumes_whose_deletion_waits_for_our_finalizer_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody ends the deletion of those whose node is gone, and without their notes no later installation either."""
    cluster = new_cluster()
    for name, driver, finalizer in (("waits", DRIVER, names.VOLUME_FINALIZER), ("theirs", "other.example", names.VOLUME_FINALIZER)):
        cluster.create(VOLUMES, {"metadata": {"name": name, "finalizers": [finalizer]}, "spec": of(driver)})
        cluster.delete(VOLUMES, name)
    cluster.create(VOLUMES, {"metadata": {"name": "stays", "finalizers": [names.VOLUME_FINALIZER]}, "spec": of(DRIVER)})

    async def open_doors(*_: object, **__: object) -> Opened:
        return Opened(InProcessApi(cluster))

    monkeypatch.setattr(uninstall, "open_doors", open_doors)
    line = parse(["--node-deployment"], {"NODE_NAME": "-"})
    assert isinstance(line, Parsed)
    assert run_virtual(_uninstall(line, DRIVER, form="json")) == 0
    assert json.loads(capsys.readouterr().out)["held"] == [{"name": "waits"}]
    assert run_virtual(_uninstall(line, DRIVER)) == 0
    said = capsys.readouterr().out
    assert "1 PersistentVolumes are being deleted" in said and ": waits." in said and "release-finalizers with --terminating" in said
