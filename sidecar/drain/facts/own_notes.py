"""Reads what this driver's sidecar noted on a node earlier: how far an evacuation is, and what has had its time. `on_node` writes it."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from sidecar.drain.facts.mark_texts import noted_time, quoted, word
from sidecar.model import names
from sidecar.model.nodes import Node

_ANNOTATIONS: Final = (
    names.EVACUATION_STARTED_AT,
    names.CLOSED_AT,
    names.MARKED_NODE,
    names.SPENT_OVERRIDE,
    names.REBOOT_INTENT,
    names.KURED_REBOOT,
)


class State(StrEnum):
    """How far an evacuation is: the value of the label."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    BLOCKED = "Blocked"
    """It has no slot and needs none, because nobody but a person can help."""
    SUCCESS = "Success"
    FAILED = "Failed"
    OVERRIDDEN = "Overridden"


@dataclass(frozen=True, slots=True)
class Noted:
    """As `node_marks.Signals`, where the names are the same."""

    state: State | None
    marked: bool
    started_at: float | None
    start_problem: str
    closed_at: float | None
    spent_override: str
    """The digest of an override that has ended an evacuation."""
    reboot: str
    """The mark about a reboot, whichever node it was written for."""
    kured: str
    """The mark about one that kured announces, likewise."""
    former: str
    """The marks are those of a former node of this name, and nothing else of them counts; empty: they are this node's."""
    problems: tuple[str, ...]


def read_notes(node: Node, driver: str, *, now: float) -> Noted:
    """`now` is the wall clock: a noted time must not be later."""
    texts = {name: node.annotations.get(names.of_driver(driver, name), "") for name in _ANNOTATIONS}
    label = names.of_driver(driver, names.EVACUATION_STATE)
    state_text = node.labels.get(label, "")
    reboot, kured = texts[names.REBOOT_INTENT], texts[names.KURED_REBOOT]
    marked = bool(state_text or texts[names.EVACUATION_STARTED_AT])
    former = _of_former_node(texts[names.MARKED_NODE], node.uid)
    if former:
        texts, state_text = dict.fromkeys(texts, ""), ""
    state, of_state = word(State, state_text, label)
    started_at, of_start = noted_time(texts[names.EVACUATION_STARTED_AT], names.EVACUATION_STARTED_AT, now)
    closed_at, of_closing = noted_time(texts[names.CLOSED_AT], names.CLOSED_AT, now)
    spent, problems = texts[names.SPENT_OVERRIDE], (of_state, of_start, of_closing)
    return Noted(state, marked, started_at, of_start, closed_at, spent, reboot, kured, former, problems)


def _of_former_node(marked: str, uid: str) -> str:
    return f"marks of a former node of this name (uid {quoted(marked)}) are not applied" if marked and marked != uid else ""


def digest(text: str) -> str:
    """What is remembered of a text that has had its time: enough to recognise the same one, and short."""
    return sha256(text.encode()).hexdigest()[:16]
