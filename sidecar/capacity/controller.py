"""Looks at one class at a time: asks the driver, has `rules` decide, and writes the object.

What it remembers between looks only spaces them out. Nothing of it has to outlive the process: the objects themselves are the memory.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, assert_never

from sidecar.capacity.forbidden import ForbiddenWrites
from sidecar.capacity.rules import Decision, Measure, Publish, Rest, Retry, Update, Withdraw, decide, eligible, is_unplaced
from sidecar.capacity.view import CapacityView, Publisher
from sidecar.csi.api import TOPOLOGY, CapacityAnswer
from sidecar.csi.outcome import Unmeasured, measure
from sidecar.engine.backoff import Attempts
from sidecar.engine.undone import TOLD_AT, UndoneWrites
from sidecar.errors import Fatal
from sidecar.kube.api import CAPACITIES
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.kube.store import Store as Cache
from sidecar.model.objects import CapacityRecord, Class, Owner
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM = "capacity"

# A created object that the watch has not shown for so long is taken for lost, and another one is created.
_SETTLE: Final = 10.0
# Each object is written at most once a second, however many volumes come and go: every write goes to every scheduler.
_PACE: Final = 1.0


class CapacityPublisher:
    """`handle_in_turn` is given to the loop, with the class's name as the key; it returns when to look again."""

    def __init__(
        self,
        tools: Tools,
        *,
        publisher: Publisher,
        namespace: str,
        classes: Cache[Class],
        records: Cache[CapacityRecord],
        space: ReservedSpace,
        owner: Callable[[], Awaitable[Owner | None]] | None = None,
    ) -> None:
        """`owner` looks up anew who owns the objects; None: that cannot change."""
        self._tools = tools
        self._owner = owner
        self._made: UndoneWrites[str] = UndoneWrites(tools.retry)
        """By class: how often its object had to be made."""
        self._publisher = publisher
        self._namespace = namespace
        self._classes = classes
        self._records = records
        self._space = space
        self._settling: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        """When each class was last looked at, or its object last written."""
        self._failing: dict[str, tuple[float, float, str]] = {}
        """Since when (on the wall clock, and on the one that does not jump) and why the driver does not answer for a class."""
        self._leaving: dict[str, float] = {}
        """By uid: when an object that was deleted, and is still there, is deleted again."""
        self._forbidden = ForbiddenWrites(tools.retry)
        self.attempts: Attempts[str] = Attempts()

    def class_names(self) -> set[str]:
        """Every class that has, or should have, an object."""
        return {class_.name for class_ in self._classes.values()} | {record.class_name for record in self._records.values()}

    def appeared(self, class_name: str) -> None:
        """The watch has shown an object of this class, so a created one need not be waited for any longer."""
        self._settling.pop(class_name, None)

    def soonest(self, class_name: str, *, at_once: bool = True) -> float:
        """When to look at a class of which something has changed. Not `at_once`: a second later, since more changes usually follow."""
        now = self._tools.clock()
        return max(self._busy.get(class_name, -math.inf) + _PACE, now if at_once else now + _PACE)

    def view(self, class_name: str) -> CapacityView:
        """One class now. Nothing here awaits, so all of it is of the same moment."""
        failing = self._failing.get(class_name)
        return CapacityView(
            now=self._tools.clock(),
            publisher=self._publisher,
            segment=self._tools.driver.info.segment,
            has_topology=TOPOLOGY in self._tools.driver.info.plugin,
            class_name=class_name,
            class_=self._classes.get(class_name),
            records=tuple(self._records.by_index("class", class_name)),
            leaving=frozenset(uid for uid, until in self._leaving.items() if until > self._tools.clock()),
            settling_until=self._settling.get(class_name, 0.0),
            wall=self._tools.wall(),
            failing_since=failing[0] if failing else None,
            failing_for=self._tools.clock() - failing[1] if failing else 0.0,
        )

    async def handle_in_turn(self, class_name: str) -> float | None:
        """For the loop: `handle`, but no sooner than a second after the last time.

        A change that comes while a class is looked at asks for another look at once; it has to wait like every other.
        """
        soonest = self.soonest(class_name)
        return soonest if soonest > self._tools.clock() else await self.handle(class_name)

    async def handle(self, class_name: str) -> float | None:
        """One look at a class and at most one write."""
        self._busy[class_name] = self._tools.clock()
        view = self.view(class_name)
        decision = decide(view)
        if isinstance(decision, Measure):
            view = await self._measured(class_name, decision)
            decision = decide(view)
        self._tools.narrator.note(ROOM, class_name, class_name, decision)
        self._count()
        if self._tools.dry_run and not isinstance(decision, Rest | Retry):
            return self._tools.clock() + self._publisher.poll_interval
        if not isinstance(decision, Withdraw) and (held := self._forbidden.until(class_name, _kind(decision))) > self._tools.clock():
            return min(held, self._tools.clock() + self._publisher.poll_interval)
        try:
            until = await self._perform(class_name, decision)
        except Forbidden as error:
            return self._refused(class_name, decision, error)
        except ApiError as error:
            # One that was deleted meanwhile is created again, which needs no warning. NotFound at a creation means a wrong NAMESPACE.
            if not (isinstance(decision, Update) and isinstance(error, NotFound)):
                log.warning("Publishing capacity failed", extra={"fields": {"class": class_name, "err": str(error)}})
            return self._later(class_name)
        self._allowed(class_name, decision)
        return until

    def _refused(self, class_name: str, decision: Decision, error: Forbidden) -> float:
        now = self._tools.clock()
        if self._forbidden.refused(class_name, _kind(decision), str(error), now):
            fields = {"class": class_name, "err": str(error)}
            log.warning("Publishing capacity is forbidden: tried again ever less often", extra={"fields": fields})
        self._tools.metrics.capacities_forbidden(self._forbidden.classes())
        held = self._forbidden.until(class_name, _kind(decision))
        if isinstance(decision, Withdraw):
            # Other objects of the class are seen to meanwhile.
            self._leaving[decision.record.uid] = max(self._leaving[decision.record.uid], held)
            return now + _PACE
        self.attempts.next(class_name)
        return min(held, now + self._publisher.poll_interval)

    def _allowed(self, class_name: str, decision: Decision) -> None:
        if self._forbidden.allowed(class_name, _kind(decision)):
            log.info("Publishing capacity is allowed again", extra={"fields": {"class": class_name}})
        self._tools.metrics.capacities_forbidden(self._forbidden.classes())

    async def _measured(self, class_name: str, decision: Measure) -> CapacityView:
        with self._space.promises.moment() as asked:
            answer = await measure(self._tools.driver, decision.query)
            self._judge(class_name, answer)
            promised = self._space.promised(class_name, answer, since=asked) if isinstance(answer, CapacityAnswer) else 0
        return replace(self.view(class_name), answer=answer, promised=promised)

    def _judge(self, class_name: str, answer: CapacityAnswer | Unmeasured) -> None:
        """Logs once that the driver does not answer, again when the reason changes, and once that it does again."""
        since, began, before = self._failing.get(class_name, (self._tools.wall(), self._tools.clock(), ""))
        match answer:
            case Unmeasured(why):
                self._failing[class_name] = (since, began, why)
                if why != before:
                    log.warning(
                        "The driver does not say how much space is free; the published figure stays",
                        extra={"fields": {"class": class_name, "err": why}},
                    )
            case CapacityAnswer():
                self._space.published(class_name, answer)
                if self._failing.pop(class_name, None):
                    log.info("The driver says again how much space is free", extra={"fields": {"class": class_name}})

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
            case Publish() if self._made.turn(class_name) > self._tools.clock():
                return self._made.turn(class_name)
            case Publish() if self._made.count(class_name, self._tools.clock()) >= TOLD_AT - 1 and await self._has_another_owner():
                return self._tools.clock()
            case Publish(body):
                # While the watch is broken, nothing created is seen and each further one is a duplicate, so the pauses grow.
                pause = max(_SETTLE, self._tools.retry.delay(self.attempts.count(class_name)))
                # Set before the request: the watch may show the object before the answer arrives.
                until = self._settling[class_name] = self._tools.clock() + pause
                self._busy[class_name] = self._tools.clock()
                try:
                    await self._tools.kube.create(CAPACITIES, body, namespace=self._namespace)
                except ApiError:
                    self._settling.pop(class_name, None)
                    raise
                self.attempts.next(class_name)
                if self._made.wrote(class_name, self._tools.clock()) == TOLD_AT:
                    log.warning("What is published of a class is deleted again and again", extra={"fields": {"class": class_name}})
                return until
            case Update(record, body):
                self._busy[class_name] = self._tools.clock()
                await self._tools.kube.replace(CAPACITIES, body, name=record.name, namespace=record.namespace)
                return self._tools.clock() + self._publisher.poll_interval
            case Withdraw(record):
                await self._withdraw(record)
                return self._tools.clock() + _SETTLE
            case Measure():
                raise AssertionError("the rule asked the driver again although it had the answer")
            case _:
                assert_never(decision)

    async def _has_another_owner(self) -> bool:
        """The garbage collector deletes what names an owner that is gone, such as a DaemonSet that was made anew around its pods."""
        before = self._publisher.owner
        try:
            owner = before if self._owner is None else await self._owner()
        except (ApiError, Fatal) as error:
            log.info("Who owns the capacity objects could not be looked up anew", extra={"fields": {"err": str(error)}})
            return False
        if owner == before:
            return False
        self._publisher = replace(self._publisher, owner=owner)
        fields = {"owner": f"{owner.kind} {owner.name}" if owner else "nobody", "uid": owner.uid if owner else ""}
        log.warning("The capacity objects have another owner than at the start", extra={"fields": fields})
        return True

    async def _withdraw(self, record: CapacityRecord) -> None:
        there = {item.uid for item in self._records.values()}
        self._leaving = {uid: until for uid, until in self._leaving.items() if uid in there}
        self._leaving[record.uid] = self._tools.clock() + self._publisher.poll_interval
        try:
            await self._tools.kube.delete(CAPACITIES, record.name, namespace=record.namespace, uid=record.uid)
        except NotFound:
            pass
        # For good, even if a finalizer holds it: an object that is being deleted cannot be kept any more.
        self._leaving[record.uid] = math.inf

    def _count(self) -> None:
        wanted = {class_.name for class_ in self._classes.values() if eligible(class_, for_immediate=self._publisher.for_immediate)}
        info = self._tools.driver.info
        if is_unplaced(info.segment, has_topology=TOPOLOGY in info.plugin):
            wanted = set()
        segment = info.segment.labels()
        right = {record.class_name for record in self._records.values() if record.node_topology == segment} & wanted
        stale = sum(bool(record.stale_since) for record in self._records.values())
        self._tools.metrics.capacities(goal=len(wanted), current=len(right), obsolete=len(self._records.values()) - len(right), stale=stale)

    def _forget(self, class_name: str) -> None:
        """The class is gone. A later one of the same name may have other parameters, so nothing known of this one is kept."""
        self._space.forget(class_name)
        self._forbidden.forget(class_name)
        for known in (self._busy, self._failing, self._settling):
            known.pop(class_name, None)

    def _later(self, class_name: str) -> float:
        """When to try again: after the usual pause, but no later than the poll, which would look at the class anyway."""
        return self._tools.clock() + min(self._tools.retry.delay(self.attempts.next(class_name)), self._publisher.poll_interval)


def _kind(decision: Decision) -> str:
    return type(decision).__name__
