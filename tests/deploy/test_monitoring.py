"""Alerts and dashboard ask for what the running program serves, and each alert fires when it should and leads to its runbook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import LATE, OurDriver, Sidecar, claim, storage_class
from sidecar.observe.metrics import Metrics
from tests.deploy.manifests import DEPLOY, Json, the, written
from tests.deploy.promql import Matcher, grouped_by, selectors

MONITORING = DEPLOY / "components" / "monitoring"
README = MONITORING / "README.md"
RULES = [
    rule for group in the("PrometheusRule", written("components", "monitoring", "alerts.yaml"))["spec"]["groups"] for rule in group["rules"]
]
DASHBOARD: Json = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What Prometheus adds to each series: its own series of a target, and the target's labels, as the PodMonitor sets them.
PROMETHEUS_OWN = {"up"}
TARGET_LABELS = {"namespace", "pod", "node", "job"}
# An API server answers 429 only under a load that these tests do not make; test_a_refusal_is_labelled_429 stands in.
NEEDS_LOAD = ("csi_node_sidecar_api_requests_total", Matcher("code", "=", "429"))

Page = dict[str, list[dict[str, str]]]


# --- a program that has created, deleted and failed -------------------------------------------------------------------

CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
NODE = "n7"
"""By its name its turn to look for gone nodes comes at once."""


@contextmanager
def reading_drbd(work: Path, socket: Path) -> Iterator[None]:
    """The container beside the sidecar, over a `drbdsetup` of a node that has no resource."""
    program = work / "bin" / "drbdsetup"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = events2 ] && echo "exists -" || echo "[]"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    with subprocess.Popen([sys.executable, "-m", "sidecar", "read-drbd", f"--listen={socket}"], env=environ) as reader:
        yield
        reader.terminate()


@pytest.fixture(scope="module")
def page(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The labels of each series on /metrics, once a volume was made and deleted and each had failed before."""
    work = tmp_path_factory.mktemp("page")
    args = ["--enable-capacity", "--capacity-ownerref-level=-1", "--drain-report", "--node-delete-policy=Orphan", "--failover=Observe"]
    driver = OurDriver(work, node=NODE, name="page.csi-node-sidecar.io")
    driver.misbehave(*({"method": method, "times": 1, "fail": "INTERNAL"} for method in ("CreateVolume", "DeleteVolume")))
    with driver, reading_drbd(work, driver.socket.parent / "drbd.sock"):
        plane.add_node(NODE)
        plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class("page", driver.driver, LATE))
        given = {"node": NODE, "address": driver.socket, "kubeconfig": plane.kubeconfig, "environ": {"NAMESPACE": "default"}}
        with Sidecar(work, args=args, **given) as sidecar:  # type: ignore[arg-type]
            sidecar.until_ready()
            plane.request("POST", CLAIMS, claim("page", "page", annotations={"volume.kubernetes.io/selected-node": NODE}))
            until(lambda: plane.request("GET", f"{CLAIMS}/page")["status"]["phase"] == "Bound", "the claim is bound", seconds=30)
            plane.request("DELETE", f"{CLAIMS}/page")
            until(lambda: not plane.request("GET", VOLUMES)["items"], "the volume is gone", seconds=30)
            until(lambda: sidecar.metric("csistoragecapacities_desired_current") == 1, "capacity is published", seconds=30)
            for name, what in (("lost_volumes{", "gone nodes are looked for"), ("failover_evidence_age_seconds ", "the storage is read")):
                until(lambda name=name: f"\ncsi_node_sidecar_{name}" in sidecar.page("/metrics")[1], what, seconds=30)  # type: ignore[misc]
            status, text = sidecar.page("/metrics")
            assert status == 200
    plane.request("DELETE", "/apis/storage.k8s.io/v1/storageclasses/page")
    plane.request("DELETE", f"/api/v1/nodes/{NODE}")
    found: Page = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append(sample.labels)
    yield found


def check(page: Page, expression: str) -> None:
    """Every series is served, and so is every label it is chosen or grouped by."""
    asked = [selector for selector in selectors(expression) if selector.metric not in PROMETHEUS_OWN]
    known = set(TARGET_LABELS)
    for selector in asked:
        assert selector.metric in page, f"{selector.metric} is not on /metrics"
        known |= set().union(*page[selector.metric])
        for matcher in selector.matchers:
            if matcher.label in TARGET_LABELS or (selector.metric, matcher) == NEEDS_LOAD:
                continue
            values = [labels[matcher.label] for labels in page[selector.metric] if matcher.label in labels]
            assert values, f"{selector.metric} has no label {matcher.label}"
            assert any(map(matcher.fits, values)), f"{selector.metric}: no {matcher.label} of {values} fits {matcher.value}"
    assert grouped_by(expression) <= known


@pytest.mark.real_api
def test_alerts_and_panels_ask_for_series_that_the_program_serves(page: Page) -> None:
    for rule in RULES:
        check(page, rule["expr"])
    for target in [target for panel in PANELS for target in panel["targets"]]:
        check(page, target["expr"])
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= grouped_by(target["expr"])


@pytest.mark.real_api
def test_the_dashboards_choice_of_nodes_asks_for_series_that_the_program_serves(page: Page) -> None:
    query = next(item["query"] for item in DASHBOARD["templating"]["list"] if item["name"] == "node")
    metric, label = re.fullmatch(r"label_values\((\w+)\{[^}]*\}, (\w+)\)", query).groups()  # type: ignore[union-attr]
    assert metric in page and label in TARGET_LABELS


def test_a_refusal_is_labelled_429() -> None:
    metrics = Metrics("0")
    metrics.api_request("get", "pods", 429, 0.1)
    assert b'csi_node_sidecar_api_requests_total{code="429"' in metrics.render()[0]


# --- the PodMonitor ---------------------------------------------------------------------------------------------------


def test_the_pod_monitor_finds_the_pods_and_sets_the_labels_that_are_asked_for() -> None:
    spec = the("PodMonitor", written("components", "monitoring", "podmonitor.yaml"))["spec"]
    template = the("DaemonSet", written("base", "daemonset.yaml"))["spec"]["template"]
    ports = [port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["namespaceSelector"] == {"any": True}
    assert ports.count(endpoint["port"]) == 1
    assert {item["targetLabel"] for item in endpoint["relabelings"]} == TARGET_LABELS - {"namespace", "pod"}
    (job,) = (item["replacement"] for item in endpoint["relabelings"] if item["targetLabel"] == "job")
    expressions = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
    for selector in (selector for expression in expressions for selector in selectors(expression)):
        assert Matcher("job", "=", job) in selector.matchers, selector
