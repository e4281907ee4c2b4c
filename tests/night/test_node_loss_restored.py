"""A real API server is put back to a backup in which a node that is at work is missing, and its volumes say that it was to be retired."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, until
from hack.lib.programs import all_of
from sidecar.drain.node_loss import gap
from sidecar.model import names
from tests.e2e.conftest import CLAIMS, PODS, ROLE, Cluster
from tests.e2e.draining import LEASES, REPORTS, Ground, installed
from tests.e2e.losing import ALPHA, LOOK, gone, lose, notes_of

CLEANING = ("--node-delete-policy=Cleanup", "--node-gone-after=20s")
SECOND_LOOK = 80.0
"""Seconds after the first one, and after --node-gone-after."""
REPORT = names.drain_report("n1", ALPHA)


def test_nothing_is_cleared_away_until_somebody_acknowledges_it_anew(bin_dir: Path, tmp_path: Path) -> None:
    with ControlPlane(bin_dir, tmp_path / "plane", components=ALL_COMPONENTS) as plane:
        plane.apply(ROLE.read_text())
        role = plane.kubeconfig_for(namespace="default", service_account="csi-provisioner")
        with installed(plane, "node-loss/rbac.yaml"):
            story(Ground(Cluster(plane, role), tmp_path), tmp_path / "backup")


def story(ground: Ground, backup: Path) -> None:
    cluster = ground.cluster
    first, second = (ground.driver(ALPHA, node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, announced=True)
        (before,) = cluster.items(CLAIMS)
        ground.node("n2", second)
        with ground.sidecar(second, "--node-delete-policy=Orphan") as sidecar:
            sidecar.until_ready()
            until(lambda: gone(cluster).get("evidence") == "Announced", "the loss is told", seconds=LOOK)
        cluster.plane.copy_data(backup)
        ground.node("n1", first)
        with ground.sidecar(first) as sidecar:
            sidecar.until_ready()
            back = [f"n1/{ground.get('n1')['metadata']['uid']}", None]
            until(lambda: notes_of(cluster) == back, "the volume says that it is on this machine, which stays", seconds=LOOK)
            until(lambda: cluster.phase(PODS, "db-0") == "Running", "the pod has its data again", seconds=LOOK)
        cluster.plane.restore_data(backup)
        until(lambda: cluster.plane.serves(REPORTS), "it answers about reports again", seconds=60)
        assert [note is not None for note in notes_of(cluster)] == [True, True], "it is to be retired again"
        # As old as a backup mostly is.
        long_ago = datetime.now(UTC) - timedelta(seconds=gap.LONGEST + 60.0)
        renewed = {"spec": {"renewTime": long_ago.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        cluster.patch(LEASES, names.node_loss_watched(ALPHA), renewed)
        with ground.sidecar(second, *CLEANING) as sidecar:
            sidecar.until_ready()
            until(lambda: "restored from a backup" in gone(cluster).get("message", ""), "it is told", seconds=LOOK)
            assert gone(cluster)["evidence"] == "None"
            time.sleep(SECOND_LOOK)
            (claim,) = cluster.items(CLAIMS)
            assert claim["metadata"]["uid"] == before["metadata"]["uid"]
            assert names.LOST_WITH not in claim["metadata"]["annotations"]
            cluster.patch(REPORTS, REPORT, {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}})
            # No further: the controllers have caches from before the restore, and are to be started anew, as Kubernetes says.
            until(lambda: before["metadata"]["uid"] not in kept(cluster), "what a person has given up now goes", seconds=2 * LOOK)


def kept(cluster: Cluster) -> set[str]:
    return {item["metadata"]["uid"] for item in cluster.items(CLAIMS) if "deletionTimestamp" not in item["metadata"]}
