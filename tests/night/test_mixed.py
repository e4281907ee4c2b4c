"""The program and its peer share a cluster, and one takes over from the other under load, as in a roll-out that somebody turns back.

Volumes are counted in the drivers' own states. A driver makes a volume at once and answers later, so that many a process ends in between.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Peer, Process, Sidecar, claim
from hack.sim.driver.state import read_journal, read_state
from tests.harness.cluster import CLAIMS, VOLUMES, Cluster, late, now, selected

NODES = ("n1", "n2", "n3", "n4")
BEGIN_AS_PEER = ("n1", "n2")
CLAIMS_IN_ALL, SECONDS = 60, 20.0
ARGS = (
    *("--strict-topology=true", "--immediate-topology=false", "--kube-api-qps=100", "--kube-api-burst=200"),
    *("--node-deployment-base-delay=300ms", "--node-deployment-max-delay=1s", "--retry-interval-max=5s"),
)
SLOW_ANSWERS = ({"method": "CreateVolume", "linger": 0.4},)
OURS, PEER = "ours", "peer"
PLACEMENTS = ("random", "ranked")
"""Each life of ours has one of them."""


@dataclass
class Node:
    """Its driver stays. Of its two programs one runs at a time."""

    cluster: Cluster
    driver: OurDriver
    peer_binary: Path
    dice: random.Random
    process: Process = field(init=False)
    lives: list[tuple[float, str]] = field(default_factory=list)
    """When each life began, and what it runs."""

    def start(self, program: str) -> None:
        work, places = self.driver.log.parent, {"node": self.driver.node, "address": self.driver.socket, "kubeconfig": self.cluster.role}
        new = {
            OURS: lambda: Sidecar(work, args=(*ARGS, f"--node-deployment-placement={self.dice.choice(PLACEMENTS)}"), **places),
            PEER: lambda: Peer(work, binary=self.peer_binary, args=ARGS, **places),
        }[program]
        self.lives.append((time.time(), program))
        self.process = new().start()

    @property
    def runs(self) -> str:
        return self.lives[-1][1]

    def swap(self) -> None:
        """As a DaemonSet that is updated: the old one goes, by a signal or with its machine, before the new one comes."""
        self.process.signal(self.dice.choice((signal.SIGTERM, signal.SIGKILL)))
        self.process.wait()
        self.start(PEER if self.runs == OURS else OURS)

    def held(self) -> dict[str, str]:
        """Names of the driver's volumes, by handle."""
        return {volume.id: volume.name for volume in read_state(self.driver.state).volumes.values()}

    def made(self) -> list[str]:
        """Names of the volumes that it has ever made."""
        return [line["volume"]["name"] for line in read_journal(self.driver.state) if line["op"] == "create"]

    def last_to_ask(self, name: str) -> tuple[str, bool]:
        """Which program was the last to ask for that volume, and whether that life is over."""
        at = max(call["at"] for call in self.driver.recorded("CreateVolume") if call.get("name") == name)
        number = max(number for number, (begun, _) in enumerate(self.lives) if begun <= at)
        return self.lives[number][1], number < len(self.lives) - 1


@pytest.fixture
def nodes(cluster: Cluster, peer_binary: Path) -> Iterator[list[Node]]:
    """Contenders for a claim are told by their CSINodes."""
    seed = os.environ.get("PYTHONHASHSEED")  # which hack/test draws and prints
    with ExitStack() as stack:
        nodes = []
        for name in NODES:
            folder = cluster.folder / name  # of its own, as on a machine: a process takes over what a dead one has begun in its folder
            folder.mkdir()
            driver = stack.enter_context(OurDriver(folder, node=name, name=cluster.driver_name, pools={"main": "1Ti"}))
            cluster.node(name, driver)
            driver.misbehave(*SLOW_ANSWERS)
            nodes.append(Node(cluster, driver, peer_binary, random.Random(f"{seed} {name}")))
        yield nodes
        for node in nodes:
            node.process.stop()


class User:
    """Of four claims two stay, one is deleted in the middle of its creation, and one when it is bound. Every second pair binds at once."""

    def __init__(self, cluster: Cluster, nodes: list[Node], dice: random.Random) -> None:
        self.cluster = cluster
        self._nodes = nodes
        self._dice = dice
        self.volumes: dict[str, str] = {}
        """Names of volumes, by claim."""
        self.deleted: set[str] = set()

    @property
    def remaining(self) -> dict[str, str]:
        return {name: volume for name, volume in self.volumes.items() if name not in self.deleted}

    def create(self) -> None:
        number = len(self.volumes)
        name, chosen = f"data-{number}", self._dice.choice(self._nodes).driver.node
        driver = self._nodes[0].driver
        body = claim(name, now(driver)) if number // 2 % 2 else selected(name, late(driver), node=chosen)
        self.volumes[name] = f"pvc-{self.cluster.create(CLAIMS, body)['metadata']['uid']}"

    def delete_some(self) -> None:
        made = {name for node in self._nodes for name in node.held().values()}
        bound = {item["metadata"]["name"] for item in self.cluster.items(CLAIMS) if item["status"].get("phase") == "Bound"}
        for number, (name, volume) in enumerate(self.volumes.items()):
            young, old = number % 4 == 1 and volume in made, number % 4 == 2 and name in bound
            if name not in self.deleted and (young or old):
                self.cluster.delete(CLAIMS, name)
                self.deleted.add(name)


def live(user: User, nodes: list[Node], dice: random.Random) -> None:
    """Claims come; every node is swapped four times, so that it ends as it began: in the middle of a creation, if there is one soon."""
    begun = time.monotonic()
    swaps = sorted((dice.uniform(1.0, SECONDS), number) for number in range(len(nodes)) for _ in range(4))
    while len(user.volumes) < CLAIMS_IN_ALL or swaps:
        seconds = time.monotonic() - begun
        if len(user.volumes) < min(CLAIMS_IN_ALL, seconds * CLAIMS_IN_ALL / SECONDS):
            user.create()
        if swaps and seconds >= swaps[0][0]:
            node = nodes[swaps[0][1]]
            if seconds >= swaps[0][0] + 2.0 or any(node is busy for busy, _ in without_an_object(user.cluster, nodes)):
                node.swap()
                del swaps[0]
        user.delete_some()
        time.sleep(0.05)


def unbound(cluster: Cluster, user: User) -> set[str]:
    bound = {item["metadata"]["name"] for item in cluster.items(CLAIMS) if item["status"].get("phase") == "Bound"}
    return user.remaining.keys() - bound


def without_an_object(cluster: Cluster, nodes: list[Node]) -> list[tuple[Node, str]]:
    handles = {volume["spec"]["csi"]["volumeHandle"] for volume in cluster.items(VOLUMES)}
    return [(node, name) for node in nodes for handle, name in node.held().items() if handle not in handles]


def strange(cluster: Cluster, nodes: list[Node], user: User) -> list[str]:
    """What is left in drivers without a PersistentVolume, and not for the one reason for which the peer leaks: it was the last to ask for
    the volume, died before it had stored it, and the claim was deleted."""
    gone = {user.volumes[name] for name in user.deleted}
    left = [(node, name, *node.last_to_ask(name)) for node, name in without_an_object(cluster, nodes)]
    return [f"{name} on {node.driver.node}, of {who}" for node, name, who, over in left if not (who == PEER and over and name in gone)]


def test_program_and_peer_take_turns_under_load(cluster: Cluster, nodes: list[Node]) -> None:
    """At the end ours takes over everywhere, and what it finds begun by itself it finishes; what the peer has forgotten nobody finds."""
    dice = random.Random(1)
    user = User(cluster, nodes, dice)
    for node in nodes:
        node.start(PEER if node.driver.node in BEGIN_AS_PEER else OURS)
    live(user, nodes, dice)
    assert [node.runs for node in nodes] == [PEER, PEER, OURS, OURS]
    until(lambda: not unbound(cluster, user), lambda: f"all that remain are bound: {unbound(cluster, user)}")
    for node in nodes:
        if node.runs == PEER:
            node.swap()

    def at_rest() -> bool:
        return not strange(cluster, nodes, user) and len(cluster.items(VOLUMES)) == len(user.remaining)

    until(at_rest, lambda: f"all is at rest: {strange(cluster, nodes, user)}")
    volumes = cluster.items(VOLUMES)
    assert strange(cluster, nodes, user) == []
    assert Counter(volume["metadata"]["name"] for volume in volumes) == Counter(user.remaining.values())
    held = Counter(name for node in nodes for name in node.held().values())
    assert {name: held[name] for name in user.remaining.values()} == dict.fromkeys(user.remaining.values(), 1)
    made = Counter(name for node in nodes for name in node.made())
    assert [name for name in user.remaining.values() if made[name] > 1] == []
    assert {program for node in nodes for _, program in node.lives} == {OURS, PEER}
    print(f"{len(user.volumes)} claims, {len(user.deleted)} deleted; left by the peer: {len(without_an_object(cluster, nodes))}")
