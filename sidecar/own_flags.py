"""The line of a command that has flags of its own besides those of `run`: which are whose. One reading of words for all commands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.config import KINDS, SHORTHANDS
from sidecar.flags import Given, Kind, UsageError, scan


@dataclass(frozen=True, slots=True)
class Divided:
    """What belongs to the command, and what `run` would read."""

    own: Mapping[str, Any]
    positional: tuple[str, ...]
    of_run: tuple[str, ...]
    help: bool


def divide(words: Sequence[str], own: Mapping[str, Kind], shorthands: Mapping[str, str], usage: str) -> Divided:
    """Of a flag of the command's own that stands there twice the last one counts. What is wrong is said before `usage`."""
    line = scan(words, {**KINDS, **own}, {**SHORTHANDS, **shorthands})
    values, mistakes = _read([one for one in line.given if one.flag in own], own)
    if not line.help and (line.mistakes or mistakes):
        raise UsageError([*line.mistakes, *mistakes, usage])
    of_run = tuple(f"--{one.flag}={one.text}" for one in line.given if one.flag not in own)
    return Divided(values, line.positional, of_run, line.help)


def _read(given: Iterable[Given], kinds: Mapping[str, Kind]) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for one in given:
        try:
            values[one.flag] = kinds[one.flag].read(one.text)
        except UsageError as mistake:
            mistakes += [f"--{one.flag}: {message}" for message in mistake.messages]
    return values, mistakes
