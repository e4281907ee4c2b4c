"""The locks before a replica's data: a table. A claim is deleted only while every one of them is open, each looked at on its own.

What cannot be known shuts a lock. Each refusal has its own reason, so that people see what to do. Here are those on the replica that goes:
whether its workload can spare it, and whether it comes up elsewhere; those on its claims are in `claim_locks`.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.drain.emptying.rules import keeping_off, unsure
from sidecar.drain.judgement.budgets import check_budgets
from sidecar.drain.reprovision import claim_locks
from sidecar.drain.reprovision.elsewhere import place
from sidecar.drain.reprovision.lock import Check, Lock, LocksView, Name, Refusal
from sidecar.drain.reprovision.order import makes_after, rollout_waits_for
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.drain.wording import all_or_few
from sidecar.model import names, timestamps
from sidecar.model.nodes import Pod


def look(view: LocksView) -> tuple[Lock, ...]:
    """Each lock, in the order in which a refusal is told."""
    return tuple(Lock(name, check(view)) for name, check in LOCKS)


def shut(locks: Iterable[Lock]) -> Refusal | None:
    """The first refusal; None: all are open."""
    return next((lock.refusal for lock in locks if lock.refusal is not None), None)


# --- one lock each ------------------------------------------------------------------------------------------------------


def _allowed(view: LocksView) -> Refusal | None:
    return None if view.allowed else Refusal(Hindrance.REPROVISION_OFF, "--allow-reprovision is not set")


def _sure(view: LocksView) -> Refusal | None:
    doubt = unsure(view.snapshot)
    if view.facts.namespace_ends:
        return Refusal(Hindrance.NAMESPACE_ENDS, f"namespace {view.target.namespace} is being deleted")
    return Refusal(doubt.hindrance, doubt.why) if doubt else None


def _replicas(view: LocksView) -> Refusal | None:
    """Of those that have to be there each is Ready, on another node, with claims of its own."""
    workload, target = view.facts.workload, view.target
    if workload is None:
        return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {target.workload} is gone")
    if workload.replicas < 2:
        return Refusal(Hindrance.SINGLE_REPLICA, f"StatefulSet {target.workload} has {workload.replicas}")
    there = {pod.name: pod for pod in view.facts.pods if pod.name != target.pod and workload.wants(pod.name)}
    refusals = [refusal for pod in there.values() if (refusal := _replica(pod, workload, view))]
    ready = len(there) - len(refusals)
    if missing := workload.missing({*there, target.pod}):
        refusals.append(_missing(missing, workload, view))
    others = workload.replicas - 1
    lowered = [found.words.peers for _, found in view.claims if found is not None]
    # Of several claims the one that asks for most counts.
    # One that is not ready may be away because another node evicted it.
    all_of_them = view.alone or bool(view.facts.emptied)
    wanted = max((others if peers is None or all_of_them else min(peers, others) for peers in lowered), default=others)
    return refusals[0] if ready < wanted else None


def _missing(name: str, workload: Workload, view: LocksView) -> Refusal:
    if makes_after(workload, view.target.pod, name, view.facts):
        return Refusal(Hindrance.EACH_WAITS, f"replica {name} does not exist, and is made only once {view.target.pod} is ready")
    return Refusal(Hindrance.REPLICA_NOT_READY, f"replica {name} does not exist")


def _replica(pod: Pod, workload: Workload, view: LocksView) -> Refusal | None:
    if pod.owner is None or pod.owner.uid != workload.uid:
        return Refusal(Hindrance.REPLICA_NOT_READY, f"replica {pod.name} does not exist")
    if not pod.ready or pod.deleting_since or pod.ended or not pod.node:
        return Refusal(Hindrance.REPLICA_NOT_READY, f"{pod.full_name} is not ready")
    if pod.node == view.machine.node:
        return Refusal(Hindrance.REPLICA_NOT_APART, f"{pod.full_name} is on this node too")
    ours = {claim.name for claim in view.target.claims}
    if not pod.claims or ours & set(pod.claims) or not workload.claims_of(pod.name) <= set(pod.claims):
        return Refusal(Hindrance.REPLICA_NOT_APART, f"{pod.full_name} has no claims of its own")
    return None


def _in_sync(view: LocksView) -> Refusal | None:
    """Ready is not caught up: most databases are Ready while a new replica still copies its data from the others."""
    workload = view.facts.workload
    if workload is None:
        return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {view.target.workload} is gone")
    others = [pod for pod in view.facts.pods if pod.name != view.target.pod and workload.wants(pod.name)]
    if workload.in_sync:
        behind = [pod.full_name for pod in others if workload.in_sync not in pod.conditions]
        why = f"{behind[0]}: its condition {workload.in_sync} is not True" if behind else ""
        return Refusal(Hindrance.REPLICA_NOT_IN_SYNC, why) if behind else None
    for pod in others if view.pause else ():
        since = timestamps.to_seconds(pod.ready_since)
        if since is None or view.now - since < view.pause:
            when = f"since {pod.ready_since}" if since is not None else "since an unknown time"
            return Refusal(Hindrance.REPLICA_NOT_IN_SYNC, f"{pod.full_name} is Ready {when}, and has {view.pause:g} s to copy its data")
    return None


def _not_rolling(view: LocksView) -> Refusal | None:
    workload = view.facts.workload
    if workload is None:
        return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {view.target.workload} is gone")
    if not workload.observed or not workload.revision:
        return Refusal(Hindrance.WORKLOAD_ROLLING, "its controller has not answered to its last change yet")
    if rollout_waits_for(workload, view.target.pod, view.facts):
        return None
    for pod in view.facts.pods:
        if workload.wants(pod.name) and pod.labels.get(names.POD_REVISION) != workload.revision:
            return Refusal(Hindrance.WORKLOAD_ROLLING, f"{pod.full_name} is of another revision than {workload.revision}")
    return None


def _kept_off(view: LocksView) -> Refusal | None:
    """Otherwise the pod would come back, and its new claim with it."""
    node, workload = view.snapshot.node, view.facts.workload
    keeping = keeping_off(node) if node else ()
    if not keeping:
        return Refusal(Hindrance.WOULD_COME_BACK, "nothing keeps pods off the node")
    for pod in filter(None, (view.pod, workload.template if workload else None)):
        if pod.tolerates(keeping):
            return Refusal(Hindrance.WOULD_COME_BACK, f"{view.target.pod} tolerates {' and '.join(map(str, keeping))}")
    if workload and workload.template.node:
        # No scheduler places such a pod: no taint is looked at, and no node is chosen for its new claim.
        return Refusal(Hindrance.WOULD_COME_BACK, f"StatefulSet {workload.name} puts its pods on node {workload.template.node} itself")
    return None


def _budget(view: LocksView) -> Refusal | None:
    """Only before the eviction: once the pod is away, its budget has been asked."""
    pod = view.pod
    if pod is None or not pod.node or pod.uid != view.target.pod_uid or pod.deleting_since:
        return None
    findings = check_budgets(view.facts.budgets, [pod], stranded=frozenset())
    if budgets := findings.conflicting(pod):
        return Refusal(Hindrance.TWO_BUDGETS, f"selected by {all_or_few(budgets)}")
    if budget := findings.blocked.get(pod.full_name):
        return Refusal(Hindrance.PDB_BLOCKED, f"the budget is {budget}")
    if budget := findings.outdated.get(pod.full_name):
        return Refusal(Hindrance.PDB_BLOCKED, f"the status of the budget {budget} is not up to date yet")
    return None


def _nobody_leaves(view: LocksView) -> Refusal | None:
    others = (name for name in view.facts.leaving if name != view.target.full_name)
    leaving = [name for name in others if name not in view.slow or name.partition("/")[0] == view.target.namespace]
    return Refusal(Hindrance.POD_LEAVING, f"{leaving[0]} was asked to end, and is still there") if leaving else None


LOCKS: Final[tuple[tuple[Name, Check], ...]] = (
    (Name.ALLOWED, _allowed),
    (Name.SURE, _sure),
    (Name.SAME, claim_locks.same),
    (Name.POLICY, claim_locks.policy),
    (Name.MARKS, claim_locks.marks),
    (Name.MADE_AGAIN, claim_locks.made_again),
    (Name.REPLICAS, _replicas),
    (Name.IN_SYNC, _in_sync),
    (Name.NOT_ROLLING, _not_rolling),
    (Name.ON_THIS_NODE, claim_locks.on_this_node),
    (Name.PLACE, place),
    (Name.KEPT_OFF, _kept_off),
    (Name.FINALIZERS, claim_locks.finalizers),
    (Name.SNAPSHOTS, claim_locks.snapshots),
    (Name.NOBODY_ELSE, claim_locks.nobody_else),
    (Name.NOBODY_LEAVES, _nobody_leaves),
    (Name.BUDGET, _budget),
)
