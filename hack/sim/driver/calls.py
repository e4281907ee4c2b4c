"""One call through the simulated driver: it is recorded, a fault may hit it, it is done once, answered, and its end is recorded.

A call is two lines of the record, its beginning and its end, so that one the driver was killed in is still counted: it has no code.
What goes wrong with which calls, how often, and before or after the effect, a script of faults says:

    [{"method": "CreateVolume", "times": 2, "delay": 3, "lose": "DEADLINE_EXCEEDED", "message": "disk is slow"}]

What happens to a call of that method, in this order, where "inf" seconds are for ever:
    hang      waits so many seconds; a caller that gives up meanwhile takes the call back, and nothing is done
    fail      answers this status and does nothing
    delay     waits, then does it even if the caller has given up; until then the volume is busy (ABORTED for others)
    linger    waits after doing it, before the answer
    lose      did it, but answers this status: the answer is lost after the effect
and `message` goes with `fail` and `lose`; `times` is how many of the next such calls it happens to, without it all; `names` is a pattern
of volume names (CreateVolume) or ids. A file of faults is read anew when it has changed, and then replaces what it said before; the counts
of its faults start again.
"""

import asyncio
import json
import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

from hack.sim.driver.state import Journal, read_journal
from sidecar.csi.outcome import Code, DriverError

T = TypeVar("T")

CHANGING: Final = frozenset({"CreateVolume", "DeleteVolume", "NodePublishVolume", "NodeUnpublishVolume"})
"""Methods that CSI allows only one at a time for one volume."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the driver saw it."""

    at: float
    """Wall clock."""
    method: str
    name: str
    """The volume's name (CreateVolume) or id; empty for a call that concerns no volume."""
    request: Mapping[str, Any]
    """The message as JSON, in which 64-bit numbers are texts; of secrets only the keys."""
    code: Code | None = None
    """What was answered. None: it is still running, or the driver was killed in it. CANCELLED: the caller gave up;
    whether the volume was made nevertheless, the state says."""
    message: str = ""
    seconds: float | None = None


def read_calls(path: Path) -> list[Call]:
    """In the order in which they came in. Safe beside a running driver."""
    merged: dict[str, dict[str, Any]] = {}
    for line in read_journal(path):
        merged.setdefault(line["id"], {}).update(line)
    return [_call(line) for line in merged.values()]


class Record:
    """Writes the record to a file, or keeps it in memory if there is no path."""

    def __init__(self, path: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._journal = None if path is None else Journal(path)
        self._now = now
        # Several processes, one after the other, write into one file.
        self._process = secrets.token_hex(4)
        self._count = 0
        self._lines: dict[str, dict[str, Any]] = {}

    @property
    def calls(self) -> list[Call]:
        return [_call(line) for line in self._lines.values()] if self._path is None else read_calls(self._path)

    def begin(self, method: str, name: str, *, request: Mapping[str, Any]) -> tuple[str, float]:
        """Returns what `end` needs: the call's id and its start."""
        self._count += 1
        entry, at = f"{self._process}.{self._count}", self._now()
        self._write({"id": entry, "at": at, "method": method, "name": name, "request": dict(request)})
        return entry, at

    def end(self, begun: tuple[str, float], code: Code, *, message: str = "") -> None:
        entry, at = begun
        self._write({"id": entry, "code": code.name, "message": message, "seconds": self._now() - at})

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _write(self, line: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(line)
        elif self._path is None:
            self._lines.setdefault(line["id"], {}).update(line)


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


NO_FAULT: Final = Fault(method="")
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("hang", "delay", "linger"), float),
    **dict.fromkeys(("fail", "lose"), Code.__getitem__),
}


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

    def take(self, method: str, name: str = "") -> Fault:
        """The fault for this call, counted as used; NO_FAULT if there is none."""
        self._read_if_changed()
        for entry in self._faults:
            fault, left = entry
            if left and fault.method == method and fnmatchcase(name, fault.names):
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
        return Fault(**{key: _READ.get(key, lambda given: given)(value) for key, value in data.items()})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no fault: {error}") from error


# --- one call ----------------------------------------------------------------------------------------------------------------


class Reception:
    """Every call passes here. While an operation on a volume is under way, others on it get ABORTED, as CSI demands."""

    def __init__(self, *, record: Record | None = None, faults: Faults | None = None) -> None:
        self.record = record or Record()
        self.faults = faults or Faults()
        self._busy: set[str] = set()
        self._delayed: set[asyncio.Task[Any]] = set()

    async def attend(self, method: str, name: str, *, request: Mapping[str, Any], act: Callable[[], T]) -> T:
        """`name` as in Call. `act` has the effect and makes the answer."""
        begun = self.record.begin(method, name, request=request)
        try:
            answer = await self._walk(method, name, act=act)
        except DriverError as error:
            self.record.end(begun, error.code, message=error.message)
            raise
        except asyncio.CancelledError:
            self.record.end(begun, Code.CANCELLED)
            raise
        except Exception as error:
            self.record.end(begun, Code.UNKNOWN, message=repr(error))
            raise
        self.record.end(begun, Code.OK)
        return answer

    async def close(self) -> None:
        """Drops delayed calls that are not done yet: the driver stops."""
        for task in self._delayed:
            task.cancel()
        await asyncio.gather(*self._delayed, return_exceptions=True)
        self.record.close()

    async def _walk(self, method: str, name: str, *, act: Callable[[], T]) -> T:
        with ExitStack() as hold:
            if method in CHANGING and name:
                if name in self._busy:
                    raise DriverError(Code.ABORTED, f"an operation on volume {name} is under way")
                self._busy.add(name)
                hold.callback(self._busy.discard, name)
            fault = self.faults.take(method, name)
            await _wait(fault.hang)
            if fault.fail is not None:
                raise DriverError(fault.fail, fault.message)
            answer = await self._delay(fault, act, hold.pop_all()) if fault.delay else act()
        await _wait(fault.linger)
        if fault.lose is not None:
            raise DriverError(fault.lose, fault.message)
        return answer

    async def _delay(self, fault: Fault, act: Callable[[], T], hold: ExitStack) -> T:
        """Plays a driver that does not notice that its caller is gone: the work goes on, and the volume stays busy, after the call."""

        async def work() -> T:
            with hold:
                await _wait(fault.delay)
                return act()

        task = asyncio.ensure_future(work())
        self._delayed.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._delayed.discard(task)
        if not task.cancelled():
            task.exception()  # fetched, or asyncio would warn: the caller is gone


async def _wait(seconds: float) -> None:
    if math.isinf(seconds):
        await asyncio.get_running_loop().create_future()
    elif seconds:
        await asyncio.sleep(seconds)


def _call(line: Mapping[str, Any]) -> Call:
    code: dict[str, Any] = {"code": Code[line["code"]]} if "code" in line else {}
    return Call(**{key: value for key, value in line.items() if key not in ("id", "code")}, **code)
