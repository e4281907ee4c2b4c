"""Lends this machine's pip settings to a build while it runs: addresses and passwords must not stay in an image."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Names of files and folders, which must be there in the build under the same name. What is asked of the network stays as it is.
PATHS = ("cert", "client-cert", "find-links")
# These say how pip behaves here, not where packages come from.
OURS_TO_SAY = ("user", "target", "prefix", "root", "constraint", "require-virtualenv", "cache-dir", "no-cache-dir", "compile", "no-compile")


@contextmanager
def as_mounts(bench: Path) -> Iterator[list[str]]:
    """Volumes for a build: a pip.conf made of the machine's files and environment, and what it names."""
    settings = read()
    file = bench / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {_indented(value)}\n" for name, value in settings.items()))
    file.chmod(0o600)
    named = {word for name in PATHS for word in settings.get(name, "").split() if word.startswith("/") and Path(word).exists()}
    try:
        yield [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in sorted(named))]
    finally:
        file.unlink()


def read() -> dict[str, str]:
    """What pip itself says it would use, later sources before earlier ones."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return merged(done.stdout)


def merged(listing: str) -> dict[str, str]:
    """`global.x='1'`, then `install.x='2'`, then `:env:.x='3'`: the most specific wins."""
    weights = {"global": 0, "install": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, equals, value = line.partition("=")
        section, dot, option = name.rpartition(".")
        if not equals or not dot or section not in weights or option in OURS_TO_SAY:
            continue
        if option not in found or found[option][0] <= weights[section]:
            found[option] = (weights[section], str(ast.literal_eval(value)))
    return {option: value for option, (_, value) in found.items()}


def _indented(value: str) -> str:
    return "\n  ".join(value.split("\n"))
