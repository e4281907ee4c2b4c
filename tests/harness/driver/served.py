"""Drivers as processes: started, waited for until their socket answers, stopped or killed."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hack.lib.patience import deadline

START_SECONDS = 20.0


@contextlib.contextmanager
def process(command: Sequence[str], *, endpoint: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs inside the block, from the moment its socket accepts connections. What it says is in `log`."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as child:
        try:
            _until_connects(child, endpoint, log=log)
            yield child
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def serve_driver(endpoint: Path, *arguments: str, node: str = "node-a") -> list[str]:
    return [sys.executable, "-m", "hack.sim.driver.serve", f"--endpoint={endpoint}", f"--node-id={node}", *arguments]


def _until_connects(child: "subprocess.Popen[bytes]", endpoint: Path, *, log: Path) -> None:
    end = deadline(START_SECONDS)
    while not _connects(endpoint):
        assert child.poll() is None, f"{child.args!r} ended with {child.returncode}:\n{log.read_text()}"
        assert time.monotonic() < end, f"{child.args!r} does not serve:\n{log.read_text()}"
        time.sleep(0.02)


def _connects(endpoint: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(endpoint))
        except OSError:
            return False
    return True
