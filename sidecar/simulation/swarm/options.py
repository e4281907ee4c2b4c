"""The command line of a race, as a value."""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from sidecar.commands.printing import program
from sidecar.config.errors import UsageError
from sidecar.config.kinds import read_duration
from sidecar.frozen import frozen
from sidecar.model.quantity import BadQuantity, parse_bytes
from sidecar.simulation.swarm.scenario import PLACEMENTS, Scenario
from sidecar.simulation.swarm.server_cost import SIZES
from sidecar.simulation.world.network import Latency

Add = Callable[..., Any]
T = TypeVar("T")

THIN: Final = "thin"
FULL: Final = "full"
LARGEST_FULL: Final = 300
"""With more nodes it takes too long to run the real rooms."""


@frozen(kw_only=True)
class Options:
    """What to play, and where to write the results."""

    scenarios: tuple[Scenario, ...]
    model: str | None
    """None: chosen by the number of nodes."""
    json: Path | None
    svg: Path | None
    costs: bool
    """Only what the API server does is told, and nothing is played."""

    def model_of(self, scenario: Scenario) -> str:
        """The thin model also knows flags that the real rooms cannot follow, and the other way round."""
        if only_full(scenario):
            return FULL
        fits = scenario.nodes <= LARGEST_FULL and not only_thin(scenario)
        return self.model or (FULL if fits else THIN)


def only_thin(scenario: Scenario) -> list[str]:
    """The flags that the real rooms cannot follow."""
    given = {
        "--window": scenario.window is not None,
        "--step": scenario.step is not None,
        "--refresh": scenario.refresh != Scenario().refresh,
    }
    return [flag for flag, is_given in given.items() if is_given]


def only_full(scenario: Scenario) -> list[str]:
    """The flags that the thin model cannot follow."""
    given = {
        "--liars": scenario.liars > 0,
        "--snapshots": scenario.snapshots,
        "--impossible": scenario.impossible > 0,
        "--standing": scenario.standing != Scenario().standing,
        "--qps": scenario.qps is not None,
        "--server-requests": scenario.server_requests is not None,
        "--server-events": scenario.server_events is not None,
    }
    return [flag for flag, is_given in given.items() if is_given]


def read_options(words: Sequence[str]) -> Options:
    """Raises UsageError with all that is wrong."""
    given = vars(_parser().parse_args(list(words)))
    model, sweep, json, svg, costs = (given.pop(name) for name in ("model", "sweep", "json", "svg", "costs"))
    scenario = Scenario(**given)
    sizes = sweep or (SIZES if costs else (scenario.nodes,))
    scenarios = tuple(replace(scenario, nodes=nodes) for nodes in sizes)
    faults = [fault for each in scenarios for fault in each.faults()]
    if model == FULL:
        faults += [f"{flag} needs --model=thin" for flag in only_thin(scenario)]
    if model == THIN or only_thin(scenario) or max(each.nodes for each in scenarios) > LARGEST_FULL:
        faults += [f"{flag} needs --model=full, and at most {LARGEST_FULL} nodes" for flag in only_full(scenario)]
    # Checked before the races, not after them.
    faults += [f"--{name}: {file} cannot be written" for name, file in (("json", json), ("svg", svg)) if file and not _is_writable(file)]
    if faults:
        raise UsageError(dict.fromkeys(faults))
    return Options(scenarios=scenarios, model=model, json=json, svg=svg, costs=costs)


def _is_writable(file: Path) -> bool:
    return os.access(file if file.exists() else file.parent, os.W_OK) and not file.is_dir()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError([message])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{program()} simulate race",
        description="Nodes that compete for Immediate claims, on virtual time.",
        epilog=f"Up to {LARGEST_FULL} nodes the real rooms run, above that a thin model of them with the same rules.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    default = Scenario()
    _add_load(parser.add_argument_group("cluster and load").add_argument, default)
    _add_placement(parser.add_argument_group("placement").add_argument, default)
    _add_trouble(parser.add_argument_group("trouble").add_argument, default)
    _add_latencies(parser.add_argument_group("latencies, as MEDIAN/P99 or one fixed time").add_argument, default)
    _add_output(parser.add_argument_group("how, and what is told").add_argument)
    return parser


def _add_load(add: Add, default: Scenario) -> None:
    add("--nodes", type=int, default=default.nodes, metavar="N")
    add("--claims", type=int, default=default.claims, metavar="N")
    add("--rate", type=float, default=default.rate, metavar="N", help="claims a second")
    add("--burst", action="store_true", help="all claims at once instead")
    add("--space", type=_read(_spaces), default=default.space, metavar="SIZE[,SIZE…]", help="of each node, from the beginning again")
    add("--size", type=_read(parse_bytes), default=default.size, metavar="SIZE", help="of a claim")
    add("--seed", type=int, default=default.seed, metavar="N")


def _add_placement(add: Add, default: Scenario) -> None:
    add("--placement", choices=PLACEMENTS, default=default.placement)
    add("--base-delay", type=_read(read_duration), default=default.base_delay, metavar="TIME", help="of random placement")
    add("--max-delay", type=_read(read_duration), default=default.max_delay, metavar="TIME", help="of random placement")
    add("--step", type=_read(read_duration), metavar="TIME", help="of ranked placement; None: the program's own")
    add("--refresh", type=_read(read_duration), default=default.refresh, metavar="TIME", help="between two lists of contenders")
    add("--no-figures", action="store_false", dest="figures", help="nodes do not publish how much is free")


def _add_trouble(add: Add, default: Scenario) -> None:
    add("--full", type=float, default=default.full, metavar="SHARE", help="of nodes without space that still publish some")
    add("--dead", type=float, default=default.dead, metavar="SHARE", help="of nodes that are listed and do not run")
    add("--restarts", type=int, default=default.restarts, metavar="N", help="of nodes, while claims come")
    add("--partitions", type=int, default=default.partitions, metavar="N", help="nodes cut off, while claims come")
    add("--away", type=_read(read_duration), default=default.away, metavar="TIME", help="that a restart or partition takes")
    add("--rolling", type=float, default=default.rolling, metavar="SHARE", help="of nodes that still run upstream's rule")
    add("--liars", type=int, default=default.liars, metavar="N", help="nodes that have room until they are to create a volume")
    add("--snapshots", action="store_true", help="claims are filled from snapshots, each on one node")
    add(
        "--impossible",
        type=int,
        default=default.impossible,
        metavar="N",
        help="claims beside them that fit on no node",
    )
    add("--standing", type=_read(read_duration), default=default.standing, metavar="TIME", help="for which those have been there before")
    add("--qps", type=float, metavar="N", help="requests a second of each node, and twice as many at once; None: no limit")
    add("--server-requests", type=float, metavar="N", help="that the API server answers in a second; None: all that come")
    add("--server-events", type=float, metavar="N", help="of watches that it sends in a second, to all nodes together; None: all there are")


def _add_latencies(add: Add, default: Scenario) -> None:
    def add_latency(name: str, what: str) -> None:
        add(f"--{name}", type=_read(_latency), default=getattr(default, name), metavar="TIME", help=what)

    add_latency("watch", "until a node hears of an event")
    add_latency("write", "until a write is done")
    add_latency("capacity", "of GetCapacity")
    add_latency("creation", "of CreateVolume")
    add("--window", type=_read(read_duration), metavar="TIME", help="fixed, from a bid's beginning until everybody has seen it")
    add("--patience", type=_read(read_duration), default=default.patience, metavar="TIME", help="after the last claim")


def _add_output(add: Add) -> None:
    add("--model", choices=(FULL, THIN), help="None: by the number of nodes")
    add("--sweep", type=_read(_counts), metavar="N,N…", help="clusters of so many nodes, one after the other")
    add("--costs", action="store_true", help="play nothing: only reckon what the API server does for volumes, at rest and per roll")
    add("--json", type=Path, metavar="FILE")
    add("--svg", type=Path, metavar="FILE")


def _read(kind: Callable[[str], T]) -> Callable[[str], T]:
    """argparse shows the text of its own error only."""

    def read(text: str) -> T:
        try:
            return kind(text)
        except (UsageError, BadQuantity, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _spaces(text: str) -> tuple[int, ...]:
    return tuple(parse_bytes(part) for part in text.split(","))


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _latency(text: str) -> Latency:
    median, slash, p99 = text.partition("/")
    usual = read_duration(median)
    rare = read_duration(p99) if slash else usual
    if usual < 0 or rare < usual:
        raise ValueError(f"{text!r} is no latency: the 99th percentile cannot be below the median, nor the median below nothing")
    return Latency(usual, rare)
