"""What the doors tell health, on a server that answers as it is told."""

import asyncio
import logging
from uuid import RFC_4122, UUID

import pytest

from sidecar.doors import Instruments, Opened, _random_uuid, open_doors, what_we_bring
from sidecar.kube.acceptance import PATIENCE
from sidecar.kube.api import VOLUMES
from sidecar.kube.errors import ApiError
from tests.harness.clock import Clock
from tests.harness.config import parsed
from tests.kube.server import ScriptedServer, refuses, says

REFUSED = refuses(401, "Unauthorized", reason="Unauthorized")


async def ask(doors: Opened, clock: Clock, *, at: float) -> tuple[bool, list[str]]:
    """Whether the process is ready after one request, as far as its credentials go."""
    clock.now = at
    try:
        await doors.kube.get(VOLUMES, "pv")
    except ApiError:
        pass
    rows = [row for row in doors.tools.health.rows() if row.path == "credentials"]
    assert [row.gates_ready and not row.gates_live for row in rows] == [True], "a container that starts again has the same token"
    _, reasons = doors.tools.health.ready()
    found = [reason for reason in reasons if reason.startswith("credentials")]
    return not found, found


def test_credentials_that_are_not_accepted_any_more_make_the_process_unready(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sidecar.doors")
    clock = Clock()

    async def main() -> None:
        async with ScriptedServer(says({}), REFUSED, says({}), REFUSED, REFUSED, REFUSED, says({})) as server:
            config = parsed(f"--master={server.url}").config
            doors = await open_doors(config, Instruments(clock=clock), on_link=lambda state: None)
            try:
                for at in (0.0, 1.0, 2.0, 3.0):  # one refusal, then accepted, then the first of three
                    assert await ask(doors, clock, at=at) == (True, [])
                assert await ask(doors, clock, at=PATIENCE) == (True, [])
                ready, (why,) = await ask(doors, clock, at=3.0 + PATIENCE)
                assert not ready
                brought = what_we_bring(kubeconfig="", master=server.url)
                assert f"the API server no longer accepts {brought}: it has answered the last 3 requests with 401" in why
                assert "a pod that is deleted and made anew gets a new token" in why
                assert doors.tools.health.live(clock.now, stale_after=30.0) == (True, [])
                assert await ask(doors, clock, at=4.0 + PATIENCE) == (True, [])
            finally:
                await doors.close()

    asyncio.run(main())
    said = [record.message for record in caplog.records if record.name == "sidecar.doors"]
    assert said == ["The API server no longer accepts our credentials", "The API server accepts our credentials again"]


def test_what_is_not_accepted_is_called_by_what_it_is() -> None:
    assert what_we_bring(kubeconfig="", master="") == "this pod's token"
    assert what_we_bring(kubeconfig="/a", master="https://b") == "the credentials of the kubeconfig"


def test_the_part_of_a_reporters_name_that_is_new_at_each_start_is_a_random_uuid() -> None:
    made = {_random_uuid() for _ in range(200)}
    assert len(made) == 200
    for text in made:
        assert str(UUID(text)) == text and (UUID(text).version, UUID(text).variant) == (4, RFC_4122)


@pytest.mark.parametrize("judges", [True, False])
def test_the_link_is_told_whether_volumes_are_placed_by_what_the_driver_says(judges: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("sidecar.doors.DriverConnection", lambda *_, **more: told.append(more["judges"]))
    words = (f"--drain-report={judges}", "--master=http://127.0.0.1:1")

    async def main() -> None:
        doors = await open_doors(parsed(*words).config, Instruments(), on_link=lambda state: None)
        await doors.kube.aclose()

    asyncio.run(main())
    assert told == [judges]
