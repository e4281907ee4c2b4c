"""For commands that need the Python packages of hack/environment."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ENTERED = "CSI_NODE_SIDECAR_ENTERED"


def start_again_unless_installed(*needed: str) -> None:
    """Start this command again with the Python that runs the tests if this one lacks a package; give up if it is that one already."""
    missing = [name for name in needed if not _is_installed(name)]
    if not missing:
        return
    command = Path(sys.argv[0]).name
    if ENTERED in os.environ:
        sys.exit(f"hack/{command}: {sys.executable} lacks {', '.join(missing)}: run hack/test once, or pip install -e '.[dev]'")
    script = 'cd "$0" && source hack/environment && enter_environment && exec python hack/"$1" "${@:2}"'
    words = ["bash", "-euc", script, str(REPOSITORY), command, *sys.argv[1:]]
    os.execvpe(words[0], words, {**os.environ, ENTERED: "1"})


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package it is in
        return False
