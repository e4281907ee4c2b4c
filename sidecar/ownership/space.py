"""What this node knows of its free space beyond the driver's word: bytes it has promised to claims and has not created yet, and
which classes draw on the same ones. Who asks the driver, and what is done with the answer, does not belong here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import Class


@dataclass(frozen=True, slots=True)
class Promise:
    """What one claim will take. It is this node's from the moment it is selected, and takes space when it is created."""

    class_name: str
    size: int


class Pools:
    """Which classes share free space, as far as parameters and the driver's answers tell.

    Equal parameters mean the same answer, so the same space. Answers that were equal while nothing was created or deleted in
    between most likely are about the same space too. Taking two pools for one holds back too much for as long as a creation
    takes; taking one for two sends a volume where it does not fit. So what looks alike counts as one.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[int, CapacityAnswer]] = {}
        self._alike: set[frozenset[str]] = set()
        self._moment = 0

    def changed(self) -> None:
        """Something is created or deleted: answers from before and after cannot be compared."""
        self._moment += 1

    def heard(self, class_name: str, answer: CapacityAnswer, *, asked: str = "") -> None:
        """Only answers to like questions are compared; `asked` tells them apart."""
        self._answers[asked, class_name] = (self._moment, answer)
        for (question, other), (moment, theirs) in self._answers.items():
            if question == asked and other != class_name and moment == self._moment:
                pair = frozenset((class_name, other))
                (self._alike.add if theirs == answer else self._alike.discard)(pair)

    def forget(self, class_name: str) -> None:
        """The class is gone, and the next one of that name may be another."""
        self._answers = {key: value for key, value in self._answers.items() if key[1] != class_name}
        self._alike = {pair for pair in self._alike if class_name not in pair}

    def sharing(self, class_name: str, classes: Mapping[str, Class]) -> frozenset[str]:
        """The classes that draw on the space of this one, itself included."""
        mine = classes.get(class_name)
        equal = {name for name, class_ in classes.items() if mine is not None and class_.parameters == mine.parameters}
        return frozenset({class_name} | equal | {name for pair in self._alike if class_name in pair for name in pair})


class Told(Protocol):
    """Hears that what is published for these classes may be wrong: it is, or it will be if what is promised takes its time."""

    def __call__(self, classes: frozenset[str], *, at_once: bool) -> None: ...


def _nobody(classes: frozenset[str], *, at_once: bool) -> None:
    pass


def _nobody_waits(classes: frozenset[str], free: int) -> None:
    pass


class Space:
    """One per process, shared by the rooms that promise space, take it and publish it. What it tells, it tells of classes."""

    def __init__(self, *, classes: Callable[[], Mapping[str, Class]], promises: Callable[[], Mapping[str, Promise]]) -> None:
        self._classes = classes
        self.promises = promises
        """By claim: what is promised now."""
        self.on_change: Told = _nobody
        self.on_growth: Callable[[frozenset[str], int], None] = _nobody_waits
        """There is more room than before: so many bytes that are not promised."""
        self._pools = Pools()
        self._published: dict[str, CapacityAnswer] = {}
        self._bid_for: dict[str, CapacityAnswer] = {}

    def changed(self, class_name: str, *, placed: bool) -> None:
        """A volume came or went. One with a place of its own took space of that place, whoever else draws on it; of one that
        has none, only its class is known."""
        self._pools.changed()
        every = frozenset(self._classes())
        self.on_change(every if placed else every & {class_name}, at_once=True)

    def freed(self, class_name: str, size: int, *, placed: bool) -> None:
        """A volume went: whoever waits for room need not wait until the driver is asked again."""
        self.changed(class_name, placed=placed)
        answers = [told[class_name].available for told in (self._published, self._bid_for) if class_name in told]
        free = max(answers, default=0) + size - self.promised(class_name)
        self.on_growth(frozenset(self._classes()) if placed else frozenset({class_name}), free)

    def promise_changed(self, class_name: str) -> None:
        """A claim has become this node's, or has left it without having been created.

        Most are created in a moment, and to ask the driver in that moment is to count them twice.
        """
        self.on_change(self._sharing(class_name), at_once=False)

    def published(self, class_name: str, answer: CapacityAnswer) -> None:
        """The driver's answer to who publishes."""
        self._heard(self._published, class_name, answer, asked="to publish")

    def bid_for(self, class_name: str, answer: CapacityAnswer) -> None:
        """Its answer to who is about to bid, asked with a claim's own capabilities: a new one says that the other may be old."""
        if self._heard(self._bid_for, class_name, answer, asked="to bid"):
            self.on_change(self._sharing(class_name), at_once=False)

    def promised(self, class_name: str, *, besides: str = "", before: Mapping[str, Promise] | None = None) -> int:
        """Bytes promised to other claims from the space of this class.

        `before` is what was promised when the driver was asked. It counts as much as what is promised when it has answered:
        nobody can tell which of them its answer knows of.
        """
        sharing = self._sharing(class_name)
        every = {**(before or {}), **self.promises()}
        return sum(promise.size for uid, promise in every.items() if uid != besides and promise.class_name in sharing)

    def forget(self, class_name: str) -> None:
        """The class is gone."""
        self._pools.forget(class_name)
        self._published.pop(class_name, None)
        self._bid_for.pop(class_name, None)

    def _sharing(self, class_name: str) -> frozenset[str]:
        return self._pools.sharing(class_name, self._classes())

    def _heard(self, told: dict[str, CapacityAnswer], class_name: str, answer: CapacityAnswer, *, asked: str) -> bool:
        """Whether it is another answer than the one before."""
        before, told[class_name] = told.get(class_name), answer
        self._pools.heard(class_name, answer, asked=asked)
        if before is not None and answer.available > before.available:
            self.on_growth(self._sharing(class_name), answer.available - self.promised(class_name))
        return before is not None and before != answer
