"""Races as pictures: SVG is written as text, so no library is needed."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from sidecar.frozen import frozen
from sidecar.simulation.swarm.counts import Counts, Summary

_WIDTH: Final = 720
_HEIGHT: Final = 280
_LEFT: Final = 64
_MARGIN: Final = 36
_TITLE: Final = 30
_COLORS: Final = ("#1b6ca8", "#c2571a", "#4b8b3b", "#7a4fa3")
_STYLE: Final = "text{font:12px sans-serif;fill:#222}.axis{stroke:#888;fill:none}.line{fill:none;stroke-width:2}.bar{fill:#1b6ca8}"

Point = tuple[float, float]


@frozen
class _Axis:
    """Values to pixels. A logarithmic one shows no zero: what is less than its beginning lies there."""

    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if self.logarithmic:
            value, low, high = (math.log10(max(number, self.low)) for number in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        return [self.low + (self.high - self.low) * part / 4 for part in range(5)]


def draw_sweep(title: str, summaries: Sequence[Summary]) -> str:
    """Latency and conflicts over the size of the cluster."""
    latency = {"mean": _over_nodes(summaries, lambda it: it.mean), "99th percentile": _over_nodes(summaries, lambda it: it.p99)}
    trouble = {
        "conflicts": _over_nodes(summaries, lambda it: it.conflicts),
        "failed creations": _over_nodes(summaries, lambda it: it.failed),
    }
    panels = [
        _lines("claim to owner, seconds", "nodes", latency, floor=0.001),
        _lines("per claim", "nodes", trouble, floor=0.0001),
    ]
    return _picture(title, panels)


def draw_one(title: str, counts: Counts, summary: Summary) -> str:
    """How the latencies of one race are distributed, and how its volumes are."""
    ordered = sorted(counts.latencies)
    shares = [(max(seconds, 0.001), (number + 1) / len(ordered)) for number, seconds in enumerate(ordered)]
    spread = sorted((*counts.volumes.values(), *([0] * (summary.nodes - len(counts.volumes)))))
    panels = [
        _lines("share of claims that have an owner", "seconds", {"claims": _thinned(shares)}, floor=None),
        _bars("volumes per node, fewest first", spread),
    ]
    return _picture(title, panels)


def _over_nodes(summaries: Sequence[Summary], value: Callable[[Summary], float]) -> list[Point]:
    found = ((float(summary.nodes), value(summary)) for summary in summaries)
    return sorted(point for point in found if not math.isnan(point[1]))


def _thinned(points: list[Point]) -> list[Point]:
    """At most as many points as a screen can show."""
    stride = max(len(points) // _WIDTH, 1)
    return [*points[::stride], *points[-1:]]


def _picture(title: str, panels: Sequence[str]) -> str:
    height = _TITLE + len(panels) * _HEIGHT
    placed = "".join(f'<g transform="translate(0,{_TITLE + number * _HEIGHT})">{panel}</g>\n' for number, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">\n'
        f'<style>{_STYLE}</style>\n<rect width="{_WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text x="{_LEFT}" y="20">{escape(title)}</text>\n{placed}</svg>\n'
    )


def _lines(title: str, across: str, lines: dict[str, list[Point]], *, floor: float | None) -> str:
    """Over a logarithmic axis; upwards logarithmic too if there is a floor, else from 0 to 1."""
    points = [point for line in lines.values() for point in line]
    x = _axis([point[0] for point in points])
    y = _Axis(0.0, 1.0, False) if floor is None else _axis([max(point[1], floor) for point in points])
    drawn = [_frame(title, x, y), _text(_WIDTH - _MARGIN, _HEIGHT - 2, across, "end")]
    for number, (name, line) in enumerate(lines.items()):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(f"{_across(x, point[0]):.1f},{_up(y, point[1]):.1f}" for point in line)
        drawn.append(f'<polyline class="line" stroke="{color}" points="{path}"/>')
        drawn.append(f'<text x="{_LEFT + 8}" y="{_MARGIN + 14 + 16 * number}" style="fill:{color}">{escape(name)}</text>')
    return "".join(drawn)


def _bars(title: str, values: Sequence[int]) -> str:
    y = _Axis(0.0, float(max([1, *values])), False)
    each = (_WIDTH - _LEFT - _MARGIN) / len(values)
    bars = "".join(
        f'<rect class="bar" x="{_LEFT + number * each:.2f}" y="{_up(y, value):.1f}" width="{max(each * 0.9, 0.1):.2f}" '
        f'height="{_up(y, 0.0) - _up(y, value):.1f}"/>'
        for number, value in enumerate(values)
    )
    return _frame(title, None, y) + bars


def _axis(values: Sequence[float]) -> _Axis:
    """From one power of ten to another, around all of them."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    return _Axis(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(max(high, low * 1.01))), True)


def _frame(title: str, x: _Axis | None, y: _Axis) -> str:
    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    parts = [_text(_LEFT, _MARGIN - 10, title, "start"), f'<path class="axis" d="M{_LEFT},{_MARGIN}V{bottom}H{right}"/>']
    if x is not None:
        parts += [_text(_across(x, tick), bottom + 16, f"{tick:g}", "middle") for tick in x.ticks()]
    parts += [_text(_LEFT - 6, _up(y, tick) + 4, f"{tick:g}", "end") for tick in y.ticks()]
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _across(axis: _Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (_WIDTH - _LEFT - _MARGIN)


def _up(axis: _Axis, value: float) -> float:
    return (_HEIGHT - _MARGIN) - axis.place(value) * (_HEIGHT - 2 * _MARGIN)
