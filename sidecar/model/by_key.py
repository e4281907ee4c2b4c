"""Marks fields of dataclasses whose values may be secret although nobody declared them so, such as parameters of a class.

    parameters: Mapping[str, str] = field(repr=False, metadata=BY_KEY)

`repr` leaves such a field out, and `observe` shows the keys alone.
"""

from types import MappingProxyType
from typing import Final

_MARK: Final = "shown by key"
BY_KEY: Final = MappingProxyType({_MARK: True})


def is_by_key(metadata: object) -> bool:
    """Of the metadata of a field."""
    return metadata == BY_KEY
