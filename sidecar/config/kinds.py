"""The kinds of values that flags have, and how Go reads their text.

Every reader takes the text and returns the value, or raises UsageError and nothing else.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sidecar.config.errors import UsageError
from sidecar.config.words import quoted


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value: the name that --help shows, how text is read, and how a value is shown."""

    name: str
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    bare: str | None = None  # what the flag means when no "=value" follows; a flag that has it never takes the next word
    merges: bool = False  # repeated flags add up instead of the last one winning


# ---- numbers and booleans, as strconv reads them -----------------------------------------------------------------

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})

# strconv.ParseInt with base 0: a prefix chooses the base, "07" is octal, and an underscore may stand between digits.
_DIGITS = (
    (16, re.compile(r"0[xX]((?:_?[0-9a-fA-F])+)")),
    (2, re.compile(r"0[bB]((?:_?[01])+)")),
    (8, re.compile(r"0[oO]?((?:_?[0-7])+)")),
    (10, re.compile(r"(0|[1-9](?:_?[0-9])*)")),
)
_D = "[0-9](?:_?[0-9])*"
_X = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL_FLOAT = re.compile(rf"[+-]?(?:{_D}\.?(?:{_D})?|\.{_D})(?:[eE][+-]?{_D})?")
_HEX_FLOAT = re.compile(rf"[+-]?0[xX](?:_?{_X}\.?(?:{_X})?|\.{_X})[pP][+-]?{_D}")
_LONGEST_NUMBER = 80  # 64 binary digits and their prefix fit; a longer text is out of range, and slow to convert

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1
_LEVEL_MAX = 2**31 - 1
_FLOAT32_MAX = 3.4028234663852886e38
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.ASCII | re.IGNORECASE)


def read_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UsageError([f"{quoted(text)} is not a boolean; write true or false"])


def show_bool(value: bool) -> str:
    return "true" if value else "false"


def _magnitude(text: str) -> int | None:
    """The value of unsigned digits, None for anything else. A number that is far too long counts as one that no type can hold."""
    for base, digits in _DIGITS:
        match = digits.fullmatch(text)
        if match:
            return int(match[1].replace("_", ""), base) if len(text) <= _LONGEST_NUMBER else _UINT64_MAX + 1
    return None


def read_int(text: str) -> int:
    negative = text.startswith("-")
    magnitude = _magnitude(text[1:] if text[:1] in ("-", "+") else text)
    if magnitude is None:
        raise UsageError([f"{quoted(text)} is not a whole number"])
    if magnitude > _INT64_MAX + negative:
        raise UsageError([f"{quoted(text)} is out of range for a 64-bit number"])
    return -magnitude if negative else magnitude


def read_uint(text: str) -> int:
    magnitude = _magnitude(text)
    if magnitude is None:
        raise UsageError([f"{quoted(text)} is not a whole number without sign"])
    if magnitude > _UINT64_MAX:
        raise UsageError([f"{quoted(text)} is out of range for a 64-bit number"])
    return magnitude


def read_level(text: str) -> int:
    """A log verbosity, which klog reads in base ten only."""
    if not re.fullmatch("[0-9]+", text):
        raise UsageError([f"{quoted(text)} is not a log level; write a whole number such as 5"])
    level = int(text) if len(text) <= _LONGEST_NUMBER else _UINT64_MAX
    if level > _LEVEL_MAX:
        raise UsageError([f"{quoted(text)} is out of range for a log level"])
    return level


def read_float(text: str) -> float:
    value = float("inf")
    if infinite := _INFINITY.fullmatch(text):
        return -value if infinite[1] == "-" else value
    if _DECIMAL_FLOAT.fullmatch(text):
        value = float(text)
    elif _HEX_FLOAT.fullmatch(text):
        try:
            value = float.fromhex(text.replace("_", ""))
        except OverflowError:
            pass  # reported below, like a decimal that is too large
    else:  # Go also reads "nan", but no rate can be kept at that
        raise UsageError([f"{quoted(text)} is not a number"])
    if abs(value) == float("inf"):
        raise UsageError([f"{quoted(text)} is out of range for a number"])
    return value


def read_float32(text: str) -> float:
    value = read_float(text)
    if _FLOAT32_MAX < abs(value) < float("inf"):
        raise UsageError([f"{quoted(text)} is out of range for a 32-bit number"])
    return value


def show_float(value: float) -> str:
    return repr(value).removesuffix(".0")


# ---- durations, as time.ParseDuration reads them -----------------------------------------------------------------

# Both code points that print as a mu: MICRO SIGN and GREEK SMALL LETTER MU.
_UNITS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION_PART = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_NANOSECONDS_DIGITS = 19  # a longer number does not fit, and a longer fraction is below one nanosecond in any unit


def _part(match: re.Match[str]) -> int:
    whole, fraction, unit = match[1] or "", match[2] or match[3] or "", _UNITS[match[4]]
    whole = whole.lstrip("0")
    if len(whole) > _NANOSECONDS_DIGITS:
        return _INT64_MAX + 2
    fraction = fraction[:_NANOSECONDS_DIGITS]
    scale: int = 10 ** len(fraction)
    return int(whole or "0") * unit + int(fraction or "0") * unit // scale


def read_duration(text: str) -> float:
    """Seconds. Go counts whole nanoseconds in 64 bits; what does not fit is refused as Go refuses it."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    nanoseconds, position = 0, 0
    while match := _DURATION_PART.match(rest, position):
        nanoseconds += _part(match)
        position = match.end()
    if not rest or position < len(rest):
        hint = 'write it like "90s", "1m30s" or "300ms" (units ns us ms s m h)'
        if re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", rest):
            hint = f'its unit is missing, did you mean "{text}s"?'
        raise UsageError([f"{quoted(text)} is not a duration; {hint}"])
    if nanoseconds > _INT64_MAX + negative:
        raise UsageError([f"{quoted(text)} is too long for a duration; the longest is about 292 years"])
    return (-nanoseconds if negative else nanoseconds) / 10**9


def _decimal(nanoseconds: int, unit: int) -> str:
    whole, rest = divmod(nanoseconds, unit)
    fraction = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def show_duration(seconds: float) -> str:
    """As Go prints it: 0s, 300ms, 1.5s, 5m0s, 2h0m0s."""
    sign, nanoseconds = ("-" if seconds < 0 else ""), abs(round(seconds * 10**9))
    if nanoseconds == 0:
        return "0s"
    for limit, unit in ((10**3, "ns"), (10**6, "us"), (10**9, "ms")):
        if nanoseconds < limit:
            return f"{sign}{_decimal(nanoseconds, limit // 10**3)}{unit}"
    minutes, below_a_minute = divmod(nanoseconds, 60 * 10**9)
    text = f"{_decimal(below_a_minute, 10**9)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


# ---- listen addresses --------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/\[\]]*)):(\+?[0-9]{1,9}|[A-Za-z][\w-]*)?", re.ASCII)
# The services that Go knows without /etc/services.
_PORTS = MappingProxyType(
    {"domain": 53, "ftp": 21, "ftps": 990, "gopher": 70, "http": 80, "https": 443, "imap2": 143, "imap3": 220, "imaps": 993, "pop3": 110}
    | {"pop3s": 995, "smtp": 25, "submissions": 465, "ssh": 22, "telnet": 23}
)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` (every interface: an empty host) or `[IPv6]:port`. The port may be a service's name; one
    that is left out is 0: any that is free.
    """
    match = _ADDRESS.fullmatch(text)
    port = _port(match[3] or "0") if match else -1
    if match is None or not 0 <= port <= 65535:
        raise UsageError([f'{quoted(text)} is not host:port; write ":8080", "127.0.0.1:8080" or "[::1]:8080" with a port from 0 to 65535'])
    return match[1] or match[2] or "", port


def _port(text: str) -> int:
    """The number of a port or of a service's name; negative if there is no such service."""
    return _PORTS.get(text.lower(), -1) if text[0].isalpha() else int(text)


def read_address(text: str) -> str:
    """The same address, with its port as a number."""
    return f"{text.rpartition(':')[0]}:{split_address(text)[1]}" if text else ""


BOOL = Kind("", read_bool, show_bool, bare="true")
INT = Kind("int", read_int, str)
UINT = Kind("uint", read_uint, str)
FLOAT = Kind("float", read_float, show_float)
FLOAT32 = Kind("float32", read_float32, show_float)
LEVEL = Kind("Level", read_level, str)
DURATION = Kind("duration", read_duration, show_duration)
TEXT = Kind("string", str, str)
ADDRESS = Kind("string", read_address, str)


def one_of(what: str, *words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            *most, last = [word or "nothing" for word in words]
            raise UsageError([f"{quoted(text)} is not {what}; use {', '.join(most)} or {last}"])
        return text

    return read
