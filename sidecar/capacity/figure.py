"""Turns the driver's answer into the figure that is published, and names every correction on the way."""

from dataclasses import dataclass

from sidecar.csi.api import CapacityAnswer


@dataclass(frozen=True, slots=True)
class Figure:
    """What is published. The scheduler compares a claim with `maximum` where there is one, else with `capacity`."""

    capacity: int
    maximum: int | None
    why: str


def figure_of(answer: CapacityAnswer, *, promised: int, reserve: bool) -> Figure:
    """Without `reserve` it is what the driver said, except for values that the API server would refuse."""
    notes = [f"{answer.available} bytes free"]
    available = answer.available
    if available < 0:
        notes.append("a negative answer is published as 0")
        available = 0
    maximum = answer.maximum
    if maximum is not None and maximum < 0:
        notes.append(f"a negative largest volume ({maximum}) is left out")
        maximum = None
    if reserve and promised:
        notes.append(f"{promised} of them reserved for claims of this node")
        available = max(available - promised, 0)
    if reserve and answer.minimum is not None and available < answer.minimum:
        notes.append(f"published as 0, since the smallest volume has {answer.minimum}")
        available = 0
    if reserve and maximum is not None:
        # With a maximum above what is free, the scheduler would compare with the maximum and send pods that find no space.
        maximum = min(maximum, available)
    return Figure(available, maximum, ", ".join(notes))
