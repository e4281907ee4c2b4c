"""`simulate race`: plays the races that the command line asks for, one after the other, and shows the results."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.commands import progress
from sidecar.commands.printing import PROGRAM
from sidecar.simulation.swarm import thin
from sidecar.simulation.swarm.cost_table import cost_table
from sidecar.simulation.swarm.counts import Counts, Summary, summarize
from sidecar.simulation.swarm.drawing import draw_one, draw_sweep
from sidecar.simulation.swarm.options import FULL, Options, read_options
from sidecar.simulation.swarm.scenario import RANKED, Scenario
from sidecar.simulation.swarm.table import table

_OF_FULL: Final = 40.0
"""How much longer a race of the real rooms takes than one of the thin model."""


def run(words: Sequence[str]) -> int:
    """The exit code: 0 unless a claim that would fit somewhere has no volume at the end."""
    options = read_options(words)
    sizes, ranked = [scenario.nodes for scenario in options.scenarios], options.scenarios[0].placement == RANKED
    costs = cost_table(sizes, ranked=ranked)
    if options.costs:
        sys.stdout.write(f"{costs}\n")
        return 0
    all_counts, summaries = [], []
    course = Course(options)
    with progress.shown(course.far, name=PROGRAM):
        for scenario in options.scenarios:
            progress.write(f"{scenario}\n", stream=sys.stdout)
            counts, summary = play(scenario, options.model_of(scenario), watched=course.begin)
            course.end()
            all_counts.append(counts)
            summaries.append(summary)
    sys.stdout.write(f"\n{table(summaries)}\n\n{costs}\n")
    _write(options, all_counts, summaries)
    return 1 if any(summary.fits for summary in summaries) else 0


class Course:
    """How much of all races is over. One of twice as many nodes takes twice as long, and one of the real rooms longer than one without."""

    def __init__(self, options: Options) -> None:
        self._weights = [each.nodes * each.claims * (_OF_FULL if options.model_of(each) == FULL else 1.0) for each in options.scenarios]
        self._sizes = [each.nodes for each in options.scenarios]
        self._over = 0
        self._share: Callable[[], float] = _nothing

    def begin(self, share: Callable[[], float]) -> None:
        self._share = share

    def end(self) -> None:
        self._share = _nothing
        self._over += 1

    def far(self) -> progress.Far:
        """Called by another thread, and so between two lines of `end`: then a race is forgotten for a moment."""
        over = self._over
        now = self._share() * self._weights[over] if over < len(self._weights) else 0.0
        what = f"race {over + 1} of {len(self._weights)}, {self._sizes[over]} nodes" if over < len(self._weights) else "the end"
        return progress.Far(what, share=(sum(self._weights[:over]) + now) / sum(self._weights))


def _nothing() -> float:
    return 0.0


def play(scenario: Scenario, model: str, *, watched: Callable[[Callable[[], float]], None] = lambda _: None) -> tuple[Counts, Summary]:
    """One race by that model. `watched` is handed what tells how much of it is over."""
    begun = time.perf_counter()
    if model == FULL:
        from sidecar.simulation.swarm.full import play as play_full  # the real rooms take a while to load

        counts = play_full(scenario, watched=watched)
    else:
        counts = thin.play(scenario, watched=watched)
    return counts, summarize(scenario, counts, model=model, took=time.perf_counter() - begun)


def _write(options: Options, all_counts: Sequence[Counts], summaries: Sequence[Summary]) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps([summary.json() for summary in summaries], indent=2) + "\n")
    if options.svg is not None:
        one = len(summaries) == 1
        first, _, rest = str(options.scenarios[0]).partition(" ")
        title = f"{first} {rest}" if one else f"{first} to {options.scenarios[-1].nodes} {rest}"
        options.svg.write_text(draw_one(title, all_counts[0], summaries[0]) if one else draw_sweep(title, summaries))
