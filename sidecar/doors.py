"""Opens the two doors, to the API server and to the CSI driver, for `run` and for the commands. Opening them sends nothing."""

import json
import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sidecar
from sidecar.config.config import Config
from sidecar.config.table import OFF, RANKED
from sidecar.csi import link
from sidecar.csi.api import Driver
from sidecar.csi.driver import DriverConnection
from sidecar.engine.health import OK, Degraded, Health, State, Stopped
from sidecar.errors import Fatal
from sidecar.kube.acceptance import Acceptance
from sidecar.kube.api import ATTRIBUTES_CLASSES, KubeApi
from sidecar.kube.client import REQUEST_TIMEOUT, KubeClient, Observer, open_client
from sidecar.kube.errors import ApiError, NotFound
from sidecar.kube.events.recorder import EventRecorder
from sidecar.kube.large_objects import LargeObjects
from sidecar.kube.read_batching import SHORTEST
from sidecar.model.timestamps import to_text
from sidecar.observe.decisions import Decisions
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.provisioning.creations.journal import FileJournal, Journal, NoJournal
from sidecar.provisioning.creations.journal_lines import Damage

if TYPE_CHECKING:
    from sidecar.drain.maintenance.guest_io import OpenGuest
    from sidecar.failover.door_io import Drbd
    from sidecar.tracing.controller import Tracing

log = logging.getLogger(__name__)

# In a burst, events of a watch may wait so long to be read together. In a random race a node that hears late of a winner bids against it,
# so only the ranked order, in which nodes bid one after the other, can afford the longer pause.
_LONG: Final = 0.32
_FAILOVER_QPS: Final = 20


@dataclass(frozen=True, slots=True)
class Instruments:
    """What a process reports to, its clocks and its dice. They exist before the doors are open, so that health pages answer early."""

    metrics: Metrics = field(default_factory=lambda: Metrics(sidecar.__version__))
    decisions: Decisions = field(default_factory=Decisions)
    health: Health = field(default_factory=Health)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    rng: Callable[[], float] = random.random
    tracing: "Tracing | None" = None

    @property
    def narrator(self) -> Narrator:
        return Narrator(self.decisions, self.metrics, self.wall)


_OF_CLUSTER: Final = ("server", "certificate-authority-data", "tls-server-name")
_OF_USER: Final = ("client-certificate-data", "client-key-data", "token")
_LONGEST_KUBECONFIG: Final = 64 * 2**10


async def open_guest(content: bytes) -> KubeClient:
    """To the API server in a virtual machine, by a kubeconfig that a tenant has written: no file of ours is read for it, no program
    started, and nothing is sent but to an https address. Raises Fatal."""
    import yaml  # here, so that a process without guests does not have it in memory

    if len(content) > _LONGEST_KUBECONFIG:
        raise Fatal(f"the guest's kubeconfig is longer than {_LONGEST_KUBECONFIG >> 10} KiB")
    try:
        said = yaml.load(content, Loader=yaml.BaseLoader)  # all is text: no dates, no merges
        context = next(one["context"] for one in said["contexts"] if one["name"] == said["current-context"])
        cluster = next(one["cluster"] for one in said["clusters"] if one["name"] == context["cluster"])
        user = next(one["user"] for one in said["users"] if one["name"] == context["user"])
        kept: Any = {
            "clusters": [{"name": "guest", "cluster": {key: cluster[key] for key in _OF_CLUSTER if isinstance(cluster.get(key), str)}}],
            "users": [{"name": "guest", "user": {key: user[key] for key in _OF_USER if isinstance(user.get(key), str)}}],
            "contexts": [{"name": "guest", "context": {"cluster": "guest", "user": "guest"}}],
            "current-context": "guest",
        }
    except (yaml.YAMLError, StopIteration, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Fatal("the guest's kubeconfig names no cluster and user of its current context") from error
    if not str(kept["clusters"][0]["cluster"].get("server", "")).startswith("https://"):
        raise Fatal("the guest's kubeconfig names no https server")
    file = os.memfd_create("guest")  # the client reads a file: this one is on no disk, and nobody else can open it
    try:
        os.write(file, json.dumps(kept).encode())
        return await open_client(kubeconfig=f"/proc/self/fd/{file}", environ={}, qps=20.0, burst=20)
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class Doors:
    """Both doors as the rooms hold them. Capacity has a client of its own, with its own rate limit, as upstream has."""

    kube: KubeApi
    capacity_kube: KubeApi
    driver: Driver
    journal: Journal = field(default_factory=NoJournal)
    open_guest: "OpenGuest" = open_guest
    failover_kube: KubeApi | None = None
    """Nobody's pod waits behind what other rooms ask."""
    drbd: "Drbd | None" = None
    """What replicated storage of this node shows; None: by the socket beside the driver's, if anybody listens there."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Both doors, open. The driver is not connected before `connection.run`."""

    config: Config
    tools: Instruments
    kube: KubeClient
    connection: DriverConnection

    def doors(self) -> Doors:
        """Once the driver has said who it is."""
        config = self.config
        capacity_kube = self.kube.with_limits(qps=config.kube_api_capacity_qps, burst=config.kube_api_capacity_burst)
        failover_kube = self.kube.with_limits(qps=_FAILOVER_QPS, burst=2 * _FAILOVER_QPS) if config.failover != OFF else None
        return Doors(self.kube, capacity_kube, self.connection.driver, self._journal(), failover_kube=failover_kube)

    def recorder(self) -> EventRecorder:
        """Names itself in Events as upstream does: driver, pod, and a part that is new at every start."""
        component = f"{self.connection.driver.info.name}_{self.config.pod_name or os.uname().nodename}_{_random_uuid()}"
        return EventRecorder(self.kube, component=component, host=self.config.node_name)

    def _journal(self) -> Journal:
        if self.config.dry_run or not self.config.provisioning:
            return NoJournal()
        scope = self.tools.health.scope("journal", gates_ready=False)
        scope.report(OK())
        metrics = self.tools.metrics
        for kind in Damage:
            metrics.journal_damage(kind.value, 0)  # a series that begins at nothing shows the first damage as an increase
        return FileJournal(
            journal_folder(self.config),
            self.connection.driver.info.name,
            former=former_journal_folder(self.config),
            on_state=lambda why: scope.report(Degraded(why) if why else OK()),
            on_damage=metrics.journal_damage,
        )

    async def close(self) -> None:
        await self.connection.close()
        await self.kube.aclose()


def _random_uuid() -> str:
    """As `uuid.uuid4`, of a module that would be loaded for that alone."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def journal_folder(config: Config) -> Path:
    return Path(config.journal_dir) if config.journal_dir else Path(config.csi_address).parent


def former_journal_folder(config: Config) -> Path | None:
    """Where a process without --journal-dir has left what it had begun; None: that is the folder of ours."""
    former = Path(config.csi_address).parent
    return former if former != journal_folder(config) else None


async def open_doors(config: Config, tools: Instruments, *, on_link: Callable[[link.LinkState], None]) -> Opened:
    """Raises Fatal if no API server is configured, or the driver's address cannot be one."""
    traced, metrics = tools.tracing, tools.metrics
    connection = DriverConnection(
        config.csi_address,
        call_timeout=config.timeout,
        topology=config.gate("Topology"),
        judges=config.drain_report,
        needs_controller=config.provisioning,
        on_state=on_link,
        on_call=metrics.csi_call if traced is None else traced.on_call(metrics.csi_call),
        on_name=tools.metrics.driver_name,
    )
    large = LargeObjects(tools.metrics.large_object)
    told = _Credentials(tools, what=what_we_bring(kubeconfig=config.kubeconfig, master=config.master))

    def on_request(verb: str, resource: str, status: int, seconds: float) -> None:
        tools.metrics.api_request(verb, resource, status, seconds)
        told.answered(status)

    kube = await open_client(
        kubeconfig=config.kubeconfig,
        context=config.context,
        master=config.master,
        request_timeout=REQUEST_TIMEOUT if config.request_timeout is None else config.request_timeout,
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
        longest_read_delay=_LONG if config.node_deployment_placement == RANKED else SHORTEST,
        observer=Observer(
            on_request=on_request if traced is None else traced.on_request(on_request),
            on_throttled=metrics.api_throttled if traced is None else traced.on_throttled(metrics.api_throttled),
            on_large=large.note,
        ),
    )
    return Opened(config, tools, kube, connection)


def what_we_bring(*, kubeconfig: str, master: str) -> str:
    """To the API server, to say who we are."""
    if kubeconfig:
        return "the credentials of the kubeconfig"
    return "requests without credentials, which is all that --master gives them" if master else "this pod's token"


class _Credentials:
    """Tells health whether the API server accepts them. A restart would not help, as a container is started again with the same token."""

    def __init__(self, tools: Instruments, *, what: str) -> None:
        self._clock = tools.clock
        self._what = what
        self._acceptance = Acceptance()
        self._scope = tools.health.scope("credentials", gates_ready=True)
        self._scope.report(OK())
        self._is_refused = False

    def answered(self, status: int) -> None:
        accepted = self._acceptance.answered(status, now=self._clock())
        if accepted is False:
            why = f"the API server no longer accepts {self._what}: it has answered the last {self._acceptance.refused} requests with 401"
            remedy = "see that the service account exists; a pod that is deleted and made anew gets a new token"
            self._scope.report(Degraded(f"{why}; {remedy}"))
            if not self._is_refused:
                log.error("The API server no longer accepts our credentials", extra={"fields": {"why": why, "remedy": remedy}})
        elif accepted:
            if self._is_refused:
                log.info("The API server accepts our credentials again")
            self._scope.report(OK())
        self._is_refused = self._is_refused if accepted is None else not accepted


async def fitted(config: Config, kube: KubeApi) -> Config:
    """A feature gate that nobody named is turned off if the cluster does not serve its API. If that cannot be found out, it stays on."""
    gate, wanted = "VolumeAttributesClass", ATTRIBUTES_CLASSES
    if gate in config.gates_named or not config.gate(gate):
        return config
    try:
        await kube.resource_for(wanted.api_version, wanted.kind)
    except NotFound:
        log.info("A feature gate is off: the cluster does not serve its API", extra={"fields": {"gate": gate, "api": wanted.api_version}})
        return config.without_gate(gate)
    except ApiError as error:
        log.info("A feature gate stays on: what the cluster serves is not known", extra={"fields": {"gate": gate, "err": str(error)}})
    return config


def health_of_link(state: link.LinkState, *, since: float | None = None) -> State:
    """What the driver's link means for health, in our own words: anybody may reach the page. `since`: when, on the wall clock, the driver
    was last ready, or first waited for."""
    match state:
        case link.Ready():
            return OK()
        case link.GaveUp():
            return Stopped("this process cannot work with the driver and ends; its log says why")
        case link.Reading(why):
            return Degraded(why)
        case link.Waiting(why, shown) | link.Probing(why, shown) | link.Lost(why, shown):
            why = shown or why
            return Degraded(why if since is None else f"{why} (since {to_text(since)})")
