"""Which cluster a client writes to, as people know it: by the context of their kubeconfig and the server's address, without a secret."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from sidecar.kube.api import Reached
from sidecar.model.objects import Json


@dataclass(frozen=True, slots=True)
class WhichCluster:
    server: str
    """As `shown_address` has it."""
    context: str | None = None
    """Of the kubeconfig; None: there is no kubeconfig."""
    in_pod: bool = False
    """It is the one that the pod runs in which this process runs in."""

    @classmethod
    def of(cls, reached: Reached) -> "WhichCluster":
        return cls(shown_address(reached.server), reached.context, reached.in_pod)

    def __str__(self) -> str:
        if self.in_pod:
            return f"the cluster of this pod, at {self.server}"
        return self.server if self.context is None else f"context {self.context} of the kubeconfig, at {self.server}"

    def as_json(self) -> Json:
        source = "pod" if self.in_pod else "master" if self.context is None else "kubeconfig"
        return {"source": source, **({"context": self.context} if self.context else {}), "server": self.server}


def shown_address(server: str) -> str:
    """Without what may be a secret: user name, password, query and fragment. The path stays, by which some proxies tell clusters apart."""
    scheme, _, rest = server.partition("://")
    # A password that is not percent-encoded may hold what ends the host, which stands behind it.
    parts = urlsplit(f"{scheme}://{rest.rpartition('@')[2]}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
