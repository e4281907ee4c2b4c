"""From the driver's answer to the figure that is published, with a name for each oddity on the way."""

from dataclasses import dataclass

from sidecar.csi.api import CapacityAnswer
from sidecar.model.standing import Standing


@dataclass(frozen=True, slots=True)
class Figure:
    """What is published. The scheduler takes the maximum for the limit where there is one, and the capacity elsewhere."""

    capacity: int
    maximum: int | None
    why: str


def figure_of(answer: CapacityAnswer, *, promised: int, reserve: bool) -> Figure:
    """Without `reserve` the figure is the driver's alone, as far as Kubernetes takes it."""
    notes = [f"{answer.available} bytes free"]
    available = answer.available
    if available < 0:
        notes.append("a negative answer counts as 0")
        available = 0
    maximum = answer.maximum
    if maximum is not None and maximum < 0:
        notes.append(f"a largest volume of {maximum} is left out")
        maximum = None
    if reserve and promised:
        notes.append(f"{promised} of them promised to claims")
        available = max(available - promised, 0)
    if reserve and answer.minimum is not None and available < answer.minimum:
        notes.append(f"no volume fits, for the smallest has {answer.minimum}")
        available = 0
    if reserve and maximum is not None:
        # A largest volume beyond what is free would make the scheduler overlook what is free.
        maximum = min(maximum, available)
    return Figure(available, maximum, ", ".join(notes))


def nothing(standing: Standing) -> Figure:
    """For a node that is to take no more volumes. No maximum, for it would count instead of the zero."""
    return Figure(0, None, f"the node takes no volumes: {standing.why}")
