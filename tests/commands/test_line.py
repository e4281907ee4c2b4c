"""A command's own flags and those of `run` on one line, in the spellings that `run` takes."""

import pytest

from sidecar.commands.line import CommandParser, Line, reads
from sidecar.config.errors import UsageError
from sidecar.config.kinds import read_int

USAGE = "usage: it"


def read(*words: str) -> Line | None:
    parser = CommandParser(USAGE)
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("--driver", default="")
    parser.add_argument("--level", default=0, type=reads(read_int))
    return parser.read(words)


def line(*words: str) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    found = read(*words)
    assert found is not None
    return found.own.output, found.own.driver, found.positional, found.of_run


@pytest.mark.parametrize("words", [["--output=json"], ["--output", "json"], ["-o", "json"], ["-o=json"], ["-ojson"]])
def test_a_flag_of_the_commands_own_in_all_spellings(words: list[str]) -> None:
    assert line("a", *words, "b") == ("json", "", ("a", "b"), ())


@pytest.mark.parametrize(
    ("words", "of_run"),
    [
        (["--kubeconfig=k"], ("--kubeconfig=k",)),
        (["-v", "5"], ("--v=5",)),
        (["--dry-run"], ("--dry-run=true",)),
        (["--feature-gates=A=true,B=false", "--master=http://x?a=b"], ("--feature-gates=A=true,B=false", "--master=http://x?a=b")),
        (["--timeout=1s", "--timeout=2s"], ("--timeout=1s", "--timeout=2s")),
        (["--kubeconfig", "--dry-run"], ("--kubeconfig=--dry-run",)),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_flags_of_run_are_handed_on_in_their_order(words: list[str], of_run: tuple[str, ...]) -> None:
    assert line("a", *words, "b", "--driver=d") == ("", "d", ("a", "b"), of_run)


def test_of_a_flag_that_stands_there_twice_the_last_one_counts() -> None:
    assert line("--driver=a", "--driver", "b")[1] == "b"


def test_what_stands_behind_two_dashes_is_no_flag() -> None:
    assert line("a", "--", "--driver=d", "-x") == ("", "", ("a", "--driver=d", "-x"), ())


@pytest.mark.parametrize("value", ["-x", "--output", "--help", "-h", "a b", "-1", "", "=x"])
@pytest.mark.parametrize("separate", [True, False])
def test_the_next_word_is_the_value_whatever_it_looks_like(value: str, separate: bool) -> None:
    assert line("a", *(["--driver", value] if separate else [f"--driver={value}"]), "b") == ("", value, ("a", "b"), ())


def test_two_dashes_are_no_value_of_an_own_flag() -> None:
    with pytest.raises(UsageError, match="--driver"):
        read("--driver", "--")


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["a", "--nope", "--help"], ["--driver", "d", "-h"], ["-hx"], ["-help"], ["-http-endpoint=x"]]
)
def test_help_is_asked_for_whatever_else_stands_there(words: list[str]) -> None:
    assert read(*words) is None


@pytest.mark.parametrize(
    ("words", "on"), [([], False), (["--yes"], True), (["--yes=true"], True), (["--yes=false"], False), (["--yes", "false"], True)]
)
def test_a_switch_takes_no_word_behind_it(words: list[str], on: bool) -> None:
    parser = CommandParser(USAGE)
    parser.add_switch("yes")
    found = parser.read(["a", *words])
    assert found is not None and found.own.yes is on


def test_a_switch_that_is_neither_on_nor_off_is_a_mistake() -> None:
    parser = CommandParser(USAGE)
    parser.add_switch("yes")
    with pytest.raises(UsageError, match=r"maybe.* is not a boolean"):
        parser.read(["--yes=maybe"])
