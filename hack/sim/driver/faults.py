"""Scripted faults: what goes wrong with which calls, how often, and before or after the effect.

    METHOD:key=value,key=value,…            CreateVolume:names=pvc-a*,times=2,delay=3,lose=DEADLINE_EXCEEDED,message=disk is slow

METHOD is a CSI method or a pattern of names (`*` is every method). What happens to a call, in this order:
    hang=SECONDS     waits; a caller that gives up meanwhile takes the call back, and nothing is done
    fail=CODE        answers this status and does nothing
    delay=SECONDS    waits, then does it even if the caller has given up; until then the volume is busy (ABORTED for others)
    linger=SECONDS   waits after doing it, before the answer
    lose=CODE        did it, but answers this status: the answer is lost after the effect
and how far the fault reaches:
    names=PATTERN    only these volume names (CreateVolume) or volume ids (the other methods)
    times=N          only the next N such calls; without it every one, until the fault is taken away
    message=TEXT     goes with `fail` and `lose`; it is the last key, because it may contain commas
`inf` seconds is for ever. A faults file is the JSON list of such objects, {"method": …, "times": 2, …}; `write_faults` makes one.
It is read anew when it has changed, and then replaces what it said before; the counts of its faults start again.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from sidecar.csi.outcome import Code
from sidecar.frozen import frozen

_SECONDS: Final = ("hang", "delay", "linger")
_CODES: Final = ("fail", "lose")


class BadFault(ValueError):
    """The text cannot be read as a fault."""


@frozen(kw_only=True)
class Fault:
    """One line of the script."""

    method: str
    names: str = "*"
    times: int | None = None
    hang: float = 0.0
    fail: Code | None = None
    delay: float = 0.0
    linger: float = 0.0
    lose: Code | None = None
    message: str = "scripted fault"

    def __post_init__(self) -> None:
        if Code.OK in (self.fail, self.lose):
            raise BadFault("OK is no failure")
        if self.fail and self.lose:
            raise BadFault("a call that fails has no answer to lose")
        if self.times is not None and self.times < 1:
            raise BadFault("times counts from 1")
        if not all(getattr(self, key) >= 0 for key in _SECONDS):  # also refuses NaN
            raise BadFault("no wait is shorter than nothing")

    def concerns(self, method: str, name: str) -> bool:
        return fnmatchcase(method, self.method) and fnmatchcase(name, self.names)


NO_FAULT: Final = Fault(method="*")


class Script:
    """Faults in their order: for each call the first one that concerns it and still has times left."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._left: list[tuple[Fault, float]] = [(fault, fault.times or math.inf) for fault in faults]

    def take(self, method: str, name: str) -> Fault | None:
        for number, (fault, left) in enumerate(self._left):
            if left and fault.concerns(method, name):
                self._left[number] = (fault, left - 1)
                return fault
        return None


class Faults:
    """The script given at the start, and the one in the file, which may change while the driver runs."""

    def __init__(self, standing: Iterable[Fault] = (), *, file: Path | None = None, complain: Callable[[str], None] | None = None) -> None:
        self._standing = Script(standing)
        self._file = file
        self._complain = complain
        self._seen: tuple[int, ...] | None = None
        self._filed = Script()

    def set(self, faults: Iterable[Fault]) -> None:
        """Replaces the script, as editing the file does; for tests in the same process."""
        self._filed = Script(faults)

    def take(self, method: str, name: str) -> Fault:
        """The fault for this call, counted as used; NO_FAULT if there is none."""
        self._read_if_changed()
        return self._standing.take(method, name) or self._filed.take(method, name) or NO_FAULT

    def _read_if_changed(self) -> None:
        if self._file is None:
            return
        version = _version(self._file)
        if version == self._seen:
            return
        self._seen = version
        try:
            self._filed = Script(read_faults(self._file))
        except (BadFault, OSError) as error:
            # Perhaps somebody is writing the file: the faults from before stay until it can be read.
            if self._complain is not None:
                self._complain(f"faults file {self._file}: {error}")


def parse_fault(text: str) -> Fault:
    """The compact form."""
    method, _, rest = text.partition(":")
    head, found, message = rest.partition("message=")
    given = dict(_pair(item) for item in head.split(",") if item)
    return fault_of({"method": method, **given, **({"message": message} if found else {})})


def fault_of(data: Mapping[str, Any]) -> Fault:
    """The JSON form. Numbers and codes may be texts."""
    unknown = sorted(data.keys() - {field.name for field in fields(Fault)})
    if unknown:
        raise BadFault(f"no such key: {', '.join(unknown)}")
    if not data.get("method"):
        raise BadFault("a fault names a method")
    if not data.keys() & {*_SECONDS, *_CODES}:
        raise BadFault(f"a fault says what happens: one of {', '.join((*_SECONDS, *_CODES))}")
    try:
        return Fault(**{key: _value(key, value) for key, value in data.items()})
    except (TypeError, ValueError) as error:
        raise BadFault(str(error)) from error


def read_faults(path: Path) -> tuple[Fault, ...]:
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
    return tuple(fault_of(item) for item in found)


def write_faults(path: Path, faults: Sequence[Fault]) -> None:
    """In one step, so that a running driver never sees half of it. An empty sequence clears."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps([_plain(fault) for fault in faults], indent=1) + "\n")
    draft.replace(path)


def _plain(fault: Fault) -> dict[str, Any]:
    values = asdict(fault)
    codes = {key: code.name for key in _CODES if (code := values[key])}
    seconds = {key: "inf" if math.isinf(wait) else wait for key in _SECONDS if (wait := values[key])}
    rest = {key: values[key] for key in ("method", "names", "times", "message") if values[key] is not None}
    return {**rest, **seconds, **codes}


def _value(key: str, value: Any) -> Any:
    if key in _SECONDS:
        return float(value)
    if key == "times":
        return None if value is None else int(value)
    return _code(str(value)) if key in _CODES else str(value)


def _code(text: str) -> Code:
    """Either spelling: DEADLINE_EXCEEDED or DeadlineExceeded."""
    for code in Code:
        if text in (code.name, code.value):
            return code
    raise BadFault(f"{text!r} is no gRPC status")


def _pair(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals:
        raise BadFault(f"{item!r} is not key=value")
    return key.strip(), value.strip()


def _version(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
