"""Makes a CSI message one line of JSON for the log, in which a field marked `csi_secret` shows only that it was set.

Of parameters and of a volume's context only the keys are shown: people put passwords there too.

It reads the messages' descriptors, so messages and secret fields that the specification adds later are covered too.
"""

import base64
import json
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

STRIPPED: Final = "***stripped***"
CSI_SECRET: Final = 1059
"""The number of the field option in csi.proto. Its generated object is not used, since only the codec may import csi_proto."""


BY_KEY: Final = frozenset({"parameters", "mutable_parameters", "volume_context", "publish_context"})


def one_line(message: Message) -> str:
    """Field names are the specification's; unset fields are left out."""
    return json.dumps(_message(message), ensure_ascii=False, separators=(",", ":"))


def _message(message: Message) -> dict[str, Any]:
    secret = secret_fields(message.DESCRIPTOR)
    return {field.name: STRIPPED if field.name in secret else _field(field, value) for field, value in message.ListFields()}


@cache
def secret_fields(descriptor: Descriptor) -> frozenset[str]:
    """The names of the fields that are marked."""
    return frozenset(field.name for field in descriptor.fields if _is_secret(field))


def _is_secret(field: FieldDescriptor) -> bool:
    return any(option.number == CSI_SECRET and bool(value) for option, value in field.GetOptions().ListFields())


def _field(field: FieldDescriptor, value: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        # A map is a repeated message of key and value, whose value field has the type of the values.
        shown = entry.fields_by_name["value"]
        return {str(key): STRIPPED if field.name in BY_KEY else _single(shown, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return _message(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if field.enum_type is not None:
        return _enum_name(field.enum_type, value)
    return value


def _enum_name(enum: EnumDescriptor, number: int) -> Any:
    """The name; or the number, if a newer driver sends one that our copy of the specification does not have."""
    known = enum.values_by_number.get(number)
    return number if known is None else known.name
