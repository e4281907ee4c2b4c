"""A large cluster as lists answer it: each node has volumes, pods that use most of them, and pods that use none."""

from tests.harness.drain.listed_cluster import DRIVER, Json, Lists, claim, meta, node, pod, volume

_READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def large_cluster(*, nodes: int = 500, volumes: int = 4, pods: int = 10, orphans: int = 100) -> Lists:
    """`volumes` and `pods` for each node; of the volumes one has no pod. Pages have 500 objects, as on the wire."""
    names = [f"node-{number:03}" for number in range(nodes)]
    kube = Lists(page_size=500)
    kube.objects = {
        "nodes": [node(name) | {"status": _READY} for name in names],
        "csinodes": [{"metadata": meta(name), "spec": _REGISTERED} for name in names],
        "storageclasses": [{"metadata": meta("fast"), "provisioner": DRIVER}],
        "namespaces": [{"metadata": meta("default")}],
        "persistentvolumes": [_volume(name, number) for name in names for number in range(volumes)],
        "persistentvolumeclaims": [
            claim(f"{name}-{number}", selected=name, volume_name=f"pv-{name}-{number}") for name in names for number in range(volumes)
        ],
        "pods": [_pod(name, number, volumes) for name in names for number in range(pods)],
    }
    kube.objects["persistentvolumes"] += [volume(f"pv-gone-{number}", f"gone-{number}", claim="lost") for number in range(orphans)]
    return kube


_REGISTERED: Json = {"drivers": [{"name": DRIVER, "topologyKeys": ["kubernetes.io/hostname"]}]}


def _volume(name: str, number: int) -> Json:
    return volume(f"pv-{name}-{number}", name, claim=f"{name}-{number}")


def _pod(name: str, number: int, volumes: int) -> Json:
    claims = (f"{name}-{number}",) if number < volumes - 1 else ()
    return pod(f"pod-{name}-{number}", *claims, node=name, phase="Running")
