"""What the collector's answer to a batch means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_LONGEST_WAIT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Taken:
    """`rejected`: spans of the batch that the collector did not keep."""

    rejected: int = 0


@dataclass(frozen=True, slots=True)
class TryAgain:
    """`after`: seconds, if the collector has said so."""

    why: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Lost:
    """The batch would be refused again."""

    why: str


Outcome = Taken | TryAgain | Lost


def outcome_of(status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """`body` may be cut off. Nothing that it says is shown to anybody."""
    if 200 <= status < 300:
        return Taken(_rejected(body))
    if status in _RETRYABLE:
        said = headers.get("retry-after", "")
        after = float(said) if said.isascii() and said.isdigit() and len(said) < 9 else 0.0
        return TryAgain(f"it answers {status}", min(after, _LONGEST_WAIT))
    if 300 <= status < 400:
        return Lost(f"it answers {status}, and a redirection is not followed: it would carry the headers to another server")
    return Lost(f"it answers {status}")


def _rejected(body: bytes) -> int:
    try:
        found: Any = json.loads(body)
        count = int(found["partialSuccess"]["rejectedSpans"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0
    return max(0, count)
