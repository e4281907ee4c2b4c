"""Reads a command line and the environment into a `Config`.

`parse(argv, environ)` returns Parsed, ShowHelp or ShowVersion. It raises UsageError (exit 2) when the line cannot be read and Refused
(exit 1) when it can be read but could never work. Whatever external-provisioner accepts is accepted: what has no effect here is ignored
with a warning, so that its manifests start unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from sidecar.config.config import Config
from sidecar.config.consistency import contradictions, settle
from sidecar.config.errors import Refused, UsageError
from sidecar.config.syntax import Given, scan
from sidecar.config.table import FLAGS, KINDS, SHORTHANDS, TABLE, Row
from sidecar.config.words import quoted


@dataclass(frozen=True, slots=True)
class Parsed:
    config: Config
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowHelp:
    """--help or -h: print help_text() and end with 0. As with pflag, words behind it are not read."""


@dataclass(frozen=True, slots=True)
class ShowVersion:
    """--version: print name and version and end with 0, even if the configuration could not work."""


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Parsed | ShowHelp | ShowVersion:
    """`argv` without the program's name."""
    line = scan(argv, KINDS, SHORTHANDS)
    values, warnings, mistakes = _read_given(line.given)
    if line.mistakes or mistakes:
        raise UsageError([*line.mistakes, *mistakes])
    if line.help:
        return ShowHelp()
    if values.get("version"):
        return ShowVersion()
    warnings += [f"{quoted(word)}: ignored, this program takes no arguments besides flags" for word in line.positional]
    origins = {row.name: "flag" if row.name in values else "default" for row in TABLE if row.field}
    warnings += _read_environment(environ, values, origins)
    by_field = {row.field: values.get(row.name, row.default) for row in TABLE if row.field}
    faults = list(chain.from_iterable(_faults_of(row, by_field[row.field]) for row in TABLE if row.field))
    warnings += settle(by_field)
    gates_named = frozenset(name for name, _ in values.get("feature-gates", ()))
    config = Config(**by_field, gates_named=gates_named, origins=MappingProxyType(origins))
    faults += contradictions(config)
    if faults:
        raise Refused(faults)
    return Parsed(config, tuple(warnings))


def _read_given(given: Iterable[Given]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Values by flag name (the last occurrence wins), warnings (one for each ignored flag), and mistakes."""
    values: dict[str, Any] = {}
    warnings: dict[str, str] = {}
    mistakes: list[str] = []
    for one in given:
        flag, row = one.flag, FLAGS[one.flag]
        malformed: tuple[str, ...] = ()
        try:
            value = row.kind.read(one.text)
            values[flag] = values.get(flag, ()) + value if row.kind.merges else value
        except UsageError as mistake:
            malformed = mistake.messages
        if row.ignored:
            # Nobody uses the value, so a malformed one is no reason not to start.
            warnings[flag] = f"{_spelled(row)}: accepted and ignored: {'; '.join([row.help, *malformed])}"
        else:
            mistakes += [f"{_spelled(row)}: {message}" for message in malformed]
    if values.get("metrics-address"):
        warnings["metrics-address"] = "--metrics-address: deprecated, use --http-endpoint"
    return values, list(warnings.values()), mistakes


def _read_environment(environ: Mapping[str, str], values: dict[str, Any], origins: dict[str, str]) -> list[str]:
    """Adds to `values` and `origins` what the environment sets. An empty variable counts as unset, and so does an empty flag beside one."""
    warnings = []
    for row in TABLE:
        text = environ.get(row.env, "") if row.env else ""
        if not text:
            continue
        if given := values.get(row.name):
            if given != text:
                warnings.append(f"{row.env}={text}: not used, because --{row.name}={given} is given; external-provisioner would use it")
            continue
        values[row.name] = text
        origins[row.name] = f"env {row.env}"
    return warnings


def _spelled(row: Row) -> str:
    return f"-{row.shorthand}" if row.shorthand else f"--{row.name}"


def _faults_of(row: Row, value: Any) -> list[str]:
    fault = row.check(value) if row.check else ""
    return [f"--{row.name}={row.kind.show(value)}: {fault}"] if fault else []
