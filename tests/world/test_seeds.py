"""Worlds by seed, in which everything goes wrong that can: nothing is leaked, doubled or lost, no verdict is True while data would go,
never two replicas are away by our doing, nothing of another machine is touched, and nothing is left at rest.

`hack/fire` plays any number of them. How many are played here: `tests/harness/seeds.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.world.plan import IMMEDIATE_CLASS, Plan, PlannedEvent
from hack.sim.world.themes import plan_of
from hack.sim.world.world import play
from sidecar.kube.api import VOLUMES
from tests.harness.seeds import seeds
from tests.world.playing import played

SHORT = {"claims": 8, "drains": 6, "emptying": 2, "reprovision": 2, "node-loss": 2, "maintenance": 2, "failover": 3}
FOUND_SOMETHING_ONCE = (pytest.param("drains", 52, id="a drain that nobody announces may be a reboot, which a volume's policy forbids"),)
ROOT = Path(__file__).resolve().parents[2]
PLAY = """
import hashlib
from hack.sim.world.themes import THEMES, plan_of
from hack.sim.world.world import play
for theme in THEMES:
    print(hashlib.sha256(play(plan_of(0, theme)).transcript.encode()).hexdigest())
"""


@pytest.mark.parametrize(("theme", "seed"), [(theme, seed) for theme, short in SHORT.items() for seed in seeds(short)])
def test_all_of_it_holds(theme: str, seed: int) -> None:
    report = play(plan_of(seed, theme))
    assert report.ok, report


@pytest.mark.parametrize(("theme", "seed"), FOUND_SOMETHING_ONCE)
def test_what_was_found_once_stays_mended(theme: str, seed: int) -> None:
    report = play(plan_of(seed, theme))
    assert report.ok, report


def test_the_same_seed_is_the_same_world_in_processes_with_other_hashes() -> None:
    def elsewhere(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, "-c", PLAY], env=environment, capture_output=True, text=True, check=True).stdout

    told = elsewhere("1")
    assert told == elsewhere("2")
    assert len(set(told.split())) == len(SHORT)


def test_thirty_nodes_make_each_claim_once_and_write_little() -> None:
    nodes, claims = tuple(f"n{number}" for number in range(30)), 60
    events = tuple(PlannedEvent(30.0 + number / 10, "claim", f"data-{number}", 1, IMMEDIATE_CLASS) for number in range(claims))
    report, world = played(Plan(1, nodes, events=events, settle=120.0, rest=60.0))
    assert report.ok, report
    made = [volume.name for node in world.nodes.values() for volume in node.driver.volumes()]
    bound = [item for item in world.cluster.store.all_of(VOLUMES) if item["metadata"]["name"] in made]
    assert len(made) == len(set(made)) == len(bound) == claims
    taken = [line for line in world.transcript.lines if " update persistentvolumeclaims " in line]
    assert len(taken) <= 3 * claims, "how often nodes write a claim in a race, won or lost"
