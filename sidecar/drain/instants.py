"""Points in time, as they are written on objects: RFC 3339 in UTC, to the second, or to the microsecond where a Lease asks for that."""

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def to_text(at: float) -> str:
    """Whole seconds, never later than what was given: what was written down just now is not in the future."""
    return datetime.fromtimestamp(at // 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_text(at: float) -> str:
    """As a MicroTime, which takes six digits and no other number of them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def to_seconds(text: str) -> float | None:
    """None for what is no point in time, and for one before 1970: nothing of ours is as old, and not all of those can be written again."""
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        at = datetime.fromisoformat(text).timestamp()
        return at if at >= 0 and to_text(at) else None
    except (ValueError, OverflowError):
        return None
