"""A cluster as lists answer it: what a look from outside finds."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sidecar.commands.explain.listing_io import Cluster
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names

Json = dict[str, Any]
DRIVER, OTHER = "local.example", "other.example"


@dataclass
class Lists:
    """A cluster of objects by plural, page by page; what is in `broken` is answered with that."""

    objects: dict[str, list[Json]] = field(default_factory=dict)
    broken: dict[str, ApiError] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    later: dict[tuple[str, str], Json | ApiError] = field(default_factory=dict)
    """What is answered to who asks for it by name, and was in no list."""
    page_size: int = 2

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self._look(resource, name, "")
        answer = self.later.get((resource.plural, name))
        if isinstance(answer, ApiError):
            raise answer
        if answer is not None:
            return answer
        for obj in self.objects.get(resource.plural, ()):
            if obj["metadata"]["name"] == name:
                return obj
        raise NotFound(f"{resource.plural} {name} not found", status=404)

    async def list_page(self, resource: Resource, *, field_selector: str = "", continue_token: str = "", **_: Any) -> Page:
        self._look(resource, "", field_selector)
        found = self.objects.get(resource.plural, [])
        if field_selector:
            node = field_selector.removeprefix("spec.nodeName=")
            found = [obj for obj in found if obj["spec"].get("nodeName") == node]
        start = int(continue_token or 0)
        end = start + self.page_size
        return Page(found[start:end], "1", str(end) if end < len(found) else "")

    def _look(self, resource: Resource, name: str, selector: str) -> None:
        self.asked.append((resource.plural, name, selector))
        if resource.plural in self.broken:
            raise self.broken[resource.plural]


def meta(name: str, **more: Any) -> Json:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **more}


def node(name: str) -> Json:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": meta(name, labels={"kubernetes.io/hostname": name, "zone": "z"}), "spec": {}, "status": ready}


def volume(name: str, *values: str, key: str = "kubernetes.io/hostname", driver: str = DRIVER, claim: str = "") -> Json:
    affinity = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]},
    }
    ref = {"claimRef": {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}} if claim else {}
    spec = {"csi": {"driver": driver, "volumeHandle": f"h-{name}"}, "nodeAffinity": affinity, "capacity": {"storage": "1Gi"}, **ref}
    return {"metadata": meta(name), "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def claim(name: str, *, selected: str = "", volume_name: str = "") -> Json:
    notes = {names.STORAGE_PROVISIONER: DRIVER} | ({names.SELECTED_NODE: selected} if selected else {})
    spec: Json = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume_name, "storageClassName": "fast"}
    return {"metadata": meta(name, namespace="default", annotations=notes), "spec": spec}


def cluster() -> Lists:
    csi_node = {
        "metadata": meta("n1"),
        "spec": {"drivers": [{"name": DRIVER, "topologyKeys": ["kubernetes.io/hostname"]}, {"name": "nfs.example"}]},
    }
    content = {"metadata": meta("s1"), "spec": {"driver": DRIVER, "source": {"volumeHandle": "h-pv-1"}}}
    elsewhere = {"metadata": meta("s2"), "spec": {"driver": DRIVER, "source": {"volumeHandle": "h-pv-2"}}}
    return Lists(
        {
            "nodes": [node("n1"), node("n2"), node("n3")],
            "csinodes": [csi_node],
            "persistentvolumes": [
                volume("pv-1", "n1", claim="a"),
                volume("pv-2", "n2", claim="b"),
                volume("pv-zone", "z", key="zone", claim="c"),
                volume("pv-both", "n1", "n2"),
                volume("pv-other", "n1", driver=OTHER),
            ],
            "persistentvolumeclaims": [
                claim("a", selected="n1", volume_name="pv-1"),
                claim("b", selected="n2", volume_name="pv-2"),
                claim("waits", selected="n1"),
                claim("waits-there", selected="n2"),
            ],
            "storageclasses": [{"metadata": meta("fast"), "provisioner": DRIVER}],
            "csistoragecapacities": [
                {"metadata": meta("c1", namespace="d"), "storageClassName": "fast", "nodeTopology": {}, "capacity": "1Gi"}
            ],
            "pods": [
                {"metadata": meta("p1", namespace="default"), "spec": {"nodeName": "n1"}},
                {"metadata": meta("p2", namespace="default"), "spec": {"nodeName": "n2"}},
            ],
            "volumesnapshotcontents": [content, elsewhere],
            "poddisruptionbudgets": [{"metadata": meta("pdb", namespace="default"), "spec": {}, "status": {}}],
            "namespaces": [{"metadata": meta("default", annotations={names.DRAIN_POLICY: "Ignore"})}],
        }
    )


def pod(name: str, *claims: str, node: str = "", phase: str = "Pending") -> Json:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {"metadata": meta(name, namespace="default"), "spec": {"nodeName": node, "volumes": volumes}, "status": {"phase": phase}}


def ready() -> Lists:
    """The same, and its first node answers."""
    kube = cluster()
    kube.objects["nodes"][0]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    return kube


def look(kube: Lists, name: str = "n1") -> Cluster:
    return asyncio.run(Cluster(kube, now=7.0).look(name))  # type: ignore[arg-type]


def look_at_all(kube: Lists, now: float = 7.0) -> Cluster:
    return asyncio.run(Cluster(kube, now=now).look())  # type: ignore[arg-type]
