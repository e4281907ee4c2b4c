"""A package of one version, and the requirements files of pip that list them. No line names a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTINUED = " \\\n"


@dataclass(frozen=True, slots=True)
class Pin:
    name: str  # as the package writes it
    version: str
    hashes: frozenset[str] = field(default=frozenset())  # sha256 of each file that may be installed


def simple(name: str) -> str:
    """By this spelling names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str) -> dict[str, Pin]:
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, _, version = words[0].partition("==")
        hashes = frozenset(word.removeprefix("--hash=sha256:") for word in words[1:])
        found[simple(name)] = Pin(name, version, hashes)
    return found


def written(pins: Iterable[Pin], *, about: str) -> str:
    lines = [f"# {about}"]
    for pin in sorted(pins, key=lambda pin: simple(pin.name)):
        words = [f"{pin.name}=={pin.version}", *(f"    --hash=sha256:{digest}" for digest in sorted(pin.hashes))]
        lines.append(CONTINUED.join(words))
    return "\n".join(lines) + "\n"


def backend_pinned(pyproject: str, pins: Mapping[str, Pin]) -> str:
    """pyproject.toml whose build system asks for the backend in the version of the pins."""

    def pinned(found: re.Match[str]) -> str:
        pin = pins[simple(found[2])]
        return f'{found[1]}"{found[2]}=={pin.version}"]'

    text, count = re.subn(r'^(requires = \[)"([A-Za-z0-9._-]+)(?:==[^"]*)?"\]', pinned, pyproject, count=1, flags=re.MULTILINE)
    if not count:
        raise ValueError("pyproject.toml's build system is not one required package on one line")
    return text
