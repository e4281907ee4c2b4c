"""A real API server is put back to a backup in which a node that is at work is missing, and its volumes say that it was to be retired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sidecar.drain.node_loss import gap

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.harness.cluster import CLAIMS, LEASES, NODES, PODS, REPORTS, ROLE, after_looks
from tests.harness.drains import Ground, drainer_of, ground_on
from tests.harness.losing import gone, lose, notes_of

CLEANING = ("--node-delete-policy=Cleanup", "--node-gone-after=20s")


def test_nothing_is_cleared_away_until_somebody_acknowledges_it_anew(bin_dir: Path, tmp_path: Path) -> None:
    with ControlPlane(bin_dir, tmp_path / "plane", components=ALL_COMPONENTS) as plane:
        plane.apply(ROLE.read_text())
        with ground_on(plane, drainer_of(plane), tmp_path) as ground:
            story(ground, tmp_path / "backup")


def story(ground: Ground, backup: Path) -> None:
    plane = ground.plane
    first, second = (ground.driver(node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, announced=True)
        (before,) = ground.items(CLAIMS)
        ground.node("n2", second)
        with ground.judge(second, "--node-delete-policy=Orphan") as sidecar:
            sidecar.until_ready()
            until(lambda: gone(ground).get("evidence") == "Announced", "the loss is told")
        plane.copy_data(backup)
        ground.node("n1", first)
        with ground.judge(first) as sidecar:
            sidecar.until_ready()
            back = [f"n1/{ground.get(NODES, 'n1')['metadata']['uid']}", None]
            until(lambda: notes_of(ground) == back, "the volume says that it is on this machine, which stays")
            until(lambda: ground.phase(PODS, "db-0") == "Running", "the pod has its data again")
        plane.restore_data(backup)
        until(lambda: plane.serves(REPORTS), "it answers about reports again")
        assert [note is not None for note in notes_of(ground)] == [True, True], "it is to be retired again"
        # As old as a backup mostly is.
        long_ago = datetime.now(UTC) - timedelta(seconds=gap.LONGEST + 60.0)
        renewed = {"spec": {"renewTime": long_ago.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        ground.patch(LEASES, names.node_loss_watched(ground.driver_name), renewed)
        with ground.judge(second, *CLEANING, pace=1.0) as sidecar:
            sidecar.until_ready()
            until(lambda: "restored from a backup" in gone(ground).get("message", ""), "it is told")
            assert gone(ground)["evidence"] == "None"
            after_looks(sidecar, at="gone nodes")
            (claim,) = ground.items(CLAIMS)
            assert claim["metadata"]["uid"] == before["metadata"]["uid"]
            assert names.LOST_WITH not in claim["metadata"]["annotations"]
            report = names.drain_report("n1", ground.driver_name)
            ground.patch(REPORTS, report, {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}})
            # No further: the controllers have caches from before the restore, and are to be started anew, as Kubernetes says.
            until(lambda: before["metadata"]["uid"] not in kept(ground), "what a person has given up now goes", seconds=30)


def kept(ground: Ground) -> set[str]:
    return {item["metadata"]["uid"] for item in ground.items(CLAIMS) if "deletionTimestamp" not in item["metadata"]}
