"""The judge of `hack/bench hostile`: it must see a program that died, that took too much, that fell silent."""

from __future__ import annotations

import http.server
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hack.benchmarks.hostile.attacks import ATTACKS
from hack.benchmarks.hostile.cage import a_cage
from hack.benchmarks.hostile.command import Result, faults_of, table
from hack.benchmarks.hostile.objects import FILLS, fill
from hack.benchmarks.hostile.watcher import Figures, Watcher
from hack.benchmarks.stalls import Stalls
from hack.lib.patience import deadline
from hack.lib.programs import Process
from hack.sim.cluster import Cluster

README = Path(__file__).parents[2] / "hack/benchmarks/hostile/README.md"

STALLS = Stalls({0.05: 1000.0, math.inf: 1000.0}, longest=0.02, wall=0.4)
GOOD = Result("crowd", True, Figures(peak=60.0, files=24, healthz=0.1, answered=100), STALLS, [], 0.5)


def test_a_run_within_its_bounds_has_no_faults() -> None:
    assert list(faults_of(GOOD)) == []
    assert "| crowd | yes | 60.0 | 20 | 0.10 | 0 | 24 | 0.5 slowest of three claims of another namespace, s |" in table([GOOD])


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (replace(GOOD, endings=["killed by signal 9"]), "the program killed by signal 9"),
        (replace(GOOD, figures=replace(GOOD.figures, peak=127.0)), "127 MiB at its peak, allowed are 110"),
        (replace(GOOD, figures=replace(GOOD.figures, files=1100)), "1100 open files, allowed are 100"),
        (replace(GOOD, figures=replace(GOOD.figures, healthz=9.0)), "9 s for /healthz, allowed are 1"),
        (replace(GOOD, figures=replace(GOOD.figures, unanswered=1)), "1 requests for /healthz without an answer, allowed are 0"),
        (replace(GOOD, figures=replace(GOOD.figures, answered=0)), "/healthz never answered"),
        (replace(GOOD, stalls=replace(STALLS, longest=0.3)), "0.3 s in which the event loop stood still, allowed are 0.25"),
        (replace(GOOD, stalls=Stalls()), "the program has told no stalls"),
        (replace(GOOD, own=60.0), "60.0 slowest of three claims of another namespace, s, allowed are 5"),
        (replace(GOOD, own=None), "None slowest of three claims of another namespace, s, allowed are 5"),
    ],
)
def test_each_bound_is_judged(result: Result, fault: str) -> None:
    assert list(faults_of(result)) == [fault]


def test_every_attack_is_fair_to_the_api_server() -> None:
    """What tenants write must be what a real one would take: here the simulated one judges."""
    for attack in ATTACKS.values():
        cluster = Cluster(clock=time.time, rng=lambda: 0.5)
        fill(cluster, attack.fill if attack.fill in FILLS else "nothing", min(attack.count, 2))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups here")
def test_a_cage_ends_what_takes_too_much_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with a_cage("test", mebibytes=32) as cage:
        if cage is None:
            pytest.skip("no cgroup can be made here")
        process = Process("greedy", [sys.executable, "-c", "bytearray(64 << 20); print('alive')"], tmp_path)
        cage.put(process)
        with process:
            assert process.wait(20) == -9
    assert not cage.folder.exists()


@pytest.fixture
def slow_page() -> Iterator[int]:
    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.2)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:  # type: ignore[override]
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_watcher_sees_slow_answers_memory_and_files(slow_page: int) -> None:
    script = "import os, time; files = [open(os.devnull) for _ in range(40)]; some = b'x' * (50 << 20); time.sleep(30)"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        with Watcher(child.pid, slow_page) as watcher:
            end = deadline(10)
            found = watcher.figures
            while time.monotonic() < end and not (found.answered and found.files >= 40 and found.peak > 40):
                time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    figures = watcher.figures
    assert (figures.healthz >= 0.2, figures.files >= 40, figures.peak > 40, figures.unanswered) == (True, True, True, 0)
