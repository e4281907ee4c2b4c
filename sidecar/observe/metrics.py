"""Declares all metrics and serves their values; rooms call named methods and never see a metric.

The first part has upstream's names, labels, types and buckets, so that its dashboards and alerts work; the names of all others begin with
`csi_node_sidecar_`. Values that can be read at a scrape are read then (`watch_…`), because a gauge that is set elsewhere may be wrong;
families that are made only then are in `scrape`.

Upstream also counts claims and volumes of other nodes; here callers count only what this node attempted.
All methods are called on the event loop's thread.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from sidecar.engine.health import Row
from sidecar.observe import labels
from sidecar.observe.exposition import CONTENT_TYPE, Family, page
from sidecar.observe.labels import OURS
from sidecar.observe.scrape.counted import Counts, Durations, Gauges
from sidecar.observe.scrape.drain import Drain, DrainNumbers, NodeLoss
from sidecar.observe.scrape.process import Process
from sidecar.observe.scrape.queues import QueueObserver, Queues
from sidecar.observe.scrape.readiness import Ready
from sidecar.observe.scrape.stalls import StallObserver, Stalls
from sidecar.observe.scrape.watches import Watches

UNKNOWN_DRIVER: Final = "unknown-driver"
UPSTREAM_QUEUES: Final = ("claims", "volumes", "csistoragecapacity")

CSI_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
# The Go client's defaults. The Python client's have other bounds, and upstream's series could not be compared.
REPROVISION_BUCKETS: Final = (15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
GO_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
CAPACITY_GAUGES: Final = {
    "desired_goal": "CSIStorageCapacity objects there should be.",
    "desired_current": "CSIStorageCapacity objects there should be and are.",
    "obsolete": "CSIStorageCapacity objects of ours that should not be there.",
}


class Collector(Protocol):
    """Some metrics, as they are at a scrape."""

    def collect(self) -> Iterable[Family]: ...


C = TypeVar("C", bound=Collector)


class Metrics:
    """The metrics of one process, or of one simulated node: nothing here is global."""

    def __init__(self, version: str, *, wall: Callable[[], float] = time.time) -> None:
        self._collectors: list[Collector] = []
        """In the order of the page."""
        self._wall = wall
        self._driver = UNKNOWN_DRIVER
        self._queues: dict[str, QueueObserver] = {}
        self._looks: dict[str, int] = {}
        self._capacity: dict[str, Gauges] = {}
        self._drivers = labels.Drivers()
        self._classes: labels.Classes[Counts | Durations] = labels.Classes()
        self._declare_upstream()
        self._add(Queues(self._queues, self._looks))
        self._declare_ours()
        self._declare_kube()
        self._add(Process())
        self._gauge("build_info", "Always 1; the version is the label.", "version").set(1, (version,))
        for name in UPSTREAM_QUEUES:
            self.queue(name)

    # -- what upstream has too ----------------------------------------------------------------------------------------

    def driver_name(self, name: str) -> None:
        """Sets the label for calls from now on. Earlier ones keep `unknown-driver`, as upstream's do."""
        self._driver = self._drivers.label(name)

    def csi_call(self, method: str, code: str, seconds: float) -> None:
        """`method` is the full gRPC path, `code` the status as Go prints it, or `unknown-non-grpc`."""
        self._csi_seconds.observe((self._driver, method, code), seconds)

    def provisioned(self, class_: str, source: str, seconds: float) -> None:
        """`source` is the kind of the claim's data source, or empty."""
        self._provisioned.add(self._of_class(self._provisioned, class_, labels.source(source)))
        self._provision_seconds.observe(self._of_class(self._provision_seconds, class_, labels.source(source)), seconds)

    def provision_failed(self, class_: str, source: str) -> None:
        self._provision_failed.add(self._of_class(self._provision_failed, class_, labels.source(source)))

    def deleted(self, class_: str, seconds: float) -> None:
        self._deleted.add(self._of_class(self._deleted, class_))
        self._delete_seconds.observe(self._of_class(self._delete_seconds, class_), seconds)

    def delete_failed(self, class_: str) -> None:
        self._delete_failed.add(self._of_class(self._delete_failed, class_))

    def enable_capacity_metrics(self) -> None:
        """As upstream, these exist only if the capacity feature is on; otherwise they are absent and not 0."""
        if not self._capacity:
            for name, text in CAPACITY_GAUGES.items():
                self._capacity[name] = self._add(Gauges(f"csistoragecapacities_{name}", text))

    def capacities(self, *, goal: int, current: int, obsolete: int, stale: int) -> None:
        """Objects that should exist; those of them that do; ours that should not exist; and those with a figure that the driver has not
        renewed."""
        self.enable_capacity_metrics()
        self._stale.set(stale)
        for gauge, count in zip(self._capacity.values(), (goal, current, obsolete), strict=True):
            gauge.set(count)

    def capacities_forbidden(self, classes: int) -> None:
        """Of how many classes the API server forbids this process to write or delete an object."""
        self._capacities_forbidden.set(classes)

    def queue(self, name: str) -> QueueObserver:
        """The observer for loops over the queue of this name."""
        if name not in self._queues:
            self._queues[name] = QueueObserver()
        return self._queues[name]

    # -- ours ---------------------------------------------------------------------------------------------------------

    def decision(self, room: str, name: str) -> None:
        """`name` is the decision's class name."""
        self._decisions.add((room, name))

    def looked(self, at: str) -> None:
        """A look has ended that no queue asked for."""
        self._looks[at] = self._looks.get(at, 0) + 1

    def evicted(self, result: str) -> None:
        """How an attempt to evict a pod ended: a value of `eviction/rules.Result`."""
        self._evictions.add((result,))

    def reprovisioned(self, result: str) -> None:
        """How the making anew of a replica ended: a value of `drain/reprovision/steps.Result`."""
        self._reprovisions.add((result,))

    def reprovision_took(self, seconds: float) -> None:
        """From the moment when its Lease was taken until the replacement was Ready."""
        self._reprovision_seconds.observe((), seconds)

    def replacements_late(self, count: int) -> None:
        """Replicas evicted or made anew that are not Ready in time, as of now."""
        self._replacements_late.set(count)

    def fault(self, task: str) -> None:
        """Something that the program can do without has failed by a fault of this program."""
        self._faults.add((task,))

    def race_bid(self) -> None:
        """This node wrote itself into an Immediate claim as its owner, or tried to."""
        self._race_bids.add()

    def race_lost(self) -> None:
        self._race_lost.add()

    def insufficient_capacity(self) -> None:
        """A claim was left to other nodes because this one has too little free space for it."""
        self._insufficient.add()

    def leak_suspected(self) -> None:
        """A volume may be left on the node that this program does not know of."""
        self._suspected.add()

    def driver_fault(self, kind: str, count: int = 1) -> None:
        """The driver has done what no driver may; a claim or a list that meets the same again is counted once."""
        self._driver_faults.add((kind,), count)

    def journal_damage(self, kind: str, count: int) -> None:
        """Lines or files of the journal that are not as this program writes them."""
        self._journal_damage.add((kind,), count)

    def driver_connected(self, connected: bool) -> None:
        self._driver_connected.set(connected)

    def watch_classes(self, exists: Callable[[str], bool]) -> None:
        """Only classes that exist have series of their own."""
        self._classes.exists = exists

    def watch_claims_in_progress(self, count: Callable[[], int]) -> None:
        self._in_progress.set(count)

    def watch_unsaved_volumes(self, count: Callable[[], int]) -> None:
        self._unsaved.set(count)

    def claim_policy_away(self) -> None:
        """A label of a claim is not what the admission policy would have written, so all claims are watched."""
        self._policy_away.add()

    def watch_claims_by_label(self, by_label: Callable[[], bool]) -> None:
        self._claims_by_label.set(by_label)

    def watch_health(self, rows: Callable[[], Iterable[Row]]) -> None:
        """One series for each scope that gates readiness: their minimum is the answer of /readyz."""
        self._add(Ready(rows))

    def watch_drain(self, numbers: Callable[[], DrainNumbers | None]) -> None:
        """`numbers` returns None until the node has been judged once."""
        self._add(Drain(numbers))

    def watch_node_loss(self, lost: Callable[[], Mapping[str, int] | None], *, driver: str) -> None:
        """`lost` returns None where another sidecar looks after nodes that are gone."""
        self._add(NodeLoss(lost, driver=driver))

    def watch_more(self, collector: Collector) -> None:
        """Of a room that not every process has, and which declares its families itself."""
        self._add(collector)

    def watch_cache(self, resource: str, count: Callable[[], int]) -> None:
        self._cache_objects.set(count, (resource,))

    def reflector_attempt(self, resource: str) -> None:
        """A list or a watch was requested. Attempts beyond relists and the usual ends of watches are failures."""
        self._reflector_attempts.add((resource,))

    def reflector_relist(self, resource: str) -> None:
        """A complete list arrived."""
        self._reflector_relists.add((resource,))
        self._reflector_heard[resource] = self._wall()

    def reflector_event(self, resource: str) -> None:
        """A watch event arrived. Bookmarks count too, since they prove that the cache is up to date."""
        self._reflector_events[resource] = self._reflector_events.get(resource, 0) + 1
        self._reflector_heard[resource] = self._wall()

    def api_request(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """`resource` is the plural and never an object's name. Status 0 means no answer, which client-go labels `<error>`."""
        self._api_requests.add((verb, resource, labels.status(status)))
        self._api_seconds.observe((verb, resource), seconds)

    def large_object(self, resource: str) -> None:
        """The API server sent an object that is much larger than usual."""
        self._large_objects.add((resource,))

    def api_throttled(self, seconds: float) -> None:
        """A request waited for the client-side limiter."""
        self._api_throttled.add(amount=seconds)

    def _of_class(self, metric: Counts | Durations, class_: str, *more: str) -> tuple[str, ...]:
        """The labels' values of its series of that class."""
        values = (self._classes.label(class_), *more)
        if self._classes.used(metric, values):
            self._forget_classes()
        return values

    def _forget_classes(self) -> None:
        for metric, values in self._classes.gone():
            metric.by.pop(values, None)

    # -- the page -----------------------------------------------------------------------------------------------------

    def families(self) -> Iterable[Family]:
        """What there is to be shown now. A family may have no series."""
        self._forget_classes()
        for collector in self._collectors:
            yield from collector.collect()

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type. As in promhttp, a scrape is counted in the next one's result."""
        self._scrapes_in_flight.set(1)
        try:
            shown = page(self.families())
        except Exception:
            self._scrapes.add(("500",))
            raise
        finally:
            self._scrapes_in_flight.set(0)
        self._scrapes.add(("200",))
        return shown, CONTENT_TYPE

    # -- declarations -------------------------------------------------------------------------------------------------

    def _declare_upstream(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counts:
            return self._add(Counts(name, text, *labels))

        def seconds(name: str, text: str, *labels: str) -> Durations:
            return self._add(Durations(name, text, *labels, buckets=GO_BUCKETS))

        csi_labels = ("driver_name", "method_name", "grpc_status_code")
        self._csi_seconds = self._add(
            Durations("csi_sidecar_operations_seconds", "Duration of CSI calls by their gRPC status.", *csi_labels, buckets=CSI_BUCKETS)
        )
        claim = "controller_persistentvolumeclaim_provision"
        self._provisioned = counter(f"{claim}_total", "Volumes provisioned.", "class", "source")
        self._provision_failed = counter(f"{claim}_failed_total", "Attempts to provision that failed.", "class", "source")
        self._provision_seconds = seconds(f"{claim}_duration_seconds", "Duration of provisioning; successes only.", "class", "source")
        volume = "controller_persistentvolume_delete"
        self._deleted = counter(f"{volume}_total", "Volumes deleted.", "class")
        self._delete_failed = counter(f"{volume}_failed_total", "Attempts to delete that failed.", "class")
        self._delete_seconds = seconds(f"{volume}_duration_seconds", "Duration of deletion; successes only.", "class")
        self._scrapes = counter("promhttp_metric_handler_requests_total", "Scrapes by HTTP status code.", "code")
        for code in ("200", "500", "503"):
            self._scrapes.add((code,), 0)
        self._scrapes_in_flight = self._add(Gauges("promhttp_metric_handler_requests_in_flight", "Scrapes being served."))

    def _declare_ours(self) -> None:
        self._decisions = self._counter("decisions_total", "Decisions taken.", "room", "decision")
        self._evictions = self._counter("evictions_total", "Attempts to evict a pod of a node that is being retired.", "result")
        self._reprovisions = self._counter("reprovisions_total", "Replicas made anew on another node, by how that ended.", "result")
        of = "From the decision to make a replica anew until it was Ready."
        self._reprovision_seconds = self._add(Durations(f"{OURS}reprovision_seconds", of, buckets=REPROVISION_BUCKETS))
        self._replacements_late = self._gauge("replacements_not_ready", "Replicas evicted or made anew that are not Ready in time.")
        self._faults = self._counter("faults_total", "Faults of this program in what it can do without; the log has them.", "task")
        self._race_bids = self._counter("ownership_bids_total", "Bids for Immediate claims.")
        self._race_lost = self._counter("ownership_races_lost_total", "Immediate claims that another node took first.")
        self._insufficient = self._counter("insufficient_capacity_total", "Claims passed over for lack of room on this node.")
        self._suspected = self._counter("suspected_leaks_total", "Volumes that may be left behind on this node, and are left to people.")
        self._driver_faults = self._counter("driver_faults_total", "Answers of the driver that break what CSI demands.", "kind")
        self._journal_damage = self._counter("journal_damage_total", "What was found wrong with the journals of dead processes.", "kind")
        self._stale = self._gauge("capacities_stale", "CSIStorageCapacity objects whose figure the driver has not renewed.")
        self._capacities_forbidden = self._gauge("capacities_forbidden", "Classes whose CSIStorageCapacity this program may not write.")
        self.stalls = StallObserver()
        self._add(Stalls(self.stalls))
        self._driver_connected = self._gauge("driver_connected", "Whether the CSI driver answers.")
        self._in_progress = self._gauge("claims_in_progress", "Claims for which a volume may be in creation.")
        self._unsaved = self._gauge("unsaved_volumes", "Volumes that exist and whose PersistentVolume is not stored yet.")

        self._claims_by_label = self._gauge("claims_by_label", "Whether claims are watched by their label: 0, all claims are watched.")
        self._policy_away = self._counter("claim_policy_away_total", "How often the labels of claims could not be trusted.")

    def _declare_kube(self) -> None:
        self._reflector_attempts = self._counter("reflector_attempts_total", "Lists and watches asked for.", "resource")
        self._reflector_relists = self._counter("reflector_relists_total", "Complete lists received.", "resource")
        self._reflector_events: dict[str, int] = {}
        self._reflector_heard: dict[str, float] = {}
        self._add(Watches(self._reflector_events, self._reflector_heard))
        self._cache_objects = self._gauge("cache_objects", "Objects held in memory.", "resource")
        self._api_requests = self._counter("api_requests_total", "Requests to the API server.", "verb", "resource", "code")
        of = ("verb", "resource")
        self._api_seconds = self._add(
            Durations(f"{OURS}api_request_duration_seconds", "Duration of requests to the API server.", *of, buckets=GO_BUCKETS)
        )
        self._large_objects = self._counter(
            "large_objects_total", "Objects of more than 128 KiB that the API server sent, by resource; the log names them.", "resource"
        )
        self._api_throttled = self._counter("api_throttle_seconds_total", "Time requests waited for the client-side limiter.")

    def _counter(self, name: str, text: str, *labels: str) -> Counts:
        return self._add(Counts(f"{OURS}{name}", text, *labels))

    def _gauge(self, name: str, text: str, *labels: str) -> Gauges:
        return self._add(Gauges(f"{OURS}{name}", text, *labels))

    def _add(self, collector: C) -> C:
        self._collectors.append(collector)
        return collector
