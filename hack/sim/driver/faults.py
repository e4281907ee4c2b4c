"""Scripted faults: what goes wrong with which calls, how often, and before or after the effect.

    [{"method": "CreateVolume", "names": "pvc-a*", "times": 2, "delay": 3, "lose": "DEADLINE_EXCEEDED", "message": "disk is slow"}]

The method is one of CSI, or a pattern (`*` is every method). What happens to a call, in this order:
    hang      waits so many seconds; a caller that gives up meanwhile takes the call back, and nothing is done
    fail      answers this status and does nothing
    delay     waits, then does it even if the caller has given up; until then the volume is busy (ABORTED for others)
    linger    waits after doing it, before the answer
    lose      did it, but answers this status: the answer is lost after the effect
and how far the fault reaches:
    names     only these volume names (CreateVolume) or volume ids (the other methods)
    times     only the next so many such calls; without it every one, until the fault is taken away
    message   goes with `fail` and `lose`
A file of faults is read anew when it has changed, and then replaces what it said before; the counts of its faults start again.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from sidecar.csi.outcome import Code


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def concerns(self, method: str, name: str) -> bool:
        return fnmatchcase(method, self.method) and fnmatchcase(name, self.names)


NO_FAULT: Final = Fault(method="*")


class Faults:
    """A script, which may change while the driver runs. Of each call the first fault that concerns it and has times left."""

    def __init__(self, file: Path | None = None, *, complain: Callable[[str], None] = print) -> None:
        self._faults: list[list[Any]] = []
        self._file = file
        self._complain = complain
        self._seen: tuple[int, ...] = ()

    def set(self, faults: Iterable[Fault]) -> None:
        """Replaces the script, as editing the file does; for tests in the same process."""
        self._faults = [[fault, fault.times or math.inf] for fault in faults]

    def take(self, method: str, name: str) -> Fault:
        """The fault for this call, counted as used; NO_FAULT if there is none."""
        self._read_if_changed()
        for entry in self._faults:
            fault, left = entry
            if left and fault.concerns(method, name):
                entry[1] = left - 1
                return fault  # type: ignore[no-any-return]
        return NO_FAULT

    def _read_if_changed(self) -> None:
        if self._file is None:
            return
        stat = self._file.stat() if self._file.exists() else None
        if (version := (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else ()) == self._seen:
            return
        self._seen = version
        try:
            text = self._file.read_text() if version else ""
            self.set(fault_of(item) for item in (json.loads(text) if text.strip() else ()))
        except (ValueError, OSError) as error:
            # Perhaps somebody is writing the file: the faults from before stay until it can be read.
            self._complain(f"faults file {self._file}: {error}")


def fault_of(data: Mapping[str, Any]) -> Fault:
    """A ValueError if it says nothing that this driver could do."""
    try:
        given: dict[str, Any] = {key: Code[value] if key in ("fail", "lose") else value for key, value in data.items()}
        return Fault(**given)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no fault: {error}") from error
