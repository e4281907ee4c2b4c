"""The ephemeral volume controller: the claim of each generic ephemeral volume of a pod, owned by the pod and collected with it.

A claim of that name which belongs to something else is left alone. Not here: its event.
"""

from hack.sim.stand_ins.stand_in_base import StandInBase, sides
from sidecar.kube.api import CLAIMS, PODS
from sidecar.model import names
from sidecar.model.objects import Json


class EphemeralClaims:
    """`pods` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._pods, self._claims = base.cache(PODS), base.cache(CLAIMS)
        self.pods = base.loop("ephemeral claims", self._sync)
        base.wake(self.pods, PODS, lambda change: [change.key])
        base.wake(self.pods, CLAIMS, lambda change: [key for claim in sides(change) for key in _pod_of(claim)])

    async def _sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for volume in pod["spec"].get("volumes") or ():
            name = f"{pod['metadata']['name']}-{volume['name']}"
            if volume.get("ephemeral") and f"{pod['metadata']['namespace']}/{name}" not in self._claims:
                await self._base.api.create(CLAIMS, _claim(pod, volume, name), namespace=pod["metadata"]["namespace"])


def _claim(pod: Json, volume: Json, name: str) -> Json:
    template, meta = volume["ephemeral"]["volumeClaimTemplate"], pod["metadata"]
    owner = {"apiVersion": "v1", "kind": names.POD, "name": meta["name"], "uid": meta["uid"]}
    notes = {key: value for key, value in (template.get("metadata") or {}).items() if key in ("annotations", "labels")}
    owners = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return {"metadata": notes | {"name": name, "ownerReferences": owners}, "spec": template["spec"]}


def _pod_of(claim: Json) -> list[str]:
    meta = claim["metadata"]
    owners = meta.get("ownerReferences") or ()
    return [f"{meta['namespace']}/{owner['name']}" for owner in owners if owner.get("controller") and owner["kind"] == names.POD]
