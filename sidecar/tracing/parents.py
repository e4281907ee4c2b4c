"""Which trace a claim belongs to: the one that its annotation names, or its own, whose id is the claim's UID."""

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

ANNOTATION: Final = "opentelemetry.io/traceparent"
"""The field `traceparent` of W3C Trace Context under the prefix that Argo Workflows and others use. Tenants write it."""

# Version 00 and no other: what a later version means is not known. Python's \d would take digits of other scripts.
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LENGTH: Final = 55
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_SAMPLED: Final = 1
_IN_JSON: Final = json.dumps(ANNOTATION).encode()


@dataclass(frozen=True, slots=True)
class Parent:
    """The span in whose course the claim was made."""

    trace_id: str
    span_id: str
    sampled: bool


def parent_of(text: str) -> Parent | None:
    """None if it is not exactly a `traceparent` of version 00."""
    found = _TRACEPARENT.fullmatch(text) if len(text) == _LENGTH else None
    if found is None or found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    return Parent(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))


def annotated(whole: bytes) -> str | None:
    """What a claim, as JSON text, has as its annotation; None if it has none."""
    if _IN_JSON not in whole:  # of nearly all claims, and to read one takes a hundred times as long
        return None
    found = (json.loads(whole)["metadata"].get("annotations") or {}).get(ANNOTATION)
    return None if found is None else str(found)


def trace_id_of(uid: str) -> str:
    """Every node finds the same trace for a claim, and whoever has its UID finds it without a search. All but six bits of a UID that the
    API server made are random."""
    digits = uid.replace("-", "") if _UUID.fullmatch(uid) else sha256(uid.encode()).hexdigest()[:32]
    return digits if digits != _NO_TRACE else "1".rjust(32, "0")
