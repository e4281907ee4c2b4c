"""Checks of single values. A check returns what is wrong and what to do about it, or an empty text."""

import re
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], str]  # returns what is wrong and what to do; empty: nothing


def not_negative(value: float) -> str:
    return "must not be negative" if value < 0 else ""


def more_than_zero(consequence: str) -> Check:
    return lambda value: "" if value > 0 else f"must be more than zero: {consequence}"


_SCHEME = "unix://"
_LONGEST_SOCKET_PATH = 107  # bytes in Linux' sockaddr_un, less the closing zero


def socket_path(address: str) -> str:
    """The plain absolute path behind /path or unix:///path; empty for anything else."""
    path = address.removeprefix(_SCHEME)
    return path if path.startswith("/") else ""


def socket_fault(address: str) -> str:
    path = socket_path(address)
    if not path:
        return "the driver is reached through a unix socket on this node; write an absolute path, /csi/csi.sock or unix:///csi/csi.sock"
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_SOCKET_PATH:
        return f"the path of a unix socket has at most {_LONGEST_SOCKET_PATH} bytes; mount the folder at a shorter path"
    if "," in path:
        return "gRPC reads a path with a comma as two addresses; use a path without one"
    return ""


def uuid_length_fault(length: int) -> str:
    if length == 0:
        return "without any of the claim's UID all volumes would have the same name; use -1 (the whole UID) or 8 to 32"
    return "" if length == -1 or 1 <= length <= 32 else "a UID has 32 digits; use -1 (the whole UID) or 8 to 32"


# A valid name of a PersistentVolume up to the dash behind the prefix; the UID that follows is always a valid end.
_NAME_PREFIX = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\.)*[a-z0-9][-a-z0-9]*")


def prefix_fault(prefix: str) -> str:
    if _NAME_PREFIX.fullmatch(prefix):
        return ""
    return "no volume could be stored under such a name; use lower-case letters, digits, '-' and '.', beginning with a letter or digit"


def metrics_path_fault(path: str) -> str:
    if not path.startswith("/"):
        return "an HTTP path begins with '/'"
    if re.search(r"[\s?#{}]", path):
        return "an HTTP path cannot contain white space or any of ? # { }"
    return ""
