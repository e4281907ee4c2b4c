"""The locks on what is destroyed: that the claims and their volumes are those that were judged, that somebody has said that they may go and
somebody makes them again, and that nobody else needs them."""

from collections.abc import Iterable

from sidecar.drain.judgement.acknowledged import is_acknowledged
from sidecar.drain.judgement.policy import resolve
from sidecar.drain.machine_mark import text
from sidecar.drain.reprovision.elsewhere import another_volume
from sidecar.drain.reprovision.lock import LocksView, Refusal
from sidecar.drain.vocabulary import Hindrance, Intent, Policy
from sidecar.drain.wording import first_few
from sidecar.model import names
from sidecar.model.nodes import SnapshotContent
from sidecar.model.objects import Volume


def same(view: LocksView) -> Refusal | None:
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


def policy(view: LocksView) -> Refusal | None:
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
    return another_volume(view)


def marks(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        words = found.words if found else None
        if words and words.problem:
            return Refusal(Hindrance.MARK_NOT_UNDERSTOOD, f"claim {name}: {words.problem}")
        if words and words.marked_by not in (None, view.machine):
            assert words.marked_by is not None
            return Refusal(Hindrance.MARK_NOT_UNDERSTOOD, f"claim {name} bears the mark of {text(words.marked_by)}, another machine")
    return None


def made_again(view: LocksView) -> Refusal | None:
    target, workload = view.target, view.facts.workload
    if workload is None or workload.uid != target.workload_uid or workload.deleting:
        return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {target.workload} is gone, or is being deleted")
    if not workload.wants(target.pod):
        return Refusal(Hindrance.REPLICA_CONDEMNED, f"StatefulSet {target.workload} has {workload.replicas} replicas, not {target.pod}")
    pod = view.pod
    if pod is not None and (pod.owner is None or pod.owner.uid != workload.uid):
        return Refusal(Hindrance.OWNER_NOT_SUPPORTED, f"{pod.full_name} is not the StatefulSet's")
    if workload.excess:
        return Refusal(Hindrance.TOO_MANY_CLAIMS, f"StatefulSet {target.workload}: {workload.excess}")
    made = workload.claims_of(target.pod)
    for name, found in view.claims:
        if found is not None and found.of_pod:
            return Refusal(Hindrance.REPLICA_CONDEMNED, f"claim {name} goes with a pod: the StatefulSet is to delete it")
        if name not in made and not (found is not None and found.words.may_be_deleted):
            return Refusal(Hindrance.NOBODY_MAKES_IT_AGAIN, f"StatefulSet {target.workload} has no template for claim {name}")
    return None


def on_this_node(view: LocksView) -> Refusal | None:
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


def finalizers(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        foreign = [item for item in (found.finalizers if found else ()) if item != names.CLAIM_PROTECTION]
        if foreign:
            return Refusal(Hindrance.FOREIGN_FINALIZER, f"claim {name} has {first_few(foreign)}")
    return None


def snapshots(view: LocksView) -> Refusal | None:
    handles = {found.volume.handle for _, found in view.claims if found is not None and found.volume is not None}
    known = (*view.snapshot.contents, *view.snapshot.unplaced_contents)
    return kept_by(content for content in known if content.source_handle in handles)


def kept_by(contents: Iterable[SnapshotContent]) -> Refusal | None:
    """By one of these snapshots, which are made of volumes of the replica."""
    for content in contents:
        if not is_acknowledged(content.notes):
            return Refusal(Hindrance.SNAPSHOT_ON_NODE, f"VolumeSnapshotContent {content.name} is made of it")
    return None


def nobody_else(view: LocksView) -> Refusal | None:
    """A pod with a node uses the claim, or may: nothing is deleted under it."""
    ours = {claim.name for claim in view.target.claims}
    for pod in view.facts.pods:
        if pod.node and pod.uid != view.target.pod_uid and ours & set(pod.claims):
            return Refusal(Hindrance.CLAIM_IN_USE, f"{pod.full_name} on node {pod.node} uses it")
    return None
