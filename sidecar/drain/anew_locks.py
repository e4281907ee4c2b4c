"""The locks before a replica's data: a table. A claim is deleted only while every one of them is open, each looked at on its own.

What cannot be known shuts a lock. Each refusal says why, so that people see what to do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain import places
from sidecar.drain.anew import Facts, FoundClaim, Target
from sidecar.drain.empty import SEVERAL_NODES, Hold, keeping_off, refused_by_budget, unsure
from sidecar.drain.policy import resolve
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.statefulset import StatefulSet, shut_out
from sidecar.drain.things import is_acknowledged
from sidecar.drain.where import maker_of
from sidecar.drain.words import Intent, Policy, Reason, first_few
from sidecar.model import names, nodes, timestamps
from sidecar.model.nodes import Pod
from sidecar.model.objects import Volume


@dataclass(frozen=True, slots=True)
class LocksView:
    """All that the locks look at."""

    allowed: bool
    machine: str
    """This one, as `node/uid`."""
    snapshot: Snapshot
    target: Target
    facts: Facts
    now: float
    """Wall clock: when a replica became Ready is stored."""
    pause: float
    """Seconds that each other replica has to be Ready, where its owner names no condition that says that it is in sync."""
    needs_budget: bool
    """Several nodes may be emptied at the same time."""
    deleted: frozenset[str] = frozenset()
    """Names of claims that were deleted for this replica already: what has such a name now is the replacement's, and keeps nothing here."""
    all_peers: bool = False
    """Fewer ready replicas than all others are not enough, whatever a claim says: the Lease was another node's, not heard of since."""

    @property
    def pod(self) -> Pod | None:
        return self.facts.pod(self.target.pod)

    @property
    def claims(self) -> Iterable[tuple[str, FoundClaim]]:
        """Those that are there; that the others are not, the lock `_same` tells."""
        return [(name, self.facts.claims[name]) for name, _ in self.target.claims if name in self.facts.claims]

    @property
    def workload(self) -> StatefulSet:
        """For the locks after the one that says that it is there."""
        assert self.facts.workload is not None
        return self.facts.workload


Refusal = tuple[Reason, str]
_FOR_A_PERSON: Final = (Reason.CLAIM_KEPT, Reason.NO_NODE_FITS, Reason.POLICY_CONFLICT, Reason.SNAPSHOT_ON_NODE, Reason.WOULD_COME_BACK)


def shut(view: LocksView) -> Hold | None:
    """The first lock that is shut; None: all are open."""
    for lock in LOCKS:
        if refusal := lock(view):
            return Hold(refusal[0], view.target.full_name, refusal[1], lasting=refusal[0] in _FOR_A_PERSON)
    return None


# --- may it be done at all --------------------------------------------------------------------------------------------


def _allowed(view: LocksView) -> Refusal | None:
    return None if view.allowed else (Reason.CLAIM_KEPT, "--allow-reprovision is not set")


def _sure(view: LocksView) -> Refusal | None:
    if view.facts.namespace_ends:
        return Reason.CLAIM_KEPT, f"namespace {view.target.namespace} is being deleted"
    doubt = unsure(view.snapshot)
    return (doubt.reason, doubt.why) if doubt else None


# --- what is destroyed ------------------------------------------------------------------------------------------------


def _same(view: LocksView) -> Refusal | None:
    """What is deleted is what was judged: claims with these uids, bound to volumes of ours that are here."""
    here = {volume.uid for volume in view.snapshot.volumes}
    for name, uid in view.target.claims:
        found = view.facts.claims.get(name)
        if found is None or found.claim.uid != uid:
            return Reason.CLAIM_KEPT, f"claim {name} is gone, or was made again since it was judged"
        claim, volume = found.claim, found.volume
        if claim.deleting:
            return Reason.CLAIM_KEPT, f"claim {name} is being deleted"
        if volume is None or volume.claim is None or volume.claim.uid != claim.uid or claim.volume_name != volume.name:
            return Reason.CLAIM_KEPT, f"claim {name} is not bound to the volume that was judged"
        if volume.driver != view.snapshot.driver or volume.uid not in here:
            return Reason.CLAIM_KEPT, f"the volume of claim {name} is not known to be on this node"
    return None


def _policy(view: LocksView) -> Refusal | None:
    """Somebody has said it of each claim: a default never deletes."""
    for name, found in view.claims:
        assert found.volume is not None
        class_ = view.facts.classes.get(found.volume.class_name)
        said = resolve(found.volume, found.claim, class_=class_, namespace=view.facts.namespace, default=None, intent=Intent.RETIRE)
        if said.problem:
            return Reason.POLICY_CONFLICT, f"claim {name}: {said.problem}"
        if class_ is None and found.volume.class_name:
            return Reason.NOT_KNOWN, f"StorageClass {found.volume.class_name} of claim {name}, which may have a policy, is not there"
        if said.policy is not Policy.REPROVISION:
            return Reason.CLAIM_KEPT, f"claim {name} has the policy {said.policy} ({said.source})"
    return None


def _marks(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        if problem := found.problem(view.machine):
            return Reason.CLAIM_KEPT, f"claim {name}: {problem}"
    return None


def _made_again(view: LocksView) -> Refusal | None:
    target, workload, pod = view.target, view.facts.workload, view.pod
    if workload is None or workload.uid != target.workload_uid or workload.deleting:
        return Reason.CLAIM_KEPT, f"StatefulSet {target.workload} is gone, or is being deleted"
    if not workload.wants(target.pod):
        return Reason.CLAIM_KEPT, f"StatefulSet {target.workload} does not want {target.pod} any more"
    if pod is not None and (pod.owner is None or pod.owner.uid != workload.uid):
        return Reason.CLAIM_KEPT, f"{pod.full_name} is not the StatefulSet's"
    if workload.not_understood:
        return Reason.NO_NODE_FITS, f"StatefulSet {workload.name}: not understood: {workload.not_understood}"
    made = workload.claims_of(target.pod)
    for name, found in view.claims:
        if found.of_pod:
            return Reason.CLAIM_KEPT, f"claim {name} goes with a pod: the StatefulSet is to delete it"
        if name not in made and not found.may_be_deleted:
            return Reason.CLAIM_KEPT, f"StatefulSet {target.workload} has no template for claim {name}"
    return None


def _on_this_node_alone(view: LocksView) -> Refusal | None:
    node = view.snapshot.node
    for name, found in view.claims:
        volume = found.volume
        if node is None or volume is None or not _is_here_alone(volume, view):
            return Reason.CLAIM_KEPT, f"the PersistentVolume of claim {name} does not say that its data is on this node alone"
        if maker_of(volume) not in ("", node.name):
            return Reason.CLAIM_KEPT, f"the PersistentVolume of claim {name} says that it was made on another node"
        # Whose volume a claim has that was bound by hand no admission policy sees, so none lets a sidecar delete it.
        if (found.claim.selected_node, found.claim.provisioner) != (node.name, view.snapshot.driver):
            return Reason.CLAIM_KEPT, f"claim {name} does not say that its volume was made by {view.snapshot.driver} for this node"
    return None


def _is_here_alone(volume: Volume, view: LocksView) -> bool:
    node = view.snapshot.node
    if node is None or volume.affinity is None or len(volume.affinity) != 1:
        return False
    labels = {**node.labels, **(view.snapshot.own.segment.labels() if view.snapshot.own.segment else {})}
    return volume.affinity[0].matches(node.name, labels)


def _finalizers(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        if foreign := [item for item in found.finalizers if item != names.CLAIM_PROTECTION]:
            return Reason.CLAIM_KEPT, f"claim {name} has a finalizer of somebody who needs it: {first_few(foreign)}"
    return None


def _snapshots(view: LocksView) -> Refusal | None:
    handles = {found.volume.handle for _, found in view.claims if found.volume is not None}
    for content in view.facts.contents:
        if content.source_handle in handles and not is_acknowledged(content.notes):
            return Reason.SNAPSHOT_ON_NODE, f"VolumeSnapshotContent {content.name} is made of it"
    return None


def _nobody_else(view: LocksView) -> Refusal | None:
    """A pod with a node uses the claim, or may: nothing is deleted under it."""
    ours = {name for name, _ in view.target.claims}
    for pod in view.facts.pods:
        if pod.node and pod.uid != view.target.pod_uid and ours & set(pod.claims):
            return Reason.CLAIM_KEPT, f"{pod.full_name} on node {pod.node} uses it"
    return None


# --- can the workload spare it ----------------------------------------------------------------------------------------


def _replicas(view: LocksView) -> Refusal | None:
    """Of those that have to be there each is Ready, on another node, with claims of its own."""
    workload, target = view.workload, view.target
    if workload.replicas < 2:
        return Reason.REPLICA_NOT_READY, f"StatefulSet {target.workload} has {workload.replicas} replicas: there is no other copy"
    there = {pod.name: pod for pod in view.facts.pods if pod.name != target.pod and workload.wants(pod.name)}
    refusals = [refusal for pod in there.values() if (refusal := _replica(pod, view))]
    ready = len(there) - len(refusals)
    if missing := workload.missing({*there, target.pod}):
        refusals.append((Reason.REPLICA_NOT_READY, f"replica {missing} does not exist"))
    others = workload.replicas - 1
    # Of several claims the one that asks for most counts.
    peers = [others if found.peers is None or view.all_peers else min(found.peers, others) for _, found in view.claims]
    return refusals[0] if refusals and ready < max(peers, default=others) else None


def _replica(pod: Pod, view: LocksView) -> Refusal | None:
    ours = {name for name, _ in view.target.claims}
    if pod.owner is None or pod.owner.uid != view.workload.uid:
        return Reason.REPLICA_NOT_READY, f"replica {pod.name} does not exist"
    if not pod.ready or pod.deleting_since or pod.ended or not pod.node:
        return Reason.REPLICA_NOT_READY, f"{pod.full_name} is not ready"
    if pod.node == view.snapshot.node_name:
        return Reason.REPLICA_NOT_READY, f"{pod.full_name} is on this node too"
    if not pod.claims or ours & set(pod.claims) or not view.workload.claims_of(pod.name) <= set(pod.claims):
        return Reason.REPLICA_NOT_READY, f"{pod.full_name} has no claims of its own"
    return None


def _in_sync(view: LocksView) -> Refusal | None:
    """Ready is not caught up: most databases are Ready while a new replica still copies its data from the others."""
    workload = view.workload
    others = [pod for pod in view.facts.pods if pod.name != view.target.pod and workload.wants(pod.name)]
    if workload.in_sync:
        behind = [pod.full_name for pod in others if workload.in_sync not in pod.conditions]
        return (Reason.REPLICA_NOT_IN_SYNC, f"{behind[0]}: its condition {workload.in_sync} is not True") if behind else None
    for pod in others if view.pause else ():
        since = timestamps.to_seconds(pod.ready_since)
        if since is None or view.now - since < view.pause:
            when = f"since {pod.ready_since}" if since is not None else "since an unknown time"
            return Reason.REPLICA_NOT_IN_SYNC, f"{pod.full_name} is Ready {when}, and has {view.pause:g} s to copy its data"
    return None


def _not_rolling(view: LocksView) -> Refusal | None:
    """A rollout that waits for the very replica is ended by a person."""
    workload = view.workload
    if not workload.observed or not workload.revision:
        return Reason.REPLICA_NOT_READY, f"the controller of StatefulSet {workload.name} has not answered to its last change yet"
    for pod in view.facts.pods:
        if workload.wants(pod.name) and pod.labels.get(names.POD_REVISION) != workload.revision:
            return Reason.REPLICA_NOT_READY, f"a rollout is under way: {pod.full_name} is of another revision than {workload.revision}"
    return None


def _budget(view: LocksView) -> Refusal | None:
    """Only before the eviction: once the pod is away, its budget has been asked."""
    pod = view.pod
    if pod is None or not pod.node or pod.uid != view.target.pod_uid or pod.deleting_since:
        return None
    hold = refused_by_budget(pod, view.facts.budgets, needs_one=SEVERAL_NODES if view.needs_budget else "")
    return (hold.reason, hold.why) if hold else None


def _nobody_leaves(view: LocksView) -> Refusal | None:
    leaving = [name for name in view.facts.leaving if name != view.target.full_name]
    return (Reason.POD_TERMINATING, f"{leaving[0]} was asked to end, and is still there") if leaving else None


# --- does it come up elsewhere ----------------------------------------------------------------------------------------


def _kept_off(view: LocksView) -> Refusal | None:
    """Otherwise the pod would come back, and its new claim with it."""
    node, template = view.snapshot.node, view.workload.template
    keeping = keeping_off(node) if node else ()
    if not keeping:
        return Reason.WOULD_COME_BACK, "nothing keeps pods off the node"
    if any(pod.tolerates(keeping) for pod in filter(None, (view.pod, template))):
        return Reason.WOULD_COME_BACK, f"{view.target.pod} tolerates {' and '.join(map(str, keeping))}"
    if template.node:
        # No scheduler places such a pod: no taint is looked at, and no node is chosen for its new claim.
        return Reason.WOULD_COME_BACK, f"StatefulSet {view.target.workload} puts its pods on node {template.node} itself"
    return None


def _place(view: LocksView) -> Refusal | None:
    """One node takes the replica, has room for what its templates ask for, and reaches its other volumes."""
    workload, snapshot, facts = view.workload, view.snapshot, view.facts
    if snapshot.capacities is None or snapshot.node is None:
        return Reason.NO_NODE_FITS, "where its volumes could go was not looked at"
    wanted: list[tuple[str, int]] = []
    for name, found in view.claims:
        wish = workload.wish_for(name, view.target.pod)
        size = found.volume.size if found.volume else 0
        if wish is not None and (wish.has_selector or wish.volume_name):
            return Reason.NO_NODE_FITS, f"the template of claim {name} asks for a volume that is there, so none is made"
        class_name = (wish.class_name or facts.default_class) if wish else found.volume.class_name if found.volume else ""
        class_ = facts.classes.get(class_name)
        if class_ is None:
            return Reason.NO_NODE_FITS, f"StorageClass {class_name or '(the default)'} for claim {name} does not exist"
        if class_.provisioner == snapshot.driver:
            wanted.append((class_name, max(size, wish.requested or 0 if wish else 0)))
    out = dict(shut_out(workload, view.target.pod, facts.pods, (*snapshot.others, snapshot.node)))
    reached = _keeps(view, out)
    if isinstance(reached, str):
        return Reason.NO_NODE_FITS, reached
    node, why = places.node_for(
        # Admission may have narrowed where the pod can be, and does so again.
        view.pod or workload.replica(view.target.pod),
        wanted,
        snapshot.others,
        capacities=snapshot.capacities,
        classes=facts.classes,
        out={**out, **reached},
    )
    return None if node else (Reason.NO_NODE_FITS, why)


def _keeps(view: LocksView, out: Mapping[str, str]) -> Mapping[str, str] | str:
    """By node from which another volume of the pod, that goes along, is not reached: why. A text: such a volume keeps the pod here."""
    found: dict[str, str] = {}
    pod = view.pod
    others = sorted(set(pod.claims if pod else ()) - {name for name, _ in view.target.claims} - view.deleted)
    for name in others:
        other = view.facts.claims.get(name)
        volume = other.volume if other else None
        if pod is not None and name in pod.ephemeral:
            if pod.node or volume is None or not _goes_with(pod, other):
                continue  # it goes with a pod that is evicted, or went with an earlier one
            if volume.driver == view.snapshot.driver and volume.uid in {each.uid for each in view.snapshot.volumes}:
                return f"claim {name} keeps {pod.full_name}, which has no node, here: delete that pod"
        elif volume is None or volume.driver == view.snapshot.driver:
            return f"claim {name} of the pod is not made anew, and where it could be is not known"
        if volume.affinity is None:
            continue
        left = [node for node in view.snapshot.others if any(term.matches(node.name, node.labels) for term in volume.affinity)]
        if not any(node.ready == nodes.TRUE and not node.cordoned and not node.deleting for node in left):
            return f"claim {name}, of driver {volume.driver}, keeps the pod here"
        reached = {node.name for node in left}
        found |= {node.name: f"claim {name} is not reached from there" for node in view.snapshot.others if node.name not in reached}
    return found


def _goes_with(pod: Pod, found: FoundClaim | None) -> bool:
    """It is this pod's own, and not left of an earlier pod of its name."""
    owner = found.claim.owner if found else None
    return found is not None and not found.claim.deleting and owner is not None and owner.uid == pod.uid


LOCKS: Final[tuple[Callable[[LocksView], Refusal | None], ...]] = (
    _allowed,
    _sure,
    _same,
    _policy,
    _marks,
    _made_again,
    _replicas,
    _in_sync,
    _not_rolling,
    _on_this_node_alone,
    _place,
    _kept_off,
    _finalizers,
    _snapshots,
    _nobody_else,
    _nobody_leaves,
    _budget,
)
"""In the order in which a refusal is told. Those after `_made_again` may rely on the StatefulSet being there."""
