"""Decides whether this node's gate stands, and says what it consists of: a Deployment with one guard pod, and a budget for that pod alone.

Whoever drains a node has to evict the guard pod too, and waits as long as its PodDisruptionBudget forbids that. Nobody else's pod is in
that budget. Both objects follow from the Node they guard and from nothing else, so any sidecar makes the same ones for it, and both are
deleted with that Node. The budget is created first and deleted first: a guard pod without a budget would hold nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Intent, Status
from sidecar.drain.wording import first_few
from sidecar.kube.api import BUDGETS, DEPLOYMENTS
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, Taint
from sidecar.model.objects import Json, Owner


@dataclass(frozen=True, slots=True)
class Post:
    """What a gate is made from."""

    node: Node
    driver: str
    namespace: str
    image: str


@dataclass(frozen=True, slots=True)
class GateObjects:
    """The two objects, complete."""

    budget: Json
    deployment: Json


@dataclass(frozen=True, slots=True)
class GateView:
    """All that the rule looks at."""

    post: Post
    enabled: bool
    emptying: bool | None
    """Somebody is emptying the node, or the gate is to stand beforehand; None: not known."""
    intent: Intent | None
    drain: Status
    retire: Status
    overridden: bool
    budget: Json | None
    """As it is stored under `names.guard`; None: there is none."""
    deployment: Json | None
    guarded: bool = False
    """A guard pod is on the node, ready or not: who drains the node has it on the list, and waits for it."""

    @property
    def verdict(self) -> Status:
        """The verdict that opens the gate. Unless somebody has called it a reboot, the stricter one counts."""
        return self.drain if self.intent is Intent.REBOOT else self.retire


@dataclass(frozen=True, slots=True)
class Build:
    """Create these, in this order. One that exists already is no failure."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete these, which would not hold, on condition of their uid. The next look builds what is missing then."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Open:
    """Delete these in this order, on condition of their uid."""

    objects: tuple[Json, ...]
    why: str


Decision = Rest | Build | Clear | Open


def decide(view: GateView) -> Decision:
    """What is not known neither opens the gate nor builds it."""
    stored = tuple(obj for obj in (view.budget, view.deployment) if obj is not None)
    staying = tuple(obj for obj in stored if "deletionTimestamp" not in obj["metadata"])
    if why := _why_open(view):
        return Open(staying, why) if staying else Rest(why)
    gate = wanted(view)
    if gate is None:
        return Rest("it is not known whether something blocks")
    if staying != stored:
        return Rest("the earlier gate is still being deleted")
    pairs = ((view.budget, gate.budget), (view.deployment, gate.deployment))
    if changed := tuple(have for have, want in pairs if have is not None and not _holds(have, want, view.post.node)):
        return Clear(changed, "somebody has changed the gate so that it holds nobody")
    if view.deployment is not None and not view.guarded and not _may_start(view.deployment, view.post.node):
        return Clear((view.deployment,), "there is no guard pod, and none can start: the node has a taint that the gate does not tolerate")
    missing = tuple(want for have, want in pairs if have is None)
    if not missing:
        return Rest("something blocks, and the gate stands")
    return Build(missing, "something blocks, so whoever drains this node has to wait")


def wanted(view: GateView) -> GateObjects | None:
    """The gate that should stand; None: none should, or it is not known."""
    if _why_open(view) or view.emptying is None or view.verdict is Status.UNKNOWN:
        return None
    return GateObjects(_budget(view.post), _deployment(view.post))


def why_loose(node_uid: str, driver: str, namespace: str, *, pods: Iterable[Pod], budgets: Iterable[Budget]) -> str:
    """Why a gate that stands holds nobody; empty: it holds. `pods` are those of its node."""
    guards = [pod for pod in guards_among(pods, node_uid, driver, namespace) if pod.ready]
    if not guards:
        return "its guard pod is not ready, so it holds nobody yet"
    covering = {budget.full_name for budget in budgets if any(map(budget.covers, guards))}
    others = sorted(covering - {f"{namespace}/{names.guard(node_uid, driver)}"})
    # An eviction of a pod in two budgets fails with 500 instead of 429: a drainer then gives up or goes on, and does not wait.
    return f"other budgets select its guard pod too ({first_few(others)}), so its eviction fails and is not put off" if others else ""


def guards_among(pods: Iterable[Pod], node_uid: str, driver: str, namespace: str) -> Iterator[Pod]:
    """The guard pods of this gate that have not ended and are not being deleted."""
    labels = _labels(node_uid, driver).items()
    ours = (pod for pod in pods if pod.namespace == namespace and labels <= pod.labels.items())
    return (pod for pod in ours if not pod.ended and not pod.deleting_since)


def selector(driver: str) -> str:
    """The label selector that finds the gates of all nodes."""
    return f"{names.GUARDED_FOR}={driver}"


def _why_open(view: GateView) -> str:
    """Why no gate should stand; empty: one should, or it is not known."""
    if not view.enabled:
        return "the gate is switched off"
    if view.overridden:
        return "what blocks is overridden"
    if view.emptying is False:
        return "nobody empties the node"
    return "nothing blocks" if view.verdict is Status.TRUE else ""


def _holds(have: Mapping[str, Any], want: Json, node: Node) -> bool:
    """Whether the fields that make it hold are as they were made. What others add, and another image, make no difference."""
    as_made = all(have["spec"].get(key) == want["spec"][key] for key in ("minAvailable", "selector", "replicas") if key in want["spec"])
    return as_made and ("template" not in want["spec"] or _stands_here(have["spec"]["template"]["spec"], node))


def _stands_here(pod: Mapping[str, Any], node: Node) -> bool:
    """Whether a pod of this template can run on this node and on no other."""
    bound = pod.get("nodeName") in (None, "", node.name)
    selected = (pod.get("nodeSelector") or {}).items() <= node.labels.items()
    tolerated = pod.get("tolerations") or ()
    return bound and selected and all(item in tolerated for item in _always_tolerated()) and _includes(pod.get("affinity"), _only_on(node))


def _may_start(deployment: Mapping[str, Any], node: Node) -> bool:
    """Whether a guard pod could start now. It is asked only where there is none: one that is there is not replaced for a taint."""
    if (deployment.get("status") or {}).get("readyReplicas"):
        return True  # the watch of pods may lag
    template = Pod.of({"metadata": {"name": node.name}, "spec": deployment["spec"]["template"]["spec"]})
    return template.tolerates(filter(_lasts, node.taints))


def _includes(have: object, want: object) -> bool:
    """Whether all that we wrote is there. A list must not be longer: one more term of an affinity would let the guard run elsewhere."""
    match want, have:
        case dict(), dict():
            return all(_includes(have.get(key), value) for key, value in want.items())
        case list(), list():
            return len(have) == len(want) and all(map(_includes, have, want))
        case _:
            return have == want


def _labels(node_uid: str, driver: str) -> dict[str, str]:
    return {names.GUARDED_NODE: node_uid, names.GUARDED_FOR: driver}


def _meta(post: Post) -> Json:
    return {
        "name": names.guard(post.node.uid, post.driver),
        "namespace": post.namespace,
        "labels": _labels(post.node.uid, post.driver),
        "ownerReferences": [Owner("v1", names.NODE, post.node.name, post.node.uid).as_json()],
    }


def _budget(post: Post) -> Json:
    selected = {"matchLabels": _labels(post.node.uid, post.driver)}
    spec = {"minAvailable": 1, "selector": selected, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    return {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind, "metadata": _meta(post), "spec": spec}


def _deployment(post: Post) -> Json:
    labels = _labels(post.node.uid, post.driver)
    why = f"holds drains of node {post.node.name} until nothing of {post.driver} blocks them"
    report = f"kubectl get nodedrainreports {names.drain_report(post.node.name, post.driver)} -o yaml"
    notes = {f"{names.GROUP}/why": f"{why}: {report}"}
    spec: Json = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": _pod(post)},
    }
    return {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": _meta(post) | {"annotations": notes}, "spec": spec}


def _pod(post: Post) -> Json:
    return {
        "affinity": _only_on(post.node),
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


def _only_on(node: Node) -> Json:
    # By the node's name as a field: no change of labels can move the guard to another node.
    this = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}}


def _tolerations(node: Node) -> list[Json]:
    """The cordon, our own taint, and the taints that the node's operator put on it for good.

    Not those of a node that is unwell, and not an autoscaler's mark of a node that it empties: an autoscaler skips the pods that
    tolerate its mark, so the guard would not hold it.
    """
    lasting = sorted((taint for taint in node.taints if _lasts(taint)), key=str)
    return _always_tolerated() + [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in lasting
    ]


def _always_tolerated() -> list[Json]:
    return [{"key": key, "operator": "Exists"} for key in (names.CORDON_TAINT, names.EVACUATE_TAINT)]


def _lasts(taint: Taint) -> bool:
    if taint.effect not in (names.NO_SCHEDULE, names.NO_EXECUTE) or taint.key.startswith(names.NODE_TAINTS):
        return False
    return taint.key not in (*names.RETIRING_TAINTS, names.EVACUATE_TAINT)
