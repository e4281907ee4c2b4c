"""The locks before a replica's data: a table. A claim is deleted only while every one of them is open, each looked at on its own.

What cannot be known shuts a lock. Each refusal has its own reason, so that people see what to do.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.drain.emptying.rules import keeping_off, unsure
from sidecar.drain.judgement.acknowledged import is_acknowledged
from sidecar.drain.judgement.budgets import check_budgets
from sidecar.drain.judgement.policy import resolve
from sidecar.drain.machine_mark import text
from sidecar.drain.reprovision import elsewhere
from sidecar.drain.reprovision.lock import Lock, LocksView, Name, Refusal
from sidecar.drain.reprovision.order import makes_after, rollout_waits_for
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance, Intent, Policy
from sidecar.drain.wording import first_few
from sidecar.model import names
from sidecar.model.nodes import Pod, SnapshotContent
from sidecar.model.objects import Volume


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


def _same(view: LocksView) -> Refusal | None:
    """What is deleted is what was judged: claims with these uids, bound to volumes of ours that are here."""
    here = {volume.uid for volume in view.snapshot.volumes}
    for wanted in view.target.claims:
        found = view.facts.claims.get(wanted.name)
        if found is None:
            return Refusal(Hindrance.CLAIM_CHANGED, f"claim {wanted.name} is gone")
        claim, volume = found.claim, found.volume
        if claim.uid != wanted.uid:
            return Refusal(Hindrance.CLAIM_CHANGED, f"claim {wanted.name} was made again since it was judged")
        if claim.deleting:
            return Refusal(Hindrance.CLAIM_CHANGED, f"claim {wanted.name} is being deleted")
        if volume is None or volume.claim is None or volume.claim.uid != claim.uid or claim.volume_name != volume.name:
            return Refusal(Hindrance.CLAIM_CHANGED, f"claim {wanted.name} is not bound to the volume that was judged")
        if volume.driver != view.snapshot.driver or volume.uid not in here:
            return Refusal(Hindrance.CLAIM_CHANGED, f"the volume of claim {wanted.name} is not known to be on this node")
    return None


def _policy(view: LocksView) -> Refusal | None:
    """Somebody has said it of each claim: a default never deletes. What keeps one claim here keeps the pod, so no other one goes either."""
    for name, found in view.claims:
        if found is None or found.volume is None:
            return Refusal(Hindrance.POLICY_KEEPS, f"claim {name} could not be read")
        said = resolve(
            found.volume,
            found.claim,
            class_=view.facts.classes.get(found.volume.class_name),
            namespace=view.facts.namespace,
            default=None,
            intent=Intent.RETIRE,
            heeded=view.target.namespace not in view.snapshot.unheeded_namespaces,
            unread=view.snapshot.unread,
        )
        if said.problem or not said.certain:
            return Refusal(Hindrance.POLICY_KEEPS, f"claim {name}: {said.problem or 'what is said of it could not be read'}")
        if said.policy is not Policy.REPROVISION or not said.word_of:
            return Refusal(Hindrance.POLICY_KEEPS, f"claim {name} has the policy {said.policy} ({said.source})")
    return elsewhere.another_volume(view)


def _marks(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        words = found.words if found else None
        if words and words.problem:
            return Refusal(Hindrance.MARK_NOT_UNDERSTOOD, f"claim {name}: {words.problem}")
        if words and words.marked_by not in (None, view.machine):
            assert words.marked_by is not None
            return Refusal(Hindrance.MARK_NOT_UNDERSTOOD, f"claim {name} bears the mark of {text(words.marked_by)}, another machine")
    return None


def _made_again(view: LocksView) -> Refusal | None:
    target, workload = view.target, view.facts.workload
    if workload is None or workload.uid != target.workload_uid or workload.deleting:
        return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {target.workload} is gone, or is being deleted")
    if not workload.wants(target.pod):
        return Refusal(Hindrance.REPLICA_CONDEMNED, f"StatefulSet {target.workload} has {workload.replicas} replicas, not {target.pod}")
    pod = view.pod
    if pod is not None and (pod.owner is None or pod.owner.uid != workload.uid):
        return Refusal(Hindrance.OWNER_NOT_SUPPORTED, f"{pod.full_name} is not the StatefulSet's")
    made = workload.claims_of(target.pod)
    for name, found in view.claims:
        if found is not None and found.of_pod:
            return Refusal(Hindrance.REPLICA_CONDEMNED, f"claim {name} goes with a pod: the StatefulSet is to delete it")
        if name not in made and not (found is not None and found.words.may_be_deleted):
            return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {target.workload} has no template for claim {name}")
    return None


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


def _on_this_node(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        volume = found.volume if found else None
        if volume is None:
            return Refusal(Hindrance.SEVERAL_PLACES, f"the volume of claim {name} could not be read")
        if others := view.snapshot.shared_with.get(volume.name):
            return Refusal(Hindrance.SEVERAL_PLACES, f"{volume.name} is also reached by {first_few(sorted(others))}")
        if found is not None and found.claim.selected_node not in ("", view.machine.node):
            return Refusal(Hindrance.SEVERAL_PLACES, f"claim {name} says that its volume was made on node {found.claim.selected_node}")
        if volume.name in view.snapshot.renamed or not _is_here_alone(volume, view):
            return Refusal(Hindrance.SEVERAL_PLACES, f"the node affinity of {volume.name} is not that of this node alone")
    return None


def _is_here_alone(volume: Volume, view: LocksView) -> bool:
    node = view.snapshot.node
    if node is None or volume.affinity is None or len(volume.affinity) != 1:
        return False
    return volume.affinity[0].matches(node.name, node.labels)


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
        return Refusal(Hindrance.TWO_BUDGETS, f"selected by {' and '.join(budgets)}")
    if budget := findings.blocked.get(pod.full_name):
        return Refusal(Hindrance.PDB_BLOCKED, f"the budget is {budget}")
    if budget := findings.outdated.get(pod.full_name):
        return Refusal(Hindrance.PDB_BLOCKED, f"the status of the budget {budget} is not up to date yet")
    return None


def _finalizers(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        foreign = [item for item in (found.finalizers if found else ()) if item != names.CLAIM_PROTECTION]
        if foreign:
            return Refusal(Hindrance.FOREIGN_FINALIZER, f"claim {name} has {first_few(foreign)}")
    return None


def _snapshots(view: LocksView) -> Refusal | None:
    handles = {found.volume.handle for _, found in view.claims if found is not None and found.volume is not None}
    known = (*view.snapshot.contents, *view.snapshot.unplaced_contents)
    return kept_by(content for content in known if content.source_handle in handles)


def kept_by(contents: Iterable[SnapshotContent]) -> Refusal | None:
    """By one of these snapshots, which are made of volumes of the replica."""
    for content in contents:
        if not is_acknowledged(content.notes):
            return Refusal(Hindrance.SNAPSHOT_ON_NODE, f"VolumeSnapshotContent {content.name} is made of it")
    return None


def _nobody_leaves(view: LocksView) -> Refusal | None:
    others = (name for name in view.facts.leaving if name != view.target.full_name)
    leaving = [name for name in others if name not in view.slow or name.partition("/")[0] == view.target.namespace]
    return Refusal(Hindrance.POD_LEAVING, f"{leaving[0]} was asked to end, and is still there") if leaving else None


def _nobody_else(view: LocksView) -> Refusal | None:
    """A pod with a node uses the claim, or may: nothing is deleted under it."""
    ours = {claim.name for claim in view.target.claims}
    for pod in view.facts.pods:
        if pod.node and pod.uid != view.target.pod_uid and ours & set(pod.claims):
            return Refusal(Hindrance.CLAIM_IN_USE, f"{pod.full_name} on node {pod.node} uses it")
    return None


Check = Callable[[LocksView], Refusal | None]

LOCKS: Final[tuple[tuple[Name, Check], ...]] = (
    (Name.ALLOWED, _allowed),
    (Name.SURE, _sure),
    (Name.SAME, _same),
    (Name.POLICY, _policy),
    (Name.MARKS, _marks),
    (Name.MADE_AGAIN, _made_again),
    (Name.REPLICAS, _replicas),
    (Name.NOT_ROLLING, _not_rolling),
    (Name.ON_THIS_NODE, _on_this_node),
    (Name.PLACE, elsewhere.place),
    (Name.KEPT_OFF, _kept_off),
    (Name.FINALIZERS, _finalizers),
    (Name.SNAPSHOTS, _snapshots),
    (Name.NOBODY_ELSE, _nobody_else),
    (Name.NOBODY_LEAVES, _nobody_leaves),
    (Name.BUDGET, _budget),
)
