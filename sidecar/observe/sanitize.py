"""Makes any value JSON of a limited size, and any text one line.

Everything that is shown to people passes through here. Nothing here may raise, since logging a failure must not cause another one.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice
from typing import Final

from sidecar.errors import shortened
from sidecar.model.by_key import is_by_key

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The length of texts, the items of a collection, and the depth. What exceeds a limit is cut, and the result says so."""

    # Container runtimes split log lines at 16 KiB, and a part of a JSON line is not JSON.
    text: int = 12_000
    items: int = 100
    depth: int = 6


LIMITS: Final = Limits()
NOT_SHOWN: Final = "***"

_LARGEST_INT: Final = 1 << 64
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_NAMED_ESCAPES = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_QUOTE_ESCAPES = {'"': r"\"", "\\": r"\\"}


def plain(value: object, limits: Limits = LIMITS) -> Plain:
    """The value as JSON. What JSON cannot express becomes text; what is too long or too deep is cut."""
    return _safely(value, limits, limits.depth)


def _safely(value: object, limits: Limits, depth: int) -> Plain:
    """Nearly everything is text or needs no change, and three decisions of each volume are made plain."""
    kind = type(value)
    if kind is str:
        return value if len(value) <= limits.text else clipped(value, limits.text)  # type: ignore[arg-type, return-value]
    if value is None or kind is bool or (kind is int and -_LARGEST_INT < value < _LARGEST_INT):  # type: ignore[operator]
        return value  # type: ignore[return-value]
    try:
        if kind is tuple or _fields(kind) is not None:  # type: ignore[arg-type]
            return _composed(value, limits, depth - 1) if depth > 0 else f"<{kind.__name__}>"
        return _plain(value, limits, depth)
    except Exception:  # noqa: BLE001  a value's own __str__ or __iter__ may raise anything
        return f"<unprintable {type(value).__name__}>"


def to_json(value: Plain) -> str:
    """ASCII only: some readers take U+2028 for the end of a line, and a lone surrogate cannot be encoded."""
    return _TO_JSON(value)


def quoted(text: str) -> str:
    """As Go's %q, which is how klog writes text."""
    cut = clipped(text)
    if cut.isprintable() and not ('"' in cut or "\\" in cut):  # the usual case, and many times faster
        return f'"{cut}"'
    return '"' + "".join(_QUOTE_ESCAPES.get(char) or _visible(char) for char in cut) + '"'


def visible(text: str) -> str:
    """On one line and without control characters, but not quoted."""
    return text if text.isprintable() else "".join(map(_visible, text))


def clipped(text: str, limit: int = LIMITS.text) -> str:
    return shortened(text, limit)


def _plain(value: object, limits: Limits, depth: int) -> Plain:
    match value:
        case Enum():  # before str and int, which an Enum may also be
            return _plain(value.value, limits, depth)
        case None | bool():
            return value
        case int():
            return int(value) if abs(value) < _LARGEST_INT else clipped(str(value), limits.text)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case str():
            return clipped(str(value), limits.text)
        case _ if depth <= 0:
            return f"<{type(value).__name__}>"  # not its text, which would be endless for a value that contains itself
        case _:
            return _composed(value, limits, depth - 1)


def _composed(value: object, limits: Limits, depth: int) -> Plain:
    if (fields := _fields(type(value))) is not None:  # type: ignore[arg-type]
        shown: dict[str, Plain] = {}
        for name, by_key in fields:
            item = _safely(getattr(value, name), limits, depth)
            shown[name] = _keys(item) if by_key else item
        return shown
    if isinstance(value, Mapping):
        shown = {clipped(str(key), limits.text): _safely(item, limits, depth) for key, item in islice(value.items(), limits.items)}
        return shown if len(value) <= limits.items else shown | {"…": f"and {len(value) - limits.items} more"}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_safely(item, limits, depth) for item in islice(value, limits.items)]
        return items if len(value) <= limits.items else [*items, f"… and {len(value) - limits.items} more"]
    if isinstance(value, BaseException):
        return clipped(str(value) or type(value).__name__, limits.text)
    return clipped(str(value), limits.text)


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Of a dataclass, with whether they are shown by key; None: it is none, or says itself how it is shown. One that its class leaves out
    of the repr may be secret, and is not shown."""
    if not dataclasses.is_dataclass(kind) or kind.__str__ is not object.__str__ or issubclass(kind, Enum):
        return None
    fields = dataclasses.fields(kind)
    return tuple((item.name, is_by_key(item.metadata)) for item in fields if item.repr or is_by_key(item.metadata))


def _keys(shown: Plain) -> Plain:
    return dict.fromkeys(shown, NOT_SHOWN) if isinstance(shown, dict) else NOT_SHOWN


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return _NAMED_ESCAPES.get(char) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
