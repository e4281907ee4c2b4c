"""The line is taken apart as by pflag, and all that is wrong with it is found."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.errors import UsageError
from sidecar.config.kinds import BOOL, DURATION, FLOAT, FLOAT32, INT, LEVEL, TEXT, UINT
from sidecar.config.syntax import Given, scan

KINDS = {
    "csi-address": TEXT,
    "timeout": DURATION,
    "strict-topology": BOOL,
    "threads": UINT,
    "v": LEVEL,
    "level": INT,
    "qps": FLOAT,
    "small": FLOAT32,
    "help": BOOL,
}
SHORT = {"v": "v", "h": "help"}


def read(*argv: str):
    return scan(argv, KINDS, SHORT)


@pytest.mark.parametrize("argv", [["--timeout=5s"], ["--timeout", "5s"]])
def test_a_value_stands_behind_an_equals_sign_or_in_the_next_word(argv):
    assert read(*argv).given == (Given("timeout", "5s"),)


def test_only_the_first_equals_sign_separates():
    assert read("--csi-address=a=b").given == (Given("csi-address", "a=b"),)


def test_an_empty_value_is_a_value():
    assert read("--csi-address=").given == (Given("csi-address", ""),)


@pytest.mark.parametrize("argv", [["-v=5"], ["-v", "5"], ["-v5"], ["--v=5"], ["--v", "5"]])
def test_the_level_in_all_its_spellings(argv):
    assert read(*argv).given == (Given("v", "5"),)


def test_a_boolean_never_eats_the_next_word():
    line = read("--strict-topology", "false")
    assert line.given == (Given("strict-topology", "true"),)
    assert line.positional == ("false",)


def test_a_flag_that_needs_a_value_eats_even_what_looks_like_a_flag():
    assert read("--csi-address", "--timeout=5s").given == (Given("csi-address", "--timeout=5s"),)
    assert read("--csi-address", "--").given == (Given("csi-address", "--"),)


def test_two_dashes_end_the_flags():
    line = read("a", "--timeout=1s", "-", "--", "--timeout=2s", "-x")
    assert line.given == (Given("timeout", "1s"),)
    assert line.positional == ("a", "-", "--timeout=2s", "-x")
    assert not line.mistakes


@pytest.mark.parametrize("argv", [["--timeout"], ["-v"]])
def test_a_missing_value_is_a_mistake(argv):
    (mistake,) = read(*argv).mistakes
    assert mistake.startswith(f"{argv[0]}: a value is missing")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--tiemout=5s", "did you mean --timeout?"),
        ("--csi_address=/x", "did you mean --csi-address?"),
        ("--Strict-Topology", "did you mean --strict-topology?"),
        ("--zzzzzzzzzzzz", "--help lists all flags"),
        ("-csi-address=/x", "long flags take two dashes, did you mean --csi-address?"),
        ("-x", "--help lists all flags"),
        ("---timeout=5s", "write --name=value"),
        ("--=5s", "write --name=value"),
    ],
)
def test_what_is_not_a_flag_names_the_closest_one(word, hint):
    (mistake,) = read(word).mistakes
    assert mistake.startswith(f"{word}: ")
    assert mistake.endswith(hint)


def test_all_mistakes_are_found():
    assert len(read("--nope", "--timeout=5s", "-x", "--threads").mistakes) == 3


@pytest.mark.parametrize("word", ["--help", "-h", "--help=false"])
def test_nothing_behind_a_call_for_help_is_looked_at(word):
    line = read("--timeout=5s", word, "--nope")
    assert line.help
    assert line.given == (Given("timeout", "5s"),)
    assert not line.mistakes


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--", "-", "-v", "--timeout", "--strict-topology=", "-h", "--help"])))
def test_any_line_can_be_taken_apart(argv):
    line = scan(argv, KINDS, SHORT)
    assert all(one.flag in KINDS for one in line.given)


def test_messages_of_a_usage_error_are_its_text():
    error = UsageError(["first", "second"])
    assert (error.messages, error.exit_code) == (("first", "second"), 2)
    assert re.fullmatch("first\nsecond", str(error))
