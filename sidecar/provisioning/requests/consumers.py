"""Finds the pods that use a claim, and decides whether a closed node provisions the claim or gives it back.

A closed node gives a claim back so that the scheduler can choose another node. That leads nowhere when a pod of the claim comes to
this node all the same. Pods are listed only at the moment when a closed node has to know; they are never watched.
"""

from typing import Final

from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim
from sidecar.model.standing import Standing
from sidecar.ownership.selected_node_body import closing, handings_back
from sidecar.provisioning.needs import PODS, Absent, Facts, Json, Need, Ref, items

# The most nodes that may give one claim back. The claim's annotation lists them all: if the list were shortened instead, more closed
# nodes than it holds could pass the claim round for ever.
MOST_NODES: Final = 16


def why_here(node: str, standing: Standing, claim: Claim, facts: Facts) -> str | Need:
    """The reason to provision the claim although this node is closed; empty when the claim is to be given back."""
    former = handings_back(claim.notes)
    # The scheduler chose this node again after the claim was given back, so giving it back once more would only repeat that.
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
            # Pods that cannot be read are no reason to hand the claim back: one of them may come here all the same.
            return f"which pods use it is not known: {found.said_of(ref)}; so it is provisioned"
        case _:
            return _who_comes(node, standing, consumers(claim, [Pod.of(item) for item in items(found, "items")]))


def consumers(claim: Claim, pods: list[Pod]) -> tuple[Pod, ...]:
    """The pods that mount the claim and have not ended, sorted by name so that the order of the list does not matter."""
    return tuple(sorted((pod for pod in pods if not pod.ended and _uses(pod, claim)), key=lambda pod: pod.full_name))


def slim(pod: Json) -> Json:
    """Keeps only the fields of a pod that are read here; the rest is by far the larger part of most pods."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {key: meta[key] for key in ("namespace", "name", "uid") if key in meta},
        "spec": {key: spec[key] for key in ("nodeName", "volumes", "tolerations") if key in spec},
        "status": {"phase": status.get("phase", "")},
    }


def _uses(pod: Pod, claim: Claim) -> bool:
    """Whether the pod mounts the claim and may use it.

    The claim of an ephemeral volume belongs to the one pod that owns it. A later pod of the same name has another uid and does not count.
    """
    owner = claim.owner
    if pod.namespace != claim.namespace or claim.name not in pod.claims:
        return False
    return owner is None or owner.kind != names.POD or owner.name != pod.name or owner.uid == pod.uid


def _who_comes(node: str, standing: Standing, pods: tuple[Pod, ...]) -> str:
    # When no taint keeps pods off the node, every pod "tolerates" the taints, so that proves nothing about where the pod goes.
    keeps_off = any(taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE) for taint in standing.taints)
    for pod in pods:
        if pod.node == node:
            return f"pod {pod.full_name} is on the node already"
        if keeps_off and pod.tolerates(standing.taints):
            return f"pod {pod.full_name} tolerates the cordon"
    return ""
