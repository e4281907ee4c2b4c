"""What `help COMMAND` and `COMMAND --help` print, made from the table of commands."""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final

from sidecar.commands.flags import Flag
from sidecar.commands.printing import PROGRAM, is_plugin, program, terminal_width
from sidecar.commands.table import BY_NAME, TABLE, Command, children, meant
from sidecar.config.errors import UsageError
from sidecar.config.help import HELP_WIDTH, help_text
from sidecar.config.table import FLAGS
from sidecar.config.words import closest, quoted

_NARROWEST: Final = 60
_COLUMN: Final = 34
_OTHERWISE_SAID: Final = {
    "kubeconfig": "Kubeconfig file; by default what KUBECONFIG names, else ~/.kube/config, else the pod's credentials."
}
"""Of flags of `run` that mean more in commands for people."""


def width() -> int:
    """That of the terminal, as far as lines of it are easy to read."""
    return max(_NARROWEST, min(HELP_WIDTH, terminal_width() or HELP_WIDTH))


def asked(words: Sequence[str]) -> str:
    """The answer to `help WORDS`. Raises UsageError."""
    if not words:
        return overview(width())
    command = meant(words)
    if command is None or (len(words) > 1 and command.name == words[0]):
        near = closest(" ".join(words), BY_NAME)
        raise UsageError([f"there is no command {quoted(' '.join(words))}" + (f"; did you mean {near}?" if near else "")])
    return overview(width()) if command.name == "run" else text_of(command, width())


def text(words: Sequence[str]) -> str:
    """The help of a line that wants it: of the command that it begins with."""
    command = meant(words)
    assert command is not None
    return text_of(command, width())


def overview(columns: int) -> str:
    """All commands, and the flags of `run`, except of kubectl, as whose plugin nobody runs a sidecar."""
    listed = [command for command in TABLE if not children(command.name) and not (is_plugin() and command.name == "run")]
    head = f"usage: {program()} COMMAND [flags]\n" if is_plugin() else help_text(PROGRAM, columns)
    return f"{head}\nCommands:\n{_rows(((command.synopsis, command.summary) for command in listed), columns)}"


def text_of(command: Command, columns: int) -> str:
    """Usage, what it is for, examples, flags, exit codes."""
    under = children(command.name)
    more = "" if command.name in ("version", "help", "completion") else " [flags]"
    parts = [
        f"usage: {program()} {command.synopsis}{more}",
        "\n".join(wrap(f"{command.summary[:1].upper()}{command.summary[1:]}. {command.about}".strip(), columns)),
        _section("Commands", ((child.synopsis, child.summary) for child in under), columns),
        _examples(command.examples),
        _section("Flags", map(_own, command.flags), columns),
        _section("Flags of run that matter here", map(_of_run, command.of_run), columns),
        f"`{program()} {command.name} {under[0].name.partition(' ')[2]} --help` shows the flags of one." if under else "",
        _section("Exit codes", command.exit_codes, columns),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _own(flag: Flag) -> tuple[str, str]:
    letter = f"-{flag.letter}, " if flag.letter else "    "
    return f"{letter}--{flag.name} {flag.value}".rstrip(), flag.help


def _of_run(name: str) -> tuple[str, str]:
    row = FLAGS[name]
    return f"    --{name} {row.kind.name}".rstrip(), _OTHERWISE_SAID.get(name, row.help)


def _section(head: str, rows: Iterable[tuple[str, str]], columns: int) -> str:
    listed = tuple(rows)
    return f"{head}:\n{_rows(listed, columns)}" if listed else ""


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    """Whole lines, to be copied."""
    return (
        "\n".join(["Examples:", *(f"  {program()} {line}{f'   # {what}' if what else ''}" for line, what in examples)]) if examples else ""
    )


def _rows(rows: Iterable[tuple[str, str]], columns: int) -> str:
    lines = []
    listed = tuple(rows)
    column = min(_COLUMN, 4 + max(len(name) for name, _ in listed))
    for name, what in listed:
        body = wrap(what, max(20, columns - column), break_on_hyphens=False) or [""]
        if len(name) + 4 > column:
            body.insert(0, "")
        lines += [f"{'  ' + name if not number else '':{column}}{line}".rstrip() for number, line in enumerate(body)]
    return "".join(f"{line}\n" for line in lines)
