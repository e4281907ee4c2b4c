"""Prints what commands say. Who has read enough may go: `| head` is no error, and takes nothing from the exit code."""

import os
import sys


def show(text: str, *, end: str = "\n") -> None:
    """On standard output, at once."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        _hush()
    except OSError as error:
        _hush()
        raise SystemExit(f"csi-node-sidecar: the answer could not be written: {error}") from error


def terminal_width() -> int:
    """Columns of the terminal that reads; 0 where something else does."""
    import shutil  # what runs on nodes needs none of it

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _hush() -> None:
    """What is said after this goes nowhere, and the interpreter has nothing left to flush when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
