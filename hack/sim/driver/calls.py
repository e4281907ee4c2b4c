"""One call through the simulated driver: it is recorded, a fault may hit it, it is done once, answered, and its end is recorded.

A call is two lines of the record, its beginning and its end, so that one the driver was killed in is still counted: it has no code.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from hack.sim.driver.faults import Fault, Faults
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
