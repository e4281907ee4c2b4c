"""Asks the API server what this program may do: one right at a start, all of a table for whoever wants to see it.

By SelfSubjectAccessReview, one for each right. One SelfSubjectRulesReview would list all rules, and cannot answer exactly: it lists those
that hold in one namespace, so a Role there that names persistentvolumes looks like a right to them, and whether a rule for claims holds in
all namespaces is not said; and where an authorizer cannot list its rules, as a webhook cannot, it is incomplete. An access review goes the
way of the request itself, through every authorizer. Whoever has credentials may make one (`system:basic-user`), and none is stored.

At a start only that is asked without which something would be left behind. That is `patch` on PersistentVolumes: one request, and where it
is refused a second one, for `update`; so a roll of 1,000 nodes costs 1,000 requests, or 2,000. What else this program puts on objects it
takes off by the right by which it has put it on (finalizers of claims and snapshots: `update`); its Leases end by themselves, its capacity
objects have owners; and each other write that is refused says so when it is tried. Nothing waits for the answer.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.engine.backoff import Backoff, jittered
from sidecar.engine.health import OK, Stopped
from sidecar.kube.api import ACCESS_REVIEWS, REVIEWS_OF_OTHERS, KubeApi, Resource
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Json
from sidecar.rights.rights import (
    FINALIZER_OFF,
    FINALIZER_REMEDY,
    NOT_KNOWN,
    Account,
    FinalizerWrites,
    Right,
    Rights,
    asked_next,
    finalizer_writes,
)
from sidecar.tools import Tools

log = logging.getLogger(__name__)

# A server that has just started may refuse everything for a moment. A right that is granted later is noticed within the longest pause:
# people do not change roles often, and a thousand nodes that ask every ten minutes are three requests a second, in such clusters alone.
_REFUSED: Final = Backoff(start=15.0, cap=500.0)
_NO_ANSWER: Final = Backoff(start=2.0, cap=500.0)
_SPREAD: Final = 0.2
# Seconds between two questions, however many writes are refused.
_SOONEST: Final = 60.0
_AT_ONCE: Final = 8


async def ask(kube: KubeApi, rights: Iterable[Right], *, namespace: str = "", account: Account | None = None) -> Rights:
    """What is answered, for each of them; `namespace` is the program's own. Raises ApiError if one of them is not answered.

    Of another `account` than one's own it is a SubjectAccessReview, which takes a right that administrators have.
    """
    reviews = ACCESS_REVIEWS if account is None else REVIEWS_OF_OTHERS
    turns = asyncio.Semaphore(_AT_ONCE)

    async def answered(right: Right) -> tuple[Right, bool | None]:
        async with turns:
            return right, _allowed(await kube.create(reviews, _review(reviews, right, namespace, account)))

    # Not a task group: when one of its tasks fails, it raises that failure also in a task that was cancelled meanwhile, and who waits for
    # its end would wait for ever.
    found = await asyncio.gather(*map(answered, rights), return_exceptions=True)
    answers: dict[Right, bool | None] = {}
    for one in found:
        if isinstance(one, BaseException):
            raise one
        answers[one[0]] = one[1]
    of = {said: frozenset(right for right, answer in answers.items() if answer is said) for said in (True, False)}
    return Rights(of[True], of[False])


def _review(reviews: Resource, right: Right, namespace: str, account: Account | None) -> Json:
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "subresource": right.subresource,
        "namespace": namespace if right.own_namespace else "",
    }
    wanted = {key: value for key, value in attributes.items() if value}
    subject = {} if account is None else {"user": account.user, "groups": list(account.groups)}
    return {
        "apiVersion": reviews.api_version,
        "kind": reviews.kind,
        "metadata": {},
        "spec": {"resourceAttributes": wanted, **subject},
    }


def _allowed(review: Json) -> bool | None:
    status = review.get("status")
    answer = status.get("allowed") if isinstance(status, dict) else None
    return answer if isinstance(answer, bool) else None


class RightsKnown:
    """`rights` is what is known now. `run` asks at the start, and again while something is refused or not answered, or is `doubted`."""

    def __init__(self, tools: Tools, *, on_change: Callable[[], None]) -> None:
        """`on_change`: our finalizer can now be written where it could not, or the other way round."""
        self._kube = tools.kube
        self._clock = tools.clock
        self._rng = tools.rng
        self._on_change = on_change
        self._rights = NOT_KNOWN
        self._doubted = asyncio.Event()
        self._scope = tools.health.scope("rights", gates_ready=False)
        self._scope.report(OK())

    def rights(self) -> Rights:
        return self._rights

    def doubt(self) -> None:
        """A write was forbidden."""
        self._doubted.set()

    async def run(self) -> None:
        """Until cancelled."""
        refusals = failures = 0
        while True:
            asked_at, pause = self._clock(), math.inf
            try:
                self._learn(await self._ask())
            except ApiError as error:
                if failures == 0:
                    log.info("What the role allows is not known", extra={"fields": {"err": str(error)}})
                pause, failures = _NO_ANSWER.delay(failures), failures + 1
            else:
                failures = 0
                if self._rights.refused:
                    pause, refusals = _REFUSED.delay(refusals), refusals + 1
                else:
                    refusals = 0
            await self._wait(jittered(pause, self._rng, spread=_SPREAD), not_before=asked_at + _SOONEST)

    async def _ask(self) -> Rights:
        known = NOT_KNOWN
        while questions := asked_next(known):
            answers = await ask(self._kube, questions)
            known = known.joined(answers)
            if answers == NOT_KNOWN:
                break  # it was answered with something else
        return known

    def _learn(self, rights: Rights) -> None:
        before, now = finalizer_writes(self._rights), finalizer_writes(rights)
        self._rights = rights
        if before is now:
            return
        if now is FinalizerWrites.NEVER:
            log.warning("A right is missing", extra={"fields": {"off": FINALIZER_OFF, "remedy": FINALIZER_REMEDY}})
            self._scope.report(Stopped(f"{FINALIZER_OFF}; {FINALIZER_REMEDY}"))
        else:
            log.info("The finalizer of PersistentVolumes is put on and taken off", extra={"fields": {"by": now.value}})
            self._scope.report(OK())
        self._on_change()

    async def _wait(self, seconds: float, *, not_before: float) -> None:
        """So long, or until a write was forbidden."""
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._doubted.wait()
                await asyncio.sleep(max(0.0, not_before - self._clock()))
        except TimeoutError:
            pass
        self._doubted.clear()
