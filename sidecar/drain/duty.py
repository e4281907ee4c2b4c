"""What a duty of the drain room is: given the picture of this look, it acts, and returns what it decided and when to look again.

`controller` gives one picture to each duty in turn. A new duty is a file of its own and one more entry in that list. Duties do not call
each other: what a later one has to know of an earlier one is in the picture.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from sidecar.drain.evacuation import rules
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.report import NORMAL_LIFE, ReportContext
from sidecar.drain.rest import Rest
from sidecar.model.nodes import Node
from sidecar.model.standing import Standing

_UNDECIDED: Final = Rest("nothing is decided yet")


@dataclass(frozen=True, slots=True)
class Picture:
    """One look at the node, and what the duties before have added to it."""

    node: Node
    signals: Signals
    standing: Standing
    overridden: bool = False
    """The node is let go whatever blocks."""
    assessment: Assessment | None = None
    """None: not judged yet, or not at all."""
    snapshot: Snapshot | None = None
    """What was judged."""
    evacuation: rules.Decision = _UNDECIDED
    away: str = ""
    """Why no pod is sent away besides: a replica of another one is being made anew. Empty: none is."""
    notes: ReportContext = NORMAL_LIFE
    """What the report tells beside the assessment."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a duty hands back."""

    picture: Picture
    """As the duties after it are to see it, with its notes for the report."""
    decision: object = None
    """For the metrics and the debug page; None: it made none worth telling."""
    about: str = ""
    """What the decision is about, where that is not the node itself."""
    until: float | None = None
    """Look again at that time, by the wall clock, though nothing changes; None: there is no such time."""


class Duty(Protocol):
    """Its effects are tried one by one (`refusals_io`), so that what fails keeps neither the rest of it nor another duty from happening."""

    async def perform(self, picture: Picture) -> Outcome: ...
