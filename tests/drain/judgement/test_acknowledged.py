"""An acknowledgement counts for the use it was given for, and for no later one, seen or not."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import report, stored
from sidecar.drain.vocabulary import Reason, Status
from sidecar.kube.api import MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.drain import samples
from tests.harness.drain.simulated import Bench, all_of, do, node_of, play, report_of, running, wait

PV = samples.volume(notes=samples.notes(ack="ann, 11-23"))
POD = samples.pod("db-0", "data-0")


class Looks:
    """One judgement after the other, each knowing of the earlier ones what the stored report says."""

    def __init__(self) -> None:
        self.report: Json | None = None

    def at(self, snapshot: Snapshot) -> Assessment:
        assert snapshot.node
        void = stored.void_acknowledgements(self.report, snapshot.volumes, node_uid=snapshot.node.uid)
        found = assess(replace(snapshot, void_acknowledgements=void))
        self.report = report.body(found, previous=self.report, agent="1.0")
        return found

    @property
    def remembered(self) -> list[Json]:
        assert self.report
        return list(self.report["status"]["acknowledgements"])


def idle(**changes: Any) -> Snapshot:
    return samples.idle(**{"volumes": (PV,)} | changes)


def test_an_acknowledgement_is_believed_until_the_volume_is_used_again() -> None:
    looks = Looks()
    assert looks.at(idle()).retire.status is Status.TRUE
    assert looks.at(idle()).retire.status is Status.TRUE
    assert looks.at(idle(pods=(POD,))).retire.reason is Reason.VOLUME_IN_USE
    found = looks.at(idle())
    assert (found.retire.status, found.retire.reason) == (Status.FALSE, Reason.LAST_COPY)
    assert [note for note in found.notes if "void" in note] == [
        "the annotation csi-node-sidecar.io/ack is void, because the volume was used when it was written, or since, or may have been used "
        "while the sidecar was away; to renew it, change its text (WHO, DATE) while no pod uses the volume: pv-0"
    ]
    assert looks.at(idle()).retire.reason is Reason.LAST_COPY


def test_any_use_ends_it() -> None:
    for use in [
        {"pods": (POD,)},
        {"claimants": (replace(POD, node="", phase="Pending"),)},
        {"attached": frozenset({"pv-0"})},
        {"lately_used": frozenset({"apps/data-0"}), "lately_named": frozenset({"apps/data-0"})},
    ]:
        looks = Looks()
        for snapshot in (idle(), idle(**use), idle()):
            found = looks.at(snapshot)
        assert found.retire.reason is Reason.LAST_COPY


# --- An acknowledgement does not outlive a use that nobody saw ---


CONDITION = "world.csi-node-sidecar.io/RetireReady"


async def acknowledged(bench: Bench) -> None:
    """A volume that nobody has used for a while, and that may vanish."""
    await running(bench, "a")
    await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
    await wait(bench, 70)
    (volume,) = await all_of(bench, VOLUMES)
    patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: "somebody, today"}}}
    await bench.you.patch(VOLUMES, volume["metadata"]["name"], patch, content_type=MERGE_PATCH)
    await wait(bench, 100)
    assert await retire(bench) == "True"


async def used_for_a_moment(bench: Bench) -> None:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}],
    }
    await bench.you.create(PODS, {"metadata": {"name": "b"}, "spec": spec}, namespace="default")
    await do(bench, "until running b")
    await bench.you.delete(PODS, "b", namespace="default", grace_period_seconds=0)


async def nothing(bench: Bench) -> None:
    await wait(bench, 1)


async def away(bench: Bench, meanwhile: Callable[[Bench], Awaitable[None]], *, seconds: float = 20.0) -> None:
    bench.nodes["n0"].lay_down()
    await wait(bench, 1)
    await meanwhile(bench)
    await wait(bench, seconds)
    bench.nodes["n0"].get_up()


async def retire(bench: Bench) -> str:
    return next(item["status"] for item in (await node_of(bench))["status"]["conditions"] if item["type"] == CONDITION)


async def settles_on(bench: Bench, status: str) -> list[str]:
    """The notes then. Before that it may be unknown, and nothing else."""
    for _ in range(40):
        await wait(bench, 5)
        assert await retire(bench) in ("Unknown", status)
    assert await retire(bench) == status
    return [note for note in (await report_of(bench))["notes"] if names.ACKNOWLEDGED in note]


def test_a_use_while_the_sidecar_was_away_voids_an_acknowledgement() -> None:
    async def story(bench: Bench) -> None:
        await acknowledged(bench)
        await away(bench, used_for_a_moment)
        (note,) = await settles_on(bench, "False")
        assert "may have been used while the sidecar was away; to renew it, change its text" in note
        await away(bench, nothing)
        await settles_on(bench, "False")

    play(story)
