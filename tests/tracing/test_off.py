"""Without an endpoint that can be used there is no tracing: no call, request or look passes through anything more."""

import asyncio
import logging

import pytest

from sidecar.doors import Instruments
from sidecar.observe.narrator import Narrator
from sidecar.tools import Tools
from sidecar.tracing.controller import open_tracing
from tests.harness.collector import collecting
from tests.harness.loops import real
from tests.harness.sidecar import ListedKube, sidecar_on

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("environ", "on", "why"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, False, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, False, "certificates"),
        (
            {**HERE, "OTEL_TRACES_SAMPLER": "no-such", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
            True,
            "OTEL_EXPORTER_OTLP_COMPRESSION",
        ),
    ],
)
def test_what_is_not_supported_is_one_line_and_no_failed_start(
    environ: dict[str, str], on: bool, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (open_tracing(environ, Instruments()) is not None) is on
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert why in str(line.__dict__["fields"]["why"])


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


@real
async def test_with_tracing_they_do_not() -> None:
    """Or the test above could not fail."""
    with collecting() as stub:
        instruments = Instruments()
        tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": stub.endpoint}, instruments)
        sidecar = sidecar_on(ListedKube(), instruments=Instruments(metrics=instruments.metrics, tracing=tracing))
        assert sidecar.provisioning.claims._handle != sidecar.provisioning.room.handle_claim
        assert type(sidecar._tools.narrator) is not Narrator
        page = instruments.metrics.render()[0].decode()
        for reason in ("no-room", "refused", "unreachable", "too-many-open", "fault"):
            assert f'csi_node_sidecar_spans_dropped_total{{reason="{reason}"}} 0' in page
