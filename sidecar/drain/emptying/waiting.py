"""Decides about pods that wait for ever: without a node, and with a generic ephemeral volume here, where nothing is to run any more.

A drainer looks for pods by their node, and does not find these. When such a pod goes, its claim and the volume go with it, and the next pod
is made where it can run. It has never run with that volume.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from sidecar.drain.emptying.decisions import Ask, Candidate, EmptyingView, Evict, Hold
from sidecar.drain.emptying.replicas import replicas_of
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.pod_fates import running
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import Hindrance, Policy, VolumeClass
from sidecar.drain.wording import first_few
from sidecar.eviction.rules import MayNot, may_evict_waiting, objection
from sidecar.model.nodes import Pod

_MOST_BEFORE_OTHERS: Final = 10


def waiting_for(view: EmptyingView) -> Sequence[tuple[Pod, tuple[LocalItem, ...]]]:
    """Those that nothing but their own ephemeral volumes keeps waiting for this node, each with all that it has here."""
    snapshot = view.snapshot
    without = [pod for pod in snapshot.claimants if _may_be_one(pod, view)]
    if not without:
        return ()
    items = _held(item for item in classify(snapshot, running(snapshot)) if not _is_made_anew(item, view))
    found = ((pod, tuple(chain.from_iterable(items[key] for key in (pod.uid, *pod.claim_names)))) for pod in without)
    waiting = ((pod, held) for pod, held in found if any(_keeps(item) for item in held) and _goes(held, pod, snapshot))
    return sorted(waiting, key=lambda each: (each[0].full_name, each[0].uid))


def in_use_by_others(pod: Pod, held: Iterable[LocalItem]) -> Hold | None:
    """Anybody may name a claim that was made for another pod."""
    other = next((user for item in held for user in item.use.everybody if user.uid != pod.uid), None)
    return Hold(Hindrance.CLAIM_IN_USE, pod.full_name, f"{other.full_name} names its claim too") if other else None


def decide_waiting(each: Candidate, view: EmptyingView) -> Evict | Ask | Hold:
    """It runs nowhere, so that neither the other replicas nor a budget lack anything when it goes."""
    pod, workload = each.pod, each.workload
    peers = view.peers.get(pod.namespace)
    if peers is None:
        return Ask(pod.namespace, pod.full_name, f"whether {pod.full_name} has a node by now is not known yet", waits=True)
    now = next((peer for peer in peers if peer.uid == pod.uid), None)
    if now is None:
        return Hold(Hindrance.NOT_KNOWN, pod.full_name, "the API server does not have it any more")
    may = may_evict_waiting(now, version=view.versions.get(now.uid, ""), ours=view.ours)
    if isinstance(may, MayNot):
        return Hold(Hindrance.NOT_KNOWN, pod.full_name, may.why)
    replicas, evicted = len(replicas_of(now, peers)), view.waiting_evicted.get(workload, 0)
    if evicted >= replicas:
        # Somebody makes volumes here whatever keeps pods off. To evict their pods again and again would help nobody.
        why = f"a volume was made here for it after {evicted} pods of its workload that waited for a node had been evicted"
        return Hold(Hindrance.WOULD_COME_BACK, pod.full_name, why)
    volumes = tuple(item.name for item in each.held)
    why = f"it waits for a node with {first_few(volumes)}, which only this node has and which goes with it"
    return Evict(may, workload, replicas, frozenset(), volumes, why, waits=True)


def comes_first(pod: Pod, view: EmptyingView) -> bool:
    """Before those that run, until its namespace has had many: whoever makes such pods again and again may forge their owners."""
    namespace = f"{pod.namespace}/"
    return sum(count for workload, count in view.waiting_evicted.items() if workload.startswith(namespace)) < _MOST_BEFORE_OTHERS


def _may_be_one(pod: Pod, view: EmptyingView) -> bool:
    return not pod.node and bool(pod.ephemeral) and not objection(pod, ours=view.ours) and pod.uid not in view.leaving


def _held(items: Iterable[LocalItem]) -> Mapping[str, Sequence[LocalItem]]:
    """By the uid of a pod that names it; what is being made by the full name of its claim."""
    found: dict[str, list[LocalItem]] = defaultdict(list)
    for item in items:
        keys = (item.claim,) if item.class_ is VolumeClass.IN_FLIGHT else dict.fromkeys(user.uid for user in item.use.claimants)
        for key in keys:
            found[key].append(item)
    return found


def _is_made_anew(item: LocalItem, view: EmptyingView) -> bool:
    """The next pod waits for it until then. This pod would go on waiting for its own volumes after that."""
    said = item.retire
    return view.reprovisions and item.class_ is VolumeClass.IN_USE and said is not None and said.policy is Policy.REPROVISION


def _keeps(item: LocalItem) -> bool:
    """From running anywhere else."""
    return item.class_ is VolumeClass.EPHEMERAL and not item.shared and not item.renamed


def _goes(held: Iterable[LocalItem], pod: Pod, snapshot: Snapshot) -> bool:
    """Whatever it has here goes with it, is reached from elsewhere too, or is not there yet. One that stays would keep the next pod too."""
    own = {f"{pod.namespace}/{name}" for name in pod.ephemeral}
    for item in held:
        claim = snapshot.claims.get(item.claim)
        made_for_it = item.claim in own and claim is not None and claim.owner is not None and claim.owner.uid == pod.uid
        if not (made_for_it or item.shared or item.class_ is VolumeClass.IN_FLIGHT):
            return False
    return True
