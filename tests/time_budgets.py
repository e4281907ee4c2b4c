"""Measures what each test file costs and prints where the time goes. With `--budgets` one that costs three times its budget fails the run.

Two figures of each file are compared, and neither grows because others use the machine: the CPU time of the tests and of what
they start, and the time in which the test process had nothing to do, which on a busy machine is divided by how much longer
this process took for its own work. Budgets are in `time_budgets.toml`; `--renew-budgets` writes what the run used into it.
Another machine may need more CPU time for the same work: it is divided by the pace that the long files of the run show.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).with_name("time_budgets.toml")
TIMES_ALLOWED = 3.0
"""Two CPUs of a shared machine may be the two threads of one core: beside a busy neighbour the same work takes twice the CPU time."""
SLACK = {"cpu": 5.0, "waits": 10.0}
"""Seconds on top: what is small may double by chance."""
DEFAULT = {"cpu": 1.0, "waits": 1.0}
"""The budget of a file that is not in the table."""
LONG = 10.0
"""Seconds of CPU. Files with such a budget do the same work in each run, so together they show how slow the machine is."""
FEWEST_LONG = 5
SLOWEST = 2.0
"""How slow a machine may be found. Beyond it, the program itself is suspected."""
SHOWN = 15
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Spent:
    cpu: float = 0.0
    wall: float = 0.0
    ran: float = 0.0
    starved: float = 0.0
    """`ran` and `starved`: the test process alone, on a CPU and waiting for one."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cpu + other.cpu, self.wall + other.wall, self.ran + other.ran, self.starved + other.starved)

    def since(self, before: Spent) -> Spent:
        # What children of children used is lost when nobody waits for them: then a sum may shrink.
        return Spent(max(self.cpu - before.cpu, 0.0), self.wall - before.wall, self.ran - before.ran, self.starved - before.starved)

    @property
    def waits(self) -> float:
        """Seconds in which the test process had nothing to do: it waited for a timer or for a program it started."""
        return max(self.wall - self.ran - self.starved, 0.0)

    @property
    def stretch(self) -> float:
        """How many times as long the machine took because others wanted its CPUs too."""
        return 1.0 + self.starved / self.ran if self.ran else 1.0

    @staticmethod
    def until_now() -> Spent:
        ran, starved = _scheduled()
        return Spent(sum(os.times()[:4]) + _cpu_of_living_children(), time.monotonic(), ran, starved)


@functools.cache
def budgets() -> dict[tuple[str, str], float]:
    """Seconds by tier and file."""
    table = tomllib.loads(TABLE.read_text())
    return {(tier, file): sum(budget.values()) for tier, files in table.items() for file, budget in files.items()}


class Stopwatch:
    """In the process that runs tests: the last report of each test carries what was spent since that of the test before it."""

    def __init__(self) -> None:
        self._last = Spent.until_now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        if report.when != "teardown":
            return report
        now = Spent.until_now()
        report.spent = list(vars(now.since(self._last)).values())
        report.tier = "real" if item.get_closest_marker("real_api") else "unit"
        self._last = now
        return report


class Bookkeeper:
    """In the process that prints: adds up by file and compares."""

    def __init__(self, config: pytest.Config) -> None:
        self._enforced = bool(config.getoption("--budgets"))
        self._renews = bool(config.getoption("--renew-budgets"))
        self._spent: dict[tuple[str, str], Spent] = defaultdict(Spent)
        self._budgets: dict[str, dict[str, dict[str, float]]] = tomllib.loads(TABLE.read_text())
        self._excesses: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if hasattr(report, "spent"):
            self._spent[report.tier, report.nodeid.partition("::")[0]] += Spent(*report.spent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._renews:
            self._renew()
        elif self._enforced:
            self._excesses = self._compared()
            if self._excesses and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = self._total()
        if not self._enforced and total.wall < 60.0:
            return
        terminalreporter.section("where the time goes")
        shared = f"the machine is shared: all took {total.stretch:.1f} times as long"
        slow = f"it is slow: long files used {self._pace():.1f} times their CPU" if self._pace() > 1.0 else "it is no slower than usual"
        terminalreporter.write_line(f"{'wall s':>8} {'CPU s':>8} {'waits s':>8}   ({shared}; {slow})")
        ordered = sorted(self._spent.items(), key=lambda item: -item[1].cpu - item[1].waits)
        for (tier, file), spent in [*ordered[:SHOWN], (("all", f"{len(ordered)} files"), total)]:
            terminalreporter.write_line(f"{spent.wall:8.1f} {spent.cpu:8.1f} {spent.waits:8.1f}   {tier} {file}")
        for excess in self._excesses:
            terminalreporter.write_line(f"OVER BUDGET: {excess}: make it faster, or change {TABLE.name} and say why", red=True)

    def _total(self) -> Spent:
        return sum(self._spent.values(), Spent())

    def _figures(self, spent: Spent) -> dict[str, float]:
        # A file may have run while the machine was busier than on the whole, and so did the programs that it waited for.
        return {"cpu": spent.cpu, "waits": spent.waits / max(self._total().stretch, spent.stretch)}

    def _pace(self) -> float:
        """How many times the CPU time of its budget the usual long file took; 1 where too few of them ran to tell."""
        budgets = {(tier, file): budget["cpu"] for tier, files in self._budgets.items() for file, budget in files.items()}
        shares = [spent.cpu / budgets[key] for key, spent in self._spent.items() if budgets.get(key, 0.0) >= LONG]
        return min(max(statistics.median(shares), 1.0), SLOWEST) if len(shares) >= FEWEST_LONG else 1.0

    def _compared(self) -> list[str]:
        found = []
        paces = {"cpu": self._pace(), "waits": 1.0}
        for (tier, file), spent in self._spent.items():
            budget = self._budgets.get(tier, {}).get(file, DEFAULT)
            for kind, used in self._figures(spent).items():
                if used / paces[kind] > TIMES_ALLOWED * budget[kind] + SLACK[kind]:
                    found.append(f"{file} ({tier}) {kind} {used:.1f} s, its budget is {budget[kind]:g} s")
        return found

    def _renew(self) -> None:
        """Files that were run get the figures of this run; the others keep theirs, and what is within the default is not listed."""
        for (tier, file), spent in self._spent.items():
            figures = {kind: float(f"{used:.2g}") for kind, used in self._figures(spent).items()}
            self._budgets.setdefault(tier, {})[file] = {kind: max(used, DEFAULT[kind]) for kind, used in figures.items()}
        lines = ["# Seconds that each test file may take; three times as many fail. Renew: pytest --renew-budgets on a quiet machine."]
        for tier, files in sorted(self._budgets.items()):
            lines += ["", f"[{tier}]"]
            for file, budget in sorted(files.items()):
                if budget != DEFAULT and Path(file).exists():
                    lines.append(f'"{file}" = {{cpu = {budget["cpu"]:g}, waits = {budget["waits"]:g}}}')
        TABLE.write_text("\n".join(lines) + "\n")


def _scheduled() -> tuple[float, float]:
    """Seconds that the main thread ran and that it waited for a CPU; zeros where the kernel does not say."""
    try:
        ran, waited, _ = Path("/proc/self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def _cpu_of_living_children() -> float:
    """Servers live on while tests come and go, and nobody has waited for them yet: they and what they start are looked up."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0.0  # as for most unit tests, which need not pay for a walk through all processes
    used: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        process = int(file.parent.name)
        used[process] = sum(map(int, fields[11:15])) / _TICKS
        children[int(fields[1])].append(process)
    ours = children[os.getpid()]
    for process in ours:  # which grows meanwhile
        ours += children[process]
    return sum(used[process] for process in ours)
