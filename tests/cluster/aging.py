"""A cluster on which the sidecar's token lives ten minutes, the least that Kubernetes allows: it grows old while other scenarios run."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.scenes import IMAGES, Installation, Json, image_archives
from tests.e2e.conftest import from_hack

MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LIFETIME = 600


@dataclass(frozen=True)
class Token:
    """What stands in a container's token file. It is a secret: nothing shows it."""

    text: str = field(repr=False)

    @property
    def expires(self) -> int:
        payload = self.text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return int(claims["exp"])


@dataclass(frozen=True)
class Aging:
    installation: Installation
    first: dict[str, Token]
    """By node, what the sidecars began with."""

    def now(self) -> dict[str, Token]:
        return tokens_of(self.installation)


def tokens_of(installation: Installation) -> dict[str, Token]:
    found = {}
    for node in installation.cluster.nodes:
        file = f"/proc/{installation.process_of(node.name)}/root{MOUNT}/token"
        found[node.name] = Token(node.run("cat", file).strip())
    return found


def with_short_lived_token(daemon_set: Json) -> None:
    volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
    (token,) = (
        source for volume in volumes for source in volume.get("projected", {}).get("sources", ()) if "serviceAccountToken" in source
    )
    token["serviceAccountToken"]["expirationSeconds"] = LIFETIME


def grow_old(folder: Path) -> Iterator[Aging]:
    running: Any = from_hack("kubelets.cluster").Cluster.up(nodes=1, name=f"aging-{os.getpid()}", folder=folder, leashed=True)
    try:
        running.load(*image_archives(*IMAGES))
        installation = Installation(running)
        installation.install(change=with_short_lived_token)
        yield Aging(installation, tokens_of(installation))
    finally:
        running.down()
