"""The lists of contenders that nodes hold. Nodes that listed at the same time share one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sidecar.ownership.roster import Roster
from sidecar.simulation.swarm.scenario import Part, Scenario

# Each list that differs costs the ordering of all nodes for each claim.
_DIFFERENT: Final = 4


class Lists:
    """At the start all lists are equal: every node, with the space it had before any volume was made."""

    def __init__(self, scenario: Scenario, cast: Sequence[Part]) -> None:
        self._refresh = scenario.refresh
        self._figures = scenario.figures
        self.numbers: Final = range(min(_DIFFERENT, len(cast)))
        first = Roster.of([part.name for part in cast], {part.name: part.space for part in cast} if self._figures else {})
        self._rosters = dict.fromkeys(self.numbers, first)

    def of(self, node: int) -> int:
        """The list that this node holds."""
        return node % len(self.numbers)

    def roster(self, number: int) -> Roster:
        return self._rosters[number]

    def renewals(self, end: float) -> Iterator[tuple[float, int]]:
        """When each list is renewed: spread evenly over the time between two lists of one node."""
        for number in self.numbers:
            at = self._refresh * (number + 1) / len(self.numbers)
            while at < end:
                yield at, number
                at += self._refresh

    def renew(self, number: int, free: Mapping[str, int]) -> None:
        """`free`: of all nodes. Lists that are equal become one."""
        fresh = Roster.of(free, free if self._figures else {})
        self._rosters[number] = next((roster for roster in self._rosters.values() if roster == fresh), fresh)
