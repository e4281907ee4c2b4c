"""Claims that cannot be written, of a gone node or of others, keep nothing else waiting for ever."""

import pytest

from hack.sim.cluster import Call
from sidecar.drain.watch import loss_io
from sidecar.kube.api import CLAIMS, MERGE_PATCH
from sidecar.kube.errors import ApiError, Forbidden, Invalid
from sidecar.model import names
from tests.harness.drain.simulated import Story, wait
from tests.harness.gone_nodes import (
    CLEANING,
    Watchman,
    announce,
    app,
    bound,
    database,
    gone,
    holder,
    play,
    settled,
    uid_of,
    vanish,
)

TEAMS = ("team-0", "team-1", "team-2", "team-3")


async def teams(bench: Story) -> None:
    """Each has a database on n0, which is announced to go."""
    await settled(bench)
    for team in TEAMS:
        await database(bench, team)
        await bound(bench, "data-db-0", team, **{names.LIES_ON: f"n0/{await uid_of(bench)}"})
    await announce(bench)


async def namespaces(bench: Story) -> list[str]:
    return sorted(item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items)


def test_a_claim_that_a_policy_of_its_namespace_keeps_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def case(error: ApiError, verb: str) -> None:
        monkeypatch.setattr(loss_io, "MOST_AT_ONCE", 1)
        caplog.clear()

        def refuse(call: Call) -> ApiError | None:
            return error if (call.verb, call.resource, call.namespace) == (verb, CLAIMS, "team-0") else None

        async def story(bench: Story) -> None:
            await teams(bench)
            await vanish(bench)
            await wait(bench, 1500)
            assert await namespaces(bench) == ["team-0"]
            (claim,) = (await gone(bench))["claims"]
            assert "keep-claims" in claim["message"]
            said = [text for text in caplog.messages if "looked after" in text]
            assert said[-1] == "Not all silent sidecars and gone nodes could be looked after"

        play(story, Watchman(refuse), args=CLEANING)

    webhook, policy = (Forbidden("denied by policy keep-claims", status=403), Invalid("denied by policy keep-claims", status=422))
    for error, verb in [(webhook, "patch"), (policy, "delete")]:
        case(error, verb)


def test_the_loss_of_a_node_is_told_though_each_other_node_has_a_claim_that_may_not_be_written() -> None:
    """A mark on a claim of a node that is there again cannot be taken off."""

    def refuse(call: Call) -> ApiError | None:
        is_mark = (call.verb, call.resource) == ("patch", CLAIMS) and call.name.startswith("kept-")
        return Forbidden("an admission webhook denied the request", status=403) if is_mark else None

    async def story(bench: Story) -> None:
        for node in ("n1", "n2"):
            await app(bench, f"kept-{node}", node=node)
            mark = {"metadata": {"annotations": {names.LOST_WITH: f"{node}/an-earlier-machine"}}}
            await bench.you.patch(CLAIMS, f"kept-{node}", mark, namespace="default", content_type=MERGE_PATCH)
        await app(bench)
        await wait(bench, 100)
        await vanish(bench)
        await wait(bench, 1200)
        assert await holder(bench) in ("n1", "n2")
        assert await gone(bench)

    play(story, Watchman(refuse))
