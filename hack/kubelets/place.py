"""A cluster's files, names and addresses. Nothing here touches them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hack.lib import cache
from hack.lib.command import Failure

# The same in every cluster, as each has a network of its own. The API server's is the first of the service range, which is what pods are
# told; it is a real address here, so that nothing has to translate it.
API_ADDRESS = "10.0.0.1"
GATEWAY = "10.99.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """One cluster's place on this machine: a folder in the cache, and a name for all that is outside of it."""

    name: str

    def __post_init__(self) -> None:
        # It becomes part of a cgroup's and of a Kubernetes name.
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", self.name):
            raise Failure(f"a cluster cannot be called {self.name!r}: up to 32 lower-case letters, digits and dashes")

    @property
    def ident(self) -> str:
        """An argument of all its processes, by which they are found even if the processes that started them are gone."""
        return f"csi-node-sidecar.{self.name}"

    @property
    def folder(self) -> Path:
        return cache.root() / "clusters" / self.name

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for programs outside of the cluster's network."""
        return self.folder / "kubeconfig"

    def node(self, number: int) -> NodePlace:
        return NodePlace(number, f"{self.ident}.node-{number}", self.folder / "nodes" / f"node-{number}")

    def owns(self, name: str) -> bool:
        """Whether this is its name for something of its own."""
        return name == self.ident or name.startswith(f"{self.ident}.")


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One node's. Its ident is also the name of the cgroup that holds its containers; its disk outlives a reboot."""

    number: int
    ident: str
    disk: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"10.99.0.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.244.{self.number}.0/24"
