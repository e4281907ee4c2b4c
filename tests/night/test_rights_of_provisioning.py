"""Each right of upstream's sample role is taken away: the program lives, stays calm, and says what it lacks (`rights_table`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, ControlPlane, until
from hack.lib.programs import Json, OurDriver, claim, pod
from hack.parities import crds
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.model import names
from sidecar.model.objects import LARGEST_WHOLE
from sidecar.rights.rights import Right
from tests.harness.accounts import UPSTREAM, account, naming, role_of
from tests.harness.cluster import CAPACITIES, CLAIMS, CLASSES, EVENTS, OWN_DEPLOYMENTS, OWN_PODS, SOON, VOLUMES, Cluster, late, now
from tests.harness.drains import COMPONENTS, command
from tests.night import rights_table as table
from tests.night.lacking import Played, Row, check, played, stay_calm, watch

PUBLISH = ("--retry-interval-start=500ms", "--enable-capacity", "--capacity-poll-interval=2s")
SNAPSHOTS = f"/apis/{names.SNAPSHOT_GROUP}/v1/namespaces/{{namespace}}/volumesnapshots"
CONTENTS = f"/apis/{names.SNAPSHOT_GROUP}/v1/volumesnapshotcontents"


class Stored:
    """What the API server has, at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.phases = {item["metadata"]["name"]: item["status"].get("phase", "") for item in cluster.items(CLAIMS)}
        self.with_volumes = {item["spec"]["csi"]["driver"] for item in cluster.items(VOLUMES)}
        self.published = {item["storageClassName"] for item in cluster.items(CAPACITIES)}
        self.events = cluster.items(EVENTS)


@pytest.mark.parametrize("half", [0, 1])
def test_volumes_from_nothing(cluster: Cluster, half: int) -> None:
    rows = table.VOLUMES[half::2]
    cluster.node("owner-node")
    cluster.create(OWN_PODS, pod("owner", nodeName="owner-node"))

    def make(row: Row, name: str, kubeconfig: Path) -> Played[Stored]:
        driver = cluster.driver(name, name=name)
        cluster.node(name, driver)
        flags = (*SOON, *PUBLISH, "--node-deployment-placement=ranked", "--capacity-ownerref-level=0")
        sidecar = cluster.sidecar(driver, *flags, kubeconfig=kubeconfig, environ={"POD_NAME": "owner"})
        cluster.create(CLAIMS, claim(name, now(driver)))

        def shown(stored: Stored) -> set[str]:
            words = {
                table.BOUND: stored.phases.get(name) == "Bound",
                table.PUBLISHED: late(driver) in stored.published,
                table.EMPTIED: name not in stored.phases and driver.driver not in stored.with_volumes,
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, sidecar, shown)

    with played(cluster, rows, UPSTREAM, make, prefix="m") as these:
        watch(these, lambda: Stored(cluster), (table.BOUND, table.PUBLISHED))
        cluster.request("DELETE", CLAIMS)
        watch(these, lambda: Stored(cluster), (table.EMPTIED,))
        stay_calm(these)
        check(these, cluster, (table.BOUND, table.PUBLISHED, table.EMPTIED))


# --- snapshots, drivers that attach, owners above the pod, large claims -------------------------------------------------


class SnapshotDriver(OurDriver):
    """One that restores snapshots, and claims to attach volumes."""

    def __init__(self, work: Path, *, node: str, name: str) -> None:
        super().__init__(work, node=node, name=name)
        can = ("CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "PUBLISH_UNPUBLISH_VOLUME", "GET_CAPACITY")
        told = {"endpoint": str(self.socket), "name": name, "calls": str(self.calls), "segments": {self.key: node}, "capabilities": can}
        self.command = [sys.executable, str(REPOSITORY / "hack" / "parities" / "driver.py"), json.dumps(told)]


def snapshot(cluster: Cluster, driver: OurDriver, name: str, *finalizers: str) -> None:
    """As a snapshot controller leaves it; in no namespace has it a twin."""
    kind: Json = {"apiVersion": f"{names.SNAPSHOT_GROUP}/v1"}
    content, spec = f"{cluster.namespace}-{name}", {"source": {"volumeSnapshotContentName": f"{cluster.namespace}-{name}"}}
    meta = {"name": name, "finalizers": [*finalizers]}
    made = cluster.create(SNAPSHOTS, kind | {"kind": "VolumeSnapshot", "metadata": meta, "spec": spec})
    status = {"readyToUse": True, "boundVolumeSnapshotContentName": content, "restoreSize": "1Gi"}
    cluster.patch(SNAPSHOTS, f"{name}/status", {"status": status})
    ref = {"namespace": cluster.namespace, "name": name, "uid": made["metadata"]["uid"]}
    of: Json = {"deletionPolicy": "Retain", "driver": driver.driver, "source": {"snapshotHandle": name}, "volumeSnapshotRef": ref}
    cluster.create(CONTENTS, kind | {"kind": "VolumeSnapshotContent", "metadata": {"name": content}, "spec": of})
    cluster.patch(CONTENTS, f"{content}/status", {"status": {"readyToUse": True, "snapshotHandle": name}})


def owner(cluster: Cluster) -> str:
    """A pod of a Deployment's ReplicaSet."""
    cluster.node("owner-node")
    labels = {"app": "owner"}
    one = {"nodeName": "owner-node", "containers": [{"name": "main", "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": one}
    cluster.create(OWN_DEPLOYMENTS, {"metadata": {"name": "owner"}, "spec": {"selector": {"matchLabels": labels}, "template": template}})
    return str(until(lambda: sorted(cluster.names(OWN_PODS)), "its pod is made")[0])


def test_beside_volumes_from_nothing(plane: ControlPlane, cluster: Cluster) -> None:
    """Each restores a claim from a snapshot, fails for one whose snapshot is missing, and makes one for a claim too large to be kept."""
    for file in crds.manifests():
        plane.apply(file.read_text())
    until(lambda: plane.serves(cluster.path(SNAPSHOTS)) and plane.serves(CONTENTS), "snapshots are served")
    who, since = owner(cluster), cluster.revision(SNAPSHOTS)

    def was_protected(name: str) -> bool:
        found = (event["object"]["metadata"] for event in cluster.history(SNAPSHOTS, since))
        return any(meta["name"] == f"kept-{name}" and names.SNAPSHOT_FINALIZER in meta.get("finalizers", ()) for meta in found)

    def make(row: Row, name: str, kubeconfig: Path) -> Played[Stored]:
        folder = cluster.folder / name
        folder.mkdir()
        driver = SnapshotDriver(folder, node=name, name=f"{name}.{cluster.driver_name}")
        cluster.node(name, driver)
        snapshot(cluster, driver, f"kept-{name}")
        snapshot(cluster, driver, f"left-{name}", names.SNAPSHOT_FINALIZER)
        flags = (*SOON, *PUBLISH, "--capacity-ownerref-level=2", "--snapshot-orphan-sweep-interval=3s")
        sidecar = cluster.sidecar(driver, *flags, kubeconfig=kubeconfig, environ={"POD_NAME": who})
        for target, source in (("copy", "kept"), ("lost", "missing")):
            body = claim(f"{target}-{name}", now(driver))
            body["spec"]["dataSource"] = {"apiGroup": names.SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": f"{source}-{name}"}
            cluster.create(CLAIMS, body)
        cluster.create(CLAIMS, claim(f"large-{name}", now(driver), annotations={"example.com/large": "x" * LARGEST_WHOLE}))

        def shown(stored: Stored) -> set[str]:
            ours = [item for item in stored.events if driver.driver in item["source"].get("component", "")]
            of_lost = [item for item in ours if item["involvedObject"]["name"] == f"lost-{name}"]
            left = cluster.get(SNAPSHOTS, f"left-{name}")["metadata"].get("finalizers")
            words = {
                table.RESTORED: stored.phases.get(f"copy-{name}") == "Bound",
                table.PROTECTED: was_protected(name),
                table.SWEPT: not left,
                table.LARGE: stored.phases.get(f"large-{name}") == "Bound",
                table.COUNTED: any((item.get("count") or 1) > 1 for item in of_lost),
                table.PUBLISHED: late(driver) in stored.published,
                table.EMPTIED: driver.driver not in stored.with_volumes,
                table.WITHDRAWN: late(driver) not in stored.published,
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, sidecar, shown)

    begin = (table.RESTORED, table.PROTECTED, table.SWEPT, table.LARGE, table.COUNTED, table.PUBLISHED)
    end = (table.EMPTIED, table.WITHDRAWN)
    with played(cluster, table.BESIDE, UPSTREAM, make, prefix="s") as these:
        watch(these, lambda: Stored(cluster), begin)
        cluster.request("DELETE", CLAIMS)
        for one in these:
            cluster.delete(CLASSES, late(one.driver))
        watch(these, lambda: Stored(cluster), end)
        stay_calm(these)
        check(these, cluster, (*begin, *end), "copy-", "lost-", "large-")
        (unused,) = (one for one in these if one.row.also)
        assert "forbidden" not in unused.sidecar.output(), unused.sidecar.output()
    for name in cluster.names(SNAPSHOTS):
        cluster.patch(SNAPSHOTS, name, {"metadata": {"finalizers": None}})


# --- a command that people run with a role of its own --------------------------------------------------------------------


@pytest.mark.parametrize("right", [Right("list", CLAIM), Right("patch", CLAIM), Right("list", CLASS)], ids=str)
def test_label_ends_and_names_the_right(cluster: Cluster, right: Right) -> None:
    role = role_of(COMPONENTS / "scoped-watches" / "rbac.yaml")
    driver = cluster.driver()
    cluster.classes(driver)
    cluster.create(CLAIMS, claim("a", late(driver)))
    with account(cluster, "person", role.without(right)) as kubeconfig:
        done = command(kubeconfig, "label", f"--driver={driver.driver}")
    assert done.returncode == 1, done
    (told,) = naming(right, done.stderr.splitlines())
    assert "right" in told
