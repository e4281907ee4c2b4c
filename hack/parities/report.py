"""The comparison as a table: how many cases are equal, what differs on purpose, and what is unexplained."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hack.parities.compare import Gap, Pair
from hack.parities.differences import TABLE, Intended, intended_for

_LONGEST, _MOST_NAMED, _MOST_SHOWN = 700, 40, 3


@dataclass(slots=True)
class Verdict:
    cases: set[str] = field(default_factory=set)
    differing: set[str] = field(default_factory=set)
    """Cases with at least one intended difference that is not met everywhere."""
    fields: int = 0
    """That were compared, in all cases and at both moments."""
    explained: dict[str, list[Gap]] = field(default_factory=dict)
    unexplained: list[Gap] = field(default_factory=list)

    @property
    def broken(self) -> set[str]:
        return {gap.case for gap in self.unexplained}

    @property
    def equal(self) -> int:
        return len(self.cases - self.differing - self.broken)

    @property
    def unused(self) -> list[Intended]:
        return [item for item in TABLE if item.name not in self.explained]


def judge(pairs: Iterable[tuple[Pair, int]]) -> Verdict:
    """Each pair with the number of fields that were held against each other."""
    verdict = Verdict()
    for pair, fields in pairs:
        verdict.cases.add(pair.case.id)
        verdict.fields += fields
        for gap in pair.gaps():
            found = intended_for(pair, gap)
            if found is None:
                verdict.unexplained.append(gap)
            else:
                verdict.explained.setdefault(found.name, []).append(gap)
                verdict.differing |= set() if found.everywhere else {gap.case}
    return verdict


def table(verdict: Verdict) -> str:
    lines = [
        "| | cases |",
        "|---|--:|",
        f"| compared (fields: {verdict.fields:,}) | {len(verdict.cases)} |",
        f"| equal, but for {_everywhere()} | {verdict.equal} |",
        f"| with other intended differences only | {len(verdict.differing - verdict.broken)} |",
        f"| with differences that nobody has explained | {len(verdict.broken)} |",
        "",
        "| intended difference | cases | fields | reason |",
        "|---|--:|--:|---|",
    ]
    for item in TABLE:
        gaps = verdict.explained.get(item.name, [])
        if gaps:
            lines.append(f"| {item.name} | {len({gap.case for gap in gaps})} | {len(gaps)} | {item.reason} |")
    if verdict.unused:
        lines += ["", "not met in this run: " + ", ".join(item.name for item in verdict.unused)]
    return "\n".join(lines)


def _everywhere() -> str:
    return " and ".join(f"“{item.name}”" for item in TABLE if item.everywhere)


def complaints(verdict: Verdict) -> str:
    """One paragraph for each field, with the first case in which it differs and the names of the others."""
    by_field: dict[tuple[str, str], list[Gap]] = {}
    for gap in verdict.unexplained:
        by_field.setdefault((gap.moment, gap.path), []).append(gap)
    lines = [f"{len(verdict.unexplained)} unexplained differences in {len(verdict.broken)} cases:"]
    for (moment, path), gaps in sorted(by_field.items(), key=lambda item: -len(item[1])):
        lines += ["", f"{path}, {moment}, in {len(gaps)} cases: {' '.join(gap.case for gap in gaps[:_MOST_NAMED])}"]
        lines += [f"    {gap.case}\n      peer: {_short(gap.peer)}\n      ours: {_short(gap.ours)}" for gap in gaps[:_MOST_SHOWN]]
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
