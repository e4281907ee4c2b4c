"""The line of a command that has flags of its own and takes those of `run` besides, such as --kubeconfig.

Which word is a flag and which its value is told by `config.syntax`, as for `run`; argparse reads the values of the command's own flags.
"""

import argparse
from argparse import ArgumentError, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sidecar.commands.flags import Flag
from sidecar.commands.reach import Reach, configured
from sidecar.commands.table import flags_of, usage
from sidecar.config.errors import UsageError
from sidecar.config.kinds import BOOL, TEXT, Kind
from sidecar.config.parse import Parsed
from sidecar.config.syntax import Given, scan
from sidecar.config.table import KINDS, SHORTHANDS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """What was written."""

    own: Namespace
    """The command's own flags."""
    positional: tuple[str, ...]
    of_run: tuple[str, ...]
    """The flags of `run` in the order in which they stood, each as --name=value."""


class CommandParser(argparse.ArgumentParser):
    """`add_argument` is for the command's own flags. Words that are no flags may stand anywhere."""

    def __init__(self, usage: str, flags: Iterable[Flag] = ()) -> None:
        # `run` takes no abbreviations either. Help is the usage line: it has too many flags to be listed for each command.
        super().__init__(usage=usage, add_help=False, allow_abbrev=False, exit_on_error=False)
        self._usage = usage
        self._switches = set[str]()
        for flag in flags:
            if flag.kind is BOOL:
                self.add_switch(flag.name)
            else:
                letter = (f"-{flag.letter}",) if flag.letter else ()
                self.add_argument(*letter, f"--{flag.name}", default=flag.default, type=reads(flag.kind.read))

    def add_switch(self, name: str) -> None:
        """A flag of the command's own that is on if it stands there without a value."""
        self.add_argument(f"--{name}", default=False, type=reads(BOOL.read))
        self._switches.add(name)

    def read(self, words: Sequence[str]) -> Line | None:
        """None where help is wanted. Raises UsageError with all that is wrong, and the usage behind it."""
        # argparse itself would not read the words as pflag does: it takes no value that begins with a dash, looks for --help among
        # values, takes `-x y` for no flag, and stops at the first mistake.
        names, letters = self._own_flags()
        own_kinds: dict[str, Kind] = {name: BOOL if name in self._switches else TEXT for name in names}
        line = scan(words, {**KINDS, **own_kinds}, {**SHORTHANDS, **letters})
        if line.help:
            return None
        own, mistakes = self._read_own(one for one in line.given if one.flag in names)
        if line.mistakes or mistakes:
            raise UsageError([*line.mistakes, *mistakes, self._usage])
        return Line(own, line.positional, tuple(f"--{one.flag}={one.text}" for one in line.given if one.flag not in names))

    def _own_flags(self) -> tuple[frozenset[str], dict[str, str]]:
        """Their names, and the name for each letter."""
        options = [action.option_strings for action in self._actions]
        letters = {option[1]: strings[-1][2:] for strings in options for option in strings if not option.startswith("--")}
        return frozenset(strings[-1][2:] for strings in options), letters

    def _read_own(self, given: Iterable[Given]) -> tuple[Namespace, list[str]]:
        """One flag at a time, so that all mistakes are found. Of a flag that stands there twice the last one counts."""
        own, mistakes = self.parse_args([]), list[str]()
        for one in given:
            if one.text == "--":  # argparse before Python 3.13 loses such a value without a word; nothing is called so
                mistakes.append(f'--{one.flag}: "--" is not a value')
                continue
            try:
                self.parse_args([f"--{one.flag}={one.text}"], own)
            except ArgumentError as error:
                mistakes.append(f"--{one.flag}: {error.message}")
        return own, mistakes


def read_for_driver(words: Sequence[str], environ: Mapping[str, str], verb: str) -> tuple[Namespace, Parsed] | None:
    """The line of a command that is about one driver and runs beside none: its own flags, and the configuration.

    None where help is wanted. Raises UsageError and Refused.
    """
    line = CommandParser(usage(verb), flags_of(verb)).read(words)
    if line is None:
        return None
    parsed = configured(line.of_run, Reach.of(line.own), environ)
    if not line.own.driver or line.positional or parsed is None:
        raise UsageError([usage(verb)])
    return line.own, parsed


def reads(kind: Callable[[str], T]) -> Callable[[str], T]:
    """The same reader, as argparse wants it: it shows the text of no other error than its own."""

    def read(text: str) -> T:
        try:
            return kind(text)
        except UsageError as error:
            raise ArgumentTypeError("; ".join(error.messages)) from error

    return read
