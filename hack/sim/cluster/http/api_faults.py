"""Scripted faults of the served API: what goes wrong with which requests, how often, and before or after the effect.

A faults file is a JSON list of objects, read anew when it has changed. Which requests: `verb` (get, list, watch, create, update,
patch, delete), `resource` (plural, with its subresource: `pods/eviction`), `names` (`namespace/name` or `name`), all patterns, and
`times`: only the next N such requests. What happens to them, in this order:

    compact: true    all history is forgotten first: watches and continue tokens from before are told 410
    slow: SECONDS    waits first; null is for ever (a stalled server)
    refuse: true     the connection is closed without an answer, and nothing is done
    status: CODE     answers this code and does nothing; with retry_after: SECONDS and message: TEXT
    stale: N         a get or list is answered as things were N changes ago
    lose: true       it is done, and the connection is closed without an answer
    cut: true        the answer breaks off in its middle; of a watch, its next event does
    silent: true     a watch begins and then says nothing, bookmarks included, nor ends: a half-open connection
    gone: true       a watch begins and says in its stream that its version is too old
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from hack.sim.cluster.refusals import Refused
from sidecar.frozen import frozen

_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class BadFault(ValueError):
    """The entry cannot be read as a fault."""


@frozen(kw_only=True)
class ApiFault:
    """One entry of the script."""

    verb: str = "*"
    resource: str = "*"
    names: str = "*"
    times: int | None = None
    compact: bool = False
    slow: float | None = 0.0
    refuse: bool = False
    status: int = 0
    retry_after: int | None = None
    message: str = "scripted fault"
    stale: int = 0
    lose: bool = False
    cut: bool = False
    silent: bool = False
    gone: bool = False

    def concerns(self, verb: str, resource: str, name: str) -> bool:
        return fnmatchcase(verb, self.verb) and fnmatchcase(resource, self.resource) and fnmatchcase(name, self.names)

    @property
    def refusal(self) -> Refused:
        details = {} if self.retry_after is None else {"retryAfterSeconds": self.retry_after}
        return Refused(self.status, _REASONS.get(self.status, ""), self.message, details=details)


NO_FAULT: Final = ApiFault()


class ApiFaults:
    """The script: for each request the first fault that concerns it and has times left. `file` may change while it is read."""

    def __init__(self, faults: Iterable[ApiFault] = (), *, file: Path | None = None, complain: Callable[[str], None] | None = None) -> None:
        self._file = file
        self._complain = complain
        self._seen: tuple[int, ...] | None = None
        self.set(*faults)

    def set(self, *faults: ApiFault) -> None:
        """Replaces the script; an empty one means no faults."""
        self._left: list[tuple[ApiFault, float]] = [(fault, fault.times or math.inf) for fault in faults]

    @property
    def none(self) -> bool:
        """True if there is neither a script nor a file that could bring one."""
        return self._file is None and not self._left

    def take(self, verb: str, resource: str, name: str) -> ApiFault:
        """The fault for this request, counted as used."""
        self._read_if_changed()
        for number, (fault, left) in enumerate(self._left):
            if left and fault.concerns(verb, resource, name):
                self._left[number] = (fault, left - 1)
                return fault
        return NO_FAULT

    def _read_if_changed(self) -> None:
        if self._file is None or (version := _version(self._file)) == self._seen:
            return
        self._seen = version
        try:
            self.set(*read_api_faults(self._file))
        except (BadFault, OSError) as error:
            # Perhaps somebody is writing the file: the faults from before stay until it can be read.
            if self._complain is not None:
                self._complain(f"faults file {self._file}: {error}")


def read_api_faults(path: Path) -> tuple[ApiFault, ...]:
    """Without a file, or with an empty one, there are no faults."""
    try:
        text = path.read_text()
        found = json.loads(text) if text.strip() else []
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise BadFault(str(error)) from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise BadFault("the file is a list of objects")
    return tuple(api_fault_of(item) for item in found)


def api_fault_of(data: Mapping[str, Any]) -> ApiFault:
    types = {field.name: type(field.default) for field in fields(ApiFault)}
    unknown = sorted(data.keys() - types.keys())
    if unknown:
        raise BadFault(f"no such key: {', '.join(unknown)}")
    for key, value in data.items():
        wanted = {"times": int, "retry_after": int, "slow": (int, float)}.get(key, types[key])
        if not isinstance(value, wanted) and not (value is None and key in ("times", "retry_after", "slow")):  # type: ignore[arg-type]
            raise BadFault(f"{key} cannot be {value!r}")
    if data.keys() <= {"verb", "resource", "names", "times"}:
        raise BadFault("a fault says what happens")
    return ApiFault(**data)


def _version(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
