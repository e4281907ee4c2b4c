"""What PodDisruptionBudgets answer to the eviction of this node's pods, and which budgets would be used up by it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from sidecar.drain.judgement.assessment import ExhaustedBudget
from sidecar.model.nodes import Budget, Pod

_LabelKey = tuple[str, str, str]
"""(namespace, label, value): what a pod must have for a budget to select it, or (namespace, "", "") if no label decides."""


@dataclass(frozen=True, slots=True)
class BudgetFindings:
    """What the budgets say. Pods and budgets are named `namespace/name`."""

    selecting: Mapping[str, tuple[str, ...]]
    """By pod: the budgets that select it."""
    blocked: Mapping[str, str]
    """By pod that cannot be evicted now: the budget that forbids it."""
    exhausted: tuple[ExhaustedBudget, ...]
    outdated: Mapping[str, str]
    """By pod of which this is not known: the budget whose status is behind its spec."""

    def conflicting(self, pod: Pod) -> tuple[str, ...]:
        """The budgets of a pod that several select: the server refuses to evict it, whatever they allow."""
        budgets = self.selecting.get(pod.full_name, ())
        return budgets if len(budgets) > 1 and is_counted(pod) else ()


def check_budgets(budgets: Iterable[Budget], pods: Iterable[Pod], *, stranded: Set[str]) -> BudgetFindings:
    """`pods` are all that run here, in any order; `stranded` those of them that will not be ready elsewhere soon."""
    index = _Index(budgets)
    selected: dict[str, list[Pod]] = defaultdict(list)
    selecting: dict[str, tuple[str, ...]] = {}
    for pod in sorted(pods, key=lambda pod: pod.full_name):
        found = index.of(pod)
        if found:
            selecting[pod.full_name] = tuple(budget.full_name for budget in found)
        if len(found) == 1 and is_counted(pod) and not pod.stays and not _needs_no_budget(pod, found[0]):
            selected[found[0].full_name].append(pod)
    blocked: dict[str, str] = {}
    outdated: dict[str, str] = {}
    exhausted: list[ExhaustedBudget] = []
    for name, members in sorted(selected.items()):
        budget = index.by_name[name]
        if not budget.observed:
            outdated |= {pod.full_name: name for pod in members}
            continue
        blocked |= dict.fromkeys(_refused(budget, members, stranded), name)
        exhausted += _exhausted(budget, tuple(pod.full_name for pod in members if pod.full_name in stranded))
    return BudgetFindings(selecting, blocked, tuple(exhausted), outdated)


def is_counted(pod: Pod) -> bool:
    """The eviction API asks no budget about pods that do not run yet or are already ending."""
    return pod.phase != "Pending" and not pod.ended and not pod.deleting_since


def _needs_no_budget(pod: Pod, budget: Budget) -> bool:
    """The budget lets unready pods go (unhealthyPodEvictionPolicy)."""
    return budget.frees_unready and not pod.ready


def _refused(budget: Budget, members: Sequence[Pod], stranded: Set[str]) -> Iterable[str]:
    """Pods are evicted one after the other. A pod that becomes ready elsewhere gives its disruption back to the budget."""
    left = budget.allowed
    for pod in members:
        if left <= 0:
            yield pod.full_name
        elif pod.full_name in stranded:
            left -= 1


def _exhausted(budget: Budget, taken: tuple[str, ...]) -> Iterable[ExhaustedBudget]:
    if taken and budget.allowed <= len(taken):
        yield ExhaustedBudget(budget.full_name, budget.allowed, len(taken), taken)


class _Index:
    """Finds the budgets of a pod by its labels: clusters have thousands of budgets, and every pod would be held against each."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.by_name = {budget.full_name: budget for budget in sorted(budgets, key=lambda budget: budget.full_name) if budget.selects}
        self._marked: dict[_LabelKey, list[Budget]] = defaultdict(list)
        common = Counter(chain.from_iterable(chain.from_iterable(_choices(budget)) for budget in self.by_name.values()))
        for budget in self.by_name.values():
            for mark in min(_choices(budget), key=lambda marks: sum(common[mark] for mark in marks)):
                self._marked[mark].append(budget)

    def of(self, pod: Pod) -> tuple[Budget, ...]:
        marks = ((pod.namespace, "", ""), *((pod.namespace, key, value) for key, value in pod.labels.items()))
        near = chain.from_iterable(self._marked.get(mark, ()) for mark in marks)
        return tuple(sorted((budget for budget in near if budget.covers(pod)), key=lambda budget: budget.full_name))


def _choices(budget: Budget) -> Sequence[tuple[_LabelKey, ...]]:
    """Each is a set of labels of which every pod that the budget selects has exactly one."""
    by_labels = [((budget.namespace, key, value),) for key, value in budget.labels.items()]
    by_values = [
        tuple((budget.namespace, item.key, value) for value in dict.fromkeys(item.values))
        for item in budget.expressions
        if item.operator == "In"
    ]
    return [*by_labels, *by_values] or [((budget.namespace, "", ""),)]
