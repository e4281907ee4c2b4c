"""The kubelet replaces a token before it expires, and the sidecar goes on with the new one. It takes ten minutes, a token's life."""

from __future__ import annotations

import asyncio
import base64 as encoding
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.kube.api import CLAIMS
from sidecar.kube.client import open_client
from sidecar.kube.errors import Unauthorized
from tests.cluster.scenes import BESIDE, Change, Installation, Json, the_daemon_set

# The kubelet mounts it below /var/run. In an image where that is a link to /run, the link leads elsewhere from outside of the container.
MOUNT = "/run/secrets/kubernetes.io/serviceaccount"
# The least that Kubernetes allows.
LIFETIME = 600
# The server grants a minute for clocks that differ, and remembers for seconds whom it has let in.
LENIENCY = 80


def short_lived(objects: list[Json]) -> None:
    volumes = the_daemon_set(objects)["spec"]["template"]["spec"]["volumes"]
    sources = [source for volume in volumes for source in volume.get("projected", {}).get("sources", ())]
    (token,) = (source for source in sources if "serviceAccountToken" in source)
    token["serviceAccountToken"]["expirationSeconds"] = LIFETIME


def test_a_rotated_token_is_taken_up(base: Callable[[Change], Installation], tmp_path: Path) -> None:
    scene = base(short_lived)
    first = {node: token_of(scene, node) for node in scene.nodes}
    ends = max(expires(token) for token in first.values())
    assert ends < time.time() + LIFETIME + 5
    # Both containers run under one account, and a volume of the kubelet's with its token would be in both.
    for node in scene.cluster.nodes:
        root = f"/proc/{scene.process_of(node.name, BESIDE)}/root"
        seen = node.run("sh", "-c", f"ls -d {root}/csi {root}{MOUNT} {root}/var{MOUNT} 2>/dev/null || true")
        assert seen.split() == [f"{root}/csi"]
    before = {node: scene.restarts(node) for node in scene.nodes}
    scene.make_claims("young-", 5)
    scene.await_bound(5)

    time.sleep(max(0.0, ends + LENIENCY - time.time()))
    for node, token in first.items():
        with pytest.raises(Unauthorized):
            list_claims(scene, token, tmp_path)
        list_claims(scene, token_of(scene, node), tmp_path)
    scene.make_claims("old-", 5)
    scene.await_bound(10)
    scene.check_books()
    assert {node: scene.restarts(node) for node in scene.nodes} == before


def token_of(scene: Installation, node: str) -> str:
    """What stands in the container's token file. It is a secret: nothing shows it."""
    return scene.cluster.node(node).run("cat", f"/proc/{scene.process_of(node)}/root{MOUNT}/token").strip()


def expires(token: str) -> int:
    payload = token.split(".")[1]
    return int(json.loads(encoding.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])


def list_claims(scene: Installation, token: str, folder: Path) -> None:
    config = json.loads(scene.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))

    async def ask() -> None:
        async with await open_client(kubeconfig=str(file), environ={}) as kube:
            await kube.list_page(CLAIMS, limit=1)

    asyncio.run(ask())
