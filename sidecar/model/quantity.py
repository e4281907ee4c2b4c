"""Kubernetes quantities: "10Gi" to bytes and back. Rounded up to whole bytes, so that nobody gets less than they asked for."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


class BadQuantity(ValueError):
    """The text is not a quantity."""


def parse_bytes(text: str | int | float) -> int:
    """Whole bytes, rounded up."""
    return _parsed(str(text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> int:
    """Cached, because thousands of volumes have one of a few sizes."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadQuantity(f"{text!r} is not a quantity such as 10Gi, 500M or 1073741824")
    number, exponent, suffix = match.groups()
    value = Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def format_bytes(count: int) -> str:
    """The largest suffix that divides evenly: the canonical form of the API server, so that what is read back is equal."""
    for suffix in _BINARY:
        unit = int(_SUFFIXES[suffix])
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)
