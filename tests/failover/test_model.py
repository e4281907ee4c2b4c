"""The model of replicated storage: whatever happens to links and power, one writer at most, and nothing acknowledged is lost."""

from __future__ import annotations

import random

import pytest

from hack.sim.drbd import Storage

SHAPES = {"two and a tie-breaker": (("a", "b"), ("c",)), "three": (("a", "b", "c"), ()), "two and two without": (("a", "b"), ("c", "d"))}


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens_there_is_one_writer_and_its_log_is_unbroken(shape: str) -> None:
    disks, diskless = SHAPES[shape]
    nodes, promoted, written, stuck = [*disks, *diskless], 0, 0, 0
    for seed in range(60):
        dice, now, acknowledged = random.Random(f"{shape} {seed}"), [0.0], list[str]()
        storage = Storage(lambda: now[0], seed=seed)  # noqa: B023 - one after the other
        storage.add("r", disks=disks, diskless=diskless)
        for step in range(120):
            now[0] += dice.choice((0.0, 0.1, 1.0, 7.0, 12.0))
            one, other = dice.sample(nodes, 2)
            act = dice.choice(
                ("cut", "heal", "heal", "crash", "boot", "boot", "boot", "stop", "open", "open", "close", "force", "write", "write")
            )
            if act in ("cut", "heal"):
                getattr(storage, act)(one, other)
            elif act in ("crash", "stop", "boot"):
                if (act == "boot") == (one in storage.off):
                    getattr(storage, act)(one)
            elif act == "open":
                promoted += storage.open(one, "r")
            elif act == "force":
                storage.force_secondary(one, "r")
            elif act == "close":
                storage.close(one, "r")
            for node in nodes:
                if storage.write(node, "r", text := f"{step} {node}"):
                    acknowledged.append(text)
                    assert acknowledged == max((copy.data for copy in storage.resources["r"].copies.values()), key=len), (seed, step)
            assert sum(storage.can_write(node, "r") for node in nodes) <= 1, (seed, step)
        for number, one in enumerate(nodes):
            storage.boot(one)
            for other in nodes[:number]:
                storage.heal(one, other)
        now[0] += 60.0
        storage.now()
        assert storage.split_brains == 0, seed
        copies = [storage.resources["r"].copies[node] for node in disks]
        if all(copy.disk != "UpToDate" for copy in copies):
            stuck += 1  # all have left at some time: an administrator says which copy counts
            continue
        assert {tuple(copy.data) for copy in copies} == {tuple(acknowledged)}, seed
        written += len(acknowledged)
    assert promoted > 150 and written > 1000 and stuck < 4


def test_without_quorum_there_are_two_writers_and_a_split_brain() -> None:
    now = [0.0]
    storage = Storage(lambda: now[0])
    storage.add("r", disks=("a", "b"), quorum="off")
    assert storage.open("a", "r") and storage.write("a", "r", "first")
    storage.cut("a", "b")
    now[0] = 11.0
    assert storage.open("b", "r")
    assert storage.write("a", "r", "mine") and storage.write("b", "r", "yours")
    storage.heal("a", "b")
    now[0] = 20.0
    storage.now()
    assert storage.split_brains == 1
