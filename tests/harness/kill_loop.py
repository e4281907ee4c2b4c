"""The program dies at any moment, is rolled out, or runs twice for a while, while a user makes and deletes claims; and what is left then.

Volumes are counted in the driver's own state. The driver makes a volume at once and answers long after, so that most moments fall
between the volume and its PersistentVolume; half of the claims are deleted just then.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from hack.lib.control_plane import until
from hack.lib.patience import deadline
from hack.lib.programs import OurDriver, Sidecar, claim
from hack.sim.driver.state import read_journal, read_state
from sidecar.provisioning.creations import leftovers_io
from tests.harness.cluster import CLAIMS, SOON, VOLUMES, Cluster, late, now, selected

# With five requests a second, the default, what a process may ask in its short life would be all that happens.
OFTEN = ("--kube-api-qps=100", "--kube-api-burst=200")
# The names of volumes end in a hexadecimal digit of their claims' uids.
SLOW_ANSWERS = ({"method": "CreateVolume", "names": "*[0-7]", "linger": 0.3}, {"method": "CreateVolume", "linger": 0.5})
JOURNALS = ".csi-node-sidecar.*"


def volume_names(driver: OurDriver) -> set[str]:
    return {volume.name for volume in read_state(driver.state).volumes.values()}


# ---- a user, and a node on which processes come and go ----


class User:
    """Of four claims two are deleted while they are created, one when it is bound, and one stays. Half bind immediately."""

    YOUNG, BOUND = (0, 2), 1

    def __init__(self, cluster: Cluster, driver: OurDriver, *, dice: random.Random) -> None:
        self._cluster = cluster
        self._driver = driver
        self._dice = dice
        self._allowed = 0
        self._next = 0.0
        self._created: dict[str, str] = {}
        """Names of claims, in the order of their creation, and of their volumes."""
        self._to_delete: dict[str, float] = {}
        self._deleted: set[str] = set()
        cluster.classes(driver)

    def may_create(self, claims: int) -> None:
        self._allowed += claims

    @property
    def remaining(self) -> dict[str, str]:
        return {name: volume for name, volume in self._created.items() if name not in self._deleted}

    def step(self) -> None:
        """Whatever is due now, and a moment's rest."""
        now = time.monotonic()
        if len(self._created) < self._allowed and now >= self._next:
            self._next = now + self._dice.uniform(0, 0.3)
            self._create(len(self._created))
        self._choose(now)
        for name in [name for name, at in self._to_delete.items() if now >= at]:
            del self._to_delete[name]
            self._deleted.add(name)
            self._cluster.delete(CLAIMS, name)
        time.sleep(0.02)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Life goes on while it is waited for."""

        def look() -> bool:
            self.step()
            return condition()

        until(look, what)

    def finish(self) -> None:
        """Claims that should have gone by then, and have not, are told of as those that remain."""
        end = deadline()
        while not self._is_done() and time.monotonic() < end:
            self.step()

    def _is_done(self) -> bool:
        stays = sum(1 for number in range(self._allowed) if number % 4 not in (*self.YOUNG, self.BOUND))
        return len(self._created) == self._allowed and len(self.remaining) == stays

    def _create(self, number: int) -> None:
        body = claim(f"data-{number}", now(self._driver)) if number // 4 % 2 else selected(f"data-{number}", late(self._driver))
        self._created[f"data-{number}"] = f"pvc-{self._cluster.create(CLAIMS, body)['metadata']['uid']}"

    def _choose(self, now: float) -> None:
        made = volume_names(self._driver)
        bound = {item["metadata"]["name"] for item in self._cluster.items(CLAIMS) if item.get("status", {}).get("phase") == "Bound"}
        for number, (name, volume) in enumerate(self._created.items()):
            if name in self._deleted or name in self._to_delete:
                continue
            if (number % 4 in self.YOUNG and volume in made) or (number % 4 == self.BOUND and name in bound):
                self._to_delete[name] = now + self._dice.uniform(0, 0.5)


class Node:
    """Where one process follows the other."""

    def __init__(self, cluster: Cluster, driver: OurDriver, user: User, *, dice: random.Random) -> None:
        self._new: Callable[[], Sidecar] = lambda: cluster.sidecar(driver, *SOON, *OFTEN)
        self._user = user
        self._dice = dice
        self.sidecar = self._new().start()

    def work_for_a_while(self) -> None:
        """Three times of four until it is ready and some time beyond; else it may not even get as far."""
        if self._dice.random() < 0.75:
            self._user.until(self.sidecar.ready, "it is ready")
        ends = time.monotonic() + self._dice.uniform(0, 0.8)
        while time.monotonic() < ends:
            self._user.step()

    def kill(self) -> None:
        self.sidecar.kill()
        self.sidecar = self._new().start()

    def roll_out(self) -> None:
        """As a DaemonSet does by default: the new one starts when the old one has gone."""
        self._stop(self.sidecar)
        self.sidecar = self._new().start()

    def surge(self) -> None:
        """The new one is ready before the old one goes; that one is stopped, or dies."""
        old, self.sidecar = self.sidecar, self._new().start()
        self.work_for_a_while()
        if self._dice.random() < 0.5:
            old.kill()
        else:
            self._stop(old)

    def _stop(self, sidecar: Sidecar) -> None:
        if sidecar.page("/healthz")[0] == 0:
            self._user.until(sidecar.ready, "it is there to hear the signal")
        sidecar.signal(signal.SIGTERM)
        self._user.until(lambda: sidecar.child.poll() is not None, "it has stopped")
        assert sidecar.child.returncode == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sidecar.stop()


WAYS: dict[str, Callable[[Node], None]] = {"killed": Node.kill, "rolled-out": Node.roll_out, "surged": Node.surge}


# ---- what is found at the end ----


@dataclass(frozen=True)
class Balance:
    """At rest, or when the time for it was over."""

    leaked: set[str]
    """Volumes without a PersistentVolume."""
    missing: set[str]
    """PersistentVolumes without a volume."""
    made_twice: set[str]
    """Of claims that remain."""
    unbound: set[str]
    ownerless: set[str]
    """PersistentVolumes whose claims have gone."""

    def is_even(self) -> bool:
        return not any((self.leaked, self.missing, self.made_twice, self.unbound, self.ownerless))


def balance(cluster: Cluster, driver: OurDriver, remaining: dict[str, str]) -> Balance:
    volumes = cluster.items(VOLUMES)
    handles = {volume["spec"]["csi"]["volumeHandle"]: volume["metadata"]["name"] for volume in volumes}
    held = {volume.id: volume.name for volume in read_state(driver.state).volumes.values()}
    times = Counter(line["volume"]["name"] for line in read_journal(driver.state) if line["op"] == "create")
    bound = {item["metadata"]["name"] for item in cluster.items(CLAIMS) if item["status"]["phase"] == "Bound"}
    return Balance(
        leaked={held[handle] for handle in held.keys() - handles.keys()},
        missing={handles[handle] for handle in handles.keys() - held.keys()},
        made_twice={name for name, volume in remaining.items() if times[volume] > 1},
        unbound=remaining.keys() - bound,
        ownerless=set(handles.values()) - set(remaining.values()),
    )


def balance_at_rest(cluster: Cluster, driver: OurDriver, remaining: dict[str, str]) -> Balance:
    end = deadline()
    while True:
        found = balance(cluster, driver, remaining)
        if found.is_even() or time.monotonic() > end:
            return found
        time.sleep(0.2)


NOTHING_WRONG = Balance(set(), set(), set(), set(), set())


def kill_loop(cluster: Cluster, driver: OurDriver, way: str, *, times: int, claims: int, seed: int) -> Balance:
    """All of it: so many processes that end in that way, while so many claims come and half of them go, and a last one that tidies up."""
    dice = random.Random(seed)
    driver.misbehave(*SLOW_ANSWERS)
    user = User(cluster, driver, dice=dice)
    with Node(cluster, driver, user, dice=dice) as node:
        for _ in range(times):
            user.may_create(claims // times)
            node.work_for_a_while()
            WAYS[way](node)
        user.finish()
        # What two processes left that ran at the same time is the next one's to find, or this one's, but only after a minute.
        node.roll_out()
        found = balance_at_rest(cluster, driver, user.remaining)
        sure_of(node.sidecar, driver)
    return found


def sure_of(sidecar: Sidecar, driver: OurDriver) -> None:
    """It is ready before it has looked at what the journals of others tell; an end in between would leave that to the next one."""
    sidecar.until_ready()

    def is_settled() -> bool:
        open_still = leftovers_io.read_all(driver.socket.parent, driver.driver)
        return not open_still and not json.loads(sidecar.page("/debug/queue")[1])["claims"]

    until(is_settled, "all that was begun is settled")
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 0
    assert [line for line in sidecar.records("EF") if "leak" in line] == []
