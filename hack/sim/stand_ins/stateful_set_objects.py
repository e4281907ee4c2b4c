"""What a StatefulSet makes: pods and their claims. Pure, as Kubernetes 1.36 has it."""

import copy
import hashlib
import json
from typing import Final

from sidecar.model.objects import Json

KIND: Final = "StatefulSet"
REVISION: Final = "controller-revision-hash"
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
    meta = (template.get("metadata") or {}) | {"name": name, "labels": labels, "ownerReferences": [_reference(workload)]}
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


def _reference(workload: Json) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": KIND, "name": workload["metadata"]["name"], "uid": workload["metadata"]["uid"]}
    return owner | {"controller": True, "blockOwnerDeletion": True}
