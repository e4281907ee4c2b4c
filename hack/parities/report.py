"""The comparison as a table: how many cases are equal, what differs on purpose, and what is unexplained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hack.parities.compare import Gap, Pair
from hack.parities.differences import TABLE, intended_for

_LONGEST, _MOST_NAMED, _MOST_SHOWN = 700, 40, 3


@dataclass(slots=True)
class Verdict:
    cases: set[str] = field(default_factory=set)
    differing: set[str] = field(default_factory=set)
    """Cases with at least one intended difference that is not met everywhere."""
    explained: dict[str, list[Gap]] = field(default_factory=dict)
    unexplained: list[Gap] = field(default_factory=list)


def judge(pairs: Iterable[Pair]) -> Verdict:
    verdict = Verdict()
    for pair in pairs:
        verdict.cases.add(pair.case.id)
        for gap in pair.gaps():
            found = intended_for(pair, gap)
            if found is None:
                verdict.unexplained.append(gap)
            else:
                verdict.explained.setdefault(found.name, []).append(gap)
                verdict.differing |= set() if found.everywhere else {gap.case}
    return verdict


def table(verdict: Verdict) -> str:
    broken = {gap.case for gap in verdict.unexplained}
    everywhere = " and ".join(f"“{item.name}”" for item in TABLE if item.everywhere)
    lines = ["| | cases |", "|---|--:|", f"| compared | {len(verdict.cases)} |"]
    lines += [f"| equal, but for {everywhere} | {len(verdict.cases - verdict.differing - broken)} |"]
    lines += [f"| with other intended differences only | {len(verdict.differing - broken)} |"]
    lines += [f"| with differences that nobody has explained | {len(broken)} |"]
    lines += ["", "| intended difference | cases | fields | reason |", "|---|--:|--:|---|"]
    for item in TABLE:
        if gaps := verdict.explained.get(item.name, []):
            lines.append(f"| {item.name} | {len({gap.case for gap in gaps})} | {len(gaps)} | {item.reason} |")
    return "\n".join([*lines, *_complaints(verdict)])


def _complaints(verdict: Verdict) -> Iterator[str]:
    """One paragraph for each field, with the first cases in which it differs and the names of the others."""
    by_field: dict[tuple[str, str], list[Gap]] = {}
    for gap in verdict.unexplained:
        by_field.setdefault((gap.moment, gap.path), []).append(gap)
    for (moment, path), gaps in sorted(by_field.items(), key=lambda item: -len(item[1])):
        yield f"\nUnexplained: {path}, {moment}, in {len(gaps)} cases: {' '.join(gap.case for gap in gaps[:_MOST_NAMED])}"
        yield from (f"    {gap.case}\n      peer: {_short(gap.peer)}\n      ours: {_short(gap.ours)}" for gap in gaps[:_MOST_SHOWN])


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
