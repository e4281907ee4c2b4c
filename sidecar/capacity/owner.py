"""Looks up, once per start, which object owns the capacity objects: the pod, or what controls it.

Kubernetes' garbage collector then deletes them together with that owner, so nothing is left behind when the driver is uninstalled.
"""

import asyncio
import logging
from dataclasses import replace

from sidecar.errors import Fatal
from sidecar.kube.api import PODS, KubeApi
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.objects import Json, Owner
from sidecar.tools import Tools

log = logging.getLogger(__name__)


async def await_owner(tools: Tools, *, namespace: str, pod: str, level: int) -> Owner | None:
    """The answer is part of every object that is written, so an API server that cannot be reached is waited for."""
    attempt = 0
    while True:
        try:
            return await find_owner(tools.kube, namespace=namespace, pod=pod, level=level)
        except ApiError as error:
            delay = tools.retry.delay(attempt)
            log.warning(
                "Looking up the owner of the capacity objects failed; trying again",
                extra={"fields": {"pod": pod, "err": str(error), "retry_in": delay}},
            )
            await asyncio.sleep(delay)
            attempt += 1


async def find_owner(kube: KubeApi, *, namespace: str, pod: str, level: int) -> Owner | None:
    """Level -1: nobody; 0: the pod; 1: the pod's controller; 2: the controller of that; and so on.

    The object at the last level is known from the reference to it and is not fetched, so level 1 needs only `get pods`.
    """
    if level < 0:
        return None
    try:
        obj = await kube.get(PODS, pod, namespace=namespace)
        owner = Owner(PODS.api_version, PODS.kind, obj["metadata"]["name"], obj["metadata"]["uid"], controller=True)
        for step in range(level):
            if step > 0:
                obj = await kube.get(await kube.resource_for(owner.api_version, owner.kind), owner.name, namespace=namespace)
            owner = _controller(obj, level=level, step=step)
    except (NotFound, Forbidden) as error:
        raise Fatal(
            f"--capacity-ownerref-level={level}: the owner of the capacity objects cannot be looked up: {error}; check POD_NAME,"
            " NAMESPACE and the rights of the service account, or choose another level"
        ) from error
    return owner


def _controller(obj: Json, *, level: int, step: int) -> Owner:
    for ref in obj["metadata"].get("ownerReferences") or ():
        if ref.get("controller"):
            return replace(Owner.of(ref), blocks=False)  # deleting the owner need not wait for our objects
    raise Fatal(
        f"--capacity-ownerref-level={level}: {obj.get('kind') or 'object'} {obj['metadata']['name']} has no controller,"
        f" so the level can be {step} at most"
    )
