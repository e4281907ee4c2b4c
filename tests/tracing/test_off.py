"""Without an endpoint there is no tracing: nothing of the room is imported, and no call, request or look passes through anything more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.programs import OurDriver
from sidecar.doors import Instruments
from sidecar.observe.narrator import Narrator
from sidecar.tools import Tools
from tests.harness.collector import collecting
from tests.harness.sidecar import ListedKube, sidecar_on

# The program as it is, which at its end says what it had loaded of the room.
TELLING = (
    "import sys; from sidecar.cli import main; code = main(); "
    "print('loaded:', *(name for name in sys.modules if name.startswith('sidecar.tracing'))); sys.exit(code)"
)


def lived(
    folder: Path, environ: dict[str, str], until_it_says: str = '"msg":"Driver is ready"'
) -> tuple[list[str], list[dict[str, object]]]:
    """One life with a driver and an API server that refuses connections. What it had loaded, and its log."""
    out, err = folder / "out", folder / "err"
    with OurDriver(folder, node="n1") as driver, out.open("w") as stdout, err.open("w") as stderr:
        words = ["--node-deployment", "--master=http://127.0.0.1:1", f"--csi-address={driver.socket}", "--logging-format=json"]
        given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "NODE_NAME": "n1", **environ}
        child = subprocess.Popen([sys.executable, "-c", TELLING, *words], env=given, stdout=stdout, stderr=stderr)
        try:
            until(lambda: '"msg":"Driver is ready"' in err.read_text(), "it has started", seconds=60)
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
        finally:
            child.kill()
            child.wait()
    (line,) = out.read_text().splitlines()
    return line.split()[1:], [json.loads(item) for item in err.read_text().splitlines()]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_a_process_without_an_endpoint_loads_nothing_of_the_room(environ: dict[str, str], tmp_path: Path) -> None:
    loaded, lines = lived(tmp_path, environ)
    assert loaded == []
    assert not [line for line in lines if "racing" in str(line["msg"])]


def test_a_process_with_one_loads_it(tmp_path: Path) -> None:
    """Or the test above could not fail. And it starts, and ends, although there is no collector."""
    loaded, lines = lived(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert "sidecar.tracing.tracer" in loaded
    (line,) = [line for line in lines if line["msg"] == "Tracing is on"]
    assert line["collector"] == "http://127.0.0.1:1/v1/traces"


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, "certificates"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
                "OTEL_TRACES_SAMPLER": "no-such",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            },
            "OTEL_EXPORTER_OTLP_COMPRESSION",
        ),
    ],
)
def test_what_is_not_supported_is_one_line_and_no_failed_start(environ: dict[str, str], why: str, tmp_path: Path) -> None:
    _, lines = lived(tmp_path, environ)
    (line,) = [line for line in lines if "racing" in str(line["msg"]) and line.get("severity") == "warning"]
    assert why in str(line["why"])


def test_without_tracing_the_rooms_hold_what_they_always_held() -> None:
    """The loops call the rooms themselves, and these tell narrator and recorder themselves."""

    async def story() -> None:
        sidecar = sidecar_on(ListedKube())
        tools: Tools = sidecar._tools
        assert type(tools.narrator) is Narrator
        assert tools.recorder is sidecar._recorder
        room = sidecar.provisioning.room
        for loop, handle in ((sidecar.provisioning.claims, room.handle_claim), (sidecar.provisioning.volumes, room.removal.handle)):
            assert loop._handle == handle
            assert loop._observer is tools.metrics.queue(loop.name)
        assert sidecar.provisioning.claims._glance == room.glance_at_claim

    asyncio.run(story())
    assert Instruments().tracing is None


def test_with_tracing_they_do_not() -> None:
    """Or the test above could not fail."""
    from sidecar.tracing.controller import open_tracing

    async def story() -> None:
        with collecting() as stub:
            instruments = Instruments()
            tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": stub.endpoint}, instruments)
            sidecar = sidecar_on(ListedKube(), instruments=Instruments(metrics=instruments.metrics, tracing=tracing))
            assert sidecar.provisioning.claims._handle != sidecar.provisioning.room.handle_claim
            assert type(sidecar._tools.narrator) is not Narrator
            page = instruments.metrics.render()[0].decode()
            for reason in ("no-room", "refused", "unreachable", "too-many-open", "fault"):
                assert f'csi_node_sidecar_spans_dropped_total{{reason="{reason}"}} 0' in page

    asyncio.run(story())
