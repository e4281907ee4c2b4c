"""Prints what commands say, and by which name. Who has read enough may go: `| head` is no error, and takes nothing from the exit code."""

import os
import sys
from typing import Final

from sidecar.observe.sanitize import visible

PROGRAM: Final = "csi-node-sidecar"
PLUGIN: Final = "kubectl csi-node"
_PLUGIN_FILE: Final = "kubectl-csi_node"
"""kubectl finds a plugin by the name of its file, with an underscore for each dash of the command."""


def is_plugin() -> bool:
    return sys.argv[0].rpartition("/")[2] == _PLUGIN_FILE


def program() -> str:
    """As people have called it: usage lines, hints and examples say the same."""
    return PLUGIN if is_plugin() else PROGRAM


def show(text: str, *, end: str = "\n") -> None:
    """On standard output, at once."""
    try:
        print(_shown(text, sys.stdout.encoding), end=end, flush=True)
    except BrokenPipeError:
        _hush()
    except OSError as error:
        _hush()
        raise SystemExit(f"{PROGRAM}: the answer could not be written: {error}") from error


def complain(text: str) -> int:
    """On standard error, under the program's name. Returns the exit code of what could not be done."""
    say_aside(f"{PROGRAM}: {text}")
    return 1


def say_aside(text: str) -> None:
    """On standard error."""
    print(_shown(text, sys.stderr.encoding), file=sys.stderr)


def terminal_width() -> int:
    """Columns of the terminal that reads; 0 where something else does."""
    import shutil  # what runs on nodes needs none of it

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _shown(text: str, encoding: str | None) -> str:
    """What others wrote in the cluster, or a server says, must not move the cursor, clear the screen or turn a line around; nor end the
    command where the terminal has no such letter."""
    lines = text.split("\n")
    clean = "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)
    return clean if clean.isascii() else clean.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")


def _hush() -> None:
    """What is said after this goes nowhere, and the interpreter has nothing left to flush when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
