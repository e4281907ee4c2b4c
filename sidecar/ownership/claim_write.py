"""The selected-node write: the whole claim as last seen, with the annotation set or removed. Its resourceVersion guards it."""

import json
from typing import Any

from sidecar.model import names


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


def _annotations(obj: dict[str, Any]) -> dict[str, str]:
    notes: dict[str, str] = obj["metadata"].setdefault("annotations", {})
    return notes
