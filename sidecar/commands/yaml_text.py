"""Writes plain JSON values as YAML, so that every reader of YAML gets the same values back.

The program needs no more of YAML than this. Every text that could be read as anything else than a text stands in quotes.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_NO_TEXTS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
# Printable for every reader, and no line break for any.
_SHOWN: Final = re.compile("[ -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def to_yaml(value: Any) -> str:
    """One document, with a line break at its end."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterable[str]:
    match value:
        case dict() if value:
            for key, inner in value.items():
                yield from _entry(f"{_text(str(key))}:", inner)
        case list() | tuple() if value:
            for inner in value:
                yield from _item(inner)
        case _:
            yield _scalar(value)


def _entry(head: str, value: Any) -> Iterable[str]:
    if not isinstance(value, dict | list | tuple) or not value:
        yield f"{head} {_scalar(value)}"
        return
    yield head
    yield from (f"  {line}" for line in _lines(value))


def _item(value: Any) -> Iterable[str]:
    first, *rest = _lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return _text(str(value))


def _number(value: float) -> str:
    if value != value or abs(value) == float("inf"):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    digits, exponent, power = repr(value).partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{exponent}{power}"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NO_TEXTS:
        return text
    return f'"{"".join(map(_character, text))}"'


def _character(one: str) -> str:
    if one in _SHORT:
        return _SHORT[one]
    if _SHOWN.fullmatch(one):
        return one
    code = ord(one)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
