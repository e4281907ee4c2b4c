"""Cases E1 to E6: the exposition that upstream's dashboards read, and who serves it. E7 is held where secrets could pass."""

import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hack.lib import programs
from hack.lib.control_plane import until
from sidecar.observe.metrics import Metrics

CREATE_OK = {"driver_name": "test-driver", "method_name": "/csi.v1.Controller/CreateVolume", "grpc_status_code": "OK"}
CLAIM = "controller_persistentvolumeclaim_provision"
VOLUME = "controller_persistentvolume_delete"
GO_DEFAULTS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]


@pytest.fixture
def metrics():
    made = Metrics("0.0.0")
    made.driver_name("test-driver")
    return made


def samples(metrics, series, /, **labels):
    page, _ = metrics.render()
    found = [sample for family in text_string_to_metric_families(page.decode()) for sample in family.samples]
    return [sample for sample in found if sample.name == series and labels.items() <= sample.labels.items()]


def value(metrics, series, /, **labels):
    found = [sample.value for sample in samples(metrics, series) if sample.labels == labels]
    return found[0] if found else None


def bounds(metrics, series, /, **labels):
    return [sample.labels["le"] for sample in samples(metrics, f"{series}_bucket", **labels)]


def test_E1_one_create_volume_is_counted_under_its_method_and_status(metrics):
    metrics.csi_call("/csi.v1.Controller/CreateVolume", "OK", 0.2)
    assert value(metrics, "csi_sidecar_operations_seconds_count", **CREATE_OK) == 1
    assert value(metrics, "csi_sidecar_operations_seconds_sum", **CREATE_OK) == 0.2


def test_E2_buckets_of_csi_calls(metrics):
    metrics.csi_call("/csi.v1.Controller/CreateVolume", "OK", 0.2)
    expected = ["0.1", "0.25", "0.5", "1", "2.5", "5", "10", "15", "25", "50", "120", "300", "600", "+Inf"]
    assert bounds(metrics, "csi_sidecar_operations_seconds", **CREATE_OK) == expected


def test_E3_a_success_counts_and_is_timed(metrics):
    for source in ["", "VolumeSnapshot", "PersistentVolumeClaim"]:
        labels = {"class": "fast", "source": source}
        metrics.provisioned("fast", source, 0.3)
        assert value(metrics, f"{CLAIM}_total", **labels) == 1
        assert value(metrics, f"{CLAIM}_duration_seconds_sum", **labels) == 0.3
        assert bounds(metrics, f"{CLAIM}_duration_seconds", **labels) == GO_DEFAULTS
        assert not samples(metrics, f"{CLAIM}_failed_total")


def test_E3_a_failure_counts_as_a_failure_only(metrics):
    metrics.provision_failed("fast", "")
    assert value(metrics, f"{CLAIM}_failed_total", **{"class": "fast", "source": ""}) == 1
    assert not samples(metrics, f"{CLAIM}_total")
    assert not samples(metrics, f"{CLAIM}_duration_seconds_count")


def test_E4_deletion_likewise_by_class(metrics):
    metrics.deleted("fast", 0.3)
    assert value(metrics, f"{VOLUME}_total", **{"class": "fast"}) == 1
    assert value(metrics, f"{VOLUME}_duration_seconds_count", **{"class": "fast"}) == 1
    assert bounds(metrics, f"{VOLUME}_duration_seconds") == GO_DEFAULTS
    assert not samples(metrics, f"{VOLUME}_failed_total")
    metrics.delete_failed("fast")
    assert value(metrics, f"{VOLUME}_failed_total", **{"class": "fast"}) == 1
    assert value(metrics, f"{VOLUME}_total", **{"class": "fast"}) == 1


def test_E5_workqueue_series_exist_from_the_start(metrics):
    for name in ["claims", "volumes", "csistoragecapacity"]:
        for series in ("depth", "adds_total", "unfinished_work_seconds", "longest_running_processor_seconds", "retries_total"):
            assert value(metrics, f"workqueue_{series}", name=name) == 0
        for series in ("queue_duration_seconds", "work_duration_seconds"):
            assert value(metrics, f"workqueue_{series}_count", name=name) == 0
            upper = [float(bound) for bound in bounds(metrics, f"workqueue_{series}", name=name)]
            assert upper == pytest.approx([*(10.0**power for power in range(-8, 2)), float("inf")])


LISTEN = "0A"


def listeners(pid):
    """Addresses, as the kernel writes them, on which the process accepts TCP connections."""
    own = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    rows = [line.split() for family in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in own]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who listens is read from /proc")
@pytest.mark.parametrize("flag", ["--http-endpoint", "--metrics-address", None])
def test_E6_without_an_address_nobody_listens(flag, tmp_path):
    with programs.OurDriver(tmp_path, node="n1") as driver:
        sidecar = programs.Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig="", args=["--master=http://127.0.0.1:1"])
        sidecar.command = [f"{flag}=127.0.0.1:{sidecar.port}" if word.startswith("--http-endpoint") else word for word in sidecar.command]
        sidecar.command = [word for word in sidecar.command if not word.startswith(("None=", "--debug-endpoint="))]
        with sidecar:
            until(lambda: "List and watch will be tried again" in sidecar.output(), "it is at work", seconds=30)
            assert [int(address.rpartition(":")[2], 16) for address in listeners(sidecar.child.pid)] == [sidecar.port][: flag is not None]
            assert sidecar.page("/metrics")[0] == (200 if flag else 0)
    assert sidecar.child.returncode == 0, sidecar.output()
