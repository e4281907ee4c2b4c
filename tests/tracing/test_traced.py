"""The wired program on an API server and a driver behind real sockets: what a collector gets to see of a claim."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from hack.lib.programs import claim, storage_class
from hack.sim.cluster import ApiServer
from hack.sim.cluster.serve import serving_cluster
from sidecar.config.parse import Parsed, parse
from sidecar.doors import Instruments, open_doors
from sidecar.kube.api import CLAIMS, CLASSES, SECRETS
from sidecar.observe import logs
from sidecar.start import assemble
from sidecar.tracing.controller import open_tracing
from sidecar.wiring import Sidecar
from tests.harness.collector import Collector, collecting, values
from tests.harness.driver.in_loop import FakeDriver
from tests.harness.loops import run, until

Json = dict[str, Any]
SECRET = "correct-horse-battery-staple"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OF_OURS = {"volume.kubernetes.io/storage-provisioner": "test-driver", "volume.kubernetes.io/selected-node": "node-1"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.setup("json", 5, stream=stream)
    yield stream
    logs.teardown()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@asynccontextmanager
async def program(folder: Path, collector: Collector, driver: FakeDriver, **environ: str) -> AsyncIterator[tuple[ApiServer, Sidecar]]:
    """It ends as the process does: what is left is sent then."""
    cluster = ApiServer(clock=time.time, rng=random.random)
    given = {"NODE_NAME": "node-1", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100", **environ}
    await driver.start()
    async with serving_cluster(cluster) as served:
        words = ["--node-deployment", f"--csi-address={driver.path}", f"--master={served.url}", "--retry-interval-start=20ms"]
        parsed = parse(words, given)
        assert isinstance(parsed, Parsed)
        instruments = Instruments()
        tracing = open_tracing(given, instruments)
        assert tracing is not None
        doors = await open_doors(parsed.config, replace(instruments, tracing=tracing), on_link=lambda _: None)
        tasks = [asyncio.create_task(doors.connection.run()), asyncio.create_task(tracing.run())]
        await doors.connection.first_ready()
        cluster.create(CLASSES, storage_class("late", driver.name, "WaitForFirstConsumer"))
        sidecar = assemble(doors)
        tasks.append(asyncio.create_task(sidecar.run()))
        try:
            yield cluster, sidecar
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await doors.close()
            await driver.stop()


def made(cluster: ApiServer, name: str = "data", **annotations: str) -> str:
    """The UID of a claim that the scheduler has given to this node."""
    obj = claim(name, "late", size="100", annotations={**OF_OURS, **annotations})
    return str(cluster.create(CLAIMS, obj, namespace="default").obj["metadata"]["uid"])


def test_a_claim_is_a_span_and_what_was_asked_for_it_are_its_children(tmp_path: Path, collector: Collector, log: io.StringIO) -> None:
    async def story() -> str:
        async with program(tmp_path, collector, FakeDriver(tmp_path / "csi.sock")) as (cluster, _):
            uid = made(cluster)
            await until(lambda: bool(collector.named("provision claim")))
            return uid

    uid = run(story())
    (root,) = collector.named("provision claim")
    assert root["traceId"] == uid.replace("-", "")
    assert "parentSpanId" not in root
    assert root["status"] == {"code": 1}
    shown = values(root)
    assert (shown["k8s.namespace.name"], shown["k8s.persistentvolumeclaim.name"]) == ("default", "data")
    assert shown["k8s.persistentvolumeclaim.uid"] == uid
    assert [event["name"] for event in root["events"]][-1] == "ProvisioningSucceeded"
    children = [span for span in collector.spans() if span is not root]
    assert {"csi.v1.Controller/CreateVolume", "create persistentvolumes"} <= {span["name"] for span in children}
    for child in children:
        assert (child["traceId"], child["parentSpanId"], child["kind"]) == (root["traceId"], root["spanId"], 3)
        assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"]) <= int(child["endTimeUnixNano"])
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (said,) = [line for line in lines if line["msg"] == "Claim provisioned"]
    assert (said["trace_id"], said["span_id"], said["trace_flags"]) == (root["traceId"], root["spanId"], "01")
    (other,) = [line for line in lines if line["msg"] == "Caches are complete"]
    assert "trace_id" not in other
    assert collector.paths[0] == "/v1/traces"
    assert collector.resource()["service.name"] == "csi-node-sidecar"


def test_an_annotation_that_is_none_is_not_repeated_anywhere(tmp_path: Path, collector: Collector, log: io.StringIO) -> None:
    root = of_claim_with(f"{PARENT}\n{SECRET}", tmp_path, collector)
    assert "parentSpanId" not in root
    assert values(root)["csi_node_sidecar.traceparent"] == "ignored: it is not valid"
    assert SECRET not in json.dumps(collector.bodies)
    assert SECRET not in log.getvalue()


def of_claim_with(traceparent: str, folder: Path, collector: Collector) -> Json:
    """Its span."""

    async def story() -> None:
        async with program(folder, collector, FakeDriver(folder / "csi.sock")) as (cluster, _):
            made(cluster, **{"opentelemetry.io/traceparent": traceparent})
            await until(lambda: bool(collector.named("provision claim")))

    run(story())
    (root,) = collector.named("provision claim")
    return root


def test_nothing_secret_is_in_a_span(tmp_path: Path, collector: Collector) -> None:
    """Neither what a Secret or a class has, nor what the driver repeats of it, nor the headers for the collector."""
    fails = {"CreateVolume": (grpc.StatusCode.INTERNAL, f"the pool does not take {SECRET}")}

    async def story() -> None:
        environ = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20token-of-the-collector"}
        async with program(tmp_path, collector, FakeDriver(tmp_path / "csi.sock", fails=fails), **environ) as (cluster, _):
            named = {f"csi.storage.k8s.io/provisioner-secret-{part}": value for part, value in (("name", "s"), ("namespace", "default"))}
            cluster.create(CLASSES, storage_class("secret", "test-driver", "WaitForFirstConsumer", **named, pool="parameter-value"))
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
            cluster.create(SECRETS, {**secret, "stringData": {"key": SECRET}, "data": {"key": _base64(SECRET)}}, namespace="default")
            cluster.create(CLAIMS, claim("data", "secret", annotations=OF_OURS), namespace="default")
            await until(lambda: bool(collector.named("csi.v1.Controller/CreateVolume")))

    run(story())
    seen = json.dumps(collector.bodies)
    assert "rpc error: code = Internal desc = the pool does not take" in seen
    assert collector.named("get secrets")
    for word in (SECRET, _base64(SECRET), "token-of-the-collector", "parameter-value"):
        assert word not in seen
    assert collector.headers[0]["authorization"] == "Bearer token-of-the-collector"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
