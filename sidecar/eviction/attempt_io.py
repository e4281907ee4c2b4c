"""Evicts one pod: one POST, with the pod's uid as precondition, and with the pod's own grace period.

Nothing here deletes a pod.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sidecar.engine.backoff import jittered
from sidecar.engine.limiter import TokenBucket
from sidecar.eviction.rules import BURST, EVICTED, NEXT_PASS, QPS, Answer, May, Result, answer_to
from sidecar.kube.api import PODS, KubeApi
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Json

log = logging.getLogger(__name__)

# A slow server must not keep the rest of the node's work waiting.
LONGEST_PASS: Final = 10.0
_SPREAD: Final = 0.2
_MOST_TOLD: Final = 1000


class Evictor:
    """One per process: all evictions share its rate."""

    def __init__(self, kube: KubeApi, *, clock: Callable[[], float], rng: Callable[[], float]) -> None:
        self._kube, self._clock, self._rng = kube, clock, rng
        self._bucket = TokenBucket(QPS, BURST)
        self._told: dict[str, tuple[Result, str]] = {}  # by uid of a pod: what was logged of it last

    def wait(self) -> float:
        """Seconds until the rate allows one more; 0: it is allowed now."""
        seconds = self._bucket.reserve(self._clock())
        self._bucket.give_back()
        return seconds

    async def evict(self, pod: May, *, why: str = "") -> Answer:
        """To be called when `wait` says 0. It ends within `LONGEST_PASS`. `why` is for whoever reads that line of the log alone."""
        self._bucket.reserve(self._clock())
        try:
            async with asyncio.timeout(LONGEST_PASS):
                await self._kube.create_subresource(PODS, pod.name, "eviction", body(pod), namespace=pod.namespace)
            answer = EVICTED
        except ApiError as error:
            answer = answer_to(error)
        except TimeoutError:
            answer = Answer(Result.FAILED, f"no answer within {LONGEST_PASS:g} s", NEXT_PASS)
        if answer.again >= NEXT_PASS:
            answer = Answer(answer.result, answer.why, jittered(answer.again, self._rng, spread=_SPREAD))
        self._tell(pod, answer, why)
        return answer

    def _tell(self, pod: May, answer: Answer, why: str) -> None:
        """One line for each pod and cause, however often it is tried."""
        told = answer.result, answer.why
        if self._told.get(pod.uid) == told:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[pod.uid] = told
        fields = {"pod": pod.full_name, "uid": pod.uid, "result": str(answer.result)}
        fields |= ({"why": why} if why else {}) | ({"err": answer.why} if answer.why else {})
        level = logging.INFO if answer.is_expected else logging.WARNING
        log.log(level, "A pod was evicted" if answer is EVICTED else "A pod was not evicted", extra={"fields": fields})
        if answer.is_over:
            del self._told[pod.uid]


def body(pod: May) -> Json:
    """The eviction. Without `gracePeriodSeconds` the pod's own grace period holds."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    meta = {"name": pod.name, "namespace": pod.namespace}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
