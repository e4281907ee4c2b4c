"""The program in containers whose locale and time zone are somebody's own: what others read stays UTC and UTF-8."""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Process, Sidecar
from tests.harness.hostile import DRIVER, NODE, SELECTED

# A driver's words, with letters whose small and large forms a Turkish locale tells apart, and none of which are in ASCII.
WORDS = "Gerät İıŞ – voll"
ASCII_ALONE = {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an API server in which a claim waits, which the driver of these tests does not make."""
    work = tmp_path_factory.mktemp("api")
    with Process("api", [sys.executable, "-m", "tests.harness.hostile", "api", str(work), SELECTED, "1"], work) as server:
        until((work / "kubeconfig").exists, f"it serves:\n{server.output()}", seconds=30)
        yield work


def ask(api: Path, path: str) -> list[dict[str, Any]]:
    config = json.loads((api / "kubeconfig").read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    request = urllib.request.Request(config["clusters"][0]["cluster"]["server"] + path, headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=ssl.create_default_context(cafile=api / "simulation.crt")) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
        return found


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"TZ": "Asia/Kolkata", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}, id="Turkish"),
        pytest.param({"TZ": "no such zone/ + 99", "LC_ALL": "C", **ASCII_ALONE}, id="C"),
    ],
)
def test_times_are_utc_and_words_arrive_whole(environ: dict[str, str], api: Path, tmp_path: Path) -> None:
    begun = datetime.now(UTC)
    driver = OurDriver(tmp_path, node=NODE, name=DRIVER)
    driver.misbehave({"method": "CreateVolume", "fail": "INTERNAL", "message": WORDS})
    sidecar = Sidecar(tmp_path, node=NODE, address=driver.socket, kubeconfig=api / "kubeconfig", environ=environ)
    with driver, sidecar:
        until(lambda: "Provisioning failed" in sidecar.output(), f"it is told:\n{sidecar.output()}", seconds=30)
        told = until(lambda: new_events(api, begun), "the event is written", seconds=30)
    assert any(WORDS in event["message"] for event in told)
    (line, *_) = [line for line in sidecar.log.read_bytes().decode().splitlines() if "Provisioning failed" in line]
    assert WORDS in line
    clock = datetime.strptime(f"{begun.year}{line[1:21]}", "%Y%m%d %H:%M:%S.%f").replace(tzinfo=UTC)
    assert timedelta(seconds=-1) < clock - begun < timedelta(minutes=1)
    assert sidecar.records("EF") == []
    assert re.fullmatch(r"[IW]\d{4} [\d:.]+ +\d+ \w+\.py:\d+\] .*", line)


def new_events(api: Path, begun: datetime) -> list[dict[str, Any]]:
    """Those of this test, by their own word."""
    events = [event for event in ask(api, "/api/v1/namespaces/default/events") if WORDS in event["message"]]
    times = [datetime.fromisoformat(event["lastTimestamp"]) for event in events]
    assert all(at < datetime.now(UTC) + timedelta(seconds=2) for at in times)
    return [event for event, at in zip(events, times, strict=True) if at >= begun - timedelta(seconds=1)]
