"""Keeps what this node knows of its free space beyond the driver's answers: how many bytes it has promised to claims whose volumes are not
created yet, and which classes share free space. Asking the driver and using its answer do not belong here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import Class


@dataclass(frozen=True, slots=True)
class Promise:
    """The space that one claim will take. A claim is this node's as soon as it names the node, but it takes space only when its volume is
    created; in between the driver still reports that space as free."""

    class_name: str
    size: int


class Pools:
    """Knows which classes share free space, as far as parameters and the driver's answers tell.

    Classes with equal parameters get the same answer, so they share space. Two classes whose answers were equal, while nothing was created
    or deleted in between, most likely share space too. To mistake two pools for one holds back too much space, but only while a creation
    runs. To mistake one pool for two sends a volume where it does not fit. So pools that look alike count as one.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[int, CapacityAnswer]] = {}
        self._alike: set[frozenset[str]] = set()
        self._moment = 0

    def changed(self) -> None:
        """Notes that a volume is created or deleted: answers from before and after it cannot be compared."""
        self._moment += 1

    def heard(self, class_name: str, answer: CapacityAnswer, *, asked: str = "") -> None:
        """Compares the answer with those for other classes. Only answers to the same kind of question, `asked`, are compared."""
        self._answers[asked, class_name] = (self._moment, answer)
        for (question, other), (moment, theirs) in self._answers.items():
            if question == asked and other != class_name and moment == self._moment:
                pair = frozenset((class_name, other))
                (self._alike.add if theirs == answer else self._alike.discard)(pair)

    def forget(self, class_name: str) -> None:
        """Forgets a class that is gone: the next one with that name may have other parameters."""
        self._answers = {key: value for key, value in self._answers.items() if key[1] != class_name}
        self._alike = {pair for pair in self._alike if class_name not in pair}

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


def _nobody_waits(classes: frozenset[str], free: int) -> None:
    pass


class ReservedSpace:
    """One per process, shared by the rooms that promise space, take it and publish it."""

    def __init__(self, *, classes: Callable[[], Mapping[str, Class]], promises: Callable[[], Mapping[str, Promise]]) -> None:
        self._classes = classes
        self.promises = promises
        """Returns what is promised now, by the claim's uid."""
        self.on_change: Told = _nobody
        self.on_growth: Callable[[frozenset[str], int], None] = _nobody_waits
        """Called when there is more free space than before, with the bytes that are not promised."""
        self._pools = Pools()
        self._published: dict[str, CapacityAnswer] = {}
        self._bid_for: dict[str, CapacityAnswer] = {}

    def changed(self, class_name: str, *, placed: bool) -> None:
        """A volume came or went. One with node affinity (`placed`) took space of this node, which any class may share; for one without,
        only its own class is known to be concerned."""
        self._pools.changed()
        every = frozenset(self._classes())
        self.on_change(every if placed else every & {class_name}, at_once=True)

    def freed(self, class_name: str, size: int, *, placed: bool) -> None:
        """A volume went: claims that wait for space need not wait until the driver is asked again."""
        self.changed(class_name, placed=placed)
        # An estimate is enough here: whoever bids because of it asks the driver first.
        answers = [told[class_name].available for told in (self._published, self._bid_for) if class_name in told]
        free = max(answers, default=0) + size - self.promised(class_name)
        self.on_growth(frozenset(self._classes()) if placed else frozenset({class_name}), free)

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

    def promised(self, class_name: str, *, besides: str = "", before: Mapping[str, Promise] | None = None) -> int:
        """Bytes of this class's space that are promised to other claims than `besides`.

        `before` is what was promised when the driver was asked. Promises from before the question and from after the answer both count:
        nobody can tell which of them the driver's answer already includes.
        """
        sharing = self._sharing(class_name)
        every = {**(before or {}), **self.promises()}
        return sum(promise.size for uid, promise in every.items() if uid != besides and promise.class_name in sharing)

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
        if before is not None and answer.available > before.available:
            self.on_growth(self._sharing(class_name), answer.available - self.promised(class_name))
        return before is not None and before != answer
