"""`hack/bench report`: the last result of each measurement as one HTML page: figures, plots, when, where and of what version.

Each other command of hack/bench keeps its last result, whatever its --json says. The page needs no network and no script.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hack.benchmarks import results
from hack.benchmarks.report.page import page
from hack.lib.failure import Failure
from hack.lib.progress import say


def add_to(commands: Any) -> None:
    parser = commands.add_parser("report", help="the last results of all of these as one HTML page", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="where to write it (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    found = results.last()
    try:
        if not found:
            raise Failure(f"nothing has been measured on this machine: {results.folder()} holds no result; hack/bench --help")
        arguments.out.write_text(page(found))
    except (Failure, OSError) as error:
        say(f"error: {error}")
        return 1
    print(arguments.out.absolute())
    return 0
