"""What happens to pods and machines while claims keep coming: none is lost, none gets two volumes, and nothing is left on a disk.

What happens to the processes alone (kill -9 at any moment, a driver or an API server that is away) is in tests/e2e.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hack.lib.command import Failure
from hack.lib.control_plane import until
from tests.cluster.scenes import DAEMON_SET, NAMESPACE, SIDECAR, Installation, under_load

Base = Callable[[], Installation]


def test_a_rolling_update_under_load(base: Base) -> None:
    scene = base()
    before = {pod["metadata"]["uid"] for pod in scene.pods().values()}
    with under_load(scene):
        scene.kubectl("rollout", "restart", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}")
        scene.await_rollout()
    assert not before & {pod["metadata"]["uid"] for pod in scene.pods().values()}


def test_out_of_memory_under_load(base: Base) -> None:
    """A second process in its container takes the memory, and the kernel is told whom to choose."""
    scene = base()
    node = scene.cluster.nodes[0]
    before = scene.restarts(node.name)
    with under_load(scene, pause=0.3):
        node.run("sh", "-c", f"echo 1000 > /proc/{scene.process_of(node.name)}/oom_score_adj")
        hog = "import time; held = bytearray(120 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(5)"
        where = (f"--namespace={NAMESPACE}", scene.pods()[node.name]["metadata"]["name"], f"--container={SIDECAR}")
        with contextlib.suppress(Failure):  # the command ends with what it is run in
            scene.kubectl("exec", *where, "--", "/opt/csi-node-sidecar/bin/python", "-c", hog)
        until(lambda: scene.restarts(node.name) == before + 1, "the sidecar is restarted")
        assert scene.status_of(node.name)["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_a_kubelet_is_killed_under_load(base: Base) -> None:
    """Sidecar and driver go on without it, and are the same after it."""
    scene = base()
    node = scene.cluster.nodes[0]
    before = scene.restarts(node.name), scene.process_of(node.name)
    with under_load(scene):
        node.kill_kubelet()
        made = len(scene.on_disk()[node.name])
        until(lambda: len(scene.on_disk()[node.name]) > made, f"a volume is made on {node.name}, which has no kubelet")
        node.start_kubelet()
        scene.cluster.await_ready()
    assert (scene.restarts(node.name), scene.process_of(node.name)) == before


def test_a_node_reboots_in_the_middle_of_creations(base: Base) -> None:
    scene = base()
    node = scene.cluster.nodes[0]
    scene.make_claims("boot-", 60)
    until(lambda: len(scene.on_disk()[node.name]) >= 3, "the first volumes")
    node.reboot()
    scene.cluster.await_ready()
    scene.await_bound(60)
    scene.await_rollout()
    scene.check_books()
