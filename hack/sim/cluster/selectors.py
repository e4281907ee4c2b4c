"""Label and field selectors: the text of a query, or the selector of a budget, as a test on an object."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from hack.sim.cluster.refusals import bad_request
from sidecar.model.objects import Json

Labels = Mapping[str, str]
Test = Callable[[Json], bool]

_WORD: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET: Final = re.compile(rf"\s*({_WORD})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*({_WORD})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)\s*")
_EXISTS: Final = re.compile(rf"\s*(!?)\s*({_WORD})\s*")
_FIELD: Final = re.compile(r"([^=!]+)(==|=|!=)(.*)")


def everything(_: Json) -> bool:
    return True


def label_test(text: str) -> Test:
    """The test for a `labelSelector`; an empty one selects everything."""
    if not text.strip():
        return everything
    # At the commas that are not inside parentheses.
    tests = [_requirement(part, text) for part in re.split(r",(?![^(]*\))", text)]
    return lambda obj: all(test(labels_of(obj)) for test in tests)


def field_test(text: str, *, selectable: Mapping[str, str]) -> Test:
    """`selectable` gives the value that stands for an absent field."""
    tests = [_field(part, selectable) for part in text.split(",") if part.strip()]
    return (lambda obj: all(test(obj) for test in tests)) if tests else everything


def selector_test(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """A LabelSelector as it stands in objects. None selects nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    wanted = selector.get("matchLabels") or {}
    expressions = [_expression(item) for item in selector.get("matchExpressions") or ()]
    return lambda labels: all(labels.get(key) == value for key, value in wanted.items()) and all(test(labels) for test in expressions)


def labels_of(obj: Json) -> Labels:
    return obj["metadata"].get("labels") or {}


def _requirement(part: str, text: str) -> Callable[[Labels], bool]:
    if match := _SET.fullmatch(part):
        key, operator, listed = match.groups()
        return _expression({"key": key, "operator": operator, "values": [value.strip() for value in listed.split(",")]})
    if match := _EQUAL.fullmatch(part):
        key, operator, value = match.groups()
        return _expression({"key": key, "operator": "notin" if operator == "!=" else "in", "values": [value]})
    if match := _EXISTS.fullmatch(part):
        absent, key = match.groups()
        return _expression({"key": key, "operator": "DoesNotExist" if absent else "Exists"})
    raise bad_request(f"unable to parse requirement: {text!r} is no label selector")


def _expression(item: Mapping[str, Any]) -> Callable[[Labels], bool]:
    key, values = item["key"], frozenset(item.get("values") or ())
    match str(item["operator"]).lower():
        case "in":
            return lambda labels: key in labels and labels[key] in values
        case "notin":
            return lambda labels: key not in labels or labels[key] not in values
        case "exists":
            return lambda labels: key in labels
        case _:
            return lambda labels: key not in labels


def _field(part: str, selectable: Mapping[str, str]) -> Test:
    match = _FIELD.fullmatch(part.strip())
    if match is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, wanted = match.groups()
    if path not in selectable:
        raise bad_request(f"field label not supported: {path}")
    keys, absent, equal = path.split("."), selectable[path], operator != "!="
    return lambda obj: (_at(obj, keys, absent) == wanted) is equal


def _at(obj: Json, keys: Collection[str], absent: str) -> str:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return absent if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)
