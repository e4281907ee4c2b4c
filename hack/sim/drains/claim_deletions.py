"""Says what was wrong with the deletion of a claim by a sidecar, from a record of all that was the case at that moment.

No claim is deleted unless, at that moment, its pod is gone or has no node, the claim bears the mark of the machine that asks, its replica
will be made again, every other replica is ready elsewhere, the set is not rolling, the owner has asked for just this, and the node is still
to be retired. This is a second reading of the promise, and shares no rule with the product.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from hack.sim.stand_ins import stateful_set_objects as objects
from sidecar.frozen import frozen
from sidecar.model import names
from sidecar.model.objects import Json

REPROVISION: Final = "Reprovision"
_PROTECTION: Final = "kubernetes.io/pvc-protection"


@frozen
class Replica:
    """Another one of the same set, whether there is a pod for it or not."""

    name: str
    node: str = ""
    ready: bool = True
    """It runs, is ready and stays."""
    away: float = 0.0
    """For how many seconds it has not been."""
    by_us: bool = False
    """A sidecar has evicted it, and it has not been ready since."""
    claims: frozenset[str] = frozenset()


@frozen
class ClaimDeletion:
    """One request that was carried out."""

    sender: str
    """The node whose sidecar has sent it."""
    sender_uid: str
    """The uid of the Node of that name at this moment; empty: there is none."""
    claim: Json
    workload: Json | None
    """The StatefulSet whose template makes it, if there is one of which nobody has asked for deletion."""
    ordinal: int
    policy: str
    """What volume, claim, class and namespace say for retiring; a default is no word of theirs."""
    allowed: bool
    """`--allow-reprovision`."""
    rolling: float = 0.0
    """For how many seconds the set has been rolling without waiting for this replica; 0: it is not."""
    preconditions: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    users: tuple[str, ...] = ()
    """The nodes of the pods that use it."""
    others: tuple[Replica, ...] = ()
    asked: float = 0.0
    """How many seconds ago somebody wanted the node to be retired last; 0: now; infinite: never."""
    snapshots: tuple[str, ...] = ()
    """Those of its volume that nobody has acknowledged."""
    late: float = 0.0
    """Seconds that pass between the last look and the deletion, however quickly the sidecar acts."""


def faults(seen: ClaimDeletion) -> list[str]:
    """Empty: all was as it must be."""
    found = [f"a pod on {node} uses it" for node in seen.users]
    found += _unguarded(seen)
    found += _not_asked_for(seen)
    found += _not_made_again(seen)
    found += _not_enough_others(seen)
    found += [f"nobody has acknowledged the snapshot {name}" for name in seen.snapshots]
    found += [f"its finalizer {name} is somebody else's" for name in seen.claim["metadata"].get("finalizers") or () if name != _PROTECTION]
    return found


def _unguarded(seen: ClaimDeletion) -> list[str]:
    meta = seen.claim["metadata"]
    wrong = [] if seen.preconditions.get("uid") == meta["uid"] else ["it does not say the claim's uid"]
    if seen.preconditions.get("resourceVersion") != meta["resourceVersion"]:
        wrong.append("it does not say which version of the claim was looked at")
    mark = _notes(seen.claim).get(names.REPROVISIONED_BY)
    if not seen.sender_uid or mark != f"{seen.sender}/{seen.sender_uid}":
        wrong.append(f"its mark is {mark}, and {seen.sender}/{seen.sender_uid} deletes it")
    return wrong


def _not_asked_for(seen: ClaimDeletion) -> list[str]:
    wrong = [] if seen.allowed else ["it is not allowed by a flag"]
    if seen.policy != REPROVISION:
        wrong.append(f"its policy is {seen.policy or 'nobody has said one'}")
    if seen.asked > seen.late:
        wrong.append("nobody asks for its node to be retired")
    return wrong


def _not_made_again(seen: ClaimDeletion) -> list[str]:
    if _notes(seen.claim).get(names.ALLOW_CLAIM_DELETION) == "true" and seen.workload is None:
        return []
    if seen.workload is None:
        return ["no StatefulSet makes it again"]
    made = {claim["metadata"]["name"] for claim in objects.claims_of(seen.workload, seen.ordinal).values()}
    if seen.claim["metadata"]["name"] not in made and _notes(seen.claim).get(names.ALLOW_CLAIM_DELETION) != "true":
        return ["the templates of its StatefulSet do not make it"]
    return [] if seen.ordinal in objects.ordinals(seen.workload) else [f"no replica has the ordinal {seen.ordinal} any more"]


def _not_enough_others(seen: ClaimDeletion) -> list[str]:
    wrong = [f"the set has been rolling for {seen.rolling:.1f} s"] if seen.rolling > seen.late else []
    own, good = seen.claim["metadata"]["name"], 0
    for other in seen.others:
        why = _wanting(other, own, seen)
        good += not why
        wrong += [f"{other.name} {why}"] if why and _peers(seen) is None else []
    wanted = _peers(seen)
    if wanted is not None and good < wanted:
        wrong.append(f"{good} other replicas are ready elsewhere, and {wanted} are wanted")
    if not seen.others:
        wrong.append("there is no other replica")
    return wrong


def _wanting(other: Replica, claim: str, seen: ClaimDeletion) -> str:
    if not other.ready and other.by_us:
        return "was evicted by a sidecar, and is not ready again"
    if not other.ready and other.away > seen.late:
        return f"has not been ready for {other.away:.1f} s"
    if other.node == seen.sender:
        return "is on the same node"
    return "has the same claim" if claim in other.claims else ""


def _peers(seen: ClaimDeletion) -> int | None:
    """How many others are enough, where the claim says that; nobody can say that none is."""
    said = _notes(seen.claim).get(names.REPROVISION_PEERS, "")
    return int(said) if said.isascii() and said.isdigit() and int(said) > 0 else None


def is_rolling(workload: Json, pods: Iterable[Json]) -> bool:
    """Pods of it are still to be replaced, or nobody knows yet what was changed. One that is only not ready yet is none of them."""
    status = workload.get("status") or {}
    if status.get("observedGeneration") != workload["metadata"].get("generation"):
        return True
    return any((pod["metadata"].get("labels") or {}).get(objects.REVISION) != status.get("updateRevision") for pod in pods)


def stops_at(workload: Json, ordinal: int, pods: Mapping[int, Json]) -> bool:
    """A rollout takes no other pod away while this one, which waits for a node, is not ready."""
    pod = pods.get(ordinal)
    if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    if (workload.get("status") or {}).get("observedGeneration") != workload["metadata"].get("generation"):
        return False
    wanted = (workload.get("status") or {}).get("updateRevision")
    revisions = {number: (pods[number]["metadata"].get("labels") or {}).get(objects.REVISION) for number in pods if number >= ordinal}
    of_later = [revisions.get(number) for number in objects.ordinals(workload) if number >= ordinal]
    return workload["spec"].get("podManagementPolicy") != "Parallel" or all(revision == wanted for revision in of_later)


def _notes(obj: Json) -> Json:
    return obj["metadata"].get("annotations") or {}
