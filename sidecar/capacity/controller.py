"""Performs what `rules` decided: the only file of this room that waits for the driver or the API server."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from sidecar.capacity.rules import Decision, Measure, Publish, Rest, Retry, Update, Withdraw, decide, eligible
from sidecar.capacity.view import CapacityView, Publisher
from sidecar.csi.api import CapacityAnswer, Driver
from sidecar.csi.outcome import Unmeasured, measure
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.kube.api import CAPACITIES, KubeApi
from sidecar.kube.errors import ApiError, NotFound
from sidecar.kube.store import Store as Cache
from sidecar.model.objects import CapacityRecord, Class
from sidecar.model.standing import OPEN, Standing
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.ownership.space import Space

log = logging.getLogger(__name__)

ROOM = "capacity"

# How long a created object may take to appear in the watch before it is taken for lost.
_SETTLE: Final = 10.0
# An object is looked at, and written, at most once in so many seconds, however many volumes come and go.
_PACE: Final = 1.0


class CapacityPublisher:
    """`handle_in_turn` is given to the loop, with the class's name as the key; it returns when to look again."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        namespace: str,
        kube: KubeApi,
        driver: Driver,
        classes: Cache[Class],
        records: Cache[CapacityRecord],
        metrics: Metrics,
        narrator: Narrator,
        retry: Backoff,
        clock: Callable[[], float],
        wall: Callable[[], float],
        space: Space,
        standing: Callable[[], Standing] = lambda: OPEN,
        dry_run: bool = False,
    ) -> None:
        self._publisher = publisher
        self._namespace = namespace
        self._kube = kube
        self._driver = driver
        self._classes = classes
        self._records = records
        self._metrics = metrics
        self._narrator = narrator
        self._retry = retry
        self._clock = clock
        self._wall = wall
        self._space = space
        self._standing = standing
        self._dry_run = dry_run
        self._settling: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        """When a class was last looked at or its object last written."""
        self._failing: dict[str, tuple[float, str]] = {}
        """Since when, on the wall clock, and why its figure cannot be renewed."""
        self._leaving: dict[str, float] = {}
        """By uid: until when an object is not told again to go."""
        self.attempts: Attempts[str] = Attempts()

    def class_names(self) -> set[str]:
        """Every class that has, or should have, an object: what to look at when everything may have changed."""
        return {class_.name for class_ in self._classes.values()} | {record.class_name for record in self._records.values()}

    def appeared(self, class_name: str) -> None:
        """The watch shows an object. Should it be gone again by the next look, there is nothing to wait for."""
        self._settling.pop(class_name, None)

    def soonest(self, class_name: str, *, at_once: bool = True) -> float:
        """When a class is to be looked at because something has changed, or is about to."""
        now = self._clock()
        return max(self._busy.get(class_name, -math.inf) + _PACE, now if at_once else now + _PACE)

    def view(self, class_name: str) -> CapacityView:
        """The picture of one class. Nothing here waits, so it is one consistent moment."""
        failing = self._failing.get(class_name)
        return CapacityView(
            now=self._clock(),
            publisher=self._publisher,
            segment=self._driver.info.segment,
            class_name=class_name,
            class_=self._classes.get(class_name),
            records=tuple(self._records.by_index("class", class_name)),
            leaving=frozenset(uid for uid, until in self._leaving.items() if until > self._clock()),
            settling_until=self._settling.get(class_name, 0.0),
            standing=self._standing(),
            wall=self._wall(),
            failing_since=failing[0] if failing else None,
        )

    async def handle_in_turn(self, class_name: str) -> float | None:
        """What is given to the loop. A change that came between taking the key and this look asked for another one at once, not
        knowing of this one: it has its turn like every other."""
        soonest = self.soonest(class_name)
        return soonest if soonest > self._clock() else await self.handle(class_name)

    async def handle(self, class_name: str) -> float | None:
        """One look at a class and at most one write."""
        self._busy[class_name] = self._clock()
        view = self.view(class_name)
        decision = decide(view)
        if isinstance(decision, Measure):
            view = await self._measured(class_name, decision)
            decision = decide(view)
        self._narrator.note(ROOM, class_name, class_name, decision)
        self._count()
        if self._dry_run and not isinstance(decision, Rest | Retry):
            return self._clock() + self._publisher.poll_interval
        try:
            return await self._perform(class_name, decision)
        except ApiError as error:
            # An object that has gone needs no word: another is made. Where none can be made, NAMESPACE may be wrong.
            if not (isinstance(decision, Update) and isinstance(error, NotFound)):
                log.warning("Publishing capacity failed", extra={"fields": {"class": class_name, "err": str(error)}})
            return self._later(class_name)

    async def _measured(self, class_name: str, decision: Measure) -> CapacityView:
        before = self._space.promises()
        answer = await measure(self._driver, decision.query)
        self._judge(class_name, answer)
        return replace(self.view(class_name), answer=answer, promised=self._space.promised(class_name, before=before))

    def _judge(self, class_name: str, answer: CapacityAnswer | Unmeasured) -> None:
        """Says once that the driver does not answer, or something else, and once that it does again."""
        since, before = self._failing.get(class_name, (self._wall(), ""))
        match answer:
            case Unmeasured(why):
                self._failing[class_name] = (since, why)
                if why != before:
                    log.warning("The driver does not say how much is free", extra={"fields": {"class": class_name, "err": why}})
            case CapacityAnswer():
                self._space.published(class_name, answer)
                if self._failing.pop(class_name, None):
                    log.info("The driver says again how much is free", extra={"fields": {"class": class_name}})

    async def _perform(self, class_name: str, decision: Decision) -> float | None:
        match decision:
            case Rest(until):
                if class_name not in self._settling:
                    self.attempts.forget(class_name)
                if self._classes.get(class_name) is None:
                    self._forget(class_name)
                return until
            case Retry():
                return self._later(class_name)
            case Publish(body):
                # With a watch that is broken for long, every further one would be a duplicate: so ever less often.
                pause = max(_SETTLE, self._retry.delay(self.attempts.count(class_name)))
                # Before it is asked for, since the watch may show it before the answer is here.
                until = self._settling[class_name] = self._clock() + pause
                self._busy[class_name] = self._clock()
                try:
                    await self._kube.create(CAPACITIES, body, namespace=self._namespace)
                except ApiError:
                    self._settling.pop(class_name, None)
                    raise
                self.attempts.next(class_name)
                return until
            case Update(record, body):
                self._busy[class_name] = self._clock()
                await self._kube.replace(CAPACITIES, body, name=record.name, namespace=record.namespace)
                return self._clock() + self._publisher.poll_interval
            case Withdraw(record):
                await self._withdraw(record)
                return self._clock() + _SETTLE
            case Measure():
                raise AssertionError("a rule that was given the answer asked again")
            case _:
                assert_never(decision)

    async def _withdraw(self, record: CapacityRecord) -> None:
        there = {item.uid for item in self._records.values()}
        self._leaving = {uid: until for uid, until in self._leaving.items() if uid in there}
        self._leaving[record.uid] = self._clock() + self._publisher.poll_interval
        try:
            await self._kube.delete(CAPACITIES, record.name, namespace=record.namespace, uid=record.uid)
        except NotFound:
            pass
        # Even where a finalizer holds it: what is being deleted cannot be kept any more.
        self._leaving[record.uid] = math.inf

    def _count(self) -> None:
        wanted = {class_.name for class_ in self._classes.values() if eligible(class_, for_immediate=self._publisher.for_immediate)}
        segment = self._driver.info.segment.labels()
        right = {record.class_name for record in self._records.values() if record.node_topology == segment} & wanted
        stale = sum(bool(record.stale_since) for record in self._records.values())
        self._metrics.capacities(goal=len(wanted), current=len(right), obsolete=len(self._records.values()) - len(right), stale=stale)

    def _forget(self, class_name: str) -> None:
        """The class is gone; one that comes back under its name may be another."""
        self._space.forget(class_name)
        for known in (self._busy, self._failing, self._settling):
            known.pop(class_name, None)

    def _later(self, class_name: str) -> float:
        """With back-off, though not beyond the poll: the figure may have changed meanwhile."""
        return self._clock() + min(self._retry.delay(self.attempts.next(class_name)), self._publisher.poll_interval)
