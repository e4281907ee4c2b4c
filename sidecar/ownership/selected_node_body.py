"""Builds the body of the selected-node write: the whole claim as last seen, with the annotation set or removed.

The body keeps the claim's resourceVersion, so the API server refuses the write if the claim has changed: two nodes cannot both win.
A node that could not create the volume notes its try in the same write, where placement is ranked: it comes last from then on.
A closed node that gives a claim back notes that in the same write. So it does it only once, even if the process restarts. The note is
never removed: it concerns this one closing only, and it disappears with the claim.
"""

import json
from dataclasses import dataclass
from typing import Any

from sidecar.model import names
from sidecar.model.objects import Notes
from sidecar.ownership.tries import Tries


@dataclass(frozen=True, slots=True)
class Take:
    """A node takes the claim."""

    node: str

    def __call__(self, whole: bytes) -> bytes:
        return with_selected_node(whole, self.node)


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A node gives the claim back; a closed one notes the closing for which it does, one that has tried in vain may note its try."""

    closing: str = ""
    tried_by: str = ""

    def __call__(self, whole: bytes) -> bytes:
        if self.closing:
            return handed_back(whole, self.closing)
        return tried(whole, self.tried_by) if self.tried_by else without_selected_node(whole)


def with_selected_node(whole: bytes, node: str) -> bytes:
    """The body of the PUT by which a node takes the claim."""
    obj = json.loads(whole)
    _annotations(obj)[names.SELECTED_NODE] = node
    return json.dumps(obj, separators=(",", ":")).encode()


def without_selected_node(whole: bytes) -> bytes:
    """The body of the PUT by which a node gives the claim back; every other annotation stays."""
    obj = json.loads(whole)
    _annotations(obj).pop(names.SELECTED_NODE, None)
    return json.dumps(obj, separators=(",", ":")).encode()


def tried(whole: bytes, node: str) -> bytes:
    """The body of the PUT by which a node gives the claim back and notes its try."""
    obj = json.loads(without_selected_node(whole))
    notes = _annotations(obj)
    notes[names.TRIED_BY] = Tries.of(notes).and_(node).text
    return json.dumps(obj, separators=(",", ":")).encode()


def closing(node: str, since: str) -> str:
    """The text that notes a node's closing in a claim; `since` tells one closing from the next. Commas separate such notes, so none may
    be in it."""
    return f"{node}@{since.replace(',', ';').strip()}"


def handings_back(notes: Notes) -> tuple[str, ...]:
    """The noted closings in which the claim was handed back: the latest of each node, in the order of time."""
    return _read(dict(notes).get(names.HANDED_BACK, ""))


def handed_back(whole: bytes, closing: str) -> bytes:
    """The body of the PUT by which a closed node gives the claim back and notes for which closing it did."""
    obj = json.loads(without_selected_node(whole))
    notes = _annotations(obj)
    others = (item for item in _read(notes.get(names.HANDED_BACK, "")) if _node(item) != _node(closing))
    notes[names.HANDED_BACK] = ",".join([*others, closing])
    return json.dumps(obj, separators=(",", ":")).encode()


def _read(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (item.strip() for item in text.split(","))))


def _node(closing: str) -> str:
    return closing.partition("@")[0]


def _annotations(obj: dict[str, Any]) -> dict[str, str]:
    notes: dict[str, str] = obj["metadata"].setdefault("annotations", {})
    return notes
