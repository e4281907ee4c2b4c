"""The few bodies that kubectl sends as protobuf and not as JSON, read without a library: `kubectl drain` and `create namespace` need it.

A message is a table of its fields: number → name and type. What a table does not name is skipped, which for the kinds listed here
loses nothing that this server would look at; for all other kinds it answers 415.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hack.sim.cluster.refusals import Refused
from sidecar.model.objects import Json

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_PREFIX: Final = b"k8s\x00"

Message = Mapping[int, tuple[str, Any]]
"""Types: `str`, `int`, `bool`, a Message, a list with one of them in it, or `dict` for a map of text to text."""

_ENVELOPE: Final[Message] = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}
_META: Final[Message] = {
    1: ("name", str), 2: ("generateName", str), 3: ("namespace", str), 5: ("uid", str), 6: ("resourceVersion", str),
    11: ("labels", dict), 12: ("annotations", dict), 14: ("finalizers", [str]),
}  # fmt: skip
_DELETE_OPTIONS: Final[Message] = {
    1: ("gracePeriodSeconds", int),
    2: ("preconditions", {1: ("uid", str), 2: ("resourceVersion", str)}),
    3: ("orphanDependents", bool),
    4: ("propagationPolicy", str),
    5: ("dryRun", [str]),
}
_KINDS: Final[Mapping[str, Message]] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _META), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "Namespace": {1: ("metadata", _META)},
    "ServiceAccount": {1: ("metadata", _META)},
    "ConfigMap": {1: ("metadata", _META), 2: ("data", dict)},
}


def is_protobuf(raw: bytes) -> bool:
    return raw.startswith(_PREFIX)


def as_json(raw: bytes) -> Json:
    """ValueError if it is broken."""
    try:
        envelope = _message(raw[len(_PREFIX) :], _ENVELOPE)
        kind = str(envelope["type"]["kind"])
        if kind not in _KINDS:
            raise Refused(415, "UnsupportedMediaType", f"this simulation reads a {kind} as JSON only")
        return {**envelope["type"], **_message(envelope.get("raw", b""), _KINDS[kind])}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"broken protobuf: {error!r}") from None


def _message(raw: bytes, fields: Message) -> Json:
    result: Json = {}
    for number, value in _wire(raw):
        name, form = fields.get(number, ("", None))
        if isinstance(form, list):
            result.setdefault(name, []).append(_value(value, form[0]))
        elif form is dict:
            pair = _message(_bytes(value), {1: ("key", str), 2: ("value", str)})
            result.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
        elif name:
            result[name] = _value(value, form)
    # Go writes out texts that are empty.
    return {name: value for name, value in result.items() if value not in ("", {})}


def _value(value: int | bytes, form: Any) -> Any:
    if form is int or form is bool:
        number = int(value) if isinstance(value, int) else 0
        return bool(number) if form is bool else number - 2**64 if number >= 2**63 else number
    if form is bytes:
        return _bytes(value)
    return _bytes(value).decode() if form is str else _message(_bytes(value), form)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("broken protobuf: a number in place of a text")
    return value


def _wire(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and what they carry."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        match tag & 7:
            case 0:
                value, position = _varint(raw, position)
                yield tag >> 3, value
            case 2:
                length, position = _varint(raw, position)
                if position + length > len(raw):
                    raise IndexError("cut short")
                yield tag >> 3, raw[position : position + length]
                position += length
            case kind:
                raise ValueError(f"broken protobuf: wire type {kind}")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while raw[position] & 0x80:
        value |= (raw[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | raw[position] << shift, position + 1
