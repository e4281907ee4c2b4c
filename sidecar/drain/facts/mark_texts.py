"""Reads the texts of marks on a node: one of some words, or a time. What cannot be understood becomes a problem that names the mark."""

from enum import StrEnum
from typing import Final, TypeVar

from sidecar.model import timestamps
from sidecar.observe.sanitize import clipped

Word = TypeVar("Word", bound=StrEnum)

# Characters of a quoted text: an annotation may have 256 KiB.
_LONGEST: Final = 60


def word(words: type[Word], text: str, key: str) -> tuple[Word | None, str]:
    """The word, if it is one, and what is wrong; no text is no word, and nothing is wrong with it."""
    if not text:
        return None, ""
    try:
        return words(text), ""
    except ValueError:
        return None, f"{key} says {quoted(text)}, which is not one of {', '.join(words)}"


def noted_time(text: str, key: str, now: float) -> tuple[float | None, str]:
    """The time, if it is one and has come, and what is wrong."""
    at = timestamps.to_seconds(text)
    if not text:
        return None, ""
    if at is None:
        return None, f"{key} says {quoted(text)}, which is not a time"
    return (None, f"{key} says {clipped(text, _LONGEST)}, which is in the future") if at > now else (at, "")


def quoted(text: str) -> str:
    return repr(clipped(text, _LONGEST))
