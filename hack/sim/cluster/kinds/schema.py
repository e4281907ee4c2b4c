"""The types of fields, as far as our kinds need them, and the form in which objects are stored. Checked before any rule.

A schema is `str`, `int`, `bool`, `dict` (an object of any content), QUANTITY, TIME, a list with one schema in it, `MapOf(schema)`,
or a mapping of fields to schemas. Fields it does not name are kept as they are, except at the top, where they are dropped.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from hack.sim.cluster.kinds.quantities import NoQuantity, canonical
from sidecar.frozen import frozen
from sidecar.model.objects import Json

Schema = Any


class Misshapen(ValueError):
    """The value does not have the type of its field."""


@frozen
class MapOf:
    values: Schema


@frozen
class Leaf:
    """A text with a syntax of its own."""

    name: str


QUANTITY: Final = Leaf("quantity")
TIME: Final = Leaf("time")
BYTES: Final = Leaf("bytes")
ANY: Final = Leaf("any")
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
_JSON_NAMES: Final = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_GO_NAMES: Final[Mapping[Any, str]] = {str: "string", int: "int", bool: "bool", dict: "struct"}


def stored_form(body: Json, fields: Mapping[str, Schema], *, kind: str) -> Json:
    """A copy in the form that is stored: typed, nulls and empty lists gone, quantities canonical, unknown top-level fields dropped."""
    known = {key: value for key, value in body.items() if key in fields}
    return {key: value for key, value in _fields(known, fields, at=kind).items() if value is not None}


def unknown_fields(body: Json, fields: Mapping[str, Schema]) -> list[str]:
    return [key for key in body if key not in fields]


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
    if isinstance(schema, Leaf):
        return _leaf(value, schema, at)
    if isinstance(schema, list):
        _demand(value, list, at, f"[]{_go_name(schema[0])}")
        return [_formed(item, schema[0], at) for item in value]
    if isinstance(schema, MapOf):
        _demand(value, dict, at, f"map[string]{_go_name(schema.values)}")
        return {key: _formed(item, schema.values, at) for key, item in value.items()}
    if isinstance(schema, Mapping):
        _demand(value, dict, at, "struct")
        return _fields(value, schema, at=at)
    _demand(value, schema, at, _go_name(schema))
    return _formed(value, ANY, at) if schema is dict else value


def _leaf(value: Any, schema: Leaf, at: str) -> Any:
    if schema is ANY:
        return _anything(value, at)
    try:
        if schema is QUANTITY:
            return canonical(value)
        _demand(value, str, at, "string")
        if schema is TIME:
            datetime.fromisoformat(value)
        else:
            base64.b64decode(value, validate=True)
    except NoQuantity as error:
        raise Misshapen(str(error)) from None
    except binascii.Error:
        raise Misshapen("illegal base64 data at input byte 0") from None
    except ValueError as error:
        if isinstance(error, Misshapen):
            raise
        raise Misshapen(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"') from None
    return value


def _anything(value: Any, at: str) -> Any:
    if isinstance(value, dict):
        return _fields(value, {}, at=at)
    return [_anything(item, at) for item in value] if isinstance(value, list) else value


def _demand(value: Any, wanted: type, at: str, name: str) -> None:
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return
    found = _JSON_NAMES.get(type(value), type(value).__name__)
    raise Misshapen(f"json: cannot unmarshal {found} into Go struct field {at} of type {name}")


def _go_name(schema: Schema) -> str:
    if isinstance(schema, list | Leaf | MapOf | Mapping):
        return "struct" if isinstance(schema, Mapping) else "string"
    return _GO_NAMES[schema]
