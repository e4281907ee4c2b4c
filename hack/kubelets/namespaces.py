"""Processes in namespaces of their own. A holder, found by its argument, keeps the namespaces; others enter them from outside.

No file records the holders: they are searched among the machine's processes, so a lost or stale file cannot mislead. A program inside
writes its process number into a file inside, which ends with the namespaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.kubelets.errors import ClusterError
from hack.kubelets.waiting import tail, until
from hack.lib.progress import say

PROC = Path("/proc")
ALL = ("--mount", "--pid", "--net", "--ipc", "--uts")
# Nothing of a developer's own environment (a proxy, a kubeconfig) is to reach what runs inside.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
# $0 is where the number goes, $1 the log; exec keeps the number.
START = 'echo $$ >"$0"; log=$1; shift; exec "$@" </dev/null >>"$log" 2>&1'


@dataclass(frozen=True, slots=True)
class Holder:
    """The first process of its namespaces, by its number outside: they all end with it."""

    pid: int
    ident: str

    @property
    def root(self) -> Path:
        """The file system as it is seen inside."""
        return PROC / str(self.pid) / "root"

    def inside(self, *command: str, namespaces: Sequence[str] = ALL) -> list[str]:
        return ["nsenter", "--target", str(self.pid), *namespaces, "--", *command]

    def run(self, *command: str, namespaces: Sequence[str] = ALL, input: str | None = None, seconds: float = 180.0) -> str:
        return run(self.inside(*command, namespaces=namespaces), input=input, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run inside, by the paths that are valid there."""

    name: str
    command: Sequence[str]
    number: Path
    log: Path


def run(command: Sequence[str], *, input: str | None = None, seconds: float = 180.0) -> str:
    """What it prints; a failure is an error with what it said."""
    try:
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False, timeout=seconds, env=ENVIRONMENT)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{' '.join(command)} was not done after {seconds:.0f} s") from None
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed (exit {done.returncode}): {(done.stderr or done.stdout).strip()}")
    return done.stdout


def start_holder(command: Sequence[str], ident: str, *, log: Path, within: Holder | None = None) -> Holder:
    """Runs the command as the first process of new namespaces; in the end it must become the holder."""
    new = ["unshare", *ALL, "--fork", "--kill-child", "--mount-proc", "--", *command]
    detached = ["setsid", "--fork", *(within.inside(*new) if within else new)]
    with log.open("ab") as output:
        subprocess.run(detached, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True, timeout=30, env=ENVIRONMENT)
    until(lambda: find_holder(ident) or not processes_named(ident), f"the namespaces of {ident}", seconds=20, log=log)
    if holder := find_holder(ident):
        return holder
    raise ClusterError(f"the namespaces of {ident} could not be made{tail(log)}")


def find_holder(ident: str) -> Holder | None:
    """The process whose only argument is this ident. Processes that only start it have further arguments."""
    for pid, arguments in all_processes():
        if len(arguments) == 2 and arguments[1] == ident and arguments[0].endswith("/pause"):
            return Holder(pid, ident)
    return None


def processes_named(ident: str) -> list[int]:
    return [pid for pid, arguments in all_processes() if ident in arguments]


def all_processes() -> Iterator[tuple[int, list[str]]]:
    """Every process with its arguments. Those without any belong to the kernel, or have ended."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if line:
                yield int(entry.name), line.decode(errors="replace").rstrip("\0").split("\0")


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def start(holder: Holder, program: Program, *, keep_open: Sequence[int] = ()) -> None:
    """Starts a program in the background. It outlives this command, and ends with the holder, whose child it becomes."""
    command = ["setsid", "--fork", "sh", "-c", START, str(program.number), str(program.log), *program.command]
    inside = holder.inside(*command)
    done = subprocess.run(
        inside, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30, env=ENVIRONMENT, pass_fds=keep_open
    )
    if done.returncode:
        raise ClusterError(f"{program.name} could not be started: {done.stderr.strip()}")
    until(lambda: number_of(holder, program), f"the start of {program.name}", seconds=10, log=_log(holder, program))


def number_of(holder: Holder, program: Program) -> int | None:
    """Its process number inside, if it runs."""
    try:
        number = int((holder.root / str(program.number).lstrip("/")).read_text())
    except (OSError, ValueError):
        return None
    return number if (holder.root / "proc" / str(number)).exists() else None


def stop(holder: Holder, program: Program, *, how: signal.Signals = signal.SIGTERM, patience: float = 15.0) -> None:
    """Returns when it has ended. If it ignores SIGTERM for too long it is killed, as by any service manager."""
    _order(holder, program, how)
    try:
        _await_end(holder, program, seconds=patience)
    except ClusterError:
        say(f"{program.name} goes on {patience:.0f} s after {how.name}: it is killed")
        _order(holder, program, signal.SIGKILL)
        _await_end(holder, program, seconds=15)


def _order(holder: Holder, program: Program, how: signal.Signals) -> None:
    if number := number_of(holder, program):
        kill = 'kill -s "$0" "$1" || test ! -e "/proc/$1"'  # it may end by itself just now
        holder.run("sh", "-c", kill, how.name.removeprefix("SIG"), str(number), namespaces=("--mount", "--pid"))


def _await_end(holder: Holder, program: Program, *, seconds: float) -> None:
    until(lambda: number_of(holder, program) is None, f"the end of {program.name}", seconds=seconds)


def log_end(holder: Holder, program: Program) -> str:
    return tail(_log(holder, program))


def _log(holder: Holder, program: Program) -> Path:
    return holder.root / str(program.log).lstrip("/")
