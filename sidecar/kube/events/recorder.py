"""Writes Kubernetes Events in the background, so that writing one never delays or fails the work it tells about.

They are core/v1 Events, because the role that users of external-provisioner have grants nothing in events.k8s.io.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from sidecar.engine.grouped_line import CURRENT, Group, Whose
from sidecar.kube.api import EVENTS, STRATEGIC_MERGE_PATCH, KubeApi
from sidecar.kube.errors import AlreadyExists, ApiError, NotFound, Unavailable
from sidecar.kube.events.correlator import Correlator, ObjectRef, Posting
from sidecar.kube.transport import Sleep

log = logging.getLogger("sidecar.kube")
_V4 = 20 - 4

_MOST_WAITING = 1000
_TRIES, _RETRY_SECONDS = 12, 10.0


class Recorder(Protocol):
    """What a room holds to write Events."""

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        """`once` is the name of an Event that several nodes would write: the first one does, for the others it exists already."""


class EventRecorder:
    """`Recorder` on an API server. `run` is a task; call `flush` before it is cancelled."""

    def __init__(
        self,
        api: KubeApi,
        *,
        component: str,
        host: str = "",
        most_waiting: int = _MOST_WAITING,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.written = 0
        self.dropped = 0
        """Events that were lost: the queue was full, or the server refused them or could not be reached for two minutes."""
        self.withheld = 0
        """Events left out because their object had too many, or because they are told once and were."""
        self._api = api
        self._correlator = Correlator(component, host)
        self._waiting: asyncio.Queue[Posting] = asyncio.Queue(most_waiting)
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._rng = rng

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        """`type_` is Normal or Warning. Never blocks, never raises."""
        try:
            if not ref.name:
                # The API server would take it, and nobody would ever see it: it is shown with the object that it names.
                log.error("Bug: an event names no object", extra={"fields": {"object": str(ref), "reason": reason, "message": message}})
                return
            posting = self._correlator.correlate(ref, type_, reason, message, now=self._clock(), wall=self._wall(), once=once)
            if posting is None:
                self.withheld += 1
            else:
                self._waiting.put_nowait(posting)
        except asyncio.QueueFull:
            self.dropped += 1
        except Exception:
            log.exception("Bug: an event could not be made", extra={"fields": {"object": str(ref), "reason": reason}})

    async def run(self) -> None:
        """Write the recorded events one after another, until cancelled. At the rate limit they wait behind what they tell about."""
        CURRENT.set(Whose("events", Group.LATER))
        while True:
            posting = await self._waiting.get()
            try:
                await self._deliver(posting)
            except Exception as error:  # noqa: BLE001 - an event must not stop the ones after it
                self._drop(posting, error)
            finally:
                self._waiting.task_done()

    async def flush(self, limit: float) -> bool:
        """Wait until all recorded events are written, at most for `limit` seconds. Returns whether they are."""
        try:
            async with asyncio.timeout(limit):
                await self._waiting.join()
        except TimeoutError:
            return False
        return True

    async def _deliver(self, posting: Posting) -> None:
        """Try again only if the outcome is unknown. The first pause is shortened at random, so that nodes do not come together."""
        pause = _RETRY_SECONDS * self._rng()
        for last in (*[False] * (_TRIES - 1), True):
            try:
                await self._write(posting)
            except Unavailable:
                if last:
                    raise
                await self._sleep(pause)
                pause = _RETRY_SECONDS
            else:
                self.written += 1
                if log.isEnabledFor(_V4):
                    log.log(_V4, "Event", extra={"fields": _summary(posting)})
                return

    async def _write(self, posting: Posting) -> None:
        if posting.again:
            try:
                await self._api.patch(EVENTS, posting.name, posting.patch, content_type=STRATEGIC_MERGE_PATCH, namespace=posting.namespace)
                return
            except NotFound:
                pass  # it has expired or was never written: create it, with the count so far
        try:
            await self._api.create(EVENTS, posting.body, namespace=posting.namespace)
        except AlreadyExists:
            pass  # an attempt whose answer was lost created it, or another node did

    def _drop(self, posting: Posting, error: Exception) -> None:
        self.dropped += 1
        why = str(error) if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
        log.warning("An event was dropped", extra={"fields": _summary(posting) | {"error": why}})


def _summary(posting: Posting) -> dict[str, object]:
    ref = posting.body["involvedObject"]
    return {
        "kind": ref["kind"],
        "object": "/".join(part for part in (ref.get("namespace"), ref["name"]) if part),
        "type": posting.body["type"],
        "reason": posting.body["reason"],
        "message": posting.body["message"],
        "count": posting.body["count"],
    }


__all__ = ["EventRecorder", "ObjectRef", "Recorder"]
