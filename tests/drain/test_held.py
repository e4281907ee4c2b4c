"""Which pods must not be evicted while a drain is held: written at once when the node's marks show it. Whole worlds, in virtual time."""

from typing import Any

from hack.sim.cluster import Call
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, EVENTS, MERGE_PATCH, PODS
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Story, all_of, change, no_one, play, report_of, running, wait

GATED = (*JUDGING, "--drain-gate-image=pause")
AT_ONCE = 0.3
"""Seconds, of which a watch of the simulated cluster takes some: no look that is due later writes it."""
BOTH = ["default/a", "default/b"]


async def two_replicas(bench: Story) -> None:
    await running(bench, "a")
    await running(bench, "b")
    await wait(bench, 20)


async def told(bench: Story) -> list[str]:
    events = [event for event in await all_of(bench, EVENTS) if event["reason"] == names.DRAIN_HELD]
    return [event["message"] for event in events for _ in range(event.get("count", 1))]


async def marked(bench: Story, *, cordoned: bool = True, **notes: str | None) -> tuple[list[str], str]:
    """The list and what the drain is for, a moment after the node's marks are so."""
    spec: dict[str, Any] = {"unschedulable": cordoned or None}
    await change(bench, "n0", spec, annotations={names.DRAIN_INTENT: notes.get("intent"), names.FORCE_DRAIN: notes.get("force")})
    await wait(bench, AT_ONCE)
    return await listed(bench), (await report_of(bench))["drainFor"]


async def listed(bench: Story) -> list[str]:
    """The simulated server keeps no empty list."""
    return list((await report_of(bench)).get("held", ()))


def test_a_drain_is_held_from_its_cordon_until_a_reboot_is_announced_or_it_is_forced() -> None:
    async def story(bench: Story) -> None:
        await two_replicas(bench)
        assert await listed(bench) == [] and await told(bench) == []
        assert await marked(bench) == (BOTH, "retire, assumed")
        assert await marked(bench, intent="reboott") == (BOTH, "retire, assumed")
        assert "in a word that counts (csi-node-sidecar.io/drain-intent says 'reboott'" in (await report_of(bench))["heldBecause"]
        assert await marked(bench, intent="reboot") == ([], "reboot, annotation")
        assert await marked(bench) == (BOTH, "retire, assumed")
        assert await marked(bench, force="power is gone") == ([], "retire, assumed")
        assert await marked(bench) == (BOTH, "retire, assumed")
        assert await marked(bench, cordoned=False) == ([], "")
        assert await marked(bench, cordoned=False, intent="retire") == (BOTH, "retire, annotation")

    play(story, args=GATED)


def test_an_event_at_the_beginning_of_a_drain_says_why_it_is_held_and_a_restart_repeats_none() -> None:
    async def story(bench: Story) -> None:
        await two_replicas(bench)
        await marked(bench)
        await wait(bench, 5)
        (said,) = await told(bench)
        assert said == (await report_of(bench))["heldBecause"]
        for words in ("nobody announced", "retire is assumed", "node reboot n0", "node retire n0", "VolumeInUse", names.FORCE_DRAIN):
            assert words in said
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        assert len(await told(bench)) == 1 and await listed(bench) == BOTH

    play(story, args=GATED)


def test_a_list_that_cannot_be_written_at_once_is_written_with_the_report_and_never_comes_late() -> None:
    def case(lost: str) -> None:
        breaks: list[str] = []

        def refuse(call: Call) -> ApiError | None:
            if call.resource == DRAIN_REPORTS and call.subresource == "status" and breaks:
                return Unavailable(breaks[0])
            return None

        async def answering(call: Call) -> None:
            if lost == "the answer" and (error := refuse(call)):
                raise error

        async def story(bench: Story) -> None:
            await two_replicas(bench)
            for cordoned, now in ((True, BOTH), (False, [])):
                breaks.append("no answer")
                await marked(bench, cordoned=cordoned)
                breaks.clear()
                await wait(bench, 12)
                assert await listed(bench) == now

        play(story, args=GATED, refuse=refuse if lost == "the request" else no_one, answering=answering)

    for lost in ("the request", "the answer"):
        case(lost)


def test_a_pod_that_began_since_the_last_look_is_held_with_the_claim_that_was_judged() -> None:
    async def story(bench: Story) -> None:
        await two_replicas(bench)
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 3)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]
        again = {"volumes": volumes, "nodeName": "n0", "containers": [{"name": "main", "image": "none"}]}
        await bench.you.create(PODS, {"metadata": {"name": "again"}, "spec": again}, namespace="default")
        await wait(bench, AT_ONCE)
        assert await marked(bench) == (["default/again", "default/b"], "retire, assumed")

    play(story, args=GATED)


def test_a_drain_that_nobody_announces_is_held_by_what_forbids_either() -> None:
    async def story(bench: Story) -> None:
        await two_replicas(bench)
        for name, word in (("a", names.DRAIN_POLICY), ("b", f"{names.DRAIN_POLICY}.retire")):
            patch = {"metadata": {"annotations": {word: "Ignore", f"{names.DRAIN_POLICY}.reboot": "Block" if name == "b" else None}}}
            await bench.you.patch(CLAIMS, name, patch, content_type=MERGE_PATCH, namespace="default")
        await wait(bench, 20)
        assert await marked(bench) == (["default/b"], "retire, assumed")
        assert await marked(bench, intent="retire") == ([], "retire, annotation")
        assert await marked(bench, intent="reboot") == (["default/b"], "reboot, annotation")

    play(story, args=GATED)


def test_without_the_gate_no_pod_is_held() -> None:
    async def story(bench: Story) -> None:
        await two_replicas(bench)
        assert await marked(bench) == ([], "")

    play(story)
