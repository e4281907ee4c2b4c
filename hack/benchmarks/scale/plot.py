"""A large cluster as a picture: SVG made of text, like the plots of the simulated race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.scale.names import CENTRAL, NAMES
from hack.benchmarks.scale.report import PUBLISHED, bound_rate, central_rate

WIDTH = 720
LEFT = 270
RIGHT = 70
TITLE = 30
HEADER = 34
BAR = 22
FOOTER = 12
STYLE = "text{font:12px sans-serif;fill:#222}.ours{fill:#1b6ca8}.peer{fill:#c2571a}.published{fill:#b9b9b9}"


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    digits: int = 1
    kind: str = "published"
    """A class of STYLE."""


@dataclass(frozen=True)
class Panel:
    title: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        return HEADER + BAR * len(self.bars) + FOOTER


def draw(measurements: Iterable[Measurement], *, nodes: int) -> str:
    """The bursts on that many nodes; what was not measured is left out."""
    turns = {(item.program, item.phase): item for item in measurements if item.nodes == nodes}
    shown = [panel for panel in panels(turns, nodes) if any(bar.kind != "published" for bar in panel.bars)]
    drawn, top = [], TITLE
    for panel in shown:
        drawn.append(f'<g transform="translate(0,{top})">{_panel(panel)}</g>\n')
        top += panel.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">\n'
        f'<style>{STYLE}</style>\n<rect width="{WIDTH}" height="{top}" fill="#fff"/>\n'
        f'<text x="16" y="20">{nodes} nodes on one machine; grey: upstream\'s report, {PUBLISHED.nodes:,} nodes on other hardware</text>\n'
        f"{''.join(drawn)}</svg>\n"
    )


def panels(turns: Mapping[tuple[str, str], Measurement], nodes: int) -> list[Panel]:
    central = central_rate({(nodes, program): item for (program, phase), item in turns.items() if phase == "burst"}, nodes)
    published, share = PUBLISHED, PUBLISHED.distributed / PUBLISHED.central

    def bars(phase: str, value: Callable[[Measurement], float], *, digits: int = 1, without: str = "") -> list[Bar]:
        measured = [turns[program, phase] for program in NAMES if (program, phase) in turns and program != without]
        found = [Bar(NAMES[item.program], value(item), digits, _kind(item)) for item in measured]
        return [bar for bar in found if math.isfinite(bar.value)]

    return [
        Panel(
            "claims that bind immediately: volumes bound a second",
            [
                *bars("burst", bound_rate),
                Bar("published, distributed", published.distributed),
                Bar("published, central", published.central),
            ],
        ),
        Panel(
            "the same, as a share of what one provisioner for the cluster does",
            [
                *bars("burst", lambda item: bound_rate(item) / central, digits=2, without=CENTRAL),
                Bar("published", share, 2),
            ],
        ),
        Panel("claims that bind late: volumes bound a second", bars("late", bound_rate)),
        Panel(
            "CPU of a sidecar for each volume of the cluster, bound immediately, ms",
            [*bars("burst", lambda item: 1000 * item.cpu_each), Bar("published, distributed", published.cpu_each)],
        ),
        Panel(
            "memory of a sidecar, MiB",
            [
                *bars("burst", lambda item: statistics.fmean(item.expense.resident), digits=0),
                Bar("published, distributed", published.mebibytes, 0),
            ],
        ),
    ]


def _kind(item: Measurement) -> str:
    return "ours" if item.program.startswith("ours") else "peer"


def _panel(panel: Panel) -> str:
    most = max(bar.value for bar in panel.bars) or 1.0
    return f'<text x="16" y="{HEADER - 14}">{escape(panel.title)}</text>' + "".join(
        _bar(bar, HEADER + BAR * number, (WIDTH - LEFT - RIGHT) * bar.value / most) for number, bar in enumerate(panel.bars)
    )


def _bar(bar: Bar, top: int, length: float) -> str:
    return (
        f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect class="{bar.kind}" x="{LEFT}" y="{top}" width="{max(length, 0.5):.1f}" height="{BAR - 5}"/>'
        f'<text x="{LEFT + length + 6:.1f}" y="{top + 13}">{bar.value:.{bar.digits}f}</text>'
    )
