"""The types of fields, as far as our kinds need them, and the form in which objects are stored. Checked before any rule.

A schema is `str`, `int`, `bool`, `dict` (an object of any content), QUANTITY, TIME, a list with one schema in it, `MapOf(schema)`,
or a mapping of fields to schemas. Fields it does not name are kept as they are, except at the top, where they are dropped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from sidecar.model.objects import Json

Schema = Any


class Misshapen(ValueError):
    """The value does not have the type of its field."""


@dataclass(frozen=True, slots=True)
class MapOf:
    values: Schema


QUANTITY, TIME, ANY = "a quantity", "a time", "anything"
WORDS: Final = MapOf(str)
QUANTITIES: Final = MapOf(QUANTITY)

META: Final[Mapping[str, Schema]] = {
    "name": str, "generateName": str, "namespace": str, "uid": str, "resourceVersion": str, "generation": int,
    "creationTimestamp": TIME, "deletionTimestamp": TIME, "deletionGracePeriodSeconds": int, "labels": WORDS, "annotations": WORDS,
    "finalizers": [str], "managedFields": [dict], "selfLink": str,
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool, "blockOwnerDeletion": bool}],
}  # fmt: skip

# Go leaves these out where they are empty; other empty objects (emptyDir, securityContext) mean something.
_OMITTED_WHEN_EMPTY: Final = frozenset(
    {"labels", "annotations", "data", "binaryData", "parameters", "nodeSelector", "matchLabels", "volumeAttributes", "capacity"}
)
# Lists that are there even if empty.
_KEPT_WHEN_EMPTY: Final = frozenset({"drivers", "rules"})


def stored_form(body: Json, fields: Mapping[str, Schema], *, kind: str) -> Json:
    """A copy in the form that is stored: typed, nulls and empty lists gone, quantities canonical, unknown top-level fields dropped."""
    return _fields({key: value for key, value in body.items() if key in fields}, fields, at=kind)


def _fields(value: Json, fields: Mapping[str, Schema], *, at: str) -> Json:
    found = ((key, _formed(item, fields.get(key, ANY), f"{at}.{key}")) for key, item in value.items() if item is not None)
    return {key: item for key, item in found if _counts(key, item)}


def _counts(key: str, item: Any) -> bool:
    if item == []:
        return key in _KEPT_WHEN_EMPTY
    return item is not None and not (item == {} and key in _OMITTED_WHEN_EMPTY) and not (item == "" and key == "generateName")


def _formed(value: Any, schema: Schema, at: str) -> Any:
    if value is None:
        return None
    if schema == ANY or schema is dict:
        if schema is dict:
            _demand(value, dict, at)
        if isinstance(value, dict):
            return _fields(value, {}, at=at)
        return [_formed(item, ANY, at) for item in value] if isinstance(value, list) else value
    if schema == QUANTITY:
        return canonical(value)
    if schema == TIME:
        _demand(value, str, at)
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise Misshapen(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse it') from None
        return value
    if isinstance(schema, list):
        _demand(value, list, at)
        return [_formed(item, schema[0], at) for item in value]
    if isinstance(schema, MapOf):
        _demand(value, dict, at)
        return {key: _formed(item, schema.values, at) for key, item in value.items()}
    if isinstance(schema, Mapping):
        _demand(value, dict, at)
        return _fields(value, schema, at=at)
    _demand(value, schema, at)
    return value


def _demand(value: Any, wanted: type, at: str) -> None:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise Misshapen(f"json: cannot unmarshal {type(value).__name__} into Go struct field {at} of type {wanted.__name__}")


_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)([numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_NO_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def canonical(text: object) -> str:
    """Its suffix family stays, and the largest suffix that fits evenly is taken: "1024Mi" → "1Gi", "1000M" → "1G", "0.5" → "500m"."""
    value, suffix = _parsed(text)
    if suffix in _BINARY and abs(value) >= 1024:
        count = int(value.to_integral_value(rounding=ROUND_CEILING))
        return next((f"{count // unit}{suffix}" for suffix, unit in reversed(_BINARY.items()) if count % unit == 0), str(count))
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = value.scaleb(-power)
        if value and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return "0"


def value_of(text: object) -> Decimal:
    return _parsed(text)[0]


def _parsed(text: object) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    if match is None:
        raise Misshapen(_NO_QUANTITY)
    number, suffix = Decimal(match[1]), match[2] or ""
    return (number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(_DECIMAL[suffix])), suffix
