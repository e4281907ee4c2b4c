"""A collector sees the way of a claim, from its annotation to the driver's call; and the log names the trace."""

from __future__ import annotations

import json

from hack.lib.control_plane import until
from hack.lib.programs import claim
from tests.harness.cluster import CLAIMS, SOON, Cluster, now
from tests.harness.collector import collecting, values

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trace_leads_from_the_claim_to_its_volume_and_the_log_names_it(cluster: Cluster) -> None:
    driver = cluster.driver()
    cluster.classes(driver)
    with collecting(503) as collector, driver:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20of-the-collector",
            "OTEL_SERVICE_NAME": "storage-of-n1",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with cluster.sidecar(driver, *SOON, "--logging-format=json", environ=environ) as sidecar:
            sidecar.until_ready()
            cluster.create(CLAIMS, claim("data", now(driver), annotations={"opentelemetry.io/traceparent": PARENT}))
            cluster.bound("data")
            uid = cluster.get(CLAIMS, "data")["metadata"]["uid"]
            until(lambda: collector.named("provision claim"), "its span, although the collector was busy at first")
            cluster.give_up("data")
            until(lambda: collector.named("delete volume"), "the span of its deletion")

    (root,) = collector.named("provision claim")
    assert (root["traceId"], root["parentSpanId"], root["status"]) == (PARENT[3:35], PARENT[36:52], {"code": 1})
    assert values(root)["k8s.persistentvolumeclaim.uid"] == uid
    children = {span["name"] for span in collector.spans() if span.get("parentSpanId") == root["spanId"]}
    assert {"update persistentvolumeclaims", "csi.v1.Controller/CreateVolume", "create persistentvolumes"} <= children
    (deletion,) = collector.named("delete volume")
    assert values(deletion)["k8s.persistentvolumeclaim.uid"] == uid
    assert "csi.v1.Controller/DeleteVolume" in {span["name"] for span in collector.spans() if span["traceId"] == deletion["traceId"]}
    assert {key: collector.resource()[key] for key in ("service.name", "k8s.node.name")} == {
        "service.name": "storage-of-n1",
        "k8s.node.name": "n1",
    }
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer of-the-collector"}
    (said,) = [line for line in map(json.loads, sidecar.output().splitlines()) if line["msg"] == "Claim provisioned"]
    assert (said["trace_id"], said["span_id"]) == (root["traceId"], root["spanId"])
    assert "of-the-collector" not in sidecar.output()
