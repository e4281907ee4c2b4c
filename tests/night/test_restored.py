"""A real API server whose data is put back to a backup, under caches that live on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hack.lib.control_plane import ControlPlane
from hack.lib.patience import patient
from hack.lib.programs import Json, claim
from sidecar.kube.api import CLAIMS
from sidecar.kube.client import open_client
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.model import names

PATH = "/api/v1/namespaces/default/persistentvolumeclaims"
GIVEN_UP = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}


def words(obj: Json) -> tuple[str, ...]:
    return tuple(sorted((obj["metadata"].get("annotations") or {}).values()))


def test_what_a_restore_has_put_back_is_seen_although_the_server_accepts_the_old_version(bin_dir: Path, tmp_path: Path) -> None:
    """Somebody gave the data of a claim up after the backup: nobody has given it up any more."""
    with ControlPlane(bin_dir, tmp_path / "plane") as plane:
        asyncio.run(_story(plane, tmp_path / "backup"))


async def _story(plane: ControlPlane, backup: Path) -> None:
    store: Store[tuple[str, ...]] = Store()
    ask = asyncio.to_thread
    await ask(plane.request, "POST", PATH, claim("data", "late"))
    await ask(plane.copy_data, backup)
    client = await open_client(kubeconfig=str(plane.kubeconfig), qps=-1.0, environ={})
    running = asyncio.create_task(Reflector(client, CLAIMS, project=words, store=store).run())
    try:
        await _until(lambda: "default/data" in store)
        await ask(plane.request, "PATCH", f"{PATH}/data", GIVEN_UP, content_type="application/merge-patch+json")
        for number in range(100):
            await ask(plane.request, "POST", PATH, claim(f"later-{number}", "late"))
        await _until(lambda: len(store) == 101 and store.get("default/data") == ("Ignore",))
        await ask(plane.restore_data, backup)
        assert len((await ask(plane.request, "GET", PATH))["items"]) == 1
        await _until(lambda: len(store) == 1 and store.get("default/data") == ())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.aclose()


async def _until(condition: Callable[[], bool]) -> None:
    # A pause of 30 s may just have begun, the server may accept one more watch and break it off while it starts (15 and 30 s), a watch is
    # asked about after 20 s, and a list waits for up to 7 s.
    async with asyncio.timeout(patient(102)):
        while not condition():
            await asyncio.sleep(0.2)
