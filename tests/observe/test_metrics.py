import asyncio
import math
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.drain.maintenance.objects import Stage
from sidecar.drain.watch.loss import Evidence
from sidecar.engine.backoff import Backoff
from sidecar.engine.health import OK, Degraded, Health
from sidecar.engine.loop import Loop, Observer
from sidecar.observe.metrics import Metrics
from sidecar.observe.scrape.drain import DrainNumbers
from sidecar.tracing.numbers import SpanNumbers, Spans


def families(metrics):
    page, _ = metrics.render()
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def value(metrics, name, /, **labels):
    found = [s.value for f in families(metrics).values() for s in f.samples if s.name == name and s.labels == labels]
    assert len(found) <= 1, f"{name} {labels} appears {len(found)} times"
    return found[0] if found else None


def everything():
    """Metrics on which everything has happened once."""
    metrics = Metrics("1.2.3", wall=lambda: 1_000.0)
    metrics.driver_name("test-driver")
    metrics.csi_call("/csi.v1.Controller/CreateVolume", "OK", 0.2)
    metrics.provisioned("fast", "", 1.0)
    metrics.provision_failed("fast", "VolumeSnapshot")
    metrics.deleted("fast", 1.0)
    metrics.delete_failed("fast")
    metrics.capacities(goal=3, current=2, obsolete=1, stale=1)
    metrics.capacities_forbidden(1)
    metrics.decision("provisioning", "Create")
    metrics.evicted("evicted")
    metrics.reprovisioned("ready")
    metrics.reprovision_took(40.0)
    metrics.replacements_late(1)
    metrics.race_bid()
    metrics.race_lost()
    metrics.claim_policy_away()
    metrics.watch_claims_by_label(lambda: True)
    metrics.insufficient_capacity()
    metrics.driver_fault("duplicate-handle")
    metrics.fault("notes on volumes")
    metrics.journal_damage("garbled", 2)
    metrics.stalls.stalled(0.3, 0.04)
    metrics.stalls.stood_still(0.3, 0.04)
    metrics.driver_connected(True)
    metrics.watch_claims_in_progress(lambda: 2)
    metrics.watch_unsaved_volumes(lambda: 1)
    metrics.watch_cache("persistentvolumeclaims", lambda: 7)
    metrics.reflector_attempt("persistentvolumeclaims")
    metrics.reflector_relist("persistentvolumeclaims")
    metrics.reflector_event("persistentvolumeclaims")
    metrics.api_request("get", "persistentvolumeclaims", 200, 0.01)
    metrics.api_request("get", "persistentvolumeclaims", 0, 0.01)
    metrics.large_object("persistentvolumeclaims")
    metrics.api_throttled(1.5)
    metrics.watch_more(Spans(lambda: SpanNumbers(sent=3, dropped={"refused": 1}, waiting=2)))
    health = Health()
    health.scope("driver", gates_ready=True).report(OK())
    health.scope("cache", gates_ready=True).report(Degraded("behind"))
    health.scope("events").report(Degraded("dropped some"))
    metrics.watch_health(health.rows)
    return metrics


OURS = "csi_node_sidecar_"
ALL = {
    "csi_sidecar_operations_seconds": ("histogram", {"driver_name", "method_name", "grpc_status_code"}),
    "controller_persistentvolumeclaim_provision_total": ("counter", {"class", "source"}),
    "controller_persistentvolumeclaim_provision_failed_total": ("counter", {"class", "source"}),
    "controller_persistentvolumeclaim_provision_duration_seconds": ("histogram", {"class", "source"}),
    "controller_persistentvolume_delete_total": ("counter", {"class"}),
    "controller_persistentvolume_delete_failed_total": ("counter", {"class"}),
    "controller_persistentvolume_delete_duration_seconds": ("histogram", {"class"}),
    "csi_node_sidecar_capacities_forbidden": ("gauge", set()),
    "csi_node_sidecar_capacities_stale": ("gauge", set()),
    "csi_node_sidecar_suspected_leaks_total": ("counter", set()),
    "csistoragecapacities_desired_goal": ("gauge", set()),
    "csistoragecapacities_desired_current": ("gauge", set()),
    "csistoragecapacities_obsolete": ("gauge", set()),
    "workqueue_depth": ("gauge", {"name"}),
    "workqueue_adds_total": ("counter", {"name"}),
    "workqueue_queue_duration_seconds": ("histogram", {"name"}),
    "workqueue_work_duration_seconds": ("histogram", {"name"}),
    "workqueue_unfinished_work_seconds": ("gauge", {"name"}),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name"}),
    "workqueue_retries_total": ("counter", {"name"}),
    "promhttp_metric_handler_requests_total": ("counter", {"code"}),
    "promhttp_metric_handler_requests_in_flight": ("gauge", set()),
    "process_cpu_seconds_total": ("counter", set()),
    "process_resident_memory_bytes": ("gauge", set()),
    "process_virtual_memory_bytes": ("gauge", set()),
    "process_start_time_seconds": ("gauge", set()),
    "process_open_fds": ("gauge", set()),
    "process_max_fds": ("gauge", set()),
    f"{OURS}looks_total": ("counter", {"name"}),
    f"{OURS}build_info": ("gauge", {"version"}),
    f"{OURS}decisions_total": ("counter", {"room", "decision"}),
    f"{OURS}evictions_total": ("counter", {"result"}),
    f"{OURS}reprovisions_total": ("counter", {"result"}),
    f"{OURS}reprovision_seconds": ("histogram", set()),
    f"{OURS}replacements_not_ready": ("gauge", set()),
    f"{OURS}ownership_bids_total": ("counter", set()),
    f"{OURS}ownership_races_lost_total": ("counter", set()),
    f"{OURS}insufficient_capacity_total": ("counter", set()),
    f"{OURS}driver_faults_total": ("counter", {"kind"}),
    f"{OURS}faults_total": ("counter", {"task"}),
    f"{OURS}journal_damage_total": ("counter", {"kind"}),
    f"{OURS}loop_stall_seconds": ("histogram", set()),
    f"{OURS}loop_stall_own_seconds": ("histogram", set()),
    f"{OURS}loop_longest_stall_seconds": ("gauge", {"part"}),
    f"{OURS}driver_connected": ("gauge", set()),
    f"{OURS}claims_in_progress": ("gauge", set()),
    f"{OURS}unsaved_volumes": ("gauge", set()),
    f"{OURS}claims_by_label": ("gauge", set()),
    f"{OURS}claim_policy_away_total": ("counter", set()),
    f"{OURS}ready": ("gauge", {"scope"}),
    f"{OURS}reflector_attempts_total": ("counter", {"resource"}),
    f"{OURS}reflector_relists_total": ("counter", {"resource"}),
    f"{OURS}reflector_events_total": ("counter", {"resource"}),
    f"{OURS}reflector_last_heard_timestamp_seconds": ("gauge", {"resource"}),
    f"{OURS}cache_objects": ("gauge", {"resource"}),
    f"{OURS}api_requests_total": ("counter", {"verb", "resource", "code"}),
    f"{OURS}api_request_duration_seconds": ("histogram", {"verb", "resource"}),
    f"{OURS}large_objects_total": ("counter", {"resource"}),
    f"{OURS}api_throttle_seconds_total": ("counter", set()),
    f"{OURS}spans_sent_total": ("counter", set()),
    f"{OURS}spans_dropped_total": ("counter", {"reason"}),
    f"{OURS}spans_waiting": ("gauge", set()),
}


def test_the_page_has_these_names_types_and_labels_and_no_others():
    page, content_type = everything().render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    types = dict(line.split()[2:4] for line in page.decode().splitlines() if line.startswith("# TYPE"))
    assert types == {name: kind for name, (kind, _) in ALL.items()}
    metrics = everything()
    for name, (kind, labels) in ALL.items():
        sample = f"{name}_count" if kind == "histogram" else name
        assert {frozenset(s.labels) for f in families(metrics).values() for s in f.samples if s.name == sample} == {frozenset(labels)}


def test_a_look_is_counted_when_it_has_ended_with_or_without_a_queue():
    metrics = Metrics("1")
    observer = metrics.queue("claims")
    observer.started("a", queued=0.0)
    assert value(metrics, f"{OURS}looks_total", name="claims") == 0
    observer.finished("a", worked=0.0, ending="settled")
    metrics.looked("gone nodes")
    assert value(metrics, f"{OURS}looks_total", name="claims") == 1
    assert value(metrics, f"{OURS}looks_total", name="gone nodes") == 1


def test_values_arrive_where_they_belong():
    metrics = everything()
    assert value(metrics, f"{OURS}build_info", version="1.2.3") == 1
    assert value(metrics, f"{OURS}decisions_total", room="provisioning", decision="Create") == 1
    assert value(metrics, f"{OURS}claims_in_progress") == 2
    assert value(metrics, f"{OURS}unsaved_volumes") == 1
    assert value(metrics, f"{OURS}cache_objects", resource="persistentvolumeclaims") == 7
    assert value(metrics, f"{OURS}reflector_last_heard_timestamp_seconds", resource="persistentvolumeclaims") == 1000
    assert value(metrics, f"{OURS}api_requests_total", verb="get", resource="persistentvolumeclaims", code="200") == 1
    assert value(metrics, f"{OURS}api_requests_total", verb="get", resource="persistentvolumeclaims", code="<error>") == 1
    assert value(metrics, f"{OURS}api_request_duration_seconds_count", verb="get", resource="persistentvolumeclaims") == 2
    assert value(metrics, f"{OURS}api_throttle_seconds_total") == 1.5
    assert value(metrics, f"{OURS}journal_damage_total", kind="garbled") == 2
    assert value(metrics, f"{OURS}driver_connected") == 1
    metrics.driver_connected(False)
    assert value(metrics, f"{OURS}driver_connected") == 0


def test_calls_before_the_drivers_name_is_known_are_labelled_so():
    metrics = Metrics("0")
    metrics.csi_call("/csi.v1.Identity/Probe", "OK", 0.1)
    metrics.driver_name("test-driver")
    metrics.csi_call("/csi.v1.Identity/Probe", "OK", 0.1)
    for driver in ("unknown-driver", "test-driver"):
        labels = {"driver_name": driver, "method_name": "/csi.v1.Identity/Probe", "grpc_status_code": "OK"}
        assert value(metrics, "csi_sidecar_operations_seconds_count", **labels) == 1


def test_capacity_gauges_are_absent_until_the_feature_is_on():
    metrics = Metrics("0")
    assert not [name for name in families(metrics) if name.startswith("csistoragecapacities")]
    metrics.enable_capacity_metrics()
    metrics.enable_capacity_metrics()
    assert value(metrics, "csistoragecapacities_desired_goal") == 0
    metrics.capacities(goal=3, current=2, obsolete=1, stale=1)
    assert [value(metrics, f"csistoragecapacities_{name}") for name in ("desired_goal", "desired_current", "obsolete")] == [3, 2, 1]


def test_only_scopes_that_gate_readiness_have_a_series():
    metrics = everything()
    assert value(metrics, f"{OURS}ready", scope="driver") == 1
    assert value(metrics, f"{OURS}ready", scope="cache") == 0
    assert value(metrics, f"{OURS}ready", scope="events") is None


def test_a_scrape_that_fails_is_counted():
    metrics = Metrics("0")
    readings = iter([0])
    metrics.watch_unsaved_volumes(lambda: 5 if next(readings, 1) else 1 // 0)
    with pytest.raises(ZeroDivisionError):
        metrics.render()
    assert value(metrics, "promhttp_metric_handler_requests_total", code="500") == 1
    assert value(metrics, "promhttp_metric_handler_requests_in_flight") == 1


def test_a_loop_fits_the_observer():
    metrics = Metrics("0")
    observer: Observer = metrics.queue("drain")

    async def run():
        handled = []

        async def handle(key):
            handled.append(key)
            if len(handled) == 1:
                raise RuntimeError(key)
            loop.stop_taking()

        loop = Loop("drain", handle, workers=1, deadline=5.0, backoff=Backoff(0.001, 0.001), observer=observer)
        metrics.queue("drain").watch(loop)
        loop.add("a")
        await loop.run()
        names = ("adds_total", "queue_duration_seconds_count", "work_duration_seconds_count", "retries_total", "depth")
        assert [value(metrics, f"workqueue_{name}", name="drain") for name in names] == [2, 2, 2, 1, 0]

    asyncio.run(run())


def test_what_drain_decisions_come_to_is_read_at_the_scrape():
    metrics = Metrics("1.2.3")
    numbers = [None]
    metrics.watch_drain(lambda: numbers[0])
    assert value(metrics, "csi_node_sidecar_drain_gate", state="off") is None
    numbers[0] = DrainNumbers(
        ready={"reboot": True, "retire": None},
        blockers={"LastCopy": 2},
        bytes_remaining=30,
        stranded_pods=1,
        evacuation_seconds=None,
        gate="closed",
    )
    assert value(metrics, "csi_node_sidecar_node_ready_for", intent="reboot") == 1
    assert math.isnan(value(metrics, "csi_node_sidecar_node_ready_for", intent="retire"))
    assert value(metrics, "csi_node_sidecar_drain_blockers", reason="LastCopy") == 2
    assert value(metrics, "csi_node_sidecar_drain_bytes_remaining") == 30
    assert value(metrics, "csi_node_sidecar_stranded_pods_predicted") == 1
    assert value(metrics, "csi_node_sidecar_drain_gate", state="closed") == 1
    assert value(metrics, "csi_node_sidecar_evacuation_seconds") is None
    numbers[0] = replace(numbers[0], evacuation_seconds=12.5)
    assert value(metrics, "csi_node_sidecar_evacuation_seconds") == 12.5


def test_maintenances_are_counted_by_stage_with_the_pods_that_are_left_and_whether_one_is_late():
    metrics, told = Metrics("1.2.3"), []
    numbers = DrainNumbers(
        ready={}, blockers={}, bytes_remaining=0, stranded_pods=0, evacuation_seconds=None, gate="off", maintenances=told
    )
    metrics.watch_drain(lambda: numbers)

    def seen():
        stages = [value(metrics, "csi_node_sidecar_maintenances", stage=stage) for stage in Stage if stage is not Stage.COMPLETE]
        return stages, value(metrics, "csi_node_sidecar_maintenance_pods_left"), value(metrics, "csi_node_sidecar_maintenance_late")

    assert seen() == ([0, 0, 0], 0, 0)
    told += [{"stage": "Idle"}, {"stage": "Drain", "left": 3, "late": True, "drained": True}, {"stage": "Drain", "left": 5}]
    assert seen() == ([1, 0, 2], 5, 0)
    told[1]["drained"] = False
    assert seen() == ([1, 0, 2], 5, 1)


def test_who_looks_after_gone_nodes_tells_how_many_volumes_they_had_by_evidence():
    metrics = Metrics("1.2.3")
    lost = [None]
    metrics.watch_node_loss(lambda: lost[0], driver="local.example")
    assert value(metrics, "csi_node_sidecar_looks_after_gone_nodes", driver_name="local.example") == 0
    assert value(metrics, "csi_node_sidecar_lost_volumes", evidence="None") is None
    lost[0] = {"None": 3}
    told = {word: value(metrics, "csi_node_sidecar_lost_volumes", evidence=word) for word in Evidence}
    assert told == {"Announced": 0, "Acknowledged": 0, "None": 3, "Unproven": 0}
    assert value(metrics, "csi_node_sidecar_looks_after_gone_nodes", driver_name="local.example") == 1
