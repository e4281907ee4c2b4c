"""`simulate race`: plays the races that the command line asks for, one after the other, and shows the results."""

import json
import sys
import time
from collections.abc import Sequence

from sidecar.simulation.swarm import thin
from sidecar.simulation.swarm.cost_table import cost_table
from sidecar.simulation.swarm.counts import Counts, Summary, summarize
from sidecar.simulation.swarm.drawing import draw_one, draw_sweep
from sidecar.simulation.swarm.options import FULL, Options, read_options
from sidecar.simulation.swarm.scenario import RANKED, Scenario
from sidecar.simulation.swarm.table import table


def run(words: Sequence[str]) -> int:
    """The exit code: 0 unless a claim that would fit somewhere has no volume at the end."""
    options = read_options(words)
    sizes, ranked = [scenario.nodes for scenario in options.scenarios], options.scenarios[0].placement == RANKED
    costs = cost_table(sizes, ranked=ranked)
    if options.costs:
        sys.stdout.write(f"{costs}\n")
        return 0
    all_counts, summaries = [], []
    for scenario in options.scenarios:
        sys.stdout.write(f"{scenario}\n")
        sys.stdout.flush()
        counts, summary = play(scenario, options.model_of(scenario))
        all_counts.append(counts)
        summaries.append(summary)
    sys.stdout.write(f"\n{table(summaries)}\n\n{costs}\n")
    _write(options, all_counts, summaries)
    return 1 if any(summary.fits for summary in summaries) else 0


def play(scenario: Scenario, model: str) -> tuple[Counts, Summary]:
    """One race by that model."""
    begun = time.perf_counter()
    if model == FULL:
        from sidecar.simulation.swarm.full import play as play_full  # the real rooms take a while to load

        counts = play_full(scenario)
    else:
        counts = thin.play(scenario)
    return counts, summarize(scenario, counts, model=model, took=time.perf_counter() - begun)


def _write(options: Options, all_counts: Sequence[Counts], summaries: Sequence[Summary]) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps([summary.json() for summary in summaries], indent=2) + "\n")
    if options.svg is not None:
        one = len(summaries) == 1
        first, _, rest = str(options.scenarios[0]).partition(" ")
        title = f"{first} {rest}" if one else f"{first} to {options.scenarios[-1].nodes} {rest}"
        options.svg.write_text(draw_one(title, all_counts[0], summaries[0]) if one else draw_sweep(title, summaries))
