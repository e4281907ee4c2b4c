"""A DaemonSet that runs external-provisioner gets our image, nothing else, and later its own again."""

from __future__ import annotations

from collections.abc import Callable

from hack.lib.control_plane import until
from tests.cluster.scenes import DAEMON_SET, NAMESPACE, OURS, SIDECAR, THEIRS, Change, Installation, Json, container, the_daemon_set

# What a driver's manifest for nodes has; nothing of it is ours.
UPSTREAMS = [
    "--csi-address=/csi/csi.sock",
    "--v=5",
    "--feature-gates=Topology=true",
    "--node-deployment=true",
    "--node-deployment-base-delay=500ms",
    "--enable-capacity",
    "--capacity-ownerref-level=1",
    "--http-endpoint=:8080",
]


def as_upstream(objects: list[Json]) -> None:
    found = container(the_daemon_set(objects), SIDECAR)
    found["image"], found["args"] = THEIRS, UPSTREAMS
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        del found[probe]


def test_only_the_image_is_swapped_and_swapped_back(base: Callable[[Change], Installation]) -> None:
    scene = base(as_upstream)
    scene.make_claims("theirs-", 6)
    scene.stateful_set("writer", 2)
    scene.await_bound(8)
    born = {name: scene.born(name) for name in ("writer-0", "writer-1")}

    swap(scene, OURS)
    scene.make_claims("ours-", 6)
    scene.await_bound(14)
    scene.kubectl("delete", "persistentvolumeclaim", scene.where, *(f"theirs-{number}" for number in range(6)))
    scene.check_books()

    swap(scene, THEIRS)
    scene.make_claims("again-", 6)
    scene.await_bound(14)
    scene.kubectl("delete", "persistentvolumeclaim", scene.where, *(f"ours-{number}" for number in range(6)))
    until(lambda: len(scene.volumes()) == 8, "volumes of both are deleted by either")
    scene.check_books()
    assert {name: scene.born(name) for name in born} == born
    assert [scene.pod(name)["status"]["containerStatuses"][0]["restartCount"] for name in born] == [0, 0]


def swap(scene: Installation, image: str) -> None:
    scene.kubectl("set", "image", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}", f"{SIDECAR}={image}")
    scene.await_rollout()
    assert {scene.status_of(node)["image"].rpartition("/")[2] for node in scene.nodes} == {image}


def test_our_image_starts_as_a_user_without_any_rights(base: Callable[[], Installation]) -> None:
    """Any will do that may reach the driver's socket."""
    scene = base()
    one = {"name": "main", "image": OURS, "imagePullPolicy": "IfNotPresent", "args": ["--version"]}
    strict = {"runAsUser": 65532, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    spec = {"restartPolicy": "Never", "containers": [{**one, "securityContext": strict}]}
    meta = {"name": "version", "namespace": scene.namespace}
    scene.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    until(lambda: scene.pod("version")["status"].get("phase") == "Succeeded", lambda: f"it ends well: {scene.pod('version')['status']}")
    assert scene.kubectl("logs", scene.where, "version").startswith("csi-node-sidecar")
