"""Which pods a claim is for, and whether one of them comes to a closed node all the same: then giving the claim back leads nowhere.

Pods are read in the one moment in which a closed node has to know, and never watched.
"""

from typing import Final

from sidecar.model.nodes import NO_EXECUTE, NO_SCHEDULE, Pod
from sidecar.model.objects import Claim
from sidecar.model.standing import Standing
from sidecar.ownership.claim_write import closing, handings_back
from sidecar.provisioning.needs import PODS, Absent, Facts, Json, Need, Ref, items

# So many nodes may give a claim back. Were the list of them cut instead, more closed nodes than it holds could pass a claim round.
MOST_NODES: Final = 16


def why_here(node: str, standing: Standing, claim: Claim, facts: Facts) -> str | Need:
    """Why a claim that was put on this closed node is provisioned here nevertheless; empty if it is to be handed back."""
    former = handings_back(claim.notes)
    if closing(node, standing.since) in former:
        return "it was already handed back once for this closing and came back"
    if len(former) >= MOST_NODES:
        return f"{len(former)} closed nodes have handed it back already"
    ref = Ref(PODS, "", claim.namespace)
    found = facts.get(ref)
    match found:
        case None:
            return Need(frozenset({ref}))
        case Absent():
            return f"which pods use it is not known: {found.said_of(ref)}; so it is provisioned"
        case _:
            return _who_comes(node, standing, consumers(claim, [Pod.of(item) for item in items(found, "items")]))


def consumers(claim: Claim, pods: list[Pod]) -> tuple[Pod, ...]:
    """Those that mount the claim and have not ended, by name."""
    return tuple(sorted((pod for pod in pods if not pod.ended and _uses(pod, claim)), key=lambda pod: pod.full_name))


def slim(pod: Json) -> Json:
    """What is read of a pod here; of most pods the rest is by far the greater part."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {key: meta[key] for key in ("namespace", "name", "uid") if key in meta},
        "spec": {key: spec[key] for key in ("nodeName", "volumes", "tolerations") if key in spec},
        "status": {"phase": status.get("phase", "")},
    }


def _uses(pod: Pod, claim: Claim) -> bool:
    """A later pod of the same name has no right to the claim of an ephemeral volume: that one is its owner's."""
    owner = claim.owner
    if pod.namespace != claim.namespace or claim.name not in pod.claims:
        return False
    return owner is None or owner.kind != "Pod" or owner.name != pod.name or owner.uid == pod.uid


def _who_comes(node: str, standing: Standing, pods: tuple[Pod, ...]) -> str:
    # Where nothing keeps pods off, that one tolerates it all says nothing.
    keeps_off = any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) for taint in standing.taints)
    for pod in pods:
        if pod.node == node:
            return f"pod {pod.full_name} is on the node already"
        if keeps_off and pod.tolerates(standing.taints):
            return f"pod {pod.full_name} tolerates the cordon"
    return ""
