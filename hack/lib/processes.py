"""Programs as processes: each in a session of its own, with its output in a file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hack.lib.command import REPOSITORY as REPOSITORY
from hack.lib.command import Failure, tail
from hack.lib.patience import LIMIT, deadline, until

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Looked up here because loading a library between fork and exec is not safe.
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Cost:
    """MiB and seconds, as the kernel counts them: shared libraries and kernel time included."""

    resident: float
    peak: float
    cpu: float


class Process:
    """It is killed when the thread that starts it ends, however that ends."""

    def __init__(self, name: str, command: Sequence[str], work: Path, *, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.command = list(command)
        self.log = work / f"{name}.log"
        self._environ = {"PATH": os.environ.get("PATH", ""), "HOME": str(work), "PYTHONPATH": str(REPOSITORY), **(environ or {})}
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        assert not self.is_running(), f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,  # Ctrl-C in pytest is for pytest, which then stops us in order
                cwd=self.log.parent,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - few system calls, looked up beforehand: nothing to deadlock on
            )
        return self

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def child(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, f"{self.name} was not started"
        return self._child

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self.child.kill()
        self.child.wait()

    def wait(self) -> int:
        """The exit code."""
        try:
            return self.child.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {LIMIT:.0f} s:\n{self.output()}") from None

    def stop(self) -> None:
        stop_all([self])

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def cost(self) -> Cost:
        """So far."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines())
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        resident, peak = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return Cost(resident, peak, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def until(self, condition: Callable[[], object], what: str | Callable[[], str], *, seconds: float = 0.0) -> None:
        """Until it comes true; the error says what was awaited, and if the program has ended, what it said at last."""

        def lives_and_comes_true() -> bool:
            if self.child.poll() is not None:
                raise Failure(f"{self.name} ended with {self.child.returncode}; {tail(self.log)}")
            return bool(condition())

        until(lives_and_comes_true, what, seconds=seconds, pause=0.02)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def all_of(processes: Sequence[Process]) -> Iterator[None]:
    """Starts them one after the other and stops them together."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        stop_all(processes)


def stop_all(processes: Sequence[Process]) -> None:
    """SIGTERM to all at once, and once only, for a second would end a program whatever it is doing; SIGKILL to those that are left."""
    running = [process.child for process in processes if process.is_running()]
    for child in running:
        child.terminate()
    end = deadline()
    for child in running:
        try:
            child.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


_given_out: set[int] = set()
"""Programs listen on a port some time after they were given it: of a hundred that start together, two would often get the same."""


def free_ports(count: int) -> list[int]:
    """Below those for outgoing connections: one of those may be taken before it is listened on."""
    found: list[int] = []
    for port in random.sample(range(10000, 30000), 1000 + count):
        if port in _given_out:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            _given_out.update(found)
            return found
    raise OSError(f"of a thousand ports between 10000 and 30000 fewer than {count} are free")


# --- between fork and exec --------------------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Signals end the program again, unless it says otherwise itself, whoever started us; and it is killed with the thread that starts it.

    A shell without job control starts its background jobs with SIGINT ignored, and nohup does the same with SIGHUP. That is inherited: a
    program started from there would not hear Ctrl-C, and a test that sends it would wait in vain.
    """
    for number in _HEARD:
        signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
