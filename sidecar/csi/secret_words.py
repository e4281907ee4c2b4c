"""Takes the secrets of a request out of what the driver says about it, before anybody else sees it.

Drivers put command lines, URLs and bodies into their errors, and errors go to logs and events, which more people may read than Secrets. A
value is looked for as it is, in the forms in which programs write it down, and line by line.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote, quote_plus

from google.protobuf.message import Message

from sidecar.csi.redact import STRIPPED, secret_fields

SHORTEST: Final = 4
"""Characters. What is shorter, such as a flag or a port, stands in half of all texts: to take it out would garble them, and the gaps would
tell what it is."""
LONGEST_TEXT: Final = 2**16
"""Characters of a text that are looked through and kept; it takes 20 ms."""
MOST_LINES: Final = 256
"""Of a request with more, no text is shown: to look for all of them would hold everything else up."""
NOT_SHOWN: Final = f"the driver's text is not shown: the secrets of the request have more than {MOST_LINES} lines to be looked for"


def without_secrets(text: str, request: Message) -> str:
    """The text in which a mark stands for each secret of the request."""
    values = [value for value in _values(request) if len(value.strip()) >= SHORTEST]
    if not values:
        return text
    lines = {line.strip() for value in values for line in (value, *value.splitlines())}
    if len(lines) > MOST_LINES:
        return NOT_SHOWN
    return _stripped(text, _by_beginning(form for line in lines | {*values} for form in _forms(line)))


def _values(request: Message) -> Iterator[str]:
    """All of what is marked `csi_secret`, which are maps of texts."""
    for field, value in request.ListFields():
        if field.name in secret_fields(request.DESCRIPTOR):
            yield from (str(item) for item in (value.values() if isinstance(value, Mapping) else [value]))


def _forms(line: str) -> Iterator[str]:
    """How it may be written in a command line, a URL, JSON, HTML, base64 or hexadecimal."""
    import html  # few requests have secrets, and fewer of those fail

    data = line.encode("utf-8", "surrogatepass")
    escaped = json.dumps(line, ensure_ascii=False)[1:-1]
    yield from (line, escaped, json.dumps(line)[1:-1], repr(line)[1:-1], html.escape(line), line.replace("'", "'\\''"))
    yield "".join(_IN_GO.get(char, char) for char in escaped)
    for encode in _IN_URLS:
        encoded = encode(data)
        yield encoded
        yield _with_small_digits(encoded)
    yield data.hex()
    yield data.hex().upper()
    for encode_bytes in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode_bytes(data).decode()
        yield from (whole, whole.rstrip("="))
        for before in range(3):
            # What stands before it, such as a user's name, shifts it; the characters at its ends then hold bits of its neighbours.
            whole = encode_bytes(b"\0" * before + data).decode()
            yield whole[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]


_IN_GO: Final = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}
_IN_URLS: Final[tuple[Callable[[bytes], str], ...]] = (quote, partial(quote, safe=""), quote_plus)


def _with_small_digits(encoded: str) -> str:
    """A URL's escapes, with their letters small, as some libraries write them."""
    first, *rest = encoded.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _by_beginning(words: Iterable[str]) -> dict[str, list[str]]:
    """The words that are long enough, by their first characters, longest first."""
    found: dict[str, list[str]] = {}
    for word in sorted({word for word in words if len(word) >= SHORTEST}, key=len, reverse=True):
        found.setdefault(word[:SHORTEST], []).append(word)
    return found


def _stripped(text: str, words: Mapping[str, list[str]]) -> str:
    """Words may overlap: then one mark stands for all of them."""
    out: list[str] = []
    hidden = 0
    for at in range(min(len(text), LONGEST_TEXT)):
        found = next((word for word in words.get(text[at : at + SHORTEST], ()) if text.startswith(word, at)), None)
        if found is None:
            continue
        if at >= hidden:
            out += (text[hidden:at], STRIPPED)
        hidden = max(hidden, at + len(found))
    end = max(hidden, min(len(text), LONGEST_TEXT))
    return "".join([*out, text[hidden:end], f"… ({len(text) - end} more characters)" if end < len(text) else ""])
