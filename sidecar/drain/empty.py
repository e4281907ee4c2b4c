"""Which pod of a node that is being retired is evicted next, or why none is: one pod at a time, pure.

What lets a pod go, and only then is it evicted: each of its volumes of this driver goes with it or may be lost, a controller makes it
again, it would not come back here, no other such pod is leaving, and every other replica of its workload is there and ready.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from sidecar.drain.assess import unread_claims
from sidecar.drain.blockers import is_bare
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.things import Thing
from sidecar.drain.words import Intent, Reason, VolumeClass, first_few
from sidecar.eviction.rules import MayNot, may_evict
from sidecar.model import names, nodes
from sidecar.model.nodes import Budget, Node, Pod, Taint
from sidecar.model.objects import Owner
from sidecar.model.timestamps import to_seconds

OVERDUE: Final = 300.0
"""Seconds after the end of its grace period: a pod that leaves for longer holds nobody else."""
SEVERAL_NODES: Final = "several nodes may be emptied at once"
_CORDON: Final = Taint(names.CORDON_TAINT, "", names.NO_SCHEDULE)
_COUNTED: Final = (names.STATEFUL_SET, names.REPLICA_SET)


@dataclass(frozen=True, slots=True)
class Hold:
    """Nobody is evicted now, or not this pod: this is why."""

    reason: Reason
    pod: str
    """`namespace/name`; empty: it is not about one pod."""
    why: str
    lasting: bool = False
    """It does not pass by itself: only a person can help."""
    refused: bool = False
    """The API server did not do or say what it was asked for: a right may be missing."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod of which nothing that this node knows says that it has to stay."""

    pod: Pod
    things: tuple[Thing, ...]

    @property
    def workload(self) -> str:
        return workload_of(self.pod)


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process remembers of evictions. All of it may be forgotten: then a pod is asked about once more."""

    held: Mapping[str, Hold]
    """By uid of a pod that is not tried for a while: what was read of its workload, or what the API server said."""
    leaving: Set[str]
    """Uids of pods that were evicted a moment ago, or may have been: the snapshot need not show it yet."""
    evicted: Mapping[str, frozenset[str]]
    """By workload that lost a pod by an eviction of ours: the uids of its pods that were here then. Another one has been put here since."""


def unsure(snapshot: Snapshot) -> Hold | None:
    """Ignorance is never a yes."""
    if snapshot.node is None:
        return Hold(Reason.NOT_KNOWN, "", f"there is no Node {snapshot.node_name}")
    if snapshot.node.ready != nodes.TRUE:
        return Hold(Reason.SOURCE_OFFLINE, "", "the node is not ready, so that nobody would report that a pod has ended")
    unknown = tuple(filter(None, (*sorted(set(snapshot.ignorance)), snapshot.own.not_listed)))
    return Hold(Reason.NOT_KNOWN, "", first_few(unknown)) if unknown else None


def candidates(snapshot: Snapshot, things: Iterable[Thing], memory: Memory, *, ours: Set[str]) -> tuple[list[Candidate], list[Hold]]:
    """In their order: those who are ready first, then those with the fewest bytes. `ours`: full names of this program's own pods."""
    if doubt := unsure(snapshot):
        return [], [doubt]
    assert snapshot.node is not None
    found: list[Candidate] = []
    holds: list[Hold] = []
    users = users_of(snapshot, things)
    for pod, held in users:
        if _is_leaving(pod, memory, snapshot.now):
            return [], [Hold(Reason.POD_TERMINATING, pod.full_name, f"{pod.full_name} was asked to end, and is still there")]
        if pod.deleting_since or isinstance(may_evict(pod, node=snapshot.node_name, ours=ours), MayNot):
            continue
        if hold := _stays(pod, held, snapshot.node, snapshot, memory):
            holds.append(hold)
        else:
            found.append(Candidate(pod, held))
    found.sort(key=lambda each: (not each.pod.ready, sum(thing.bytes for thing in each.things), each.pod.full_name))
    # What passes by itself is told before what somebody has to change.
    return found, sorted(holds, key=lambda hold: (hold.lasting, hold.pod))


def users_of(snapshot: Snapshot, things: Iterable[Thing]) -> Sequence[tuple[Pod, tuple[Thing, ...]]]:
    """Pods here that have not ended, with what each has of this driver: volumes, and those that are being made for it."""
    by_pod: dict[str, list[Thing]] = defaultdict(list)
    by_claim: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        if thing.class_ is VolumeClass.IN_FLIGHT:
            by_claim[thing.claim].append(thing)
        for user in thing.use.pods:
            by_pod[user.uid].append(thing)
    found = []
    for pod in sorted(snapshot.running, key=lambda pod: (pod.full_name, pod.uid)):
        held = (*by_pod[pod.uid], *(thing for claim in pod.claim_names for thing in by_claim.get(claim, ())))
        found += [(pod, held)] if held else []
    return found


def keeping_off(node: Node) -> tuple[Taint, ...]:
    """What keeps pods off the node that do not tolerate it."""
    effective = tuple(taint for taint in node.taints if taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE))
    cordon = (_CORDON,) if node.unschedulable and _CORDON.key not in {taint.key for taint in effective} else ()
    return (*effective, *cordon)


def workload_of(pod: Pod) -> str:
    """Pods with the same controller, which is in their namespace: a pod elsewhere that names the same uid is none of them.

    While a Deployment is rolled out its pods have two ReplicaSets, whose names are the Deployment's and a hash.
    """
    if pod.owner is None:
        return ""
    pod_hash = pod.labels.get(names.POD_HASH)
    if pod.owner.kind == names.REPLICA_SET and pod_hash:
        return f"{pod.namespace}/Deployment {pod.owner.name.removesuffix(f'-{pod_hash}')}"
    return f"{pod.namespace}/{pod.owner.uid}"


def _is_leaving(pod: Pod, memory: Memory, now: float) -> bool:
    due = to_seconds(pod.deleting_since)
    return pod.uid in memory.leaving or (due is not None and now - due < OVERDUE)


def _stays(pod: Pod, held: Sequence[Thing], node: Node, snapshot: Snapshot, memory: Memory) -> Hold | None:
    """Why it is not evicted, whatever anybody else says."""
    name = pod.full_name
    if making := [thing for thing in held if thing.class_ is VolumeClass.IN_FLIGHT]:
        return Hold(Reason.PROVISIONING_IN_FLIGHT, name, f"{making[0].name} is being created")
    # What is made anew is told of only where nothing else keeps the pod.
    for thing in sorted((thing for thing in held if not thing.may_be_lost), key=lambda thing: thing.is_made_anew):
        said = thing.policy(Intent.RETIRE)
        policy = f", whose policy is {said.policy} ({said.source})" if said else ""
        anew = snapshot.own.reprovisions and thing.is_made_anew
        reason = Reason.REPROVISION_PENDING if anew else Reason.VOLUME_IN_USE
        return Hold(reason, name, f"{name} uses {thing.name}{policy}", lasting=not anew)
    if unread_claims(pod, snapshot):
        return Hold(Reason.NOT_KNOWN, name, "one of its claims could not be read")
    if is_bare(pod):
        return Hold(Reason.BARE_POD, name, f"no controller owns {name}", lasting=True)
    keeping = keeping_off(node)
    if not keeping:
        return Hold(Reason.WOULD_COME_BACK, name, "nothing keeps pods off the node", lasting=True)
    if pod.tolerates(keeping):
        return Hold(Reason.WOULD_COME_BACK, name, f"{name} tolerates {' and '.join(map(str, keeping))}", lasting=True)
    before = memory.evicted.get(workload_of(pod))
    if before is not None and pod.uid not in before:
        why = f"{name} was put on this node after another pod of its workload had been evicted"
        return Hold(Reason.WOULD_COME_BACK, name, why, lasting=True)
    return memory.held.get(pod.uid)


# --- by what was read from the API server right before ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replicas:
    """Of one candidate, as the API server has it now."""

    pods: tuple[Pod, ...]
    """All of the namespace."""
    wanted: int | None
    """How many its controller wants; None: it does not say so, as owners of kinds that Kubernetes does not know."""
    budgets: tuple[Budget, ...]
    """Of the namespace."""
    needs_budget: bool
    """Several nodes may be emptied at the same time: only a budget sees the evictions of all."""
    taken_by: str = ""
    """The node that makes another replica of the workload anew; empty: none does."""

    asked_at: float = 0.0
    """By the clock of this process."""

    def of(self, pod: Pod) -> list[Pod]:
        """The pods of its workload that have not ended."""
        return [each for each in self.pods if not each.ended and workload_of(each) == workload_of(pod)]


def says_how_many(owner: Owner) -> bool:
    """The object that makes these pods has `spec.replicas`, and may be read."""
    return owner.kind in _COUNTED and owner.api_version.startswith(f"{names.APPS_GROUP}/")


def objection(candidate: Candidate, replicas: Replicas) -> Hold | None:
    """With this pod at most one of its workload is away; None: it may go."""
    pod, owner = candidate.pod, candidate.pod.owner
    assert owner is not None
    if replicas.taken_by:
        return Hold(Reason.WAITING_FOR_SLOT, pod.full_name, f"node {replicas.taken_by} makes another replica of its workload anew")
    there = replicas.of(pod)
    others = sorted((peer for peer in there if peer.uid != pod.uid), key=lambda peer: peer.full_name)
    if len(others) == len(there):
        return Hold(Reason.NOT_KNOWN, pod.full_name, "the API server does not have it any more")
    for peer in others:
        if not peer.ready or peer.deleting_since or not peer.node:
            where = f"on {peer.node}" if peer.node else "which waits for a node,"
            return Hold(Reason.REPLICA_NOT_READY, pod.full_name, f"{peer.full_name} {where} is not ready")
    if replicas.wanted is not None and len(there) < replicas.wanted:
        return Hold(Reason.REPLICA_NOT_READY, pod.full_name, f"{owner.kind} {owner.name} has {len(there)} of {replicas.wanted} pods")
    needs_one = len(there) > 1 and (replicas.needs_budget or replicas.wanted is None)
    why = SEVERAL_NODES if replicas.needs_budget else f"{owner.kind} {owner.name} does not say how many pods there are to be"
    return refused_by_budget(pod, replicas.budgets, needs_one=why if needs_one else "")


def refused_by_budget(pod: Pod, budgets: Iterable[Budget], *, needs_one: str) -> Hold | None:
    """What the API server would say. It asks no budget about pods that do not run yet. `needs_one`: why there has to be one."""
    covering = sorted(budget.full_name for budget in budgets if budget.covers(pod))
    by_name = {budget.full_name: budget for budget in budgets}
    if not covering:
        why = f"{needs_one}, and no PodDisruptionBudget keeps its other replicas"
        return Hold(Reason.PDB_BLOCKED, pod.full_name, why, lasting=True) if needs_one else None
    if pod.phase == "Pending":
        return None
    if len(covering) > 1:
        return Hold(Reason.PDB_BLOCKED, pod.full_name, f"selected by {first_few(covering)}", lasting=True)
    budget = by_name[covering[0]]
    if budget.frees_unready and not pod.ready:
        return None
    if not budget.observed:
        return Hold(Reason.PDB_BLOCKED, pod.full_name, f"the status of the budget {budget.full_name} is not up to date yet")
    if needs_one and budget.allowed > 1:
        why = f"{needs_one}, and the budget {budget.full_name} lets {budget.allowed} pods be away together"
        return Hold(Reason.PDB_BLOCKED, pod.full_name, why, lasting=True)
    return Hold(Reason.PDB_BLOCKED, pod.full_name, f"the budget is {budget.full_name}") if budget.allowed <= 0 else None
