"""Reads label selectors as people write them on a command line, such as `team=data,tier in (gold,silver),!temporary`."""

import re
from typing import Final

from sidecar.model.topology import Requirement

_KEY: Final = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_PRESENT: Final = re.compile(rf"(!?)\s*({_KEY})")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_AMONG: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
# Commas between requirements, and not those within parentheses.
_COMMAS: Final = re.compile(r",(?![^(]*\))")


class BadSelector(ValueError):
    """The text is no label selector."""


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements, all of which have to hold; none for an empty text, which selects everything."""
    return tuple(_requirement(part.strip()) for part in _COMMAS.split(text)) if text.strip() else ()


def _requirement(part: str) -> Requirement:
    if match := _EQUAL.fullmatch(part):
        return Requirement(match[1], "NotIn" if match[2] == "!=" else "In", (match[3],))
    if match := _AMONG.fullmatch(part):
        values = tuple(value.strip() for value in match[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(match[1], "In" if match[2] == "in" else "NotIn", values)
    if match := _PRESENT.fullmatch(part):
        return Requirement(match[2], "DoesNotExist" if match[1] else "Exists")
    forms = "key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    raise BadSelector(f"{part!r} is no requirement of a label selector; write {forms}")
