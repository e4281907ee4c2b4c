"""Claims of a gone node that cannot be cleared away, and claims of many namespaces: they keep nothing else waiting for ever."""

import pytest

from hack.sim.cluster import Call
from sidecar.drain.node_loss import cleanup_io, surroundings_io
from sidecar.kube.api import CLAIMS
from sidecar.kube.errors import ApiError, Forbidden, Invalid
from sidecar.model import names
from tests.harness.drain.node_loss import (
    CLEANING,
    Watchman,
    bound,
    database,
    gone,
    play,
    settled,
    told,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import Bench, wait

TEAMS = ("team-0", "team-1", "team-2", "team-3")


async def teams(bench: Bench) -> None:
    """Each has a database on n0, which is announced to go."""
    await settled(bench)
    mark = f"n0/{await uid_of(bench)}"
    for team in TEAMS:
        await database(bench, team)
        await bound(bench, "data-db-0", team, **{names.LIES_ON: mark, names.LEAVING: mark})


async def namespaces(bench: Bench) -> list[str]:
    return sorted(item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items)


def test_a_claim_that_a_policy_of_its_namespace_keeps_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def case(error: ApiError, verb: str) -> None:
        monkeypatch.setattr(cleanup_io, "MOST_AT_ONCE", 1)
        caplog.clear()

        def refuse(call: Call) -> ApiError | None:
            return error if (call.verb, call.resource, call.namespace) == (verb, CLAIMS, "team-0") else None

        async def story(bench: Bench) -> None:
            await teams(bench)
            await vanish(bench)
            await wait(bench, 1500)
            assert await namespaces(bench) == ["team-0"]
            (claim,) = (await gone(bench))["claims"]
            assert "keep-claims" in claim["message"]
            said = [text for text in caplog.messages if "looked after" in text]
            assert said == ["Nodes that are gone could not all be looked after"], "once, for as long as it is so"

        play(story, Watchman(refuse), args=CLEANING)

    webhook, policy = (Forbidden("denied by policy keep-claims", status=403), Invalid("denied by policy keep-claims", status=422))
    for error, verb in [(webhook, "patch"), (policy, "delete")]:
        case(error, verb)


def test_claims_of_any_number_of_namespaces_are_told_and_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings_io, "MOST_NAMESPACES", 2)

    async def story(bench: Bench) -> None:
        await settled(bench)
        uid = await uid_of(bench)
        for number in range(4):
            await database(bench, f"team-{number}")
            await bound(bench, "data-db-0", f"team-{number}", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})
        await bound(bench, "data-db-0", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})  # nobody makes it again
        await vanish(bench)
        await wait(bench, 1500)
        assert [item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items] == ["default"]
        assert (await told(bench)).count("data-db-0") == 5
        assert (await gone(bench)).get("unread", []) == []

    play(story, args=CLEANING)
