"""The same seed is the same world: in one process, and in another one whose hashes fall differently."""

import os
import subprocess
import sys
from pathlib import Path

from hack.sim.world.plan import TROUBLES, plan_of
from hack.sim.world.world import play

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(3)
PLAY = """
import hashlib
from hack.sim.world.plan import plan_of
from hack.sim.world.world import play
for seed in range(3):
    print(hashlib.sha256(play(plan_of(seed)).transcript.encode()).hexdigest())
"""


def played_elsewhere(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", PLAY], env=environment, capture_output=True, text=True, check=True).stdout


def test_twice_in_one_process():
    for seed in SEEDS:
        assert play(plan_of(seed)).transcript == play(plan_of(seed)).transcript


def test_in_processes_with_other_hashes():
    assert played_elsewhere("1") == played_elsewhere("2")


def test_other_seeds_are_other_worlds():
    assert len({play(plan_of(seed)).transcript for seed in SEEDS}) == len(SEEDS)


def test_leaving_a_trouble_out_changes_nothing_about_the_others():
    for seed in range(50):
        plan = plan_of(seed)
        if {"kills", "cuts"} <= set(plan.troubles):
            calmer = plan_of(seed, without=("kills",))
            assert calmer.troubles == tuple(kind for kind in plan.troubles if kind != "kills")
            assert calmer.events == tuple(item for item in plan.events if item.what != "kill")
            return
    raise AssertionError("no such seed")


def test_every_trouble_is_drawn_by_some_of_the_first_seeds():
    assert {kind for seed in range(40) for kind in plan_of(seed).troubles} == set(TROUBLES)
