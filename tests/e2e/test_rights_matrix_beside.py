"""As `test_rights_matrix`, for what is beside volumes from nothing: snapshots, drivers that attach, owners above the pod, large claims.

Each sidecar restores a claim from a snapshot, fails to restore one from a snapshot that is missing, and makes one for a claim that is too
large to be kept. Then claims and classes go.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, ControlPlane, until
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Sidecar, claim, pod, storage_class
from sidecar.model import names
from sidecar.model.objects import LARGEST_WHOLE
from sidecar.rights.rights import Right
from tests.e2e.accounts import account, upstream_rules
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, DEPLOYMENTS, PODS, VOLUMES, Cluster, from_hack
from tests.e2e.lacking import Lacking, Outcome, calm, watch, without
from tests.e2e.rights_stories import (
    BESIDE,
    BESIDE_ALL,
    BESIDE_ENDS,
    BESIDE_STAGES,
    BESIDE_UNUSED,
    COUNTED,
    EMPTIED,
    LARGE,
    PROTECTED,
    PUBLISHED,
    RESTORED,
    SWEPT,
    UNUSED,
    WITHDRAWN,
    off,
)

ARGS = (
    *("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms", "--retry-interval-start=500ms"),
    *("--enable-capacity", "--capacity-ownerref-level=2", "--capacity-poll-interval=2s", "--snapshot-orphan-sweep-interval=3s"),
)
CAN = ("CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "PUBLISH_UNPUBLISH_VOLUME", "GET_CAPACITY")
SNAPSHOT_PATH = f"/apis/{names.SNAPSHOT_GROUP}/v1/namespaces/default/volumesnapshots"
CONTENTS = f"/apis/{names.SNAPSHOT_GROUP}/v1/volumesnapshotcontents"
AT_ONCE = 11

PLAYED: Sequence[tuple[Right, ...]] = (*((right,) for right in BESIDE), BESIDE_UNUSED, (BESIDE_ENDS,))


class SnapshotDriver(OurDriver):
    """One that restores snapshots, and claims to attach volumes."""

    def __init__(self, work: Path, *, node: str, name: str) -> None:
        super().__init__(work, node=node, name=name)
        self.command = [
            *(sys.executable, str(REPOSITORY / "hack" / "parities" / "driver.py"), f"--endpoint={self.socket}", f"--name={name}"),
            *(f"--calls={self.calls}", f"--topology={self.key}={node}", *(f"--capability={one}" for one in CAN)),
        ]


class Restoring(Lacking):
    def __init__(self, cluster: Cluster, rights: Sequence[Right], name: str, kubeconfig: Path, work: Path, owner: str) -> None:
        driver, environ = SnapshotDriver(work, node=name, name=f"{name}.example"), {"NAMESPACE": "default", "POD_NAME": owner}
        sidecar = Sidecar(work, node=name, address=driver.socket, kubeconfig=kubeconfig, args=ARGS, environ=environ)
        lack = BESIDE.get(rights[0], off(*BESIDE_STAGES[0]) if rights == (BESIDE_ENDS,) else UNUSED)
        super().__init__(cluster, rights[0], name, driver, sidecar, lack=lack)

    def start(self) -> None:
        plane, driver, cluster = self.cluster.plane, self.driver, self.cluster
        plane.add_node(self.name, {driver.key: self.name}, managed=False)
        plane.add_csinode(self.name, driver.driver, self.name, [driver.key])
        for class_, binding in ((self.name, IMMEDIATE), (self._late, LATE)):
            cluster.create(CLASSES, storage_class(class_, driver.driver, binding))
        self._snapshot(f"kept-{self.name}")
        self._snapshot(f"left-{self.name}", names.SNAPSHOT_FINALIZER)
        self.since = cluster.revision(SNAPSHOT_PATH)
        super().start()
        for number, source in enumerate(("kept", "missing")):
            body = claim(self.claims[number], self.name)
            body["spec"]["dataSource"] = {"apiGroup": names.SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": f"{source}-{self.name}"}
            cluster.create(CLAIMS, body)
        cluster.create(CLAIMS, claim(self.claims[2], self.name, annotations={"example.com/large": "x" * LARGEST_WHOLE}))

    def leave(self) -> None:
        for name in self.claims:
            self.cluster.delete(CLAIMS, name)
        self.cluster.delete(CLASSES, self._late)

    @property
    def _late(self) -> str:
        return f"{self.name}-late"

    @property
    def claims(self) -> tuple[str, str, str]:
        return f"copy-{self.name}", f"lost-{self.name}", f"large-{self.name}"

    def _snapshot(self, name: str, *finalizers: str) -> None:
        """As a snapshot controller leaves it."""
        kind: Json = {"apiVersion": f"{names.SNAPSHOT_GROUP}/v1"}
        spec: Json = {"source": {"volumeSnapshotContentName": name}}
        meta: Json = {"name": name, "finalizers": [*finalizers]}
        made = self.cluster.create(SNAPSHOT_PATH, kind | {"kind": "VolumeSnapshot", "metadata": meta, "spec": spec})
        status: Json = {"readyToUse": True, "boundVolumeSnapshotContentName": name, "restoreSize": "1Gi"}
        self.cluster.patch(SNAPSHOT_PATH, f"{name}/status", {"status": status})
        ref = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
        spec = {"deletionPolicy": "Retain", "driver": self.driver.driver, "source": {"snapshotHandle": name}, "volumeSnapshotRef": ref}
        self.cluster.create(CONTENTS, kind | {"kind": "VolumeSnapshotContent", "metadata": {"name": name}, "spec": spec})
        self.cluster.patch(CONTENTS, f"{name}/status", {"status": {"readyToUse": True, "snapshotHandle": name}})

    def shown(self, stored: Stored, stage: Sequence[str]) -> set[str]:
        driver, (copy, lost, large) = self.driver.driver, self.claims
        events = [
            item for item in stored.events if item["involvedObject"]["name"] == lost and driver in item["source"].get("component", "")
        ]
        volumes = [item for item in stored.volumes if item["spec"]["csi"]["driver"] == driver]
        published = any(item["storageClassName"] == self._late for item in stored.capacities)
        shown = {
            RESTORED: stored.phases.get(copy) == "Bound",
            PROTECTED: self._was_protected() if PROTECTED in stage and PROTECTED not in self.seen else False,
            SWEPT: not stored.finalizers.get(f"left-{self.name}"),
            LARGE: stored.phases.get(large) == "Bound",
            COUNTED: any((item.get("count") or 1) > 1 for item in events),
            PUBLISHED: published,
            EMPTIED: not volumes,
            WITHDRAWN: not published,
        }
        return {word for word, is_so in shown.items() if is_so}

    def _was_protected(self) -> bool:
        found = (event["object"]["metadata"] for event in self.cluster.history(SNAPSHOT_PATH, self.since))
        return any(meta["name"] == f"kept-{self.name}" and names.SNAPSHOT_FINALIZER in meta.get("finalizers", ()) for meta in found)


class Stored:
    """What the API server has, at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.phases = {item["metadata"]["name"]: item["status"].get("phase", "") for item in cluster.items(CLAIMS)}
        self.volumes, self.capacities = cluster.items(VOLUMES), cluster.items(CAPACITIES)
        self.events = cluster.items("/api/v1/namespaces/default/events")
        self.finalizers = {item["metadata"]["name"]: item["metadata"].get("finalizers") for item in cluster.items(SNAPSHOT_PATH)}


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, role: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[tuple[Right, ...], Outcome]]:
    cluster, work, found = Cluster(plane, role), tmp_path_factory.mktemp("s"), dict[tuple[Right, ...], Outcome]()
    crds = [file.read_text() for file in from_hack("parities.crds").manifests()]
    for crd in crds:
        plane.apply(crd)
    until(lambda: plane.serves(SNAPSHOT_PATH) and plane.serves(CONTENTS), "snapshots are served", seconds=30)
    try:
        with ExitStack() as stack:
            owner, these = _owner(cluster), list[Restoring]()
            for number, rights in enumerate(PLAYED):
                rules = upstream_rules()
                for right in rights:
                    rules = without(right, rules)
                kubeconfig = stack.enter_context(account(cluster, f"without-s{number}", rules))
                one = Restoring(cluster, rights, f"s{number}", kubeconfig, work, owner)
                stack.callback(one.driver.stop)
                stack.callback(one.sidecar.stop)
                one.start()
                these.append(one)
            watch(these, lambda: Stored(cluster), BESIDE_STAGES[0])
            for one in these:
                one.leave()
            watch(these, lambda: Stored(cluster), BESIDE_STAGES[1])
            for rights, one, spent in zip(PLAYED, these, calm(these), strict=True):
                found[rights] = one.outcome(BESIDE_ALL, one.claims, spent)
        yield found
    finally:
        for item in cluster.items(SNAPSHOT_PATH):
            cluster.patch(SNAPSHOT_PATH, item["metadata"]["name"], {"metadata": {"finalizers": None}})
        cluster.clean()
        for crd in crds:
            plane.kubectl("delete", "--timeout=60s", "-f", "-", input=crd)


def _owner(cluster: Cluster) -> str:
    """A pod of a Deployment's ReplicaSet."""
    cluster.plane.add_node("owner-node")
    labels = {"app": "owner"}
    template = {"metadata": {"labels": labels}, "spec": pod("x", nodeName="owner-node")["spec"]}
    template["spec"] = {key: value for key, value in template["spec"].items() if key != "terminationGracePeriodSeconds"}
    spec: Json = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    cluster.create(DEPLOYMENTS, {"metadata": {"name": "owner"}, "spec": spec})
    found = until(
        lambda: [item for item in cluster.items(PODS) if item["metadata"].get("labels", {}).get("app") == "owner"], "its pod is made"
    )
    return str(found[0]["metadata"]["name"])


@pytest.mark.slow
@pytest.mark.parametrize("right", BESIDE, ids=str)
def test_it_lives_stays_calm_and_says_what_is_off(outcomes: Mapping[tuple[Right, ...], Outcome], right: Right) -> None:
    outcomes[right,].check(BESIDE[right])


@pytest.mark.slow
def test_what_is_said_to_be_unused_is_not_missed(outcomes: Mapping[tuple[Right, ...], Outcome]) -> None:
    outcome = outcomes[BESIDE_UNUSED]
    outcome.check(UNUSED)
    assert "forbidden" not in outcome.log, outcome.log


@pytest.mark.slow
def test_where_it_cannot_start_it_ends_with_one_line(outcomes: Mapping[tuple[Right, ...], Outcome]) -> None:
    outcome = outcomes[BESIDE_ENDS,]
    assert (outcome.code, len(outcome.told)) == (1, 1), outcome
