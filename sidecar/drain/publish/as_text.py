"""An assessment as text for people: what `explain node` prints; and the table of reasons for the README of deploy/components/drain."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

from sidecar.drain.judgement.assessment import Assessment, Blocker, ExhaustedBudget, Place, PodFate
from sidecar.drain.publish.as_json import as_json, bytes_in_the_way, held_bytes, named
from sidecar.drain.vocabulary import HINDRANCES, MEANING, OF_REPROVISION, Intent, Meaning
from sidecar.model import timestamps
from sidecar.observe.sanitize import visible

__all__ = ["age", "aligned", "as_json", "hindrances_table", "reasons_table", "render", "size"]

_UNITS: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_AGES: Final = (("d", 86_400), ("h", 3_600), ("m", 60))
_DONE: Final = {Intent.REBOOT: "drained", Intent.RETIRE: "retired"}


# --- for people -------------------------------------------------------------------------------------------------------


class Layout(Protocol):
    """How it is laid out: by the line, or as wide as somebody's terminal."""

    def rows(self, rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[list[str]]:
        """The lines of the heads, where there are some, and those of each row. Nothing for no rows."""
        ...

    def text(self, line: str) -> list[str]: ...


class OneLineEach:
    def rows(self, rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[list[str]]:
        return [[line] for line in aligned(rows, heads=heads)]

    def text(self, line: str) -> list[str]:
        return [line]


def render(assessment: Assessment, *, intent: Intent | None = None, beside: Iterable[str] = (), layout: Layout | None = None) -> str:
    """What `explain node` prints; with an intent, only what concerns that. `beside` the verdicts are lines of the caller."""
    layout = layout or OneLineEach()
    asked = (intent,) if intent else tuple(Intent)
    blockers = [blocker for blocker in assessment.blockers if set(asked) & set(blocker.blocks)]
    parts = (
        _told(layout, [f"Node {assessment.node}, volumes of {assessment.driver}, at {timestamps.to_text(assessment.at)}"]),
        [*_verdicts(layout, assessment, asked), *_told(layout, beside)],
        _told(layout, _sizes(assessment, asked)),
        _blockers(layout, blockers),
        _told(layout, _remedies(blockers)),
        _fates(layout, assessment.pods, asked),
        _told(layout, _section("Not on the node, and use its volumes, as evicted pods do that wait", _waiting(assessment))),
        _told(layout, _exhausted_budgets(assessment.budgets)),
        _told(layout, _section("Where volumes could go", (line for place in assessment.places for line in _place_lines(place)))),
        _told(layout, _section("Worth knowing", assessment.notes)),
    )
    return "\n\n".join("\n".join(part) for part in parts if part)


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


def _told(layout: Layout, lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in layout.text(visible(line))]


def _verdicts(layout: Layout, assessment: Assessment, asked: Sequence[Intent]) -> list[str]:
    verdicts = [(intent, assessment.verdict(intent)) for intent in asked]
    rows = [(f"May it be {_DONE[intent]}?", said.status, said.reason, said.message) for intent, said in verdicts]
    return [*chain.from_iterable(layout.rows(rows))]


def _sizes(assessment: Assessment, asked: Sequence[Intent]) -> list[str]:
    held = len(assessment.volumes)
    if not held:
        return []
    in_the_way = [f"{size(bytes_in_the_way(assessment, intent))} keep it from being {_DONE[intent]}" for intent in asked]
    return [f"{held} volume{'s' * (held > 1)} with {size(held_bytes(assessment))}; {', '.join(in_the_way)}."]


def _blockers(layout: Layout, blockers: Sequence[Blocker]) -> list[str]:
    heads = ("WHAT BLOCKS", "VOLUME", "SIZE", "CLASS", "REASON", "POLICY", "BLOCKS")
    head, *rows = layout.rows([_row(blocker) for blocker in blockers], heads=heads) or [[]]
    below = (_told(layout, [f"    {blocker.message}"]) if blocker.message else [] for blocker in blockers)
    return [*head, *(line for both in zip(rows, below, strict=True) for part in both for line in part)]


def _row(blocker: Blocker) -> tuple[str, ...]:
    policy = f"{blocker.policy} ({blocker.policy_source})" if blocker.policy and blocker.policy_source else blocker.policy
    blocks = ", ".join(blocker.blocks)
    return (named(blocker), blocker.volume, size(blocker.bytes), blocker.class_ or "", blocker.reason, policy or "", blocks)


def _remedies(blockers: Sequence[Blocker]) -> list[str]:
    said = dict.fromkeys((blocker.reason, blocker.remedy) for blocker in blockers)
    lines = ((f"{reason}: {MEANING[reason].says if reason in MEANING else ''}", f"  {remedy}") for reason, remedy in said)
    return _section("What to do", chain.from_iterable(lines))


def _fates(layout: Layout, pods: Sequence[PodFate], asked: Sequence[Intent]) -> list[str]:
    heads = ("POD", *(f"IF {_DONE[intent].upper()}" for intent in asked), "VOLUMES", "BUDGETS", "WHY")
    return [*chain.from_iterable(layout.rows([_fate(pod, asked) for pod in pods], heads=heads))]


def _fate(pod: PodFate, asked: Sequence[Intent]) -> tuple[str, ...]:
    fates = (pod.reboot if intent is Intent.REBOOT else pod.retire for intent in asked)
    return (f"{pod.namespace}/{pod.name}", *fates, ", ".join(pod.volumes), ", ".join(pod.budgets), pod.why)


def _waiting(assessment: Assessment) -> list[str]:
    here = {f"{pod.namespace}/{pod.name}" for pod in assessment.pods}
    users = ((pod, volume) for volume in assessment.volumes for pod in volume.pods if pod not in here)
    return [f"{pod}: {volume.claim or volume.name}" for pod, volume in users]


def _exhausted_budgets(budgets: Iterable[ExhaustedBudget]) -> list[str]:
    said = (
        f"{budget.budget} allows {budget.allowed_now} now, and {budget.stranded} of its pods would stay away: {', '.join(budget.pods)}"
        for budget in budgets
    )
    return _section("Budgets that would be used up while the node is away, so that draining another node would wait", said)


def _place_lines(place: Place) -> list[str]:
    volumes = ", ".join(place.volumes)
    if place.node:
        return [f"{volumes} to {place.node}"]
    missing = f": {size(place.shortfall)} missing" if place.shortfall else ""
    return [f"{volumes} to no node{missing}", *(f"  {node}: {why}" for node, why in place.excluded)]


def _section(head: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {line}" for line in lines]
    return [f"{head}:", *body] if body else []


def aligned(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[str]:
    """Columns two blanks apart. A column that is empty in every row is left out with its head."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [[*heads[place : place + 1], *column] for place, column in enumerate(zip(*texts, strict=True)) if any(column)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


# --- for the README ---------------------------------------------------------------------------------------------------


def reasons_table() -> str:
    """Every reason that withholds a True, as Markdown."""
    return _table(MEANING)


def hindrances_table(*, anew: bool = False) -> str:
    """Every reason why a pod is not evicted, for the README of deploy/components/emptying; `anew`: why no replica is made anew besides."""
    return _table({reason: meaning for reason, meaning in HINDRANCES.items() if (reason in OF_REPROVISION) is anew})


def _table(meanings: Mapping[Any, Meaning]) -> str:
    rows = (f"| `{reason}` | {_cell(meaning.says)} | {_cell(meaning.remedy)} |" for reason, meaning in meanings.items())
    return "\n".join(("| reason | what it says | what to do |", "|---|---|---|", *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
