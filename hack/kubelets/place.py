"""A cluster's files, names and addresses. Nothing here touches them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from hack.kubelets.errors import ClusterError
from hack.lib import cache

REPOSITORY = Path(__file__).resolve().parents[2]
# The prefix of every name outside the cluster's own folder: processes, cgroups.
FAMILY = "csi-node-sidecar"

# The same in every cluster, as each has a network of its own. The API server's is the first of the service range, which is what pods are
# told; it is a real address here, so that nothing has to translate it.
SERVICE_RANGE = "10.0.0.0/24"
API_ADDRESS = "10.0.0.1"
GATEWAY = "10.99.0.1"
MOST_NODES = 200


@dataclass(frozen=True, slots=True)
class Place:
    """One cluster's place on this machine."""

    name: str
    folder: Path

    @property
    def ident(self) -> str:
        """An argument of all its processes, by which they are found even if the processes that started them are gone."""
        return f"{FAMILY}.{self.name}.{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    @property
    def mark(self) -> Path:
        """A file that marks the folder as a cluster's, which may be removed as a whole: --dir could be a mistake."""
        return self.folder / ".cluster"

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

    @property
    def certificate(self) -> Path:
        """The API server's own, in a file with the authority that signed it."""
        return self.folder / "apiserver" / "apiserver.crt"

    def node(self, number: int) -> NodePlace:
        return NodePlace(number, f"{self.ident}.node-{number}", self.folder / "nodes" / f"node-{number}")


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One node's. Its ident is also the name of the cgroup that holds its containers."""

    number: int
    ident: str
    folder: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def disk(self) -> Path:
        """What the node has as its root folder; it outlives a reboot."""
        return self.folder / "disk"

    @property
    def address(self) -> str:
        return f"10.99.0.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.244.{self.number}.0/24"


def place_of(name: str, folder: Path | None = None) -> Place:
    # The name becomes part of a cgroup's and of a Kubernetes name.
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", name):
        raise ClusterError(f"a cluster cannot be called {name!r}: up to 32 lower-case letters, digits and dashes")
    return Place(name, (folder or cache.root() / "clusters" / name).absolute())


def ident_in(name: str) -> str | None:
    """The cluster's ident, if this is its name for something of its own."""
    found = re.match(rf"{re.escape(FAMILY)}\.[a-z0-9-]+\.[0-9a-f]{{8}}(?=$|\.)", name)
    return found.group() if found else None
