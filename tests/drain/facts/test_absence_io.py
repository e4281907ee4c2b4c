"""What pods did while nobody watched, and when nobody can tell."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.begun_uses import Missed


@pytest.mark.parametrize(("since", "until", "lost"), [("50", "50", False), ("51", "50", True), ("", "50", True)])
def test_a_server_with_another_history_cannot_tell_what_happened(since: str, until: str, lost: bool) -> None:
    """It was put back to an earlier state: what pods did before it got there again is not between those versions."""

    async def main() -> Missed | None:
        watched = SimpleNamespace(pod_lists=lambda: 2, pods_version=lambda: until)
        absence = Absence(cast(Any, None), "n0", watched=cast(Any, watched), clock=lambda: 7.0)
        running = asyncio.create_task(absence.run())
        absence.ask(since)
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        return absence.take()

    assert asyncio.run(main()) == Missed(7.0, lost=lost)
