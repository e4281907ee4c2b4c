"""As much of PromQL as it takes to tell which series an expression asks for. An unknown word counts as a metric, and is found out."""

from __future__ import annotations

import re
from dataclasses import dataclass

# fmt: off
WORDS = frozenset((
    "absent", "and", "bool", "by", "count", "histogram_quantile", "increase", "max", "min", "offset", "on", "or", "rate", "sum",
    "sum_over_time", "time", "unless", "vector",
))
# fmt: on
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_SELECTOR = re.compile(r"(?<![\w$.])([a-zA-Z_:][\w:]*)(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Matcher:
    label: str
    operator: str
    value: str

    @property
    def positive(self) -> bool:
        return not self.operator.startswith("!")

    def fits(self, value: str) -> bool:
        """Prometheus anchors its regular expressions."""
        if "~" in self.operator:
            return (re.fullmatch(self.value, value) is not None) == self.positive
        return (self.value == value) == self.positive


@dataclass(frozen=True, slots=True)
class Selector:
    metric: str
    matchers: tuple[Matcher, ...]


def selectors(expression: str) -> list[Selector]:
    """Every series that is asked for. A closing brace within quotes would be misread, and none is there."""
    assert not any("}" in quoted or "{" in quoted for quoted in _QUOTED.findall(expression))
    rest = _RANGE.sub("", _GROUPING.sub("", expression))
    found = []
    for metric, inner in _SELECTOR.findall(_without_loose_strings(rest)):
        if metric not in WORDS:
            matchers = tuple(Matcher(label, operator, value[1:-1]) for label, operator, value in _MATCHER.findall(inner))
            assert _MATCHER.sub("", inner).strip(" ,\n") == "", f"cannot read {{{inner}}}"
            found.append(Selector(metric, matchers))
    return found


def grouped_by(expression: str) -> set[str]:
    """The labels of its outermost and inner groupings alike."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")}


def _without_loose_strings(expression: str) -> str:
    """Strings outside of braces are no series."""
    parts = re.split(r"(\{[^}]*\})", expression)
    return "".join(part if part.startswith("{") else _QUOTED.sub("", part) for part in parts)
