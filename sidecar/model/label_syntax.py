"""What Kubernetes takes as key and value of a label: of nodes, in affinities, and in selectors."""

import re
from functools import lru_cache
from typing import Final

_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = re.compile(rf"{_PART}(\.{_PART})*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_PREFIX: Final = 253
_LONGEST: Final = 63
_SHOWN: Final = 80


@lru_cache(64)  # the segments of few nodes, with each volume
def flaw_of_label(key: str, value: str) -> str:
    """Why no label can be so; empty if one can."""
    prefix, slash, name = key.rpartition("/")
    prefix_fits = not slash or (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix) is not None)
    if not prefix_fits or len(name) > _LONGEST or _NAME.fullmatch(name) is None:
        return f"{_shown(key)} is no key of a label"
    if len(value) > _LONGEST:
        return f"{_shown(key)} has the value {_shown(value)}, which has more than {_LONGEST} characters"
    if value and _NAME.fullmatch(value) is None:
        return f"{_shown(key)} has the value {_shown(value)}, which no label may have"
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
