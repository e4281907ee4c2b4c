"""Which pods' volumes are to be made anew, by what was judged: those with a volume here whose policy for retiring is Reprovision."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.pod_fates import counts_as_gone
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.reprovision.record import MOST_CLAIMS, ClaimName, Target
from sidecar.drain.reprovision.workload import is_supported
from sidecar.drain.vocabulary import Hindrance, Policy, VolumeClass
from sidecar.model import names
from sidecar.model.nodes import Pod


@dataclass(frozen=True, slots=True)
class Candidate:
    target: Target
    bytes: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not even looked at on the API server."""

    pod: str
    hindrance: Hindrance
    why: str


def find(snapshot: Snapshot) -> tuple[Sequence[Candidate], Sequence[Refused]]:
    """Those that may be, the ready ones with the fewest bytes first. A pod that waits for a node because its volume is here is one too."""
    running = [pod for pod in snapshot.pods if not pod.ended and not counts_as_gone(pod, snapshot)]
    items = classify(snapshot, running)
    pods = {pod.uid: pod for item in items if _is_asked_for(item) for pod in item.use.everybody if pod.node in ("", snapshot.node_name)}
    # Thousands of pods may name thousands of claims.
    held: dict[str, list[LocalItem]] = {uid: [] for uid in pods}
    for item in items:
        for uid in {user.uid for user in item.use.everybody} if item.class_ is VolumeClass.IN_USE else ():
            if uid in held:
                held[uid].append(item)
    found: list[Candidate] = []
    refused: list[Refused] = []
    for pod in pods.values():
        each = _candidate(pod, held[pod.uid])
        if isinstance(each, Refused):
            refused.append(each)
        else:
            found.append(each)
    ordered = sorted(found, key=lambda each: (not each.ready, each.bytes, each.target.full_name))
    return ordered, sorted(refused, key=lambda each: each.pod)


def _is_asked_for(item: LocalItem) -> bool:
    return item.class_ is VolumeClass.IN_USE and item.retire is not None and item.retire.policy is Policy.REPROVISION


def _candidate(pod: Pod, held: Sequence[LocalItem]) -> Candidate | Refused:
    if pod.owner is None or not is_supported(pod):
        kind = pod.owner.kind if pod.owner else "nobody"
        return Refused(pod.full_name, Hindrance.OWNER_NOT_SUPPORTED, f"{kind} controls it")
    if not pod.uid or not pod.owner.uid or any(item.object.kind != names.CLAIM or not item.object.uid for item in held):
        return Refused(pod.full_name, Hindrance.NOT_KNOWN, "one of its claims could not be read")
    claims = tuple(ClaimName(item.object.name, item.object.uid) for item in held)
    # Each is read anew at every look, also those that are not made anew.
    number = len({*pod.claims, *(claim.name for claim in claims)})
    if number > MOST_CLAIMS:
        return Refused(pod.full_name, Hindrance.TOO_MANY_CLAIMS, f"it uses {number} claims, and at most {MOST_CLAIMS} are made anew")
    target = Target(pod.namespace, pod.name, pod.uid, pod.owner.name, pod.owner.uid, claims)
    return Candidate(target, sum(item.bytes for item in held), pod.ready)
