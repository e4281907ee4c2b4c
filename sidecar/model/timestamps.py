"""Points in time as they are written on objects: RFC 3339 in UTC, in seconds, or in microseconds as Leases need them."""

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def to_text(at: float) -> str:
    """In whole seconds, rounded down, so that what is written now is never in the future."""
    return datetime.fromtimestamp(at // 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_text(at: float) -> str:
    """As a MicroTime, which takes exactly six digits behind the point."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def to_seconds(text: str) -> float | None:
    """None for anything else, and for times before 1970: nothing of ours is that old, and not all of them can be written again."""
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        at = datetime.fromisoformat(text).timestamp()
        return at if at >= 0 and to_text(at) else None
    except (ValueError, OverflowError):
        return None
