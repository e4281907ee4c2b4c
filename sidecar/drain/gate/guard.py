"""Says what a gate consists of: a Deployment with one guard pod, and a budget for that pod alone.

Both follow from the Node they guard and from nothing else, so any sidecar makes the same ones for it. When they stand: `rules`.
"""

from dataclasses import dataclass
from typing import Final

from sidecar.drain.vocabulary import Intent
from sidecar.drain.wording import announcing, regardless
from sidecar.kube.api import BUDGETS, DEPLOYMENTS
from sidecar.model import names
from sidecar.model.nodes import Node, Taint
from sidecar.model.objects import Json, Owner


@dataclass(frozen=True, slots=True)
class Post:
    """What a gate is made from."""

    node: Node
    driver: str
    namespace: str
    image: str
    assumed: Intent = Intent.RETIRE
    """What a drain is taken to be for if nobody says it."""


@dataclass(frozen=True, slots=True)
class GateObjects:
    """The two objects, complete."""

    budget: Json
    deployment: Json


def objects(post: Post) -> GateObjects:
    return GateObjects(_budget(post), _deployment(post))


def labels(node_uid: str, driver: str) -> dict[str, str]:
    return {names.GUARDED_NODE: node_uid, names.GUARDED_FOR: driver}


def _meta(post: Post) -> Json:
    return {
        "name": names.guard(post.node.name, post.node.uid, post.driver),
        "namespace": post.namespace,
        "labels": labels(post.node.uid, post.driver),
        "ownerReferences": [Owner("v1", names.NODE, post.node.name, post.node.uid).as_json()],
        "annotations": _notes(post),
    }


def _notes(post: Post) -> dict[str, str]:
    """For people who find the budget in a drainer's message. It stands before anybody drains, so it says what would be assumed."""
    node, driver = post.node.name, post.driver
    why = f"{driver} holds drains of node {node} while anything blocks what they are for"
    announced = f"say what a drain is for, or {post.assumed} is assumed: {announcing(node)}"
    what = f"what blocks, and what to do: csi-node-sidecar explain node {node}"
    left = f"where drain decisions were switched off: csi-node-sidecar uninstall --driver {driver}"
    return {f"{names.GROUP}/why": "; ".join((why, announced, what, regardless(node), left))}


def _budget(post: Post) -> Json:
    selected = {"matchLabels": labels(post.node.uid, post.driver)}
    spec = {"minAvailable": 1, "selector": selected, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    return {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind, "metadata": _meta(post), "spec": spec}


def _deployment(post: Post) -> Json:
    its = labels(post.node.uid, post.driver)
    spec: Json = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": its},
        "template": {"metadata": {"labels": its, "annotations": _notes(post)}, "spec": _pod(post)},
    }
    return {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": _meta(post), "spec": spec}


def _pod(post: Post) -> Json:
    return {
        "affinity": only_on(post.node),
        "tolerations": _tolerations(post.node),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "guard",
                "image": post.image,
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "16Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def only_on(node: Node) -> Json:
    # By the node's name as a field: no change of labels can move the guard to another node.
    this = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}}


def _tolerations(node: Node) -> list[Json]:
    """The cordon, our own taint, a node that does not answer, and the taints that the node's operator put on it for good.

    Not those of a node that is unwell in another way, and not an autoscaler's mark of a node that it empties: an autoscaler skips the
    pods that tolerate its mark, so the guard would not hold it.
    """
    lasting = sorted((taint for taint in node.taints if lasts(taint)), key=str)
    return [*always_tolerated(), *OF_SILENCE] + [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in lasting
    ]


# For ever: without a time of its own a pod is given 300 s, and is evicted then past its budget.
OF_SILENCE: Final = tuple({"key": key, "operator": "Exists", "effect": names.NO_EXECUTE} for key in names.SILENCE_TAINTS)


def always_tolerated() -> list[Json]:
    return [{"key": key, "operator": "Exists"} for key in (names.CORDON_TAINT, names.EVACUATE_TAINT)]


def lasts(taint: Taint) -> bool:
    if taint.effect not in (names.NO_SCHEDULE, names.NO_EXECUTE) or taint.key.startswith(names.NODE_TAINTS):
        return False
    return taint.key not in (*names.RETIRING_TAINTS, names.EVACUATE_TAINT)
