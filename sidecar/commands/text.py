"""An assessment as text for people: what `explain node` prints."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, Protocol

from sidecar.drain.assess import Assessment, PodFate
from sidecar.drain.blockers import Blocker
from sidecar.drain.report import DONE, bytes_in_the_way
from sidecar.drain.words import Intent
from sidecar.model import timestamps
from sidecar.observe.sanitize import visible

_UNITS: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_AGES: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


class Layout(Protocol):
    """How it is laid out: as wide as somebody's terminal, or by the line."""

    def rows(self, rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[list[str]]:
        """The lines of the heads, where there are some, and those of each row. Nothing for no rows."""
        ...

    def text(self, line: str) -> list[str]: ...


def render(judged: Assessment, layout: Layout, *, intent: Intent | None = None, beside: Iterable[str] = ()) -> str:
    """With an intent, only what concerns that. `beside` the verdicts are lines of the caller."""
    asked = (intent,) if intent else tuple(Intent)
    blockers = [blocker for blocker in judged.blockers if set(asked) & set(blocker.blocks)]
    said = dict.fromkeys((blocker.reason, blocker.remedy) for blocker in blockers)
    remedies = ((f"{reason}: {reason.says}", f"  {remedy}") for reason, remedy in said)
    parts = (
        _told(layout, [f"Node {judged.node}, volumes of {judged.driver}, at {timestamps.to_text(judged.at)}"]),
        [*chain.from_iterable(layout.rows(verdicts(judged, asked))), *_told(layout, beside)],
        _told(layout, _sizes(judged, asked)),
        _blockers(layout, blockers),
        _told(layout, _section("What to do", chain.from_iterable(remedies))),
        _fates(layout, judged.pods, asked),
        _told(layout, _section("Worth knowing", judged.notes)),
    )
    return "\n\n".join("\n".join(part) for part in parts if part)


def verdicts(judged: Assessment, asked: Iterable[Intent]) -> list[tuple[str, ...]]:
    found = ((intent, judged.verdict(intent)) for intent in asked)
    return [(f"May it be {DONE[intent]}?", said.status, said.reason, said.message) for intent, said in found]


def size(count: int) -> str:
    """For people, with at most one digit after the point."""
    for suffix, unit in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + suffix
    return str(count)


def age(seconds: float) -> str:
    """For people, in the largest unit of which there are two at least."""
    for suffix, unit in _AGES:
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)}{suffix}"
    return f"{max(0, int(seconds))}s"


def aligned(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[str]:
    """Columns two blanks apart. A column that is empty in every row is left out with its head."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [[*heads[place : place + 1], *column] for place, column in enumerate(zip(*texts, strict=True)) if any(column)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def _told(layout: Layout, lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in layout.text(visible(line))]


def _sizes(judged: Assessment, asked: Sequence[Intent]) -> list[str]:
    count = len(judged.things)
    if not count:
        return []
    in_the_way = [f"{size(bytes_in_the_way(judged, intent))} keep it from being {DONE[intent]}" for intent in asked]
    return [f"{count} volume{'s' * (count > 1)} with {size(sum(thing.bytes for thing in judged.things))}; {', '.join(in_the_way)}."]


def _blockers(layout: Layout, blockers: Sequence[Blocker]) -> list[str]:
    heads = ("WHAT BLOCKS", "VOLUME", "SIZE", "CLASS", "REASON", "POLICY", "BLOCKS")
    head, *rows = layout.rows([_row(blocker) for blocker in blockers], heads=heads) or [[]]
    below = (_told(layout, [f"    {blocker.message}"]) if blocker.message else [] for blocker in blockers)
    return [*head, *(line for both in zip(rows, below, strict=True) for part in both for line in part)]


def _row(blocker: Blocker) -> tuple[str, ...]:
    policy = f"{blocker.policy} ({blocker.policy_source})" if blocker.policy else ""
    return (blocker.named, blocker.volume, size(blocker.bytes), blocker.class_, blocker.reason, policy, ", ".join(blocker.blocks))


def _fates(layout: Layout, pods: Iterable[PodFate], asked: Sequence[Intent]) -> list[str]:
    heads = ("POD", *(f"IF {DONE[intent].upper()}" for intent in asked), "VOLUMES", "WHY")
    fates = [(one.pod.full_name, *(one.fate(intent) for intent in asked), ", ".join(one.volumes), one.why) for one in pods]
    return [*chain.from_iterable(layout.rows(fates, heads=heads))]


def _section(head: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {line}" for line in lines]
    return [f"{head}:", *body] if body else []
