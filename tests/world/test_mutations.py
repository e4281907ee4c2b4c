"""The real rooms broken on purpose: the worlds find every mutation within 200 seeds, and its seed finds it again."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.driver.faults import Fault
from hack.sim.world.invariants import LEAKED
from hack.sim.world.plan import Plan, PlannedEvent, plan_of
from hack.sim.world.world import Report, play
from tests.world.mutations import MUTATIONS, Mutation, begun_without_a_record

ROOT = Path(__file__).resolve().parents[2]
MOST = 200
# Where they were found before, so that the search need not begin at 0. A seed that no longer finds one costs time and nothing else.
FOUND_BEFORE = {
    "a new list removes nothing": 30,
    "a claim is not given back where there is no room": 17,
    "a node bids without looking for room": 6,
    "a creation that was begun is not written down": 13,
    "a call that killed its driver is made again at once": 3,
    "the guard is removed from the ownership write": 0,
    "the reflector drops an event now and then": 10,
    "a creation that may still be running is forgotten": 0,
    "a line that was left long ago is believed": 12,
    "a duplicate of a capacity object stays": 3,
    "another driver's capacity objects are taken for ours": 1,
    "a figure that is fresh again is still called stale": 11,
    "what is known of a class is kept for ever": 7,
    "failures are retried without back-off": 13,
}
VERY_BUSY = {"a node bids without looking for room"}


def find(mutation: Mutation) -> Report:
    seeds = sorted(range(MOST), key=lambda seed: seed != FOUND_BEFORE.get(mutation.name))
    for seed in seeds:
        report = play(plan_of(seed))
        if report.kinds & mutation.kinds:
            return report
    pytest.fail(f"{MOST} worlds did not find that {mutation.name}")


def _cases() -> list[object]:
    return [pytest.param(each, id=each.name, marks=[pytest.mark.slow] * (each.name in VERY_BUSY)) for each in MUTATIONS]


@pytest.mark.parametrize("mutation", _cases())
def test_it_is_found_and_found_again(mutation: Mutation, monkeypatch: pytest.MonkeyPatch):
    mutation.breaks(monkeypatch)
    found = find(mutation)
    assert play(plan_of(found.plan.seed)).transcript == found.transcript


def test_the_unbroken_rooms_pass_where_the_broken_ones_failed(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        MUTATIONS[0].breaks(patch)
        seed = find(MUTATIONS[0]).plan.seed
    assert play(plan_of(seed)).ok


def test_a_creation_that_is_begun_without_a_record_is_found(monkeypatch: pytest.MonkeyPatch):
    """Drawn worlds find it too, but rarely: the process has to die, and the claim to go, while the disk is full and the driver at work."""
    events = ((2.0, "disk full", "n0"), (4.0, "claim", "data"), (6.0, "kill", "n0"), (6.1, "delete", "data"), (20.0, "disk free", "n0"))
    planned = tuple(PlannedEvent(at, what, whom, 1, "late") for at, what, whom in events)
    plan = Plan(1, ("n0",), events=planned, faults=(("n0", Fault(method="CreateVolume", times=1, linger=6.0)),))
    assert play(plan).ok
    begun_without_a_record(monkeypatch)
    assert LEAKED in play(plan).kinds


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("sidecar", "csi_proto", "hack"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def fire(copy: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        script, *words = command.split()
        command = [sys.executable, str(copy / script), *words]
        return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.mark.slow
def test_the_printed_command_replays_what_was_found(copy: Path, fire: Callable[[str], subprocess.CompletedProcess[str]]):
    source = copy / "sidecar" / "ownership" / "selected_node_body.py"
    guarded = "    _annotations(obj)[names.SELECTED_NODE] = node\n"
    text = source.read_text()
    assert guarded in text
    source.write_text(text.replace(guarded, guarded + '    del obj["metadata"]["resourceVersion"]\n'))
    found = fire("hack/fire --seeds 10 --jobs 2")
    assert found.returncode == 1, found.stdout + found.stderr
    line = re.search(r"^  (hack/fire --seed \d+) +# (.*)$", found.stdout, re.MULTILINE)
    assert line, found.stdout
    again = fire(line[1])
    assert again.returncode == 1
    assert f"VIOLATION {line[2]}" in again.stdout


@pytest.mark.parametrize("words", ["--seeds 0", "--seeds -5", "--claims 0", "--claims -1", "--jobs 0"])
def test_fire_refuses_to_play_nothing(fire: Callable[[str], subprocess.CompletedProcess[str]], words: str):
    done = fire(f"hack/fire {words}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"argument {words.split()[0]}: must be at least 1" in done.stderr


def test_fire_tells_what_it_has_found_when_it_is_interrupted(fire: Callable[[str], subprocess.CompletedProcess[str]], copy: Path):
    """After a night nobody wants to have waited for nothing. The world that is played last interrupts it."""
    world = copy / "sidecar" / "simulation" / "drains" / "node_loss_world.py"
    world.write_text(
        "import os, signal\n"
        "from types import SimpleNamespace as Plan\n"
        "from collections import Counter\n"
        "def plan_of(seed, *, claims, without):\n"
        "    return Plan(seed=seed, troubles=('losses',))\n"
        "def play(plan):\n"
        "    if plan.seed == 2:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return Plan(plan=plan, counts=Counter(a=5), kinds=('lost',), violations=['on purpose'] * plan.seed, transcript='')\n"
    )
    done = fire("hack/fire --worlds node-loss --seeds 10 --jobs 1")
    assert done.returncode == 130
    assert done.stdout.startswith("2 worlds with 10 events") and "interrupted: 10 were asked for" in done.stdout.splitlines()[0]
    assert "violations: lost in 1\n  hack/fire --worlds node-loss --seed 1 " in done.stdout


def test_fire_is_content_with_sound_rooms(fire: Callable[[str], subprocess.CompletedProcess[str]]):
    done = fire("hack/fire --seeds 2 --jobs 1 --claims 4 --without kills")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 worlds" in done.stdout
    assert "violations: none" in done.stdout
