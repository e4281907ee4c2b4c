"""Replicas are made anew elsewhere on real kubelets: two nodes at once are to be emptied, and never are two replicas away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import until
from sidecar.model import names
from tests.cluster.draining import Database, Drained, evacuating


def test_one_replica_after_the_other_is_made_anew_though_sidecars_are_killed(
    cluster: Cluster, deploy: Callable[[Drained], Drained], tmp_path: Path
) -> None:
    """The second has nowhere to go until the first node is back, so that nothing but the locks keeps both from being away."""
    flags = ("--max-concurrent-evacuations=2", "--reprovision-pause=0")
    scene = deploy(Drained(cluster, evacuating(cluster, tmp_path / "manifests"), flags=flags))
    db = Database(scene, replicas=2)
    claims, nodes = db.claims(), db.ready()
    born = {name: scene.born(name) for name in claims}
    with db.watched(tmp_path) as seen:
        scene.taint(*nodes.values())
        made_again = lambda: next((name for name, uid in db.claims().items() if uid != claims[name]), "")  # noqa: E731
        # Which space nodes have published is listed every minute, and a pod that did not fit then is asked about a minute later.
        pod = until(made_again, "a claim is made again", seconds=100)
        first, other = nodes[pod], next(name for name in claims if name != pod)
        scene.kill_sidecar(first)
        db.await_whole()
        until(lambda: scene.state(first) == "Success", f"the evacuation of {first} succeeds")
        assert scene.born(pod) != born[pod]
        # It is drained in earnest, and comes back.
        with scene.drain(first, tmp_path / "first.log") as drain:
            drain.await_success()
        assert (db.claims()[other], scene.born(other)) == (claims[other], born[other])

        second = nodes[other]
        with scene.drain(second, tmp_path / "second.log") as drain:
            until(drain.refusals, "the gate of the other node holds a drain")
            scene.kill_sidecar(second)
            scene.let_be(first)
            drain.await_end()
            assert f"{other} must not be evicted" in drain.said(), "it is the sidecar's to send away"
        db.await_whole()
        with scene.drain(second, tmp_path / "third.log") as drain:
            drain.await_success()
        until(lambda: scene.state(second) == "Success", f"the evacuation of {second} succeeds")
        assert db.ready() == {pod: db.ready()[pod], other: first}
        assert second not in db.ready().values()
        assert seen.fewest_ready() == db.replicas - 1
        assert seen.claims() == {pod: 2, other: 2}
    replacements = {item["metadata"]["uid"] for item in db.pods().values()}
    until(lambda: replacements <= scene.events(names.REPLICA_READY), "both are told to be ready")
