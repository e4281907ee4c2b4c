"""Which object owns the capacity objects, so that the garbage collector removes them when it goes: the pod, or what controls it."""

from dataclasses import replace

from sidecar.errors import Fatal
from sidecar.kube.api import PODS, KubeApi
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model.objects import Json, Owner


async def find_owner(kube: KubeApi, *, namespace: str, pod: str, level: int) -> Owner | None:
    """Level -1: nobody; 0: the pod; 1: the pod's controller; 2: the controller of that; and so on.

    The object at the last level is known from the reference to it and is not fetched, so level 1 needs only `get pods`.
    """
    if level < 0:
        return None
    try:
        obj = await kube.get(PODS, pod, namespace=namespace)
        owner = _itself(obj)
        for step in range(level):
            obj = obj if step == 0 else await _fetch(kube, owner, namespace)
            owner = _controller(obj, level=level, step=step)
    except (NotFound, Forbidden) as error:
        raise Fatal(
            f"--capacity-ownerref-level={level}: the owner of the capacity objects cannot be looked up: {error}; check POD_NAME,"
            " NAMESPACE and the rights of the service account, or choose another level"
        ) from error
    return owner


async def _fetch(kube: KubeApi, owner: Owner, namespace: str) -> Json:
    return await kube.get(await kube.resource_for(owner.api_version, owner.kind), owner.name, namespace=namespace)


def _itself(obj: Json) -> Owner:
    return Owner("v1", "Pod", obj["metadata"]["name"], obj["metadata"]["uid"], controller=True)


def _controller(obj: Json, *, level: int, step: int) -> Owner:
    for ref in obj["metadata"].get("ownerReferences") or ():
        if ref.get("controller"):
            return replace(Owner.of(ref), blocks=False)  # what holds of the pod need not hold of our objects
    raise Fatal(
        f"--capacity-ownerref-level={level}: {obj.get('kind') or 'object'} {obj['metadata']['name']} has no controller,"
        f" so the level can be {step} at most"
    )
