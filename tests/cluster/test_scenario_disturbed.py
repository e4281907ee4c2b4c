"""Something dies or is replaced while claims keep coming: none is lost, none gets two volumes, and nothing is left on a disk."""

from __future__ import annotations

import contextlib
import time

from hack.lib.control_plane import until
from tests.cluster.scenes import BESIDE, DAEMON_SET, NAMESPACE, SIDECAR, ClusterError, Installation, claim, under_load


def test_a_rolling_update_under_load(installed: Installation) -> None:
    with under_load(installed, "roll-") as load:
        time.sleep(3)
        installed.kubectl("rollout", "restart", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}")
        installed.await_rollout()
        time.sleep(5)
    load.check()
    installed.check_books()
    installed.delete_claims("roll-")


def test_killed_under_load(installed: Installation) -> None:
    before = {node.name: installed.restarts(node.name) for node in installed.cluster.nodes}
    with under_load(installed, "kill-", pause=0.3) as load:
        for node in installed.cluster.nodes:
            time.sleep(2)
            node.run("kill", "-9", str(installed.process_of(node.name)))
        for name, count in before.items():
            until(
                lambda name=name, count=count: installed.restarts(name) == count + 1, f"the sidecar on {name} to be restarted", seconds=60
            )
        time.sleep(3)
    assert not load.failed
    installed.check_books()
    installed.delete_claims("kill-")


def test_out_of_memory_under_load(installed: Installation) -> None:
    """A second process in its container takes the memory, and the kernel is told whom to choose."""
    node = installed.cluster.nodes[0]
    before = installed.restarts(node.name)
    with under_load(installed, "oom-", pause=0.3) as load:
        time.sleep(2)
        node.run("sh", "-c", f"echo 1000 > /proc/{installed.process_of(node.name)}/oom_score_adj")
        hog = "import time; held = bytearray(120 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(5)"
        name = installed.pods()[node.name]["metadata"]["name"]
        python = "/opt/csi-node-sidecar/bin/python"
        _whatever(installed, "exec", f"--namespace={NAMESPACE}", name, f"--container={SIDECAR}", "--", python, "-c", hog)
        until(lambda: installed.restarts(node.name) == before + 1, "the sidecar to be restarted", seconds=60)
        assert installed.status_of(node.name)["lastState"]["terminated"]["reason"] == "OOMKilled"
        time.sleep(3)
    assert not load.failed
    installed.check_books()
    installed.delete_claims("oom-")


def test_the_kubelet_is_killed(installed: Installation) -> None:
    node = installed.cluster.nodes[0]
    with under_load(installed, "kubelet-") as load:
        time.sleep(2)
        node.kill_kubelet()
        time.sleep(8)
        node.start_kubelet()
        installed.cluster.await_ready()
        time.sleep(3)
    load.check()
    installed.check_books()
    installed.delete_claims("kubelet-")


def test_a_node_reboots_in_the_middle_of_creations(installed: Installation) -> None:
    node = installed.cluster.nodes[0]
    installed.apply(*(claim(f"boot-{number}") for number in range(60)))
    until(lambda: len(installed.on_disk()[node.name]) >= 3, "the first volumes", seconds=30)
    node.reboot()
    installed.cluster.await_ready()
    installed.await_bound("boot-", 60, seconds=120)
    installed.await_rollout()
    installed.check_books()
    installed.delete_claims("boot-")


def test_the_driver_is_restarted(installed: Installation) -> None:
    node = installed.cluster.nodes[0]
    before = installed.restarts(node.name, BESIDE)
    sidecars = {item.name: installed.restarts(item.name) for item in installed.cluster.nodes}
    with under_load(installed, "driver-", pause=0.3) as load:
        time.sleep(2)
        node.run("kill", "-9", str(installed.process_of(node.name, BESIDE)))
        until(lambda: installed.restarts(node.name, BESIDE) == before + 1, "the driver to be restarted", seconds=60)
        time.sleep(3)
    assert not load.failed
    installed.check_books()
    assert {name: installed.restarts(name) for name in sidecars} == sidecars
    installed.delete_claims("driver-")


def test_the_api_server_is_away_for_a_minute(installed: Installation) -> None:
    before = {node.name: installed.restarts(node.name) for node in installed.cluster.nodes}
    installed.apply(*(claim(f"away-{number}") for number in range(20)))
    with installed.cluster.without_api():
        time.sleep(60)
    installed.await_volumes("away-", 20, seconds=120)
    # The volume controller has lost its watches too, and comes back when its own back-off ends: 75 s have been seen.
    installed.await_bound("away-", 20, seconds=300)
    installed.apply(*(claim(f"away-back-{number}") for number in range(5)))
    installed.await_bound("away-back-", 5, seconds=60)
    installed.check_books()
    assert {name: installed.restarts(name) for name in before} == before
    installed.delete_claims("away-")


def _whatever(installation: Installation, *arguments: str) -> None:
    """The command ends with what it is run in."""
    with contextlib.suppress(ClusterError):
        installation.kubectl(*arguments, seconds=30)
