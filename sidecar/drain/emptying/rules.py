"""Decides which pod of a node that is being retired is evicted next, or why none is: one look, one decision.

What lets a pod go, and only then is it evicted: each of its volumes of this driver goes with it or may be lost, a controller makes it
again, it would not come back here, no other such pod is leaving, and every other replica of its workload is there and ready (`replicas`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from sidecar.drain.emptying.decisions import (
    Ask,
    AskController,
    Candidate,
    Decision,
    EmptyingView,
    Evict,
    Finished,
    Hold,
    Looked,
)
from sidecar.drain.emptying.replicas import not_ready, replicas_of, says_how_many, too_few
from sidecar.drain.emptying.rivals import is_kept_apart
from sidecar.drain.emptying.waiting import comes_first, decide_waiting, in_use_by_others, waiting_for
from sidecar.drain.facts.snapshot import CLAIM, Snapshot, unread_key
from sidecar.drain.judgement.budgets import BudgetFindings, check_budgets
from sidecar.drain.judgement.pod_fates import is_bare, running
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import HINDRANCES, Hindrance, Intent, Policy, VolumeClass
from sidecar.drain.wording import all_or_few, first_few
from sidecar.eviction.rules import MayNot, may_evict
from sidecar.model import names, nodes
from sidecar.model.nodes import Node, Pod, Taint

_CORDON: Final = Taint(names.CORDON_TAINT, "", names.NO_SCHEDULE)


def decide(view: EmptyingView) -> Decision:
    """Of those who may go, pods of workloads that are wholly ready come first, then those with the fewest bytes."""
    snapshot, node = view.snapshot, view.snapshot.node
    if doubt := unsure(snapshot):
        return doubt
    assert node is not None
    looked = view.looked or look_at(snapshot)
    users, findings = looked.users, looked.findings
    for pod, _ in users:
        if _leaves(pod, view) and pod.namespace not in view.slow:
            return Hold(Hindrance.POD_LEAVING, pod.full_name, f"{pod.full_name} was asked to end, and is still there")
    holds: list[Hold] = []
    candidates: list[Candidate] = []
    for pod, held in users:
        may = may_evict(pod, node=snapshot.node_name, ours=view.ours)
        if isinstance(may, MayNot) or _leaves(pod, view):
            continue
        hold = _stays(pod, held, node, snapshot) or _has_come_back(pod, snapshot) or _refused(pod, view, findings)
        if hold:
            holds.append(hold)
        else:
            candidates.append(Candidate(pod, may, held))
    for pod, held in waiting_for(view):
        hold = _stays(pod, held, node, snapshot) or in_use_by_others(pod, held) or _paused(pod, view)
        if hold:
            holds.append(hold)
        else:
            candidates.append(Candidate(pod, None, held))
    return _first(candidates, holds, view)


def unfinished(snapshot: Snapshot, *, ours: Set[str] = frozenset()) -> str:
    """What is left to evict, or is leaving; empty: nothing of which it is known that it can pass by itself."""
    decision = decide(EmptyingView(snapshot, ours=ours))
    match decision:
        case Ask(why=why) | AskController(why=why):
            return why
        case Hold(hindrance, pod, why) if pod and hindrance not in _LASTING:
            return f"{hindrance}: {why}"
        case _:
            return ""


def evictable(snapshot: Snapshot, *, ours: Set[str] = frozenset()) -> str:
    """The pod that would be evicted next, were the node emptied once more and its other replicas ready; empty: none would."""
    decision = decide(EmptyingView(snapshot, ours=ours))
    return decision.pod if isinstance(decision, Ask | AskController) else ""


def in_words(decision: Decision) -> str:
    """For people who ask what comes next."""
    match decision:
        case Evict(pod=pod, why=why):
            return f"{pod.full_name} is evicted: {why}"
        case Hold(hindrance, pod, why):
            return f"nobody is evicted: {hindrance}{f' ({pod})' if pod else ''}: {why}. What to do: {HINDRANCES[hindrance].remedy}"
        case Ask(pod=pod, waits=True):
            return f"{pod}, which waits for a node, is evicted, if it has none by now, which only the sidecar looks at"
        case Ask(pod=pod) | AskController(pod=pod):
            return f"{pod} is evicted, if all other replicas of its workload are there and ready, which only the sidecar looks at"
        case Finished(why):
            return why


def unsure(snapshot: Snapshot) -> Hold | None:
    """Ignorance is never a yes."""
    if snapshot.node is None:
        return Hold(Hindrance.NOT_KNOWN, "", f"there is no Node {snapshot.node_name}")
    if snapshot.node.ready != nodes.TRUE:
        return Hold(Hindrance.SOURCE_OFFLINE, "", "the node is not ready, so that nobody would report that a pod has ended")
    unknown = tuple(filter(None, (*sorted(set(snapshot.ignorance)), snapshot.not_listed)))
    return Hold(Hindrance.NOT_KNOWN, "", first_few(unknown)) if unknown else None


def look_at(snapshot: Snapshot) -> Looked:
    users = users_of(snapshot)
    return Looked(users, check_budgets(snapshot.budgets or (), [pod for pod, _ in users], stranded=frozenset()))


def users_of(snapshot: Snapshot) -> Sequence[tuple[Pod, tuple[LocalItem, ...]]]:
    """Pods here that have not ended, with what each has of this driver: volumes, and those that are being made for it."""
    pods = running(snapshot)
    by_pod: dict[str, list[LocalItem]] = defaultdict(list)
    by_claim: dict[str, list[LocalItem]] = defaultdict(list)
    for item in classify(snapshot, pods):
        if item.class_ is VolumeClass.IN_FLIGHT:
            by_claim[item.claim].append(item)
        for user in item.pods:
            by_pod[user.uid].append(item)
    found = ((pod, (*by_pod[pod.uid], *chain.from_iterable(by_claim[claim] for claim in pod.claim_names))) for pod in pods)
    return sorted(((pod, held) for pod, held in found if held), key=lambda each: (each[0].full_name, each[0].uid))


def _leaves(pod: Pod, view: EmptyingView) -> bool:
    return bool(pod.deleting_since) or pod.uid in view.leaving


def _stays(pod: Pod, held: Iterable[LocalItem], node: Node, snapshot: Snapshot) -> Hold | None:
    """Why it is not evicted, whatever anybody else says."""
    for item in held:
        if item.class_ is VolumeClass.IN_FLIGHT:
            return Hold(Hindrance.PROVISIONING_IN_FLIGHT, pod.full_name, f"{item.name} is being created")
    # What is made anew is told of only where nothing else keeps the pod.
    for item in sorted((item for item in held if not _may_leave(item)), key=lambda item: _is_made_anew(item, snapshot)):
        said = item.policy(Intent.RETIRE)
        policy = f", whose policy is {said.policy} ({said.source})" if said else ""
        hindrance = Hindrance.REPROVISION_PENDING if _is_made_anew(item, snapshot) else Hindrance.DATA_STAYS
        return Hold(hindrance, pod.full_name, f"it uses {item.name}{policy}")
    if any(unread_key(CLAIM, claim) in snapshot.unread for claim in pod.claim_names):
        return Hold(Hindrance.NOT_KNOWN, pod.full_name, "one of its claims could not be read")
    if is_bare(pod):
        return Hold(Hindrance.BARE_POD, pod.full_name, "no controller owns it")
    keeping = keeping_off(node)
    if not keeping:
        return Hold(Hindrance.WOULD_COME_BACK, pod.full_name, "nothing keeps pods off the node")
    if pod.tolerates(keeping):
        return Hold(Hindrance.WOULD_COME_BACK, pod.full_name, f"it tolerates {' and '.join(map(str, keeping))}")
    return None


def _has_come_back(pod: Pod, snapshot: Snapshot) -> Hold | None:
    """Somebody puts pods here whatever keeps them off. To evict them again and again would help nobody."""
    if pod.uid not in snapshot.put_back:
        return None
    return Hold(Hindrance.WOULD_COME_BACK, pod.full_name, "it was put on this node after another pod of its workload had been evicted")


def _paused(pod: Pod, view: EmptyingView) -> Hold | None:
    return Hold(Hindrance.PAUSED, pod.full_name, view.paused[pod.uid]) if pod.uid in view.paused else None


def _may_leave(item: LocalItem) -> bool:
    """It goes with its pod, or another node has it too, or its policy lets it be lost, and nobody can have meant anything else."""
    if item.class_ is VolumeClass.EPHEMERAL or item.shared:
        return True
    said = item.policy(Intent.RETIRE)
    return said is not None and said.policy is Policy.IGNORE and said.certain and not said.problem


def _is_made_anew(item: LocalItem, snapshot: Snapshot) -> bool:
    said = item.policy(Intent.RETIRE)
    return snapshot.reprovisions and said is not None and said.policy is Policy.REPROVISION and said.certain and not said.problem


def keeping_off(node: Node) -> tuple[Taint, ...]:
    """What keeps pods off the node that do not tolerate it."""
    effective = tuple(taint for taint in node.taints if taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE))
    cordon = (_CORDON,) if node.unschedulable and _CORDON.key not in {taint.key for taint in effective} else ()
    return (*effective, *cordon)


def _refused(pod: Pod, view: EmptyingView, findings: BudgetFindings) -> Hold | None:
    """What the API server would say, or has said."""
    if paused := _paused(pod, view):
        return paused
    if budgets := findings.conflicting(pod):
        return Hold(Hindrance.TWO_BUDGETS, pod.full_name, f"selected by {all_or_few(budgets)}")
    if budget := findings.blocked.get(pod.full_name):
        return Hold(Hindrance.PDB_BLOCKED, pod.full_name, f"the budget is {budget}")
    if budget := findings.outdated.get(pod.full_name):
        return Hold(Hindrance.PDB_BLOCKED, pod.full_name, f"the status of the budget {budget} is not up to date yet")
    return None


def _first(candidates: Iterable[Candidate], holds: Sequence[Hold], view: EmptyingView) -> Decision:
    waiting: list[Hold] = []
    passed: set[str] = set()
    for each in sorted(candidates, key=lambda each: _turn(each, view)):
        decision = _among(each, view)
        if isinstance(decision, Ask | AskController):
            return replace(decision, passed=frozenset(passed), again=each.workload in view.passed)
        if isinstance(decision, Evict):
            return replace(decision, passed=frozenset(passed))
        waiting.append(decision)
        passed.add(each.workload)
    return next(iter((*waiting, *sorted(holds, key=_passes_first))), None) or Finished("no pod here has a volume that may leave")


def _turn(each: Candidate, view: EmptyingView) -> tuple[Any, ...]:
    """Whose turn it is. What cannot go, or takes long, comes after all others: nobody can hold up a node that is not theirs alone.

    Who waits for a node comes before who runs: with it nothing is taken away, and its workload may be waiting for it.
    """
    pod, at_once = each.pod, each.waits and comes_first(each.pod, view)
    # Whoever puts new pods here all the time may give each an owner of its own.
    late = 0 if at_once else view.late.get(pod.uid, 0)
    last = view.failures.get(pod.uid, 0), pod.namespace in view.slow, late, each.workload in view.passed
    return *last, not at_once, not pod.ready, each.bytes, pod.full_name, pod.uid


def _among(each: Candidate, view: EmptyingView) -> Evict | Ask | AskController | Hold:
    """With this pod at most one of its workload is away."""
    pod, owner, workload = each.pod, each.pod.owner, each.workload
    assert owner is not None
    if failed := view.unread.get(pod.namespace) or view.unread.get(workload):
        return Hold(Hindrance.NOT_KNOWN, pod.full_name, f"its other replicas are not known: {failed}")
    if each.may is None:
        return decide_waiting(each, view)
    if view.unanswered.get(workload, pod.uid) != pod.uid:
        return Hold(
            Hindrance.POD_LEAVING, pod.full_name, "another pod of its workload may be evicted yet: that was asked for and not answered"
        )
    why = f"whether the other replicas of {pod.full_name} are ready is not known yet"
    peers = view.peers.get(pod.namespace)
    if peers is None:
        return Ask(pod.namespace, pod.full_name, why)
    replicas = replicas_of(pod, peers)
    if found := not_ready(pod, replicas):
        return Hold(found[0], pod.full_name, found[1])
    if says_how_many(owner) and workload not in view.sizes:
        return AskController(pod.namespace, owner, pod.full_name, why)
    if found := too_few(pod, replicas, wanted=view.sizes.get(workload), before=view.expected.get(workload, 0)):
        return Hold(found[0], pod.full_name, found[1])
    beside = [peer for peer in replicas if peer.uid != pod.uid and peer.node == pod.node]
    if view.in_doubt and beside and not is_kept_apart(pod, beside, view.snapshot.budgets or ()):
        why = f"the eviction of {beside[0].full_name}, of the same workload, may have been asked for before this process began"
        return Hold(Hindrance.POD_LEAVING, pod.full_name, why)
    if node := view.rivals.taken_by(pod, view.snapshot.driver):
        return Hold(Hindrance.ANOTHER_NODE_FIRST, pod.full_name, f"node {node} makes another replica of its workload anew")
    others = [peer for peer in replicas if peer.uid != pod.uid]
    if why := view.rivals.objection(pod, others, view.snapshot.budgets or ()):
        return Hold(Hindrance.ANOTHER_NODE_FIRST, pod.full_name, why)
    here = frozenset(peer.uid for peer in replicas if peer.node == view.snapshot.node_name)
    volumes = tuple(item.name for item in each.held)
    return Evict(each.may, workload, len(replicas), here, volumes, f"{first_few(volumes)} may leave with it")


_LASTING: Final = (Hindrance.DATA_STAYS, Hindrance.REPROVISION_PENDING, Hindrance.WOULD_COME_BACK, Hindrance.BARE_POD)


def _passes_first(hold: Hold) -> tuple[bool, str]:
    """What passes by itself is told before what somebody has to change."""
    return hold.hindrance in _LASTING, hold.pod
