"""Keeps what this node knows of its free space beyond the driver's answers: how many bytes it has promised to claims whose volumes are not
created yet (`promises`), and which classes share free space. Asking the driver and using its answer do not belong here.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import Class
from sidecar.ownership.promises import Moment, PromiseBook


@dataclass(frozen=True, slots=True)
class _Equal:
    """At one moment two classes had equal figures."""

    free: int
    moment: int
    changes: Mapping[str, int]
    """How often a volume of each of them had come or gone by then."""


class Pools:
    """Knows which classes share free space, as far as parameters and the driver's answers tell.

    Classes with equal parameters get the same answer, so they share space. Of two others, equal answers prove nothing: two disks may be
    of one size, and be used alike. But if only volumes of the one came or went, and the figure of the other moved with its figure, they
    share space; until their figures differ at one moment.

    Until that has been seen they count as two. To mistake one pool for two publishes too much while a creation runs, and a pod may come
    that finds no space; to mistake two for one hides a disk.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[int, CapacityAnswer]] = {}
        self._alike: set[frozenset[str]] = set()
        self._equal: dict[tuple[str, frozenset[str]], _Equal] = {}
        self._changes: Counter[str] = Counter()
        self._moment = 0

    def changed(self, class_name: str) -> None:
        """Notes that a volume is created or deleted: answers from before and after it cannot be compared."""
        self._moment += 1
        self._changes[class_name] += 1

    def heard(self, class_name: str, answer: CapacityAnswer, *, asked: str = "") -> None:
        """Compares the answer with those for other classes. Only answers to the same kind of question, `asked`, are compared."""
        self._answers[asked, class_name] = (self._moment, answer)
        for (question, other), (moment, theirs) in self._answers.items():
            if question == asked and other != class_name and moment == self._moment:
                self._compare(asked, frozenset((class_name, other)), answer.available, equal=theirs == answer)

    def _compare(self, asked: str, pair: frozenset[str], free: int, *, equal: bool) -> None:
        if not equal:
            self._alike.discard(pair)
            self._equal.pop((asked, pair), None)
            return
        before = self._equal.get((asked, pair))
        if before is not None and before.free != free and self._by_one_alone(pair, before):
            self._alike.add(pair)
        self._equal[asked, pair] = _Equal(free, self._moment, {name: self._changes[name] for name in pair})

    def _by_one_alone(self, pair: frozenset[str], before: _Equal) -> bool:
        return any(self._changes[name] - before.changes[name] == self._moment - before.moment for name in pair)

    def forget(self, class_name: str) -> None:
        """Forgets a class that is gone: the next one with that name may have other parameters."""
        self._answers = {key: value for key, value in self._answers.items() if key[1] != class_name}
        self._alike = {pair for pair in self._alike if class_name not in pair}
        self._equal = {key: value for key, value in self._equal.items() if class_name not in key[1]}
        self._changes.pop(class_name, None)

    def sharing(self, class_name: str, classes: Mapping[str, Class]) -> frozenset[str]:
        """The classes that share space with this one, itself included."""
        mine = classes.get(class_name)
        equal = {name for name, class_ in classes.items() if mine is not None and class_.parameters == mine.parameters}
        return frozenset({class_name} | equal | {name for pair in self._alike if class_name in pair for name in pair})


class Told(Protocol):
    """Called when the capacity published for these classes may be wrong. It is wrong now (`at_once`), or it will be unless the promised
    volumes are created soon."""

    def __call__(self, classes: frozenset[str], *, at_once: bool) -> None: ...


def _nobody(classes: frozenset[str], *, at_once: bool) -> None:
    pass


def _nobody_waits(classes: frozenset[str], answer: CapacityAnswer, promised: int) -> None:
    pass


class ReservedSpace:
    """One per process, shared by the rooms that promise space, take it and publish it."""

    def __init__(self, *, classes: Callable[[], Mapping[str, Class]]) -> None:
        self._classes = classes
        self.promises = PromiseBook()
        self.on_change: Told = _nobody
        self.on_growth: Callable[[frozenset[str], CapacityAnswer, int], None] = _nobody_waits
        """Called when there is more free space, or larger volumes can be made: with the driver's answer and what is promised of it."""
        self.waiting: Callable[[], Collection[str]] = tuple
        """Returns the namespaces of claims that wait for space on this node."""
        self._pools = Pools()
        self._published: dict[str, CapacityAnswer] = {}
        self._bid_for: dict[str, CapacityAnswer] = {}

    def changed(self, class_name: str, *, placed: bool) -> None:
        """A volume came or went. One with node affinity (`placed`) took space of this node, which any class may share; for one without,
        only its own class is known to be concerned."""
        self._pools.changed(class_name)
        every = frozenset(self._classes())
        self.on_change(every if placed else every & {class_name}, at_once=True)

    def freed(self, class_name: str, size: int, *, placed: bool) -> None:
        """A volume went: claims that wait for space need not wait until the driver is asked again."""
        self.changed(class_name, placed=placed)
        # An estimate is enough here: whoever bids because of it asks the driver first.
        answers = [told[class_name].available for told in (self._published, self._bid_for) if class_name in told]
        answer = CapacityAnswer(max(answers, default=0) + size)
        self.on_growth(frozenset(self._classes()) if placed else frozenset({class_name}), answer, self.promised(class_name, answer))

    def promise_changed(self, class_name: str) -> None:
        """A claim has become this node's, or has left it before its volume was created.

        Most volumes are created within a moment. Whoever asks the driver in that moment counts them twice, so nothing is asked at once.
        """
        self.on_change(self._sharing(class_name), at_once=False)

    def published(self, class_name: str, answer: CapacityAnswer) -> None:
        """Takes the driver's answer to the room that publishes capacity."""
        self._heard(self._published, class_name, answer, asked="to publish")

    def bid_for(self, class_name: str, answer: CapacityAnswer) -> None:
        """Takes the driver's answer to a node that is about to bid. It was asked with the claim's own capabilities, so it is not published;
        but when it changes, the published one is probably outdated too."""
        if self._heard(self._bid_for, class_name, answer, asked="to bid"):
            self.on_change(self._sharing(class_name), at_once=False)

    def promised(
        self,
        class_name: str,
        answer: CapacityAnswer,
        *,
        besides: str = "",
        namespace: str = "",
        since: Moment | None = None,
    ) -> int:
        """Bytes of what the driver has answered for this class that are promised to other claims than `besides`, whose namespace is given.

        `since`: when the driver was asked. Promises from before the question and from after the answer both count: nobody can tell which of
        them the driver's answer already includes.
        """
        most = answer.maximum if answer.maximum is not None and answer.maximum >= 0 else None
        largest = {name: most if name == class_name else None for name in self._sharing(class_name)}
        waiting = {namespace} if besides or namespace else self.waiting()
        return self.promises.held(largest, answer.available, waiting=waiting, besides=besides, since=since)

    def forget(self, class_name: str) -> None:
        """Forgets a class that is gone."""
        self._pools.forget(class_name)
        self._published.pop(class_name, None)
        self._bid_for.pop(class_name, None)

    def _sharing(self, class_name: str) -> frozenset[str]:
        return self._pools.sharing(class_name, self._classes())

    def _heard(self, told: dict[str, CapacityAnswer], class_name: str, answer: CapacityAnswer, *, asked: str) -> bool:
        """Stores an answer, and says whether it differs from the one before. The first answer is no change."""
        before, told[class_name] = told.get(class_name), answer
        self._pools.heard(class_name, answer, asked=asked)
        if before is not None and _grew(before, answer):
            self.on_growth(self._sharing(class_name), answer, self.promised(class_name, answer))
        return before is not None and before != answer


def _grew(before: CapacityAnswer, answer: CapacityAnswer) -> bool:
    """There is more free space, or a larger volume can be made of it."""
    return answer.available > before.available or _largest(answer) > _largest(before)


def _largest(answer: CapacityAnswer) -> float:
    # A negative maximum means that there is none.
    return math.inf if answer.maximum is None or answer.maximum < 0 else answer.maximum
