"""The process dies at any moment, is rolled out, or runs twice for a while: no volume is left without an owner, and none is made twice.

Volumes are counted in the driver's own state. The driver makes a volume at once and answers long after, so that most moments fall
between the volume and its PersistentVolume; half of the claims are deleted just then. What a Secret holds shows up nowhere meanwhile.
"""

from __future__ import annotations

import base64
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.patience import deadline
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Sidecar, claim, storage_class
from hack.sim.driver.state import read_journal, read_state
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, VOLUMES, Cluster
from tests.harness.provisioning.secret_keys import KINDS, PREFIX

SOON = ("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms")
# With five requests a second, the default, what a process may ask in its short life would be all that happens.
OFTEN = ("--kube-api-qps=100", "--kube-api-burst=200")
SELECTED = "volume.kubernetes.io/selected-node"
# The names of volumes end in a hexadecimal digit of their claims' uids.
SLOW_ANSWERS = ({"method": "CreateVolume", "names": "*[0-7]", "linger": 0.3}, {"method": "CreateVolume", "linger": 0.5})
JOURNALS = ".csi-node-sidecar.*"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[OurDriver]:
    with OurDriver(tmp_path, node="n1", pools={"main": "10Ti"}) as driver:
        yield driver


def sidecar_for(driver: OurDriver, cluster: Cluster, *args: str) -> Sidecar:
    environ = {"NAMESPACE": "default"}
    return Sidecar(driver.log.parent, node=driver.node, address=driver.socket, kubeconfig=cluster.role, args=args, environ=environ)


def bound(cluster: Cluster, name: str) -> None:
    until(lambda: cluster.phase(CLAIMS, name) == "Bound", f"{name} is bound", seconds=30)


def selected(name: str, class_: str = "late") -> Json:
    """A claim for which the scheduler has chosen this node."""
    return claim(name, class_, annotations={SELECTED: "n1"})


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
        cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
        cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))

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

    def until(self, condition: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
        """Life goes on while it is waited for."""

        def look() -> bool:
            self.step()
            return condition()

        until(look, what, seconds=seconds)

    def finish(self, *, seconds: float) -> None:
        """Claims that should have gone by then, and have not, are told of as those that remain."""
        end = deadline(seconds)
        while not self._is_done() and time.monotonic() < end:
            self.step()

    def _is_done(self) -> bool:
        stays = sum(1 for number in range(self._allowed) if number % 4 not in (*self.YOUNG, self.BOUND))
        return len(self._created) == self._allowed and len(self.remaining) == stays

    def _create(self, number: int) -> None:
        body = claim(f"data-{number}", "now") if number // 4 % 2 else selected(f"data-{number}")
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

    def __init__(self, cluster: Cluster, driver: OurDriver, user: User, *, dice: random.Random, args: tuple[str, ...] = ()) -> None:
        self._new: Callable[[], Sidecar] = lambda: sidecar_for(driver, cluster, *SOON, *OFTEN, *args)
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

    def __enter__(self) -> Node:
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


def balance_at_rest(cluster: Cluster, driver: OurDriver, remaining: dict[str, str], *, seconds: float = 45.0) -> Balance:
    end = deadline(seconds)
    while True:
        found = balance(cluster, driver, remaining)
        if found.is_even() or time.monotonic() > end:
            return found
        time.sleep(0.2)


def weather(cluster: Cluster, driver: OurDriver, way: str, *, times: int, claims: int, seed: int, args: tuple[str, ...] = ()) -> Balance:
    """All of it: so many processes that end in that way, while so many claims come and half of them go, and a last one that tidies up."""
    dice = random.Random(seed)
    driver.misbehave(*SLOW_ANSWERS)
    user = User(cluster, driver, dice=dice)
    with Node(cluster, driver, user, dice=dice, args=args) as node:
        for _ in range(times):
            user.may_create(claims // times)
            node.work_for_a_while()
            WAYS[way](node)
        user.finish(seconds=60)
        # What two processes left that ran at the same time is the next one's to find, or this one's, but only after a minute.
        node.roll_out()
        found = balance_at_rest(cluster, driver, user.remaining)
        sure_of(node.sidecar)
    return found


def sure_of(sidecar: Sidecar) -> None:
    """It is ready before it has looked at what the journals of others tell; an end in between would leave that to the next one."""
    sidecar.until_ready()
    time.sleep(1.0)
    until(lambda: not json.loads(sidecar.page("/debug/queue")[1])["claims"], "all that was begun is settled", seconds=30)
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 0
    assert [line for line in sidecar.records("EF") if "leak" in line] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "times", "claims"), [pytest.param("killed", 50, 200), pytest.param("rolled-out", 8, 32), pytest.param("surged", 8, 32)]
)
def test_no_volume_leaks_and_none_is_made_twice(way: str, times: int, claims: int, cluster: Cluster, driver: OurDriver) -> None:
    """A journal that still tells of a creation would outlive the last process, which ends in order."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    found = weather(cluster, driver, way, times=times, claims=claims, seed=seed)
    assert found == Balance(set(), set(), set(), set(), set())
    assert len(volume_names(driver)) == claims // 4
    assert len(driver.recorded("CreateVolume")) >= claims
    assert list(driver.socket.parent.glob(JOURNALS)) == []


# ---- without a journal ----


@pytest.mark.parametrize("place", ["a-file", "missing/folder"])
def test_where_no_journal_can_be_written_it_works_and_says_so_once(place: str, cluster: Cluster, driver: OurDriver, tmp_path: Path) -> None:
    """A reason to look at the node, and none to take the driver out of service."""
    (tmp_path / "a-file").write_text("not a folder")
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with sidecar_for(driver, cluster, f"--journal-dir={tmp_path / place}") as sidecar:
        sidecar.until_ready()
        assert "journal: OK" in sidecar.page("/readyz?verbose")[1].splitlines()
        for name in ("first", "second"):
            cluster.create(CLAIMS, selected(name))
            bound(cluster, name)
        status, page = sidecar.page("/readyz?verbose")
        assert status == 200
        (scope,) = [line for line in page.splitlines() if line.startswith("journal: ")]
        assert scope.startswith(f"journal: Degraded: {tmp_path / place} cannot be written: ")
        assert sidecar.ready()
        assert sidecar.page("/healthz") == (200, "ok")
        cluster.delete(CLAIMS, "first")
        until(lambda: len(volume_names(driver)) == 1, "its volume is deleted")
        (complaint,) = sidecar.records("EF")
        assert "Creations are not recorded" in complaint
    assert sidecar.child.returncode == 0


# ---- what a Secret holds ----

CANARY = "canary-9c41d7"
TELLTALES = (CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY.encode().hex())
MAY_READ_SECRETS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-secrets, namespace: default}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads-secrets, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-secrets}
subjects: [{kind: ServiceAccount, name: csi-provisioner, namespace: default}]
"""


@pytest.fixture
def caged(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Parameters of a class that names a Secret of each kind, and nothing is in these but the canary."""
    cluster.plane.apply(MAY_READ_SECRETS)
    for kind in KINDS:
        data = {key: base64.b64encode(CANARY.encode()).decode() for key in ("password", f"{kind}.key")}
        cluster.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{kind}-secret"}, "data": data})
    names = {f"{PREFIX}{kind}-secret-name": f"{kind}-secret" for kind in KINDS}
    yield names | {f"{PREFIX}{kind}-secret-namespace": "default" for kind in KINDS}
    for kind in KINDS:
        cluster.delete(SECRETS, f"{kind}-secret")
    for path in ("rolebindings", "roles"):
        cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{path}", "reads-secrets")


class Ears:
    """Everything that a program says or leaves behind, by where that is."""

    PAGES = ("/metrics", "/debug/decisions", "/debug/queue", "/readyz?verbose", "/healthz")
    OBJECTS = (CLAIMS, VOLUMES, CLASSES, "/api/v1/namespaces/default/events", CAPACITIES)

    def __init__(self, cluster: Cluster, driver: OurDriver) -> None:
        self._cluster = cluster
        self._driver = driver
        self.heard: dict[str, str] = {}

    def listen(self, sidecar: Sidecar) -> None:
        for path in self.PAGES:
            self._hear(path, sidecar.page(path)[1])
        for path in self.OBJECTS:
            self._hear(path, json.dumps(self._cluster.items(path)))
        for file in self._driver.socket.parent.glob(JOURNALS):
            self._hear("journal", file.read_text())
        self.heard["log"] = sidecar.output()

    def sings(self) -> set[str]:
        """Where the canary does."""
        return {where for where, what in self.heard.items() if any(telltale in what for telltale in TELLTALES)}

    def _hear(self, where: str, what: str) -> None:
        self.heard[where] = self.heard.get(where, "") + what


def test_what_a_secret_holds_reaches_the_driver_and_nobody_else(cluster: Cluster, driver: OurDriver, caged: dict[str, str]) -> None:
    """One claim lives and is deleted; the other one goes while the process is dead, and the next process tidies up. All at -v=9."""
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE, **caged))
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})  # until the process is dead
    ears = Ears(cluster, driver)
    with sidecar_for(driver, cluster, "-v=9", "--enable-capacity", "--capacity-ownerref-level=-1", *OFTEN) as sidecar:
        sidecar.until_ready()
        for name in ("data", "lost"):
            cluster.create(CLAIMS, selected(name))
        until(lambda: len(volume_names(driver)) == 2, "both are created")
        ears.listen(sidecar)
        sidecar.kill()
        driver.misbehave()
        cluster.delete(CLAIMS, "lost")
        sidecar.start().until_ready()
        bound(cluster, "data")
        until(lambda: len(volume_names(driver)) == 1, "the other volume is gone")
        ears.listen(sidecar)
        cluster.delete(CLAIMS, "data")
        until(lambda: not volume_names(driver) and not cluster.items(VOLUMES), "all is gone", seconds=30)
        ears.listen(sidecar)
    ears.listen(sidecar)
    for method, least in (("CreateVolume", 3), ("DeleteVolume", 2)):
        calls = driver.recorded(method)
        assert len(calls) >= least
        assert all(call["request"]["secrets"] for call in calls), "the driver was given it"
    told = {"journal": '"secret":["default","provisioner-secret"]', VOLUMES: "node-publish-secret", "log": "CreateVolume"}
    assert all(word in ears.heard[where] for where, word in told.items())
    assert ears.heard[CAPACITIES] and "DeleteVolume" in ears.heard["/metrics"] and "Create" in ears.heard["/debug/decisions"]
    assert ears.sings() == set()
