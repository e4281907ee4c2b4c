"""The form in which the API server stores a quantity: the suffix family it came in, the largest suffix that fits evenly."""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_NANO: Final = Decimal("1e-9")
PATTERN: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"


class NoQuantity(ValueError):
    """The text is no quantity."""

    def __init__(self) -> None:
        super().__init__(f"quantities must match the regular expression '{PATTERN}'")


def canonical(text: object) -> str:
    """ "1024Mi" → "1Gi", "1000M" → "1G", "0.5" → "500m", "1e9" as it is."""
    value, family = _parsed(text)
    if family == "binary" and abs(value) >= 1024:
        return _binary(value)
    return _exponent(value) if family == "exponent" else _decimal(value)


def value_of(text: object) -> Decimal:
    return _parsed(text)[0]


def _parsed(text: object) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    if match is None:
        raise NoQuantity
    number, exponent, suffix = match.groups()
    if exponent:
        value, family = Decimal(number + exponent), "exponent"
    elif suffix in _BINARY:
        value, family = Decimal(number) * _BINARY[suffix], "binary"
    else:
        value, family = Decimal(number).scaleb(_DECIMAL[suffix or ""]), "decimal"
    return value.quantize(_NANO, rounding=ROUND_CEILING) if value.as_tuple().exponent < -9 else value, family  # type: ignore[operator]


def _binary(value: Decimal) -> str:
    count = int(value.to_integral_value(rounding=ROUND_CEILING))
    for suffix, unit in reversed(_BINARY.items()):
        if count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)


def _decimal(value: Decimal) -> str:
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = value.scaleb(-power)
        if value and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return "0"


def _exponent(value: Decimal) -> str:
    for power in range(18, -10, -3):
        scaled = value.scaleb(-power)
        if value and scaled == scaled.to_integral_value():
            return f"{int(scaled)}e{power}" if power else str(int(scaled))
    return "0"
