"""Whether drains of this node are held: which pods must not be evicted, and whether the gate stands and what it consists of. Pure.

A gate is one guard pod on the node and a PodDisruptionBudget for it alone: whoever drains the node has to evict that pod too, and waits. On
a node with volumes it stands in peace whatever the verdict, and opens when a drain begins and nothing blocks at that moment: it is open
only while somebody looks, and a sidecar that dies in peace leaves it shut. Both objects follow from the Node alone and are deleted with it.
The budget is created first and deleted first: a guard pod without a budget would hold nobody.

The list of held pods is what a policy on evictions reads in the report (deploy/components/gate): those pods are not even evicted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.assess import Assessment
from sidecar.drain.marks import Marks, Source
from sidecar.drain.settings import Settings
from sidecar.drain.words import Intent, Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, Taint
from sidecar.model.objects import Json, Owner

MOST_HELD: Final = 500


def announcing(node: str) -> str:
    return f"csi-node-sidecar node reboot {node} if its disks come back, csi-node-sidecar node retire {node} if not"


def regardless(node: str) -> str:
    return f"to drain regardless: kubectl annotate node {node} {names.FORCE_DRAIN}=WHY --overwrite"


# --- what a drain is held by ------------------------------------------------------------------------------------------


def announced(marks: Marks) -> Intent | None:
    """A cordon announces nothing, whatever it is taken for."""
    return None if marks.source is Source.CORDON else marks.intent


def counting(marks: Marks, assumed: Intent) -> tuple[Intent, ...]:
    """The intents whose verdicts have to be True for whoever drains the node now. Where nobody says what for, and only the worst is
    assumed, it may be either: a volume may be given up for retiring and keep its node from being rebooted."""
    if said := announced(marks):
        return (said,)
    return (Intent.REBOOT,) if marks.assumable and assumed is Intent.REBOOT else (Intent.RETIRE, Intent.REBOOT)


def verdict_of(judged: Assessment, intents: Iterable[Intent]) -> Status:
    found = {judged.verdict(intent).status for intent in intents}
    return next((status for status in (Status.FALSE, Status.UNKNOWN) if status in found), Status.TRUE)


@dataclass(frozen=True, slots=True)
class HeldPods:
    pods: tuple[str, ...] = ()  # `namespace/name` of those that must not be evicted
    because: str = ""  # why the drain is held, and what to do; empty: it is not
    purpose: str = ""  # what the drain is for, and who says so; empty: nobody drains the node

    def as_json(self) -> Json:
        return {
            "held": list(self.pods[:MOST_HELD]),
            "heldCount": len(self.pods),
            "heldBecause": self.because[:1024],
            "drainFor": self.purpose,
        }


def held(judged: Assessment, marks: Marks, pods: Iterable[Pod], *, assumed: Intent, overridden: bool) -> HeldPods:
    """Nothing is while nobody drains the node: whoever evicts a pod then has it back here. `pods` are those of the node as they are now:
    one may have begun since the judgement, with a claim that was judged."""
    if not marks.draining:
        return HeldPods()
    intents, said = counting(marks, assumed), announced(marks)
    purpose = f"{said}, {marks.source}" if said else f"{intents[0]}, assumed"
    withheld = [intent for status in (Status.FALSE, Status.UNKNOWN) for intent in intents if judged.verdict(intent).status is status]
    if overridden or not withheld:
        return HeldPods(purpose=purpose)
    node, verdict = marks.node, judged.verdict(withheld[0])
    wrong = next((f" in a word that counts ({told})" for told in marks.problems if told.startswith(names.DRAIN_INTENT)), "")
    why = (
        f"{said} is announced ({marks.source})"
        if said
        else f"a {names.MAINTENANCE_KIND} cordons it and does not drain it yet, so {withheld[0]} is assumed"
        if marks.planned
        else f"nobody announced what it is for{wrong}, so {withheld[0]} is assumed (run {announcing(node)})"
    )
    because = f"{judged.driver} holds the drain of node {node}: {why}, and {verdict.reason} ({verdict.message})"
    because += f"; what blocks, and what to do: csi-node-sidecar explain node {node}; {regardless(node)}"
    # A pod that blocks by itself, as one without a controller, is refused or ended by others.
    against = (blocker for blocker in judged.blockers if blocker.object.kind != names.POD and set(intents) & set(blocker.blocks))
    blocking = {blocker.volume for blocker in against} - {""}
    claims = {thing.claim for thing in judged.things if thing.name in blocking} - {""}
    evicted = (pod for pod in pods if not (pod.stays or pod.ended or pod.deleting_since))
    return HeldPods(tuple(sorted(pod.full_name for pod in evicted if claims.intersection(pod.claim_names))), because, purpose)


# --- the gate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateView:
    node: Node
    settings: Settings
    draining: bool  # somebody empties the node, or is about to
    verdict: Status  # the one that opens it, as `verdict_of`
    holds_volumes: bool | None  # anything of the driver is on the node; None: not known
    overridden: bool
    budget: Json | None  # as it is stored; None: there is none
    deployment: Json | None
    guarded: bool  # a guard pod is on the node, ready or not: who drains the node has it on the list, and waits for it


@dataclass(frozen=True, slots=True)
class Leave:
    """The gate is as it should be, or it is not known how it should be."""

    why: str


@dataclass(frozen=True)
class _Change:
    objects: tuple[Json, ...]
    why: str


class Build(_Change):
    """Create these, in this order. One that exists already is no failure."""


class Clear(_Change):
    """Delete these, which would not hold, on condition of their uid. The next look builds what is missing then."""


class Open(_Change):
    """Delete these in this order, on condition of their uid."""


Decision = Leave | Build | Clear | Open


def decide(view: GateView) -> Decision:
    """What is not known never opens the gate, and builds it only for volumes that are known to be there."""
    stored = tuple(obj for obj in (view.budget, view.deployment) if obj is not None)
    staying = tuple(obj for obj in stored if "deletionTimestamp" not in obj["metadata"])
    if view.overridden or (view.verdict is Status.TRUE and (view.draining or view.holds_volumes is False)):
        why = "what blocks is overridden" if view.overridden else "nothing blocks"
        return Open(staying, why) if staying else Leave(why)
    if view.verdict is Status.FALSE:
        why = "something blocks"
    elif view.holds_volumes is True and not view.draining:
        why = "volumes are here, and nobody drains the node yet"
    else:
        return Leave("it is not known whether something blocks")
    if staying != stored:
        return Leave("the earlier gate is still being deleted")
    wanted = budget_of(view), deployment_of(view)
    pairs = tuple(zip((view.budget, view.deployment), wanted, strict=True))
    if changed := tuple(have for have, want in pairs if have is not None and not _holds(have, want, view.node)):
        return Clear(changed, "somebody has changed the gate so that it holds nobody")
    if view.deployment is not None and not view.guarded and not _may_start(view.deployment, view.node):
        return Clear((view.deployment,), "there is no guard pod, and none can start: the node has a taint that the gate does not tolerate")
    missing = tuple(want for have, want in pairs if have is None)
    return Build(missing, f"{why}, so whoever drains this node has to wait") if missing else Leave(f"{why}, and the gate stands")


def guards_among(pods: Iterable[Pod], node_uid: str, driver: str, namespace: str) -> list[Pod]:
    """The guard pods of this gate that have not ended and are not being deleted."""
    its = labels(node_uid, driver).items()
    return [pod for pod in pods if pod.namespace == namespace and its <= pod.labels.items() and not pod.ended and not pod.deleting_since]


def _holds(have: Mapping[str, Any], want: Json, node: Node) -> bool:
    """Whether the fields that make it hold are as they were made. What others add, and another image, make no difference."""
    as_made = all(have["spec"].get(key) == want["spec"][key] for key in ("minAvailable", "selector", "replicas") if key in want["spec"])
    if not as_made or "template" not in want["spec"]:
        return as_made
    pod = have["spec"]["template"]["spec"]
    tolerated = pod.get("tolerations") or ()
    bound = pod.get("nodeName") in (None, "", node.name) and (pod.get("nodeSelector") or {}).items() <= node.labels.items()
    return bound and all(item in tolerated for item in _always_tolerated()) and _includes(pod.get("affinity"), _only_on(node))


def _includes(have: object, want: object) -> bool:
    """Whether all that we wrote is there. A list must not be longer: one more term of an affinity would let the guard run elsewhere."""
    match want, have:
        case dict(), dict():
            return all(_includes(have.get(key), value) for key, value in want.items())
        case list(), list():
            return len(have) == len(want) and all(map(_includes, have, want))
        case _:
            return have == want


def _may_start(deployment: Mapping[str, Any], node: Node) -> bool:
    """Asked only where there is no guard: one that is there is not replaced for a taint."""
    if (deployment.get("status") or {}).get("readyReplicas"):
        return True  # the watch of pods may lag
    template = Pod.of({"metadata": {"name": node.name}, "spec": deployment["spec"]["template"]["spec"]})
    return template.tolerates(filter(_lasts, node.taints))


# --- its objects ------------------------------------------------------------------------------------------------------


def labels(node_uid: str, driver: str) -> dict[str, str]:
    return {names.GUARDED_NODE: node_uid, names.GUARDED_FOR: driver}


def budget_of(view: GateView) -> Json:
    selected = {"matchLabels": labels(view.node.uid, view.settings.driver)}
    spec = {"minAvailable": 1, "selector": selected, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    return {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind, "metadata": _meta(view), "spec": spec}


def deployment_of(view: GateView) -> Json:
    its = labels(view.node.uid, view.settings.driver)
    spec: Json = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": its},
        "template": {"metadata": {"labels": its, "annotations": _notes(view)}, "spec": _pod(view)},
    }
    return {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": _meta(view), "spec": spec}


def _meta(view: GateView) -> Json:
    node, settings = view.node, view.settings
    return {
        "name": names.guard(node.name, node.uid, settings.driver),
        "namespace": settings.namespace,
        "labels": labels(node.uid, settings.driver),
        "ownerReferences": [Owner("v1", names.NODE, node.name, node.uid).as_json()],
        "annotations": _notes(view),
    }


def _notes(view: GateView) -> dict[str, str]:
    """For people who find the budget in a drainer's message. It stands before anybody drains, so it says what would be assumed."""
    node, driver = view.node.name, view.settings.driver
    why = f"{driver} holds drains of node {node} while anything blocks what they are for"
    said = f"say what a drain is for, or {view.settings.gate_assumes} is assumed: {announcing(node)}"
    what = f"what blocks, and what to do: csi-node-sidecar explain node {node}"
    left = f"where drain decisions were switched off: csi-node-sidecar uninstall --driver {driver}"
    return {f"{names.GROUP}/why": "; ".join((why, said, what, regardless(node), left))}


def _pod(view: GateView) -> Json:
    return {
        "affinity": _only_on(view.node),
        "tolerations": _tolerations(view.node),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "guard",
                "image": view.settings.gate_image,
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
    """The cordon, our own taint, a node that does not answer, and the taints that the node's operator put on it for good. Not those of a
    node that is unwell in another way, nor an autoscaler's mark of a node that it empties: it skips the pods that tolerate its mark, so the
    guard would not hold it."""
    lasting = sorted((taint for taint in node.taints if _lasts(taint)), key=str)
    return _always_tolerated() + [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in lasting
    ]


def _always_tolerated() -> list[Json]:
    """A node that does not answer for ever: without that a pod is given 300 s, and is evicted then past its budget."""
    ours: list[Json] = [{"key": key, "operator": "Exists"} for key in (names.CORDON_TAINT, names.EVACUATE_TAINT)]
    return ours + [{"key": key, "operator": "Exists", "effect": names.NO_EXECUTE} for key in names.SILENCE_TAINTS]


def _lasts(taint: Taint) -> bool:
    if taint.effect not in (names.NO_SCHEDULE, names.NO_EXECUTE) or taint.key.startswith(names.NODE_TAINTS):
        return False
    return taint.key not in (*names.RETIRING_TAINTS, names.EVACUATE_TAINT)
