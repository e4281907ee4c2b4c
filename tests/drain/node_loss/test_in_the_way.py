"""Things of a gone node that cannot be cleared away, and many of them: they keep nothing else of that node, or of another one, for ever."""

from collections.abc import Callable

import pytest

from hack.sim.cluster import Call
from hack.sim.driver.faults import Fault
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.csi.outcome import Code
from sidecar.drain.node_loss import cleanup_io
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES
from sidecar.kube.errors import ApiError, Forbidden, Invalid
from sidecar.model import names
from tests.harness.drain.node_loss import (
    CLEANING,
    UNPLACED,
    Watchman,
    app,
    asked,
    bound,
    database,
    gone,
    holder,
    note,
    play,
    replicas,
    settled,
    there,
    told,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import wait

TEAMS = ("team-0", "team-1", "team-2", "team-3")


async def teams(bench: NotebookWorld) -> None:
    """Each has a database on n0, which is announced to go."""
    await settled(bench)
    mark = f"n0/{await uid_of(bench)}"
    for team in TEAMS:
        await database(bench, team)
        await bound(bench, "data-db-0", team, **{names.LIES_ON: mark, names.LEAVING: mark})


async def namespaces(bench: NotebookWorld) -> list[str]:
    return sorted(item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items)


@pytest.mark.parametrize("verb", ["patch", "delete"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden("denied by policy keep-claims", status=403), id="a webhook"),
        pytest.param(Invalid("denied by policy keep-claims", status=422), id="a policy"),
    ],
)
def test_a_claim_that_a_policy_of_its_namespace_keeps_stops_no_other(
    error: ApiError, verb: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleanup_io, "MOST_AT_ONCE", 1)

    def refuse(call: Call) -> ApiError | None:
        return error if (call.verb, call.resource, call.namespace) == (verb, CLAIMS, "team-0") else None

    async def story(bench: NotebookWorld) -> None:
        await teams(bench)
        await vanish(bench)
        await wait(bench, 1500)
        assert await namespaces(bench) == ["team-0"]
        (claim,) = (await gone(bench))["claims"]
        assert "keep-claims" in claim["message"]
        said = [text for text in caplog.messages if "looked after" in text]
        assert said == ["Nodes that are gone could not all be looked after"], "once, for as long as it is so"

    play(story, Watchman(refuse), args=CLEANING)


def test_claims_that_pods_have_take_no_turn_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pods are on nodes that are there, so that a list of the gone node's pods has them not."""
    monkeypatch.setattr(cleanup_io, "MOST_AT_ONCE", 2)

    async def story(bench: NotebookWorld) -> None:
        await teams(bench)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
        spec = {"nodeName": "n1", "volumes": volumes, "containers": [{"name": "main", "image": "none"}]}
        for team in TEAMS[:2]:
            await bench.you.create(PODS, {"metadata": {"name": "stuck"}, "spec": spec}, namespace=team)
        await vanish(bench, pods=False)
        await wait(bench, 3000)
        assert await namespaces(bench) == list(TEAMS[:2])
        assert [claim["message"] for claim in (await gone(bench))["claims"]] == ["pod stuck with node n1 has it"] * 2

    play(story, args=CLEANING)


async def unplaced(bench: NotebookWorld, name: str, mark: str) -> None:
    """A released volume of n0 without node affinity."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-n0"}},
        "claimRef": {"kind": names.CLAIM, "namespace": "default", "name": name, "uid": f"uid-{name}"},
    }
    meta = {"name": name, "finalizers": [names.VOLUME_FINALIZER], "annotations": {names.LIES_ON: mark, names.LEAVING: mark}}
    await bench.you.create(VOLUMES, {"metadata": meta, "spec": spec})
    await bench.you.patch(VOLUMES, name, {"status": {"phase": "Released"}}, content_type=MERGE_PATCH, subresource="status")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(method="DeleteVolume", hang=float("inf")), id="it does not answer"),
        pytest.param(Fault(method="DeleteVolume", delay=9.0), id="it is slow"),
        pytest.param(Fault(method="DeleteVolume", hang=9.0, fail=Code.INTERNAL), id="it fails slowly"),
    ],
)
def test_a_slow_driver_keeps_no_other_loss_untold(fault: Fault) -> None:
    async def story(bench: NotebookWorld) -> None:
        for node in bench.nodes.values():
            node.reception.faults.set([fault])
        await settled(bench)
        mark = f"n0/{await uid_of(bench)}"
        for number in range(40):
            await unplaced(bench, f"pv-{number}", mark)
        (other,) = {"n1", "n2"} - {await holder(bench)}
        await app(bench, "other", node=other)
        await vanish(bench)
        while not asked(bench):
            await wait(bench, 1)
        await vanish(bench, other)
        await wait(bench, 90)
        assert "other" in await told(bench)
        assert 2 <= len(asked(bench)) <= 15

    play(story, args=(*CLEANING, UNPLACED))


def test_a_volume_that_somebody_has_bound_again_is_kept_though_its_phase_does_not_say_so_yet() -> None:
    """The claim is bound between the look and the call of the driver, while the volume controller does not run."""
    todo: list[Callable[[], None]] = []

    def bind(call: Call) -> None:
        if todo and (call.verb, call.resource, call.name) == ("get", VOLUMES, "pv-0"):
            todo.pop()()

    async def story(bench: NotebookWorld) -> None:
        await settled(bench)
        await unplaced(bench, "pv-0", f"n0/{await uid_of(bench)}")
        size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
        spec = {"accessModes": modes, "storageClassName": "late", "resources": {"requests": size}, "volumeName": "pv-0"}

        def restored() -> None:
            made = bench.cluster.create(CLAIMS, {"metadata": {"name": "pv-0"}, "spec": spec}, namespace="default")
            ref = {"spec": {"claimRef": {"uid": made.obj["metadata"]["uid"]}}}
            bench.cluster.patch(VOLUMES, "pv-0", ref, content_type=MERGE_PATCH)

        todo.append(restored)
        await vanish(bench)
        await wait(bench, 900)
        assert not todo
        assert asked(bench) == []
        assert "pv-0" in await there(bench, VOLUMES)

    play(story, Watchman(bind), args=(*CLEANING, UNPLACED))


def test_each_machine_has_a_step_in_each_look_however_long_another_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The volumes of n0 are tried for ever, and each try takes longer than a look may."""
    monkeypatch.setattr(cleanup_io, "MOST_SECONDS", 5.0)

    async def story(bench: NotebookWorld) -> None:
        for node in bench.nodes.values():
            node.reception.faults.set([Fault(method="DeleteVolume", hang=9.0, fail=Code.INTERNAL)])
        await settled(bench)
        (other,) = {"n1", "n2"} - {await holder(bench)}
        mark = f"n0/{await uid_of(bench)}"
        for number in range(40):
            await unplaced(bench, f"pv-{number}", mark)
        await replicas(bench, 1)
        await app(bench, node=other)
        await note(bench, "data-db-0", {names.LEAVING: f"{other}/{await uid_of(bench, other)}"})
        await vanish(bench)
        await vanish(bench, other)
        await wait(bench, 900)
        assert await there(bench, CLAIMS) == []

    play(story, args=(*CLEANING, UNPLACED))
