"""Each command says how it is used, with examples that can be read, from the table that its parser reads."""

import pytest

from sidecar import cli
from sidecar.commands import help
from sidecar.commands.explain.question import read_question
from sidecar.commands.line import CommandParser
from sidecar.commands.printing import PLUGIN, PROGRAM
from sidecar.commands.table import TABLE, Command, children, flags_of, usage
from sidecar.config.table import FLAGS

FOR_PEOPLE = [command for command in TABLE if command.flags]
EXAMPLES = [line for command in TABLE if command.verb in {one.verb for one in FOR_PEOPLE} for line, _ in command.examples]


@pytest.mark.parametrize("command", FOR_PEOPLE, ids=lambda command: command.name)
def test_help_has_usage_examples_flags_and_exit_codes(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ([*command.name.split(), "--help"], ["help", *command.name.split()], [*command.name.split(), "--nope", "-h"]):
        assert cli.main(line) == 0
        out = capsys.readouterr().out
        assert out == help.text_of(command, 120)
    assert out.startswith(f"usage: {PROGRAM} {command.name} ")
    assert "\nExamples:\n" in out and "\nExit codes:\n" in out
    for name in (*(flag.name for flag in command.flags), *command.of_run):
        assert f"--{name}" in out


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_can_be_read(line: str) -> None:
    verb, *words = line.partition(" && ")[0].partition(" > ")[0].split()
    read = CommandParser(usage(verb), flags_of(verb)).read(words)
    assert read is not None
    if verb == "explain":
        assert read_question(words)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl calls it."""
    monkeypatch.setattr("sys.argv", ["/somewhere/kubectl-csi_node"])


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]], ids=str)
@pytest.mark.usefixtures("plugin")
def test_kubectls_plugin_shows_commands_and_starts_no_sidecar(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: {PLUGIN} COMMAND [flags]\n\nCommands:\n  check ")
    assert "--node-deployment" not in out and "[run]" not in out


@pytest.mark.parametrize("words", [["help"], ["help", "run"], ["--help"], ["run", "--help"]], ids=str)
def test_help_about_all_has_all_commands_and_all_flags_of_run(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert all(f"--{name}" in out for name in FLAGS)
    assert all(command.synopsis in out for command in TABLE if not children(command.name))


def test_a_line_that_cannot_be_read_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["label", "--drvr=d"]) == 2
    assert "Run `csi-node-sidecar label --help` for its flags." in capsys.readouterr().err
