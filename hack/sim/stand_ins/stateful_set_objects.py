"""What a StatefulSet makes: pods, their claims, and who owns the claims by its retention policy. Pure, as Kubernetes 1.36 has it."""

import copy
import hashlib
import json
from typing import Final

from sidecar.model import names
from sidecar.model.objects import Json

KIND: Final = "StatefulSet"
REVISION: Final = "controller-revision-hash"
DELETE: Final = "Delete"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"


def ordinals(workload: Json) -> range:
    """Those that it wants."""
    first = (workload["spec"].get("ordinals") or {}).get("start", 0)
    return range(first, first + workload["spec"].get("replicas", 1))


def ordinal_of(workload: Json, pod: Json) -> int:
    """-1 for a name that none of its pods has."""
    parent, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if parent == workload["metadata"]["name"] and number.isascii() and number.isdigit() else -1


def revision_of(workload: Json) -> str:
    digest = hashlib.sha256(json.dumps(workload["spec"]["template"], sort_keys=True).encode()).hexdigest()
    return f"{workload['metadata']['name']}-{digest[:10]}"


def pod_of(workload: Json, ordinal: int) -> Json:
    """Of the newest revision: partitions are not here."""
    template, name = copy.deepcopy(workload["spec"]["template"]), f"{workload['metadata']['name']}-{ordinal}"
    labels = (template.get("metadata") or {}).get("labels") or {}
    labels |= {_POD_NAME: name, _POD_INDEX: str(ordinal), REVISION: revision_of(workload)}
    claims = claims_of(workload, ordinal)
    own = [{"name": key, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} for key, claim in claims.items()]
    others = [volume for volume in template["spec"].get("volumes") or () if volume["name"] not in claims]
    spec = template["spec"] | {"hostname": name, "volumes": [*own, *others]}
    meta = (template.get("metadata") or {}) | {"name": name, "labels": labels, "ownerReferences": [_reference(workload, KIND)]}
    return {"metadata": meta, "spec": spec}


def claims_of(workload: Json, ordinal: int) -> dict[str, Json]:
    """By name of their template."""
    chosen = workload["spec"]["selector"].get("matchLabels") or {}
    found = {}
    for template in workload["spec"].get("volumeClaimTemplates") or ():
        claim, key = copy.deepcopy(template), template["metadata"]["name"]
        meta = claim["metadata"] | {"name": f"{key}-{workload['metadata']['name']}-{ordinal}"}
        labels = (claim["metadata"].get("labels") or {}) | chosen
        found[key] = {"metadata": meta | {"labels": labels}, "spec": claim["spec"]}
    return found


# --- who owns a claim ------------------------------------------------------------------------------------------------------


def owners_wanted(workload: Json, pod: Json, claim: Json) -> list[Json]:
    """The claim's owners by the retention policy; those that it has if nothing is to be changed.

    The set owns what goes with it, and a pod whose ordinal was scaled away owns what goes with the pod.
    """
    refs: list[Json] = claim["metadata"].get("ownerReferences") or []
    if is_stale(claim, workload, KIND) or is_stale(claim, pod, names.POD):
        return refs
    ours = [ref for ref in refs if _meant(ref, workload, KIND) or _meant(ref, pod, names.POD)]
    others = [ref for ref in refs if ref not in ours]
    if is_retained(workload, "whenDeleted") and is_retained(workload, "whenScaled"):
        return others
    if any(ref.get("controller") for ref in others):
        return others
    scaled_away = not is_retained(workload, "whenScaled") and ordinal_of(workload, pod) not in ordinals(workload)
    if scaled_away:
        return [*others, _reference(pod, names.POD)]
    return [*others, *([] if is_retained(workload, "whenDeleted") else [_reference(workload, KIND)])]


def is_retained(workload: Json, when: str) -> bool:
    return (workload["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get(when) != DELETE


def is_stale(claim: Json, obj: Json, kind: str) -> bool:
    """It has an owner of that name which is another object. One that does not exist yet has no uid."""
    refs = claim["metadata"].get("ownerReferences") or ()
    return any(_meant(ref, obj, kind) and ref["uid"] != obj["metadata"].get("uid") for ref in refs)


def _meant(ref: Json, obj: Json, kind: str) -> bool:
    return bool((ref["kind"], ref["name"]) == (kind, obj["metadata"]["name"]))


def _reference(obj: Json, kind: str) -> Json:
    version, meta = "v1" if kind == names.POD else "apps/v1", obj["metadata"]
    owner = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return owner | {"controller": True, "blockOwnerDeletion": True}
