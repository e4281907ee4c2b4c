"""A small set-up in which nothing is wrong for `check`, and the ways to break it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import REPOSITORY
from tests.contract.conftest import Server
from tests.contract.http_client import HttpClient

Json = dict[str, Any]
STORAGE, APPS, RBAC = "/apis/storage.k8s.io/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
OURS, PEER = "registry.example/csi-node-sidecar:1", "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0"
FLAGS = ("--csi-address=/csi/csi.sock", "--node-deployment", "--enable-capacity", "--capacity-ownerref-level=0")
_numbers = itertools.count(1)


@dataclass
class SetUp:
    """One driver on two nodes, with the sample's role. Everything bears a name of its own, so that many may share a server."""

    http: HttpClient
    server: Server
    name: str
    made: list[str] = field(default_factory=list)

    @property
    def driver(self) -> str:
        return f"{self.name}.example"

    @property
    def key(self) -> str:
        return f"topology.{self.driver}/node"

    @property
    def nodes(self) -> tuple[str, str]:
        return f"{self.name}-a", f"{self.name}-b"

    def make(self, path: str, obj: Json) -> Json:
        answer = self.http.send("POST", path, obj)
        self.made.append(f"{path}/{obj['metadata']['name']}")
        return answer.body

    def patch(self, path: str, change: Json) -> None:
        self.http.send("PATCH", path, change, content="application/merge-patch+json")

    def remove(self, path: str) -> None:
        self.http.try_to_send("DELETE", path, gracePeriodSeconds="0")

    def account(self) -> Path:
        return self.server.kubeconfig_for(namespace=self.name, service_account="csi-node-sidecar")

    # --- the parts --------------------------------------------------------------------------------------------------

    def all(self) -> None:
        self.make("/api/v1/namespaces", {"metadata": {"name": self.name}})
        self.make(f"/api/v1/namespaces/{self.name}/serviceaccounts", {"metadata": {"name": "default"}})
        self.role()
        self.driver_object()
        for node in self.nodes:
            self.node(node)
        self.make(f"{STORAGE}/storageclasses", self.storage_class())
        self.workload("sidecars")
        self.make(f"{STORAGE}/namespaces/{self.name}/csistoragecapacities", self.capacity())

    def role(self, change: Callable[[Json], None] = lambda rule: None) -> None:
        """That of deploy/base."""
        for obj in yaml.safe_load_all((REPOSITORY / "deploy" / "base" / "rbac.yaml").read_text()):
            kind, meta = obj["kind"], obj["metadata"]
            for rule in obj.get("rules", ()):
                change(rule)
            if "Role" in kind:
                meta["name"] = f"{self.name}-{meta['name']}"
            if "roleRef" in obj:
                obj["roleRef"]["name"] = f"{self.name}-{obj['roleRef']['name']}"
                obj["subjects"][0]["namespace"] = self.name
            plural, group = f"{kind.lower()}s", "/api/v1" if kind == "ServiceAccount" else RBAC
            inside = f"/namespaces/{self.name}" if meta.pop("namespace", None) else ""
            self.make(f"{group}{inside}/{plural}", obj)

    def without(self, resource: str, verb: str) -> None:
        """A right is taken out of the role."""
        path = f"{RBAC}/clusterroles/{self.name}-csi-node-sidecar"
        rules = self.http.send("GET", path).body["rules"]
        for rule in rules:
            if resource in rule["resources"]:
                rule["verbs"].remove(verb)
        self.patch(path, {"rules": rules})

    def driver_object(self) -> None:
        spec = {"attachRequired": False, "storageCapacity": True}
        self.make(f"{STORAGE}/csidrivers", {"metadata": {"name": self.driver}, "spec": spec})

    def node(self, name: str) -> None:
        self.make("/api/v1/nodes", {"metadata": {"name": name, "labels": {self.key: name}}})
        entry = {"name": self.driver, "nodeID": name, "topologyKeys": [self.key]}
        self.make(f"{STORAGE}/csinodes", {"metadata": {"name": name}, "spec": {"drivers": [entry]}})

    def storage_class(self, **more: Any) -> Json:
        return {
            "metadata": {"name": f"{self.name}-late"},
            "provisioner": self.driver,
            "volumeBindingMode": "WaitForFirstConsumer",
            **more,
        }

    def capacity(self) -> Json:
        labels = {"csi.storage.k8s.io/drivername": self.driver}
        topology = {"matchLabels": {self.key: self.nodes[0]}}
        meta = {"name": f"csisc-{self.name}", "labels": labels}
        return {"metadata": meta, "storageClassName": f"{self.name}-late", "nodeTopology": topology, "capacity": "1Gi"}

    def workload(
        self,
        name: str,
        *flags: str,
        kind: str = "daemonsets",
        image: str = OURS,
        nodes: Iterable[str] | None = None,
    ) -> None:
        """With a pod on each node, as its controller makes them."""
        labels = {"app": f"{self.name}-{name}"}
        template = {"metadata": {"labels": labels}, "spec": self.pod_spec(*flags, image=image)}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        self.make(f"{APPS}/namespaces/{self.name}/{kind}", {"metadata": {"name": name}, "spec": spec})
        for node in self.nodes if nodes is None else nodes:
            pod = {"metadata": {"name": f"{name}-{node}", "labels": labels}, "spec": template["spec"] | {"nodeName": node}}
            self.make(f"/api/v1/namespaces/{self.name}/pods", pod)

    def anew(self, *flags: str) -> None:
        """The DaemonSet with other flags."""
        self.remove(f"{APPS}/namespaces/{self.name}/daemonsets/sidecars")
        for node in self.nodes:
            self.remove(f"/api/v1/namespaces/{self.name}/pods/sidecars-{node}")
        self.workload("sidecars", *flags)

    def pod_spec(self, *flags: str, image: str) -> Json:
        environ = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()]
        given = flags or FLAGS
        mount = [{"name": "plugin", "mountPath": "/csi"}]
        provisioner = {"name": "csi-provisioner", "image": image, "args": list(given), "env": environ, "volumeMounts": mount}
        registrar = {"name": "registrar", "image": "r/csi-node-driver-registrar:v2", "args": ["--csi-address=/csi/csi.sock"]}
        return {
            "serviceAccountName": "csi-node-sidecar",
            "automountServiceAccountToken": False,
            "containers": [provisioner, {**registrar, "volumeMounts": mount}],
            "volumes": [{"name": "plugin", "hostPath": {"path": f"/var/lib/kubelet/plugins/{self.driver}"}}],
        }

    def clean(self) -> None:
        for path in reversed(self.made):
            self.remove(path)


_FIELDS = {"NODE_NAME": "spec.nodeName", "NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}


@contextmanager
def set_up(http: HttpClient, server: Server) -> Iterator[SetUp]:
    made = SetUp(http, server, f"check-{next(_numbers)}")
    try:
        made.all()
        yield made
    finally:
        made.clean()
