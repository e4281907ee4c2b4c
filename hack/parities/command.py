"""`hack/parity`: which cases, where, and what to print."""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hack.lib.progress import say
from hack.parities import report
from hack.parities.cases import SMOKE, Case, all_cases
from hack.parities.compare import flat, pairs
from hack.parities.stage import OURS, PEER, Play, play


def add_to(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("patterns", nargs="*", metavar="CASE", help="only cases whose name matches, such as 'plain-secret-*' (default: all)")
    add("--smoke", action="store_true", help="only a choice of named cases, which takes a minute")
    add("--seed", type=int, default=1, metavar="N", help="what the generated cases are drawn from (default: %(default)s)")
    add("--generated", type=_not_negative, default=60, metavar="N", help="how many are drawn (default: %(default)s)")
    add("--list", action="store_true", help="print the names of the cases and stop")
    add("--json", type=Path, metavar="FILE", help="write every difference here, intended or not")


def run(arguments: argparse.Namespace) -> int:
    cases = chosen(arguments)
    if arguments.list:
        print("\n".join(case.id for case in cases))
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-", ignore_cleanup_errors=True) as folder:
        peer, ours = (_turn(program, cases, Path(folder) / program) for program in (PEER, OURS))
    verdict = report.judge((pair, _fields(pair.peer, pair.ours)) for pair in pairs(cases, peer=peer, ours=ours))
    if arguments.json:
        named = [("unexplained", verdict.unexplained), *verdict.explained.items()]
        found = [{"intended": name, **asdict(gap)} for name, gaps in named for gap in gaps]
        arguments.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    print(report.table(verdict))
    say(f"took {time.monotonic() - began:.0f} s")
    if verdict.unexplained:
        print("\n" + report.complaints(verdict))
        return 1
    return 0


def chosen(arguments: argparse.Namespace) -> list[Case]:
    cases = all_cases(seed=arguments.seed, generated=arguments.generated)
    patterns: Sequence[str] = (*arguments.patterns, *(SMOKE if arguments.smoke else ()))
    for pattern in patterns:
        if not fnmatch.filter([case.id for case in cases], pattern):
            raise SystemExit(f"hack/parity: no case is called {pattern}; see hack/parity --list")
    return [case for case in cases if not patterns or any(fnmatch.fnmatch(case.id, pattern) for pattern in patterns)]


def _not_negative(word: str) -> int:
    number = int(word)
    if number < 0:
        raise argparse.ArgumentTypeError("must be at least 0")
    return number


def _turn(program: str, cases: Sequence[Case], work: Path) -> Play:
    work.mkdir()
    return play(program, cases, work, say=say)


def _fields(peer: object, ours: object) -> int:
    return len({path for tree in (peer, ours) for path, _ in flat(tree)})
