"""An assessment as people read it, which is what `explain node` prints. And what each reason means, for the README."""

from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.drain import instants
from sidecar.drain.assessment import Assessment, Blocker, BudgetFall, Place, PodEnd
from sidecar.drain.plain import NOT_HELD, as_json, bytes_in_the_way, held_bytes, named
from sidecar.drain.words import MEANING, Intent, Reason
from sidecar.observe.plain import visible

__all__ = ["as_json", "reasons_table", "render", "size"]

_UNITS: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_DONE: Final = {Intent.REBOOT: "drained", Intent.RETIRE: "retired"}


# --- for people -------------------------------------------------------------------------------------------------------


def render(assessment: Assessment, *, intent: Intent | None = None) -> str:
    """What `explain node` prints. With an intent only what concerns it."""
    asked = (intent,) if intent else tuple(Intent)
    blockers = [blocker for blocker in assessment.blockers if set(asked) & set(blocker.blocks)]
    parts = (
        _head(assessment),
        _verdicts(assessment, asked),
        _sizes(assessment, asked),
        _blockers(blockers),
        _remedies(blockers),
        _ends(assessment.pods, asked),
        _falls(assessment.budgets),
        _places(assessment.places),
        _section("Worth knowing", assessment.notes),
    )
    return "\n\n".join("\n".join(visible(line) for line in part) for part in parts if part)


def size(count: int) -> str:
    """For reading, with at most one digit after the point."""
    for suffix, unit in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + suffix
    return str(count)


def _head(assessment: Assessment) -> list[str]:
    return [f"Node {assessment.node}, volumes of {assessment.driver}, at {instants.to_text(assessment.at)}"]


def _verdicts(assessment: Assessment, asked: Sequence[Intent]) -> list[str]:
    rows = [(intent, assessment.verdict(intent)) for intent in asked]
    return aligned([(f"May it be {_DONE[intent]}?", said.status, said.reason, said.message) for intent, said in rows])


def _sizes(assessment: Assessment, asked: Sequence[Intent]) -> list[str]:
    held = len([volume for volume in assessment.volumes if volume.class_ not in NOT_HELD])
    if not held:
        return []
    in_the_way = [f"{size(bytes_in_the_way(assessment, intent))} keep it from being {_DONE[intent]}" for intent in asked]
    return [f"{held} volume{'s' * (held > 1)} with {size(held_bytes(assessment))}; {', '.join(in_the_way)}."]


def _blockers(blockers: Sequence[Blocker]) -> list[str]:
    heads = ("WHAT BLOCKS", "VOLUME", "SIZE", "CLASS", "REASON", "POLICY", "BLOCKS", "SINCE")
    head, *lines = aligned([_row(blocker) for blocker in blockers], heads=heads) or [""]
    below = (f"    {blocker.message}" for blocker in blockers)
    return [line for line in (head, *(part for both in zip(lines, below, strict=True) for part in both)) if line.strip()]


def _row(blocker: Blocker) -> tuple[str, ...]:
    policy = f"{blocker.policy} ({blocker.policy_source})" if blocker.policy and blocker.policy_source else blocker.policy
    blocks = ", ".join(blocker.blocks)
    since = instants.to_text(blocker.since)
    return (named(blocker), blocker.volume, size(blocker.bytes), blocker.class_ or "", blocker.reason, policy or "", blocks, since)


def _remedies(blockers: Sequence[Blocker]) -> list[str]:
    told = dict.fromkeys((blocker.reason, blocker.remedy) for blocker in blockers)
    return _section("What to do", (line for reason, remedy in told for line in (f"{reason}: {_says(reason)}", f"  {remedy}")))


def _says(reason: Reason) -> str:
    return MEANING[reason].says if reason in MEANING else ""


def _ends(pods: Sequence[PodEnd], asked: Sequence[Intent]) -> list[str]:
    heads = ("POD", *(f"IF {_DONE[intent].upper()}" for intent in asked), "VOLUMES", "BUDGETS", "WHY")
    return aligned([_end(pod, asked) for pod in pods], heads=heads)


def _end(pod: PodEnd, asked: Sequence[Intent]) -> tuple[str, ...]:
    ends = (pod.reboot if intent is Intent.REBOOT else pod.retire for intent in asked)
    return (f"{pod.namespace}/{pod.name}", *ends, ", ".join(pod.volumes), ", ".join(pod.budgets), pod.why)


def _falls(budgets: Iterable[BudgetFall]) -> list[str]:
    said = (
        f"{fall.budget} allows {fall.allowed_now} now, and {fall.stranded} would be stranded: {', '.join(fall.pods)}" for fall in budgets
    )
    return _section("Budgets that would allow nothing more meanwhile, so that draining another node would wait", said)


def _places(places: Iterable[Place]) -> list[str]:
    return _section("Where volumes could go", (line for place in places for line in _way(place)))


def _way(place: Place) -> list[str]:
    volumes = ", ".join(place.volumes)
    if place.node:
        return [f"{volumes} to {place.node}"]
    missing = f": {size(place.shortfall)} missing" if place.shortfall else ""
    return [f"{volumes} nowhere{missing}", *(f"  {node}: {why}" for node, why in place.excluded)]


def _section(head: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {line}" for line in lines]
    return [f"{head}:", *body] if body else []


def aligned(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[str]:
    """Columns two blanks apart; those that are empty in every row are left out, heads and all."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [[*heads[place : place + 1], *column] for place, column in enumerate(zip(*texts, strict=True)) if any(column)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


# --- for the README ---------------------------------------------------------------------------------------------------


def reasons_table() -> str:
    """Every reason a verdict can be withheld for, as Markdown."""
    rows = (f"| `{reason}` | {_cell(meaning.says)} | {_cell(meaning.remedy)} |" for reason, meaning in MEANING.items())
    return "\n".join(("| reason | what it says | what to do |", "|---|---|---|", *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
