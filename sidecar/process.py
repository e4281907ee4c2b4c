"""Runs the program from the first log line to the exit code: start-up order, signals, shutdown. What it does in between is in `wiring`."""

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import sidecar
from sidecar import settings
from sidecar.config.config import Config
from sidecar.csi import link
from sidecar.doors import Instruments, Opened, fitted, health_of_link, open_doors
from sidecar.engine import stalls
from sidecar.engine.health import OK, Degraded
from sidecar.errors import Fatal
from sidecar.observe.logs import write_termination_log
from sidecar.observe.server import ObserveServer
from sidecar.start import assemble, load_rooms

if TYPE_CHECKING:
    from sidecar.tracing.controller import Tracing

log = logging.getLogger(__name__)

_HEARTBEAT: Final = 1.0
# New objects. By default it is 700, and a burst of claims makes as many in a millisecond.
_COLLECTED_AFTER: Final = 10_000
# Without a heartbeat for so long the event loop is stuck; liveness fails, since only a restart can help.
_STALE_HEARTBEAT: Final = 30.0
# For what was asked of disks when all else is done. Whoever may be asked to wait for longer has waited already.
_LAST_MOMENTS: Final = 2.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(config: Config, warnings: tuple[str, ...] = ()) -> int:
    """Returns the exit code."""
    load_rooms(config)
    if settings.traces(os.environ):
        from sidecar.tracing import controller  # noqa: F401
    _collect_what_is_new()
    life = _Life(config)
    with asyncio.Runner(loop_factory=life.new_loop) as runner:
        code = runner.run(life.run(warnings))
        life.leave_if_a_disk_hangs(code)
        return code


def _collect_what_is_new() -> None:
    """What exists by now lives as long as the process, so the garbage collector need not look at it again."""
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    gc.enable()


def ignore_signals() -> None:
    """At the very end: a signal that comes now has nothing to stop, and must not hit a half closed event loop."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


class Program(Protocol):
    """What works between start and stop: `wiring.Sidecar`, or `report_only.ReportOnly`."""

    async def run(self) -> None: ...

    async def drain(self, limit: float) -> bool: ...

    def wake_all(self) -> None: ...

    def queues(self) -> dict[str, object]: ...


class _Life:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._tools = Instruments()
        self._stop = asyncio.Event()
        self._sidecar: Program | None = None
        self._threads_of_others = frozenset(threading.enumerate())
        self._threads = ThreadPoolExecutor(thread_name_prefix="files")
        self._driver_away_since: float | None = None
        self._driver_scope = self._tools.health.scope("driver", gates_ready=True)
        self._work_scope = self._tools.health.scope("work", gates_ready=True)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        loop = stalls.new_loop(self._tools.metrics.stalls)
        loop.set_default_executor(self._threads)
        return loop

    def leave_if_a_disk_hangs(self, code: int) -> None:
        """Python and its event loop wait without limit for threads that are at work. One that waits for a disk may never end, and then
        only a kill would end the process, which has nothing left to do. What the thread had begun to write, the next process checks line
        by line."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + _LAST_MOMENTS
        waited_for = [thread for thread in threading.enumerate() if not thread.daemon and thread not in self._threads_of_others]
        for thread in waited_for:
            thread.join(max(0.0, until - time.monotonic()))
        if stuck := sorted(thread.name for thread in waited_for if thread.is_alive()):
            fields = {"threads": ",".join(stuck), "waited": f"{_LAST_MOMENTS:g}s"}
            log.warning("Stopping although a disk has not answered; what was being written may be cut short", extra={"fields": fields})
            logging.shutdown()
            os._exit(code)

    async def run(self, warnings: tuple[str, ...]) -> int:
        self._listen_to_signals()
        self._introduce(warnings)
        self._tools = replace(self._tools, tracing=_opened_tracing(self._tools))
        fatal: Fatal | None = None
        try:
            async with self._open() as doors:
                await self._live(doors)
        except* Fatal as group:
            fatal = _first(group)
        ignore_signals()
        if fatal is not None:
            return _last_words(fatal)
        log.info("Stopped")
        return 0

    # --- start --------------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._asked_to_stop, number)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("Stopping at once", extra={"fields": {"signal": number.name}})
            write_termination_log(f"stopped at once by a second {number.name}, with calls in flight")
            logging.shutdown()
            os._exit(1)
        fields = {"signal": number.name, "limit": self._config.shutdown_timeout}
        log.info("Stopping: no new work is taken, calls in flight are waited for; a second signal stops at once", extra={"fields": fields})
        self._stop.set()

    def _introduce(self, warnings: tuple[str, ...]) -> None:
        given = {name: f"{value} ({origin})" for name, value, origin in self._config.effective() if origin != "default"}
        fields = {"version": sidecar.__version__, "node": self._config.node_name, "pid": os.getpid(), **given}
        log.info("csi-node-sidecar starts", extra={"fields": fields})
        for warning in warnings:
            log.warning("Configuration", extra={"fields": {"warning": warning}})

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Opened]:
        doors = await open_doors(self._config, self._tools, on_link=self._heard_of_driver)
        server = self._make_server() if self._config.http_address or self._config.debug_endpoint else None
        try:
            if server is not None:
                await server.start()
            yield doors
        finally:
            if server is not None:
                await server.stop()
            await doors.close()

    def _make_server(self) -> ObserveServer:
        health, clock = self._tools.health, self._tools.clock
        self._tools.metrics.watch_health(health.rows)
        return ObserveServer(
            self._config.http_address,
            self._config.metrics_path,
            metrics=self._tools.metrics,
            live=lambda: health.live(clock(), stale_after=_STALE_HEARTBEAT),
            ready=health.ready,
            scopes=health.rows,
            queues=lambda: self._sidecar.queues() if self._sidecar else {},
            decisions=self._tools.decisions.rows,
            debug_address=self._config.debug_endpoint,
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    async def _live(self, doors: Opened) -> None:
        """Until asked to stop, or until something that the program cannot do without gives up."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._beat(), name="heartbeat"),
                group.create_task(doors.connection.run(), name="driver link"),
                group.create_task(self._work(doors), name="work"),
            ]
            if self._tools.tracing is not None:
                tasks.append(group.create_task(self._tools.tracing.run(), name="spans"))
            await self._stop.wait()
            self._work_scope.report(Degraded("stopping"))
            if self._sidecar is not None and not await self._sidecar.drain(self._config.shutdown_timeout):
                log.warning("Stopping although calls are still in flight: --shutdown-timeout is over")
            for task in tasks:
                task.cancel()

    async def _beat(self) -> None:
        while True:
            self._tools.health.heartbeat(self._tools.clock())
            await asyncio.sleep(_HEARTBEAT)

    async def _work(self, doors: Opened) -> None:
        info = await doors.connection.first_ready()
        fields = {"driver": info.name, "driver_version": info.version, "node": self._config.node_name, "segment": str(info.segment)}
        log.info("Driver is ready", extra={"fields": fields})
        doors = replace(doors, config=await fitted(doors.config, doors.kube))
        self._sidecar = assemble(doors)
        _collect_what_is_new()
        self._work_scope.report(OK())
        await self._sidecar.run()

    def _heard_of_driver(self, state: link.LinkState) -> None:
        was_ready = isinstance(self._driver_scope.state, OK)
        ready = isinstance(state, link.Ready)
        if ready or self._driver_away_since is None:
            self._driver_away_since = None if ready else self._tools.wall()
        self._driver_scope.report(health_of_link(state, since=self._driver_away_since))
        self._tools.metrics.driver_connected(ready)
        if ready and not was_ready and self._sidecar is not None:
            self._sidecar.wake_all()


def _opened_tracing(tools: Instruments) -> "Tracing | None":
    """Imports inside, so that a process without a collector does not have that room in memory."""
    if not settings.traces(os.environ):
        return None
    from sidecar.tracing.controller import open_tracing

    return open_tracing(os.environ, tools)


def _first(group: BaseExceptionGroup[Fatal]) -> Fatal:
    """The one that ended the others. Groups may be nested."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _last_words(error: Fatal) -> int:
    log.error("Fatal", extra={"fields": {"err": str(error)}})
    write_termination_log(str(error))
    return 1
