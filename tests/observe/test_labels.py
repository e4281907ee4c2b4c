"""No tenant, driver or server makes a series by a name of its choice."""

import pytest

from sidecar.observe.labels import OTHER, Drivers
from sidecar.observe.metrics import Metrics
from tests.harness import samples
from tests.harness.loops import until
from tests.harness.sidecar import ListedKube, running, sidecar_on


def series(metrics: Metrics) -> set[str]:
    page, _ = metrics.render()
    return {line.rpartition(" ")[0] for line in page.decode().splitlines() if not line.startswith("#")}


def of_classes(metrics: Metrics) -> set[str]:
    return {line for line in series(metrics) if 'class="' in line and "_bucket" not in line}


def test_claims_of_thousands_of_missing_classes_are_one_series() -> None:
    metrics = Metrics("0")
    metrics.watch_classes({"fast"}.__contains__)
    for number in range(4000):
        metrics.provision_failed(f"missing-{number}", "")
    for name in ("fast", ""):
        metrics.provision_failed(name, "")
    name = "controller_persistentvolumeclaim_provision_failed_total"
    assert of_classes(metrics) == {f'{name}{{class="{class_}",source=""}}' for class_ in ("fast", "", OTHER)}


def test_populators_of_thousands_of_kinds_are_one_series() -> None:
    """A claim may name any kind as its source."""
    metrics = Metrics("0")
    metrics.watch_classes({"fast"}.__contains__)
    for number in range(4000):
        metrics.provision_failed("fast", f"Populator{number}")
        metrics.provisioned("fast", f"Populator{number}", 1.0)
    for kind in ("", "VolumeSnapshot", "PersistentVolumeClaim"):
        metrics.provision_failed("fast", kind)
    failed = {line for line in of_classes(metrics) if "_failed_total" in line}
    name = "controller_persistentvolumeclaim_provision_failed_total"
    assert failed == {f'{name}{{class="fast",source="{kind}"}}' for kind in ("", "VolumeSnapshot", "PersistentVolumeClaim", OTHER)}
    assert len(metrics._provisioned.by) == len(metrics._provision_seconds.by) == 1


@pytest.mark.parametrize("scraped", [True, False])
def test_the_series_of_a_class_go_with_it(scraped: bool) -> None:
    metrics, classes = Metrics("0"), set[str]()
    metrics.watch_classes(classes.__contains__)
    for number in range(1000):
        classes.clear()
        classes.add(f"class-{number}")
        for source in ("", "VolumeSnapshot", f"Populator{number}"):
            metrics.provisioned(f"class-{number}", source, 1.0)
            metrics.provision_failed(f"class-{number}", source)
        metrics.deleted(f"class-{number}", 1.0)
        metrics.delete_failed(f"class-{number}")
        if scraped and number % 100 == 0:
            metrics.render()
    assert len(metrics._provisioned.by) <= 3 * 2
    left = of_classes(metrics)
    assert left and all('class="class-999"' in line for line in left)
    classes.clear()
    assert of_classes(metrics) == set()
    metrics.deleted("class-999", 1.0)
    assert any(f'class="{OTHER}"' in line for line in of_classes(metrics))


def test_a_driver_that_has_ever_new_names_has_few() -> None:
    drivers = Drivers()
    labels = {drivers.label(name) for name in ("test.csi", *(f"driver-{number}" for number in range(1000)), "x" * 64, "test.csi")}
    assert {"test.csi", OTHER} < labels
    assert len(labels) == 5
    assert "x" * 64 not in labels


def test_a_server_that_answers_with_any_number_makes_few_series() -> None:
    metrics = Metrics("0")
    for status in range(1000):
        metrics.api_request("get", "pods", status, 0.1)
    found = {line for line in series(metrics) if "api_requests_total" in line}
    assert len(found) < 70
    for code in ("200", "409", "<error>", OTHER):
        assert f'csi_node_sidecar_api_requests_total{{code="{code}",resource="pods",verb="get"}}' in found


def test_the_program_knows_its_classes() -> None:
    """Those of its driver alone."""
    kube = ListedKube(storageclasses=[samples.class_json(), samples.class_json(metadata={"name": "foreign"}, provisioner="another")])

    async def fails(sidecar: object) -> None:
        await until(lambda: len(sidecar.caches.classes) == 1)  # type: ignore[attr-defined]
        for name in ("fake-class", "foreign", "missing"):
            sidecar._tools.metrics.delete_failed(name)  # type: ignore[attr-defined]
        assert {line.partition("{")[2] for line in of_classes(sidecar._tools.metrics)} == {  # type: ignore[attr-defined]
            'class="fake-class"}',
            f'class="{OTHER}"}}',
        }

    running(lambda: sidecar_on(kube), fails)
