"""Processes in namespaces of their own. A holder, found by its argument, keeps the namespaces; others enter them from outside.

No file records who runs: holders and programs are searched among the machine's processes, so a lost or stale file cannot mislead.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.kubelets.settings import PROGRAMS
from hack.lib.command import Failure, tail
from hack.lib.patience import LIMIT, until
from hack.lib.processes import die_with_parent

PROC = Path("/proc")
ALL = ("--mount", "--pid", "--net", "--ipc", "--uts")
# Nothing of a developer's own environment (a proxy, a kubeconfig) is to reach what runs inside. containerd looks for its shims in PATH.
ENVIRONMENT = {"PATH": f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{PROGRAMS}", "HOME": "/root"}
# kubectl waits for as long as the limit by itself, and then says for what.
LONGEST = 2 * LIMIT
_leashed: list[subprocess.Popen[bytes]] = []  # one that is dropped while it runs complains


@dataclass(frozen=True, slots=True)
class Holder:
    """The first process of its namespaces, by its number outside: they all end with it."""

    pid: int

    def path(self, inside: Path | str) -> Path:
        """A file inside, as it is reached from outside."""
        return PROC / str(self.pid) / "root" / str(inside).lstrip("/")

    def inside(self, *command: str, namespaces: Sequence[str] = ALL) -> list[str]:
        return ["nsenter", "--target", str(self.pid), *namespaces, "--", *command]

    def run(self, *command: str, namespaces: Sequence[str] = ALL, input: str | None = None) -> str:
        return run(self.inside(*command, namespaces=namespaces), input=input)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run inside, and its log, by the paths that are valid there."""

    command: Sequence[str]
    log: Path


def run(command: Sequence[str], *, input: str | None = None) -> str:
    """What it prints; a failure is an error with what it said."""
    try:
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False, timeout=LONGEST, env=ENVIRONMENT)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)} was not done after {LONGEST:.0f} s") from None
    if done.returncode:
        raise Failure(f"{' '.join(command)} failed (exit {done.returncode}): {(done.stderr or done.stdout).strip()}")
    return done.stdout


def start_holder(command: Sequence[str], ident: str, *, log: Path, within: Holder | None = None, leashed: bool = False) -> None:
    """Runs the command as the first process of new namespaces; in the end it must become the holder.

    A leashed one is killed when the thread that starts it ends, however that ends, and all that is inside ends with it.
    """
    new = ["unshare", *ALL, "--fork", "--kill-child", "--mount-proc", "--", *command]
    detached = ["setsid", *([] if leashed else ["--fork"]), *(within.inside(*new) if within else new)]
    bound = die_with_parent if leashed else None
    with log.open("ab") as output:
        started = subprocess.Popen(detached, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ENVIRONMENT, preexec_fn=bound)  # noqa: PLW1509 - few system calls: nothing to deadlock on
    _leashed.append(started) if leashed else started.wait()
    until(lambda: find_holder(ident) or not carriers([ident]), f"the namespaces of {ident}", log=log)
    if not find_holder(ident):
        raise Failure(f"the namespaces of {ident} could not be made; {tail(log)}")


def find_holder(ident: str) -> Holder | None:
    """The process whose only argument is this ident. Processes that only start it have further arguments."""
    for pid, arguments in all_processes():
        if len(arguments) == 2 and arguments[1] == ident and arguments[0].endswith("/pause"):
            return Holder(pid)
    return None


def holder_of(ident: str) -> Holder:
    if holder := find_holder(ident):
        return holder
    raise Failure(f"{ident} is not running")


def carriers(idents: Sequence[str]) -> list[int]:
    """The processes that have one of these among their arguments."""
    return [pid for pid, arguments in all_processes() if any(ident in arguments for ident in idents)]


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


def start(holder: Holder, program: Program, *, keep_open: Sequence[int] = ()) -> None:
    """Starts a program in the background. It outlives this command, and ends with the holder, whose child it becomes."""
    script = 'exec "$@" </dev/null >>"$0" 2>&1'
    command = holder.inside("setsid", "--fork", "sh", "-c", script, str(program.log), *program.command)
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=LIMIT, env=ENVIRONMENT, pass_fds=keep_open)
    until(lambda: number_of(holder, program), f"the start of {program.command[0]}", log=holder.path(program.log))


def number_of(holder: Holder, program: Program) -> int:
    """Its process number outside, if it runs; else none, which is 0."""
    ours = _namespace(holder.pid)
    found = (pid for pid, arguments in all_processes() if arguments == [*program.command] and _namespace(pid) == ours)
    return next(found, 0)


def _namespace(pid: int) -> str:
    try:
        return str((PROC / str(pid) / "ns" / "pid").readlink())
    except OSError:  # it has just ended
        return ""


def kill(holder: Holder, program: Program) -> None:
    """SIGKILL. Returns when it has ended."""
    if number := number_of(holder, program):
        os.kill(number, signal.SIGKILL)
    until(lambda: not number_of(holder, program), f"the end of {program.command[0]}")
