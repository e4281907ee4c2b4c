"""From `kubectl apply -k` to an uninstall that leaves nothing, with pods that write to their volumes in between."""

from __future__ import annotations

from hack.lib.control_plane import until
from tests.cluster.scenes import BASE, DRIVER, EXAMPLE, PLUGIN, STATEFUL_SET, VOLUMES, Installation, claim, lines_of, pod


def test_installed_with_one_command_and_uninstalled_without_a_trace(loaded: Installation) -> None:
    loaded.kubectl("apply", f"--kustomize={BASE}")
    loaded.await_rollout()
    until(lambda: len(loaded.items("csistoragecapacities", "--all-namespaces")) >= len(loaded.cluster.nodes), "published capacity")
    loaded.apply(claim("life-0"))
    loaded.await_bound("life-", 1)
    loaded.delete_claims("life-")
    loaded.kubectl("delete", f"--kustomize={BASE}", "--wait=true", seconds=120)
    until(lambda: not loaded.items("csistoragecapacities", "--all-namespaces"), "published capacity to be gone", seconds=60)
    for kind in ("csidrivers", "storageclasses", "persistentvolumes"):
        assert loaded.items(kind) == []
    for node in loaded.cluster.nodes:
        # The kubelet looks for sockets that are gone when it is told so.
        until(lambda node=node: not _registered(loaded, node.name), f"{DRIVER} to leave the CSINode {node.name}", seconds=60)
        # The driver's name beside its socket is left where drains were judged before, as deploy/base/README.md says.
        found = f"find {PLUGIN} {VOLUMES} -mindepth 1 -not -name .journal -not -name '.csi-node-sidecar.csi.sock.driver'"
        assert node.run("sh", "-c", f"{found}; ls /var/lib/kubelet/plugins_registry").split() == []
        assert "kubernetes.io~csi" not in node.run("cat", "/proc/self/mountinfo")


def _registered(installation: Installation, node: str) -> bool:
    drivers = installation.get("csinode", node).get("spec", {}).get("drivers") or []
    return any(item["name"] == DRIVER for item in drivers)


def test_a_stateful_set_finds_its_data_again(installed: Installation) -> None:
    installed.kubectl("apply", f"--kustomize={STATEFUL_SET}")
    names = [f"writer-{number}" for number in range(3)]
    rollout = ("rollout", "status", "statefulset/writer", f"--namespace={EXAMPLE}")
    installed.kubectl_waits(*rollout, seconds=90)
    nodes = {item["spec"]["nodeName"] for item in installed.items("pods", f"--namespace={EXAMPLE}")}
    assert len(nodes) == min(3, len(installed.cluster.nodes))
    before = {name: lines_of(installed, name) for name in names}
    installed.kubectl("delete", "pods", f"--namespace={EXAMPLE}", *names, seconds=90)
    installed.kubectl_waits(*rollout, seconds=90)
    for name in names:
        after = lines_of(installed, name)
        assert before[name]
        assert list(after[: len(before[name])]) == list(before[name])
        assert [int(line.split()[0]) for line in after] == list(range(1, len(after) + 1))
    installed.check_books()
    installed.kubectl("delete", f"--kustomize={STATEFUL_SET}", "--wait=true", seconds=120)
    until(lambda: not installed.volumes(), "the volumes of the example to be gone", seconds=60)


def test_claims_that_bind_at_once_are_raced_for(installed: Installation) -> None:
    installed.apply(*(claim(f"race-{number}") for number in range(40)))
    installed.await_bound("race-", 40)
    shares = {node: len(found) for node, found in installed.on_disk().items()}
    assert min(shares.values()) >= 5, shares
    installed.check_books()
    installed.apply(pod("race-reader", "race-0", "echo here > /data/file"))
    script = ("exec", "race-reader", "--", "cat", "/data/file")
    installed.kubectl_waits("wait", "--for=condition=Ready", "pod/race-reader", seconds=60)
    assert installed.kubectl(*script).strip() == "here"
    installed.kubectl("delete", "pod", "race-reader", seconds=60)
    installed.delete_claims("race-")
