"""Our finalizers on sources: which one, and the bodies of the writes that put it on and take it off."""

import json
from typing import Any

from sidecar.model.names import CLONE_FINALIZER, SNAPSHOT_FINALIZER
from sidecar.provisioning.needs import SNAPSHOT, Json, Ref, items, part


def finalizer_for(ref: Ref) -> str:
    """The finalizer that protects this kind of source."""
    return SNAPSHOT_FINALIZER if ref.kind == SNAPSHOT else CLONE_FINALIZER


def with_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that adds the finalizer; None when the object has it already."""
    present = items(obj, "metadata", "finalizers")
    return None if finalizer in present else _with_finalizers(obj, [*present, finalizer])


def without_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that removes the finalizer and leaves every other one; None when the object does not have it."""
    present = items(obj, "metadata", "finalizers")
    return _with_finalizers(obj, [item for item in present if item != finalizer]) if finalizer in present else None


def _with_finalizers(obj: Json, finalizers: list[Any]) -> bytes:
    """The body with these finalizers. managedFields are left out because the API server keeps them when a write has none."""
    meta = {key: value for key, value in _dict(obj, "metadata").items() if key != "managedFields"}
    return json.dumps({**obj, "metadata": {**meta, "finalizers": finalizers}}, separators=(",", ":")).encode()


def _dict(obj: Any, *path: str) -> Json:
    value = part(obj, *path)
    return value if isinstance(value, dict) else {}
