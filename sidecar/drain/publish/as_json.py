"""An assessment as plain JSON, for the report and `explain -o json`. Other renderings take their figures from here, so that all agree."""

from collections import Counter
from typing import Final

from sidecar.drain.judgement.assessment import Assessment, Blocker, ExhaustedBudget, HeldVolume, Place, PodFate, Verdict
from sidecar.drain.vocabulary import Intent, Policy, VolumeClass
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

_CLAIM: Final = names.CLAIM
_POD: Final = names.POD


def as_json(assessment: Assessment) -> Json:
    """All of it. Empty texts are left out of the entries."""
    return {
        "node": assessment.node,
        "nodeUID": assessment.node_uid,
        "driver": assessment.driver,
        "observedAt": timestamps.to_text(assessment.at),
        "verdicts": {"drain": verdict_json(assessment.drain), "retire": verdict_json(assessment.retire)},
        **_figures(assessment),
        "blockers": [_blocker(blocker) for blocker in assessment.blockers],
        "volumes": [_volume(volume) for volume in assessment.volumes],
        "pods": [_pod(pod) for pod in assessment.pods],
        "placement": [_place(place) for place in assessment.places],
        "budgets": [_budget(budget) for budget in assessment.budgets],
        "notes": list(assessment.notes),
    }


def _figures(assessment: Assessment) -> Json:
    classes = Counter(str(volume.class_) for volume in assessment.volumes)
    reasons = Counter(str(blocker.reason) for blocker in assessment.blockers)
    return {
        "counts": {"classes": dict(sorted(classes.items())), "reasons": dict(sorted(reasons.items()))},
        "bytes": {"total": held_bytes(assessment), "remaining": bytes_in_the_way(assessment)},
        "snapshots": classes[VolumeClass.SNAPSHOT],
        # Left out if none is known: many drivers cannot list their volumes, and 0 would claim that there are none.
        **({"untracked": classes[VolumeClass.UNTRACKED]} if classes[VolumeClass.UNTRACKED] else {}),
        "releasing": classes[VolumeClass.RELEASING],
        "inFlight": classes[VolumeClass.IN_FLIGHT],
    }


def held_bytes(assessment: Assessment) -> int:
    """Of all volumes whose data is here."""
    return sum(volume.bytes for volume in assessment.volumes)


def bytes_in_the_way(assessment: Assessment, intent: Intent = Intent.RETIRE) -> int:
    """Of all volumes that block, themselves or by a pod that they keep here; each counts once."""
    used = {volume.name: volume.bytes for volume in assessment.volumes if volume.class_ is VolumeClass.IN_USE}
    by_pod = {(pod.namespace, pod.name): pod.volumes for pod in assessment.pods}
    in_the_way: dict[tuple[VolumeClass | None, str], int] = {}
    for blocker in (blocker for blocker in assessment.blockers if intent in blocker.blocks):
        if blocker.kind == _POD:
            its = (name for name in by_pod.get((blocker.namespace, blocker.name), ()) if name in used)
            in_the_way |= {(VolumeClass.IN_USE, name): used[name] for name in its}
        else:
            in_the_way[blocker.class_, blocker.volume or blocker.key] = blocker.bytes
    return sum(in_the_way.values())


def verdict_json(verdict: Verdict) -> Json:
    return {"status": str(verdict.status), "reason": str(verdict.reason), "message": verdict.message}


def _blocker(blocker: Blocker) -> Json:
    return {
        "kind": blocker.kind,
        **_non_empty(namespace=blocker.namespace),
        "name": blocker.name,
        **_non_empty(uid=blocker.uid, volume=blocker.volume),
        "bytes": blocker.bytes,
        **_non_empty(**{"class": blocker.class_ or ""}),
        "reason": str(blocker.reason),
        **_non_empty(policy=blocker.policy or "", policySource=blocker.policy_source),
        "blocks": [str(intent) for intent in blocker.blocks],
        **_non_empty(message=blocker.message, remedy=blocker.remedy),
    }


def _volume(volume: HeldVolume) -> Json:
    return {
        "name": volume.name,
        **_non_empty(claim=volume.claim),
        "class": str(volume.class_),
        "bytes": volume.bytes,
        **_non_empty(policy=volume.policy or "", policySource=volume.policy_source),
        **({"policies": [_policy(*said) for said in volume.by_intent]} if volume.by_intent else {}),
        "pods": list(volume.pods),
    }


def _policy(intent: Intent, policy: Policy, source: str) -> Json:
    return {"intent": str(intent), "policy": str(policy), "source": source}


def _pod(pod: PodFate) -> Json:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        **_non_empty(uid=pod.uid),
        "reboot": str(pod.reboot),
        "retire": str(pod.retire),
        "volumes": list(pod.volumes),
        "budgets": list(pod.budgets),
        **_non_empty(why=pod.why),
    }


def _place(place: Place) -> Json:
    excluded = [{"node": node, "why": why} for node, why in place.excluded]
    return {"volumes": list(place.volumes), **_non_empty(node=place.node), "shortfall": place.shortfall, "excluded": excluded}


def _budget(budget: ExhaustedBudget) -> Json:
    return {"budget": budget.budget, "allowedNow": budget.allowed_now, "stranded": budget.stranded, "pods": list(budget.pods)}


def named(blocker: Blocker) -> str:
    """The object as people call it. Most are claims, so that kind is left out."""
    full = f"{blocker.namespace}/{blocker.name}" if blocker.namespace else blocker.name
    return full if blocker.kind == _CLAIM else f"{blocker.kind} {full}"


def _non_empty(**texts: str) -> Json:
    return {key: str(text) for key, text in texts.items() if text}
