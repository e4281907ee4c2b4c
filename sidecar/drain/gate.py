"""What holds a drainer back: a guard pod that must not be evicted, made by a Deployment, with a disruption budget for it alone.

Whoever drains a node has to evict the guard too, and waits as long as the budget forbids it; no pod of anybody else is in that
budget. Both objects are derived from the Node they guard and from nothing else, so any sidecar makes the same ones for it, and both
go with that Node. The budget is first to come and first to go.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.blockers import some
from sidecar.drain.words import Intent, Status
from sidecar.model import names
from sidecar.model.nodes import NO_EXECUTE, NO_SCHEDULE, Budget, Node, Pod, Taint
from sidecar.model.objects import Json, Owner

_HEALTH_OF_NODES: Final = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Post:
    """Where a gate stands and for whom."""

    node: Node
    driver: str
    namespace: str
    image: str


@dataclass(frozen=True, slots=True)
class Gate:
    """The two objects, complete."""

    budget: Json
    deployment: Json


@dataclass(frozen=True, slots=True)
class GateView:
    """All that the rule looks at."""

    post: Post
    enabled: bool
    emptying: bool | None
    """Somebody is emptying the node, or it is to be guarded beforehand; None: not known."""
    intent: Intent | None
    drain: Status
    retire: Status
    overridden: bool
    budget: Json | None
    """As it is stored under `names.guard`; None: there is none."""
    deployment: Json | None
    guarded: bool = False
    """A guard pod is on the node, ready or not: who drains it has it on the list and waits for it."""

    @property
    def verdict(self) -> Status:
        """What the gate waits for. What nobody has called a reboot is guarded as retiring."""
        return self.drain if self.intent is Intent.REBOOT else self.retire


@dataclass(frozen=True, slots=True)
class Rest:
    """The gate stays as it is."""

    why: str


@dataclass(frozen=True, slots=True)
class Build:
    """Create these, in this order. That one exists already is no failure."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete these, which are not as they were made, on condition of their uid; what is missing then is built again."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Open:
    """Delete these in this order, on condition of their uid."""

    objects: tuple[Json, ...]
    why: str


Decision = Rest | Build | Clear | Open


def decide(view: GateView) -> Decision:
    """What is not known neither opens the gate nor closes it."""
    stored = tuple(obj for obj in (view.budget, view.deployment) if obj is not None)
    staying = tuple(obj for obj in stored if "deletionTimestamp" not in obj["metadata"])
    if why := _why_open(view):
        return Open(staying, why) if staying else Rest(why)
    gate = wanted(view)
    if gate is None:
        return Rest("what would decide it is not known")
    if staying != stored:
        return Rest("a former gate is still being deleted")
    pairs = ((view.budget, gate.budget), (view.deployment, gate.deployment))
    if spoilt := tuple(have for have, want in pairs if have is not None and not _holds(have, want, view.post.node)):
        return Clear(spoilt, "somebody has changed the gate so that it would not hold")
    if view.deployment is not None and not view.guarded and not _may_start(view.deployment, view.post.node):
        return Clear((view.deployment,), "no guard is there, and a taint that the node has got since lets none start")
    missing = tuple(want for have, want in pairs if have is None)
    return Build(missing, "something blocks") if missing else Rest("something blocks, and the gate stands")


def wanted(view: GateView) -> Gate | None:
    """The gate that should stand; None where none should, or where that is not known."""
    if _why_open(view) or view.emptying is None or view.verdict is Status.UNKNOWN:
        return None
    return Gate(_budget(view.post), _deployment(view.post))


def why_loose(node_uid: str, driver: str, namespace: str, *, pods: Iterable[Pod], budgets: Iterable[Budget]) -> str:
    """Why a gate that is built holds nobody; empty: it holds. `pods` are those of its node."""
    guards = [pod for pod in guards_among(pods, node_uid, driver, namespace) if pod.ready]
    if not guards:
        return "its guard pod is not ready, so it holds nobody yet"
    covering = {budget.full_name for budget in budgets if any(map(budget.covers, guards))}
    others = sorted(covering - {f"{namespace}/{names.guard(node_uid, driver)}"})
    # With two of them the server does not say "later" but that it has failed, and a drainer gives up or goes on.
    return f"its guard pod is in the budget of others too ({some(others)}), so nobody who evicts it is told to wait" if others else ""


def guards_among(pods: Iterable[Pod], node_uid: str, driver: str, namespace: str) -> Iterator[Pod]:
    """Those of the gate that have a node and are not about to end."""
    labels = _labels(node_uid, driver).items()
    ours = (pod for pod in pods if pod.namespace == namespace and labels <= pod.labels.items())
    return (pod for pod in ours if not pod.ended and not pod.deleting_since)


def selector(driver: str) -> str:
    """The label selector that finds the gates of all nodes."""
    return f"{names.GUARDED_FOR}={driver}"


def _why_open(view: GateView) -> str:
    """Why no gate should stand, if that is known."""
    if not view.enabled:
        return "the gate is switched off"
    if view.overridden:
        return "it is overridden"
    if view.emptying is False:
        return "nobody empties the node"
    return "nothing blocks" if view.verdict is Status.TRUE else ""


def _holds(have: Mapping[str, Any], want: Json, node: Node) -> bool:
    """What makes it hold is as it was made. What others add, and another image, make no difference."""
    as_made = all(have["spec"].get(key) == want["spec"][key] for key in ("minAvailable", "selector", "replicas") if key in want["spec"])
    return as_made and ("template" not in want["spec"] or _stands_here(have["spec"]["template"]["spec"], node))


def _stands_here(pod: Mapping[str, Any], node: Node) -> bool:
    """The guard of this template can stand on the node and on no other."""
    bound = pod.get("nodeName") in (None, "", node.name)
    selected = (pod.get("nodeSelector") or {}).items() <= node.labels.items()
    tolerated = pod.get("tolerations") or ()
    return bound and selected and all(item in tolerated for item in _always_tolerated()) and _includes(pod.get("affinity"), _only_on(node))


def _may_start(deployment: Mapping[str, Any], node: Node) -> bool:
    """While a guard is there, taints come and go, and it is not let go for them."""
    if (deployment.get("status") or {}).get("readyReplicas"):
        return True  # the watch of pods may be late
    template = Pod.of({"metadata": {"name": node.name}, "spec": deployment["spec"]["template"]["spec"]})
    return template.tolerates(filter(_lasts, node.taints))


def _includes(have: object, want: object) -> bool:
    """All that we wrote is there. A list is no longer than it was: one more term of an affinity would let the guard go elsewhere."""
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
        "ownerReferences": [Owner("v1", "Node", post.node.name, post.node.uid).as_json()],
    }


def _budget(post: Post) -> Json:
    selected = {"matchLabels": _labels(post.node.uid, post.driver)}
    spec = {"minAvailable": 1, "selector": selected, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(post), "spec": spec}


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
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(post) | {"annotations": notes}, "spec": spec}


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
    """What may be on the node when the guard is to start there: the cordon, our own taint, and what the node's operator put on it for good.

    Not what says that the node is unwell, and not what an autoscaler marks a node with that it empties: it passes over the pods
    that tolerate its mark, and would not be held.
    """
    lasting = sorted((taint for taint in node.taints if _lasts(taint)), key=str)
    return _always_tolerated() + [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in lasting
    ]


def _always_tolerated() -> list[Json]:
    return [{"key": key, "operator": "Exists"} for key in (names.CORDON_TAINT, names.EVACUATE_TAINT)]


def _lasts(taint: Taint) -> bool:
    if taint.effect not in (NO_SCHEDULE, NO_EXECUTE) or taint.key.startswith(_HEALTH_OF_NODES):
        return False
    return taint.key not in (*names.RETIRING_TAINTS, names.EVACUATE_TAINT)
