"""A claim on the real control plane with a driver behind gRPC: what a collector sees of it, and of a volume that goes."""

from __future__ import annotations

import json
from pathlib import Path

from hack.lib.control_plane import until
from hack.lib.programs import IMMEDIATE, OurDriver, Sidecar, claim, storage_class
from tests.e2e.conftest import CLAIMS, CLASSES, VOLUMES, Cluster
from tests.harness.collector import collecting, values

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ARGS = ("--node-deployment-base-delay=500ms", "--node-deployment-max-delay=1s", "--logging-format=json")


def test_a_trace_leads_from_the_claim_to_its_volume_and_the_log_names_it(cluster: Cluster, tmp_path: Path) -> None:
    with collecting(503) as collector, OurDriver(tmp_path, node="n1") as driver:
        cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20of-the-collector",
            "OTEL_SERVICE_NAME": "storage-of-n1",
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=test",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        given = {"address": driver.socket, "kubeconfig": cluster.role, "args": ARGS, "environ": environ}
        with Sidecar(tmp_path, node="n1", **given) as sidecar:  # type: ignore[arg-type]
            sidecar.until_ready()
            cluster.create(CLAIMS, claim("data", "now", annotations={"opentelemetry.io/traceparent": PARENT}))
            until(lambda: cluster.phase(CLAIMS, "data") == "Bound", "the claim is bound")
            uid = cluster.get(CLAIMS, "data")["metadata"]["uid"]
            until(lambda: bool(collector.named("provision claim")), "its span, although the collector was busy at first")
            cluster.delete(CLAIMS, "data")
            until(lambda: not cluster.items(VOLUMES), "the volume is gone")
            until(lambda: bool(collector.named("delete volume")), "the span of its deletion")
            assert sidecar.metric("csi_node_sidecar_spans_sent_total") == len(collector.spans())
            assert sidecar.metric("csi_node_sidecar_spans_dropped_total") == 0
        assert sidecar.child.returncode == 0

    (root,) = collector.named("provision claim")
    assert (root["traceId"], root["parentSpanId"], root["status"]) == (PARENT[3:35], PARENT[36:52], {"code": 1})
    assert values(root)["k8s.persistentvolumeclaim.uid"] == uid
    children = {span["name"] for span in collector.spans() if span.get("parentSpanId") == root["spanId"]}
    assert {"update persistentvolumeclaims", "csi.v1.Controller/CreateVolume", "create persistentvolumes"} <= children
    deletion = collector.named("delete volume")[0]
    assert deletion["traceId"] != root["traceId"]
    assert values(deletion)["k8s.persistentvolumeclaim.uid"] == uid
    assert "csi.v1.Controller/DeleteVolume" in {span["name"] for span in collector.spans() if span["traceId"] == deletion["traceId"]}
    assert {key: collector.resource()[key] for key in ("service.name", "k8s.cluster.name", "k8s.node.name")} == {
        "service.name": "storage-of-n1",
        "k8s.cluster.name": "test",
        "k8s.node.name": "n1",
    }
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer of-the-collector"}
    lines = [json.loads(line) for line in sidecar.output().splitlines()]
    (said,) = [line for line in lines if line["msg"] == "Claim provisioned"]
    assert (said["trace_id"], said["span_id"]) == (root["traceId"], root["spanId"])
    assert "of-the-collector" not in sidecar.output()
