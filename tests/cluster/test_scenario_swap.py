"""A DaemonSet that runs external-provisioner gets our image, nothing else, and later its own again."""

from __future__ import annotations

import pytest

from hack.lib.control_plane import until
from tests.cluster.scenes import (
    DAEMON_SET,
    EXAMPLE,
    NAMESPACE,
    OURS,
    SIDECAR,
    STATEFUL_SET,
    THEIRS,
    Installation,
    Json,
    claim,
    container,
    lines_of,
)

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


def _as_upstream(daemon_set: Json) -> None:
    found = container(daemon_set, SIDECAR)
    found["args"] = UPSTREAMS
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        del found[probe]


def test_only_the_image_is_swapped_and_swapped_back(loaded: Installation) -> None:
    loaded.install(image=THEIRS, change=_as_upstream)
    _works(loaded, "theirs-")
    loaded.kubectl("apply", f"--kustomize={STATEFUL_SET}")
    loaded.kubectl_waits("rollout", "status", "statefulset/writer", f"--namespace={EXAMPLE}", seconds=90)
    before = len(lines_of(loaded, "writer-0"))

    _swap(loaded, OURS)
    _works(loaded, "ours-")
    loaded.delete_claims("theirs-")
    loaded.check_books()

    _swap(loaded, THEIRS)
    _works(loaded, "again-")
    loaded.delete_claims("ours-")
    loaded.delete_claims("again-")
    loaded.check_books()
    assert len(lines_of(loaded, "writer-0")) > before
    assert all(item["status"]["containerStatuses"][0]["restartCount"] == 0 for item in loaded.items("pods", f"--namespace={EXAMPLE}"))
    loaded.kubectl("delete", f"--kustomize={STATEFUL_SET}", "--wait=true", seconds=120)
    until(lambda: not loaded.volumes(), "the volumes of the example to be gone", seconds=60)
    loaded.check_books()


def _swap(installation: Installation, image: str) -> None:
    generation = installation.get("daemonset", DAEMON_SET, f"--namespace={NAMESPACE}")["metadata"]["generation"]
    installation.kubectl("set", "image", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}", f"{SIDECAR}={image}")
    installation.await_rollout()
    assert installation.get("daemonset", DAEMON_SET, f"--namespace={NAMESPACE}")["metadata"]["generation"] == generation + 1
    assert {installation.status_of(node.name)["image"].rpartition("/")[2] for node in installation.cluster.nodes} == {image}


def _works(installation: Installation, prefix: str) -> None:
    installation.apply(*(claim(f"{prefix}{number}") for number in range(6)))
    installation.await_bound(prefix, 6, seconds=90)
    installation.check_books()


@pytest.fixture(autouse=True)
def _ours_again(loaded: Installation) -> object:
    yield
    loaded.install()
