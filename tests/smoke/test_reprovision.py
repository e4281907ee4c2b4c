"""A replica is made anew elsewhere, and never are two away at once."""

from __future__ import annotations

from contextlib import ExitStack

from hack.lib.control_plane import until
from sidecar.model import names
from tests.harness.cluster import VOLUMES
from tests.harness.drains import Ground
from tests.harness.replicas import Replicas


def test_a_replica_is_made_anew_and_never_are_two_away(ground: Ground) -> None:
    with ExitStack() as running:
        db = Replicas(ground, running)
        before, pod = db.claims(), db.on("n1")
        driver, sidecar = db.of("n1")
        ground.taint("n1")
        assert db.fewest_until(lambda: db.has_left(pod, "n1") and ground.state("n1", driver) == "Success", f"{pod} leaves n1") >= 2
        until(lambda: len(ground.ready()) == 3 and db.at_rest(), "all are ready, and no Lease or mark is left")
        assert ground.ready()[pod] == "n4"
        assert sidecar.metric("csi_node_sidecar_reprovisions_total", result="ready") == 1
        until(lambda: len(ground.items(VOLUMES)) == 3, "the old volume is gone")
        for reason in (names.CLAIM_REPROVISIONED, names.REPLICA_READY):
            until(lambda reason=reason: len(db.told(reason)) == 1, f"{reason} is told once")  # type: ignore[misc]
        after = db.claims()
        assert [name for name in before if before[name] != after[name]] == [f"data-{pod}"]
