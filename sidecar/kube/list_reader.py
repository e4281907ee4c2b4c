"""Reads one page of a list from the pieces of its JSON and hands over each object at once: neither the text nor the objects pile up."""

import json
import re
from codecs import utf_8_decode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sidecar.kube import wire
from sidecar.kube.errors import Unavailable

LONGEST_OBJECT: Final = 10 * 2**20
"""Bytes of one object's JSON. etcd stores no object above 1.5 MiB, and JSON takes up to six bytes for one of text."""

_DECODER: Final = json.JSONDecoder()
_SHOWN: Final = 4000

# Nothing here goes back over what it has read: whoever sends the text decides how long that would take.
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_NAME: Final = re.compile(r'"([^"\\]*+)"')
_SIGNS: Final[Mapping[str, Mapping[str, str]]] = {
    "open": {"{": "name"},
    "colon": {":": "begin"},
    "next": {",": "item", "]": "after"},
    "after": {",": "name", "}": "end"},
}
"""Where a sign stands between two parts, what comes after it."""


class ListReader:
    """`feed` it what arrives and take what that yields, then `finish`. An answer that is no list is Unavailable: if it passed for a list
    without objects, a store would be emptied."""

    def __init__(self, *, what: str, after: str, note: Callable[[Any, int], None] = lambda obj, length: None) -> None:
        """`after` is the continue token that this page was asked for with. `note` is told the characters of each object."""
        self.size = 0
        """Bytes that have arrived."""
        self.count = 0
        """Objects that were handed over."""
        self._what = what
        self._note = note
        self._after = after
        self._begin = b""
        self._raw = bytearray()
        self._text = ""
        self._at = 0
        self._next = "open"
        self._name = ""
        self._worth_trying = 0
        self._waited = 0
        """Bytes that have arrived since a part was complete; spaces are not kept, and count."""
        self._meta: Any = None

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The objects that are complete now."""
        if self.size < _SHOWN:
            self._begin += piece[:_SHOWN]
        self.size += len(piece)
        self._raw += piece
        self._waited += len(piece)
        # If a long object were tried again with every piece, that would take time by the square of its length.
        if len(self._raw) >= self._worth_trying:
            yield from self._read()
        if self._waited > LONGEST_OBJECT:
            raise Unavailable(f"{self._what}: something in the list has more than {LONGEST_OBJECT} bytes")

    def finish(self) -> tuple[list[Any], str, str]:
        """The objects that are still left, the list's version, and the token of the next page."""
        left = list(self._read())
        if self._next != "end" or self._raw.strip():
            raise self._not_a_list()
        return left, *self._checked()

    def _read(self) -> Iterator[Any]:
        """Only what is incomplete is kept, as bytes: as text it can take four times as much."""
        try:
            self._text, decoded = utf_8_decode(self._raw, "surrogatepass", False)
        except ValueError:
            raise self._not_a_list() from None
        self._at = 0
        yield from self._complete()
        read = self._at if len(self._text) == decoded else len(self._text[: self._at].encode("utf-8", "surrogatepass"))
        self._text = ""
        del self._raw[:read]
        self._worth_trying = 2 * len(self._raw)

    def _complete(self) -> Iterator[Any]:
        while True:
            self._at = _past_space(self._text, self._at)
            if self._next == "end":
                return
            if self._next == "item":
                begin = self._at
                obj, complete = self._value()
                if complete:
                    self._note(obj, self._at - begin)
                    self._next, self.count = "next", self.count + 1
                    yield obj
            else:
                complete = self._step()
            if not complete:
                return
            self._waited = len(self._text) - self._at

    def _step(self) -> bool:
        """Go on by one part that is no object; False if it is incomplete."""
        sign = self._text[self._at : self._at + 1]
        if not sign:
            return False
        match self._next:
            case "name":
                found = _NAME.match(self._text, self._at)
                if found is None:
                    return False
                self._at, self._name, self._next = found.end(), found[1], "colon"
            case "begin":
                is_list = self._name == "items" and sign == "["
                if is_list and self._meta is not None:
                    self._checked()  # before any object is taken for a part of a list
                self._at, self._next = self._at + is_list, "first" if is_list else "value"
            case "first":
                is_empty = sign == "]"
                self._at, self._next = self._at + is_empty, "after" if is_empty else "item"
            case "value":
                return self._take_value()
            case between:
                if sign not in _SIGNS[between]:
                    return False
                self._at, self._next = self._at + 1, _SIGNS[between][sign]
        return True

    def _take_value(self) -> bool:
        value, complete = self._value()
        if complete:
            if value and self._name == "items":
                raise self._not_a_list()
            self._next = "after"
            self._meta = value if self._name == "metadata" else self._meta
        return complete

    def _value(self) -> tuple[Any, bool]:
        """Whatever is wrong with it, it may still be incomplete; `finish` tells."""
        try:
            value, end = _DECODER.raw_decode(self._text, _past_space(self._text, self._at))
        except (ValueError, RecursionError):
            return None, False
        if end == len(self._text) and isinstance(value, int | float):  # its digits may go on
            return None, False
        self._at = end
        return value, True

    def _checked(self) -> tuple[str, str]:
        meta = self._meta
        version, token = (meta.get("resourceVersion"), meta.get("continue") or "") if isinstance(meta, dict) else (None, "")
        if not isinstance(version, str) or not version or not isinstance(token, str):
            raise self._not_a_list()
        if token and token == self._after:
            raise Unavailable(f"{self._what}: the list has no end: the server gave the same continue token twice")
        return version, token

    def _not_a_list(self) -> Unavailable:
        return Unavailable(f"{self._what}: the answer is not a list: {wire.shown(self._begin, self._what)}")


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
