"""What disruption budgets say to the eviction of this node's pods, and which of them would have nothing left to allow."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from sidecar.drain.assessment import BudgetFall
from sidecar.drain.volumes import stays
from sidecar.model.nodes import Budget, Pod

_Mark = tuple[str, str, str]
"""(namespace, label, value): what a pod must have for a budget to select it, or (namespace, "", "") where no label decides."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Pods and budgets by `namespace/name`."""

    selecting: Mapping[str, tuple[str, ...]]
    """Of each pod that any selects: which do."""
    blocked: Mapping[str, str]
    """Pods that cannot be evicted now, and the budget that forbids it."""
    falls: tuple[BudgetFall, ...]
    uncounted: Mapping[str, str]
    """Pods of which this cannot be said, and the budget the server has not counted yet."""

    def doubled(self, pod: Pod) -> tuple[str, ...]:
        """The budgets of a pod that has several: the server refuses to evict it, whatever they allow."""
        budgets = self.selecting.get(pod.full_name, ())
        return budgets if len(budgets) > 1 and counts(pod) else ()


def weigh(budgets: Iterable[Budget], pods: Iterable[Pod], *, stranded: Set[str]) -> Weighed:
    """`pods` are all that run here, in whatever order; `stranded` those of them that will not soon be ready elsewhere."""
    index = _Index(budgets)
    selected: dict[str, list[Pod]] = defaultdict(list)
    selecting: dict[str, tuple[str, ...]] = {}
    for pod in sorted(pods, key=lambda pod: pod.full_name):
        found = index.of(pod)
        if found:
            selecting[pod.full_name] = tuple(budget.full_name for budget in found)
        if len(found) == 1 and counts(pod) and not stays(pod) and not _freed(pod, found[0]):
            selected[found[0].full_name].append(pod)
    blocked: dict[str, str] = {}
    uncounted: dict[str, str] = {}
    falls: list[BudgetFall] = []
    for name, members in sorted(selected.items()):
        budget = index.by_name[name]
        if not budget.observed:
            uncounted |= {pod.full_name: name for pod in members}
            continue
        blocked |= dict.fromkeys(_refused(budget, members, stranded), name)
        falls += _fall(budget, tuple(pod.full_name for pod in members if pod.full_name in stranded))
    return Weighed(selecting, blocked, tuple(falls), uncounted)


def counts(pod: Pod) -> bool:
    """The server asks no budget about pods that do not run yet or are ending already."""
    return pod.phase != "Pending" and not pod.ended and not pod.deleting_since


def _freed(pod: Pod, budget: Budget) -> bool:
    """Its eviction needs nothing of the budget."""
    return budget.frees_unready and not pod.ready


def _refused(budget: Budget, members: Sequence[Pod], stranded: Set[str]) -> Iterable[str]:
    """One after the other. A pod that becomes ready elsewhere gives back what its eviction took."""
    left = budget.allowed
    for pod in members:
        if left <= 0:
            yield pod.full_name
        elif pod.full_name in stranded:
            left -= 1


def _fall(budget: Budget, taken: tuple[str, ...]) -> Iterable[BudgetFall]:
    if taken and budget.allowed <= len(taken):
        yield BudgetFall(budget.full_name, budget.allowed, len(taken), taken)


class _Index:
    """Which budgets to look at for a pod, without looking at all for each."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.by_name = {budget.full_name: budget for budget in sorted(budgets, key=lambda budget: budget.full_name) if budget.selects}
        self._marked: dict[_Mark, list[Budget]] = defaultdict(list)
        common = Counter(chain.from_iterable(chain.from_iterable(_choices(budget)) for budget in self.by_name.values()))
        for budget in self.by_name.values():
            for mark in min(_choices(budget), key=lambda marks: sum(common[mark] for mark in marks)):
                self._marked[mark].append(budget)

    def of(self, pod: Pod) -> tuple[Budget, ...]:
        marks = ((pod.namespace, "", ""), *((pod.namespace, key, value) for key, value in pod.labels.items()))
        near = chain.from_iterable(self._marked.get(mark, ()) for mark in marks)
        return tuple(sorted((budget for budget in near if budget.covers(pod)), key=lambda budget: budget.full_name))


def _choices(budget: Budget) -> Sequence[tuple[_Mark, ...]]:
    """Each is a set of marks of which every pod that the budget selects has exactly one."""
    by_labels = [((budget.namespace, key, value),) for key, value in budget.labels.items()]
    by_values = [
        tuple((budget.namespace, item.key, value) for value in dict.fromkeys(item.values))
        for item in budget.expressions
        if item.operator == "In"
    ]
    return [*by_labels, *by_values] or [((budget.namespace, "", ""),)]
