"""Takes a command line apart as pflag does: which word is a flag, which is its value. Which flags exist is in `table`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.config.errors import UsageError
from sidecar.config.kinds import Kind
from sidecar.config.words import closest


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as it stood on the line."""

    flag: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A command line taken apart; values are still text."""

    given: tuple[Given, ...]
    positional: tuple[str, ...]
    mistakes: tuple[str, ...]
    help: bool  # pflag stops at the first --help: words behind it are not read


def named(word: str, kinds: Mapping[str, Kind], shorthands: Mapping[str, str]) -> tuple[str, str | None]:
    """The flag that a word names, and the value if the word carries one."""
    if word.startswith("--"):
        name, equals, behind = word[2:].partition("=")
        if not name or name.startswith("-"):
            raise UsageError([f"{word}: not a flag; write --name=value"])
        if name != "help" and name not in kinds:
            meant = closest(name, kinds)
            raise UsageError([f"{word}: unknown flag; " + (f"did you mean --{meant}?" if meant else "--help lists all flags")])
        return name, behind if equals else None
    letter, behind = word[1], word[2:]
    if letter not in shorthands:
        meant = closest(word[1:].partition("=")[0], kinds) if behind else ""
        hint = f"long flags take two dashes, did you mean --{meant}?" if meant else "--help lists all flags"
        raise UsageError([f"{word}: unknown shorthand flag -{letter}; {hint}"])
    # -v5, -v=5, or -v whose value is the next word. No two of our shorthands can be combined.
    return shorthands[letter], behind[1:] if len(behind) > 1 and behind.startswith("=") else behind or None


def _value(word: str, kind: Kind, following: Iterator[str]) -> str:
    text = kind.bare if kind.bare is not None else next(following, None)
    if text is None:
        raise UsageError([f"{word}: a value is missing; write {word}=<{kind.name}>"])
    return text


def scan(argv: Sequence[str], kinds: Mapping[str, Kind], shorthands: Mapping[str, str]) -> Line:
    """Unlike pflag it goes on after a mistake, so that all mistakes are found at once."""
    given: list[Given] = []
    positional: list[str] = []
    mistakes: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            positional.extend(words)
            break
        if word == "-" or not word.startswith("-"):
            positional.append(word)
            continue
        try:
            name, text = named(word, kinds, shorthands)
            if name == "help":
                return Line(tuple(given), tuple(positional), tuple(mistakes), help=True)
            given.append(Given(name, text if text is not None else _value(word, kinds[name], words)))
        except UsageError as mistake:
            mistakes.extend(mistake.messages)
    return Line(tuple(given), tuple(positional), tuple(mistakes), help=False)
