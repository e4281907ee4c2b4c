"""Processes are rolled out, or run twice for a while, or have no journal: nothing leaks. What a Secret holds shows up nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Sidecar
from tests.harness.cluster import CAPACITIES, CLAIMS, CLASSES, EVENTS, RBAC, SECRETS, VOLUMES, Cluster, late, selected
from tests.harness.kill_loop import JOURNALS, NOTHING_WRONG, OFTEN, kill_loop, volume_names
from tests.harness.provisioning.room import KINDS, PREFIX


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[OurDriver]:
    with cluster.driver(pools={"main": "10Ti"}) as driver:
        yield driver


@pytest.mark.parametrize("way", ["rolled-out", "surged"])
def test_no_volume_leaks_and_none_is_made_twice(way: str, cluster: Cluster, driver: OurDriver) -> None:
    """As under kill -9: `tests/smoke/test_killed.py`."""
    assert kill_loop(cluster, driver, way, times=8, claims=32, seed=37) == NOTHING_WRONG
    assert len(volume_names(driver)) == 8
    assert list(driver.socket.parent.glob(JOURNALS)) == []


@pytest.mark.parametrize("place", ["a-file", "missing/folder"])
def test_where_no_journal_can_be_written_it_works_and_says_so_once(place: str, cluster: Cluster, driver: OurDriver, tmp_path: Path) -> None:
    """A reason to look at the node, and none to take the driver out of service."""
    (tmp_path / "a-file").write_text("not a folder")
    cluster.classes(driver)
    with cluster.sidecar(driver, f"--journal-dir={tmp_path / place}") as sidecar:
        sidecar.until_ready()
        assert "journal: OK" in sidecar.page("/readyz?verbose")[1].splitlines()
        for name in ("first", "second"):
            cluster.create(CLAIMS, selected(name, late(driver)))
            cluster.bound(name)
        status, page = sidecar.page("/readyz?verbose")
        assert status == 200
        (scope,) = [line for line in page.splitlines() if line.startswith("journal: ")]
        assert scope.startswith(f"journal: Degraded: {tmp_path / place} cannot be written: ")
        assert sidecar.ready()
        assert sidecar.page("/healthz") == (200, "ok")
        cluster.give_up("first")
        assert len(volume_names(driver)) == 1
        (complaint,) = sidecar.records("EF")
        assert "Creations are not recorded" in complaint
    assert sidecar.child.returncode == 0


# ---- what a Secret holds ----

CANARY = "canary-9c41d7"
TELLTALES = (CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY.encode().hex())
MAY_READ_SECRETS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-secrets}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads-secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-secrets}
subjects: [{kind: ServiceAccount, name: csi-provisioner, namespace: default}]
"""


def caged(cluster: Cluster) -> dict[str, str]:
    """Parameters of a class that names a Secret of each kind, and nothing is in these but the canary."""
    cluster.kubectl("apply", "-f", "-", input=MAY_READ_SECRETS)
    for kind in KINDS:
        data = {key: base64.b64encode(CANARY.encode()).decode() for key in ("password", f"{kind}.key")}
        cluster.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{kind}-secret"}, "data": data})
    names = {f"{PREFIX}{kind}-secret-name": f"{kind}-secret" for kind in KINDS}
    assert cluster.exists(f"{RBAC}/namespaces/{{namespace}}/roles", "reads-secrets")
    return names | {f"{PREFIX}{kind}-secret-namespace": cluster.namespace for kind in KINDS}


class Ears:
    """Everything that a program says or leaves behind, by where that is."""

    PAGES = ("/metrics", "/debug/decisions", "/debug/queue", "/readyz?verbose", "/healthz")
    OBJECTS = (CLAIMS, VOLUMES, CLASSES, EVENTS, CAPACITIES)

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


def test_what_a_secret_holds_reaches_the_driver_and_nobody_else(cluster: Cluster, driver: OurDriver) -> None:
    """One claim lives and is deleted; the other one goes while the process is dead, and the next process tidies up. All at -v=9."""
    cluster.classes(driver, **caged(cluster))
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})  # until the process is dead
    ears = Ears(cluster, driver)
    with cluster.sidecar(driver, "-v=9", "--enable-capacity", "--capacity-ownerref-level=-1", *OFTEN) as sidecar:
        sidecar.until_ready()
        for name in ("data", "lost"):
            cluster.create(CLAIMS, selected(name, late(driver)))
        until(lambda: len(volume_names(driver)) == 2, "both are created")
        ears.listen(sidecar)
        sidecar.kill()
        driver.misbehave()
        cluster.delete(CLAIMS, "lost")
        sidecar.start().until_ready()
        cluster.bound("data")
        until(lambda: len(volume_names(driver)) == 1, "the other volume is gone")
        ears.listen(sidecar)
        cluster.give_up("data")
        ears.listen(sidecar)
    ears.listen(sidecar)
    for method, least in (("CreateVolume", 3), ("DeleteVolume", 2)):
        calls = driver.recorded(method)
        assert len(calls) >= least
        assert all(call["request"]["secrets"] for call in calls), "the driver was given it"
    told = {"journal": f'"secret":["{cluster.namespace}","provisioner-secret"]', VOLUMES: "node-publish-secret", "log": "CreateVolume"}
    assert all(word in ears.heard[where] for where, word in told.items())
    assert ears.heard[CAPACITIES] and "DeleteVolume" in ears.heard["/metrics"] and "Create" in ears.heard["/debug/decisions"]
    assert ears.sings() == set()
