"""What --help prints, and that it needs nothing else to be right."""

import re

from sidecar.config.help import help_text
from sidecar.config.parse import Parsed, ShowHelp, ShowVersion, parse
from sidecar.config.table import TABLE
from tests.harness.config import mistakes, parsed


def test_help_and_version_need_nothing_else_to_be_right():
    assert parse(["--help"], {}) == ShowHelp()
    assert parse(["-h", "--nope"], {}) == ShowHelp()
    assert parse(["--version", "--timeout=0", "--volume-name-prefix="], {}) == ShowVersion()
    assert isinstance(parsed("--version=false"), Parsed)
    assert mistakes("--nope", "--help")
    assert mistakes("--version", "--nope")


def test_help_lists_every_flag_and_variable_with_its_default_on_120_columns():
    text = help_text("csi-node-sidecar")
    assert max(map(len, text.splitlines())) <= 120
    flat = " ".join(text.split())
    for row in TABLE:
        assert (f"--{row.name} " if row.is_flag else f" {row.name} ") in flat
    assert re.search(r"--timeout duration +Limit .* \(default 10s\)", text)
    assert re.search(r'--csi-address string .* \(default "/run/csi/socket"\)', text)
    assert re.search(r"-v, --v Level ", text)
    assert re.search(r"-h, --help ", text)
    assert "(default false)" not in text
