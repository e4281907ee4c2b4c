"""Who says what will happen to a node: people by taint and annotation, autoscalers and kured by their own marks.

What is announced need not count yet: a reboot does only while the node is cordoned (`node_marks`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sidecar.drain.facts.mark_texts import quoted, word
from sidecar.drain.vocabulary import Intent
from sidecar.model import names
from sidecar.model.nodes import Node, Taint


class Source(StrEnum):
    """Who says it. If several say the same, the first of these is named."""

    TAINT = "taint"
    ANNOTATION = "annotation"
    AUTOSCALER = "autoscaler"
    KURED = "kured"
    CORDON = "cordon"
    """Nobody says what it is for, and the policy is Evacuate."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What all of them say together."""

    intent: Intent | None
    """The strictest; None: nobody says anything."""
    source: Source
    problems: tuple[str, ...]
    plainly_retire: bool = False
    """Somebody says that the node goes for good, and nobody anything else. `intent` takes more for that, to keep data: a taint without a
    word, or a typing error."""


def announcement(node: Node, *, annotated: Intent | None, wrong: str, kured: bool) -> Announcement:
    """`annotated` is the intent in the annotation, `wrong` its text if that is none. `kured`: what kured has written counts (`kured_note`).

    A wrong word starts nothing by itself, but beside any other word it counts as the stricter one.
    """
    by_taint, problems = _of_taints(evacuating(node), bare_says_nothing=annotated is not None)
    said = [*by_taint, *_of_annotation(annotated), *_of_programs(node, kured=kured)]
    in_words = any(source is not Source.TAINT for source, _, _ in said) or any(taint.value for taint in evacuating(node))
    plain = in_words and not wrong and not problems and all(intent is Intent.RETIRE for _, intent, _ in said)
    if wrong and said:
        said.append((Source.ANNOTATION, Intent.RETIRE, f"{names.DRAIN_INTENT}: {quoted(wrong)}"))
    return Announcement(*_strictest(said), (*problems, *_contradictions(said)), plain)


def evacuating(node: Node) -> tuple[Taint, ...]:
    """Taints that ask for an evacuation."""
    return tuple(sorted((taint for taint in node.taints if taint.key == names.EVACUATE_TAINT), key=str))


def retiring(node: Node) -> tuple[Taint, ...]:
    """Taints of autoscalers that are about to remove the node."""
    return tuple(sorted((taint for taint in node.taints if taint.key in names.RETIRING_TAINTS), key=str))


_Said = tuple[Source, Intent, str]


def _of_taints(taints: Iterable[Taint], *, bare_says_nothing: bool) -> tuple[list[_Said], list[str]]:
    said: list[_Said] = []
    problems: list[str] = []
    for taint in taints:
        intent, problem = word(Intent, taint.value, f"the taint {taint.key}")
        problems += [problem] if problem else []
        if taint.value or not bare_says_nothing:
            said.append((Source.TAINT, intent or Intent.RETIRE, f"the taint {taint}"))
    return said, problems


def _of_annotation(annotated: Intent | None) -> Iterable[_Said]:
    if annotated:
        yield Source.ANNOTATION, annotated, f"{names.DRAIN_INTENT}: {annotated}"


def _of_programs(node: Node, *, kured: bool) -> Iterable[_Said]:
    for taint in retiring(node):
        yield Source.AUTOSCALER, Intent.RETIRE, f"the taint {taint}"
    if kured:
        yield Source.KURED, Intent.REBOOT, f"the annotation {names.KURED_REBOOTS}"


def _strictest(said: list[_Said]) -> tuple[Intent | None, Source]:
    for wanted in (Intent.RETIRE, Intent.REBOOT):
        for source, intent, _ in said:
            if intent is wanted:
                return intent, source
    return None, Source.NONE


def _contradictions(said: list[_Said]) -> Iterable[str]:
    mild, strict = ([text for _, intent, text in said if intent is wanted] for wanted in (Intent.REBOOT, Intent.RETIRE))
    if mild and strict:
        yield f"{mild[0]} means reboot, {strict[0]} means retire: retire, the stricter one, applies"
