"""Decides which pod of a node that is being retired is evicted next, or why none is: one look, one decision.

What lets a pod go, and only then is it evicted: each of its volumes of this driver goes with it or may be lost, a controller makes it
again, it would not come back here, no other such pod is leaving, and every other replica of its workload is ready.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from types import MappingProxyType
from typing import Final

from sidecar.drain.emptying.rivals import Rivals
from sidecar.drain.facts.snapshot import CLAIM, Snapshot, unread_key
from sidecar.drain.judgement.budgets import check_budgets
from sidecar.drain.judgement.pod_fates import counts_as_gone, is_bare
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import HINDRANCES, Hindrance, Intent, Policy, VolumeClass
from sidecar.drain.wording import first_few
from sidecar.eviction.rules import May, MayNot, may_evict
from sidecar.frozen import frozen
from sidecar.model import names, nodes
from sidecar.model.nodes import Node, Pod, Taint

_CORDON: Final = Taint(names.CORDON_TAINT, "", names.NO_SCHEDULE)


@frozen
class EmptyingView:
    """All that the rule looks at."""

    snapshot: Snapshot
    peers: Mapping[str, tuple[Pod, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By namespace: all its pods, as the API server has them now. What is missing has not been asked for."""
    expected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a workload that lost a pod by an eviction of this process: how many pods it had."""
    paused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a pod that is not to be tried for a while: what the API server said."""
    before: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of such a workload: the uids of its pods that were here at its first eviction. Any other one has come since."""
    rivals: Rivals = field(default_factory=Rivals)
    """Other nodes that are emptied at the same time."""
    leaving: Set[str] = frozenset()
    """Uids of pods that were evicted, or may have been, and of which the snapshot need not show it yet."""
    ours: Set[str] = frozenset()
    """Full names of this program's own pods."""


@frozen
class Evict:
    """Evict this pod."""

    pod: May
    owner: str
    """The uid of its workload."""
    replicas: int
    """How many pods that has, this one among them."""
    here: frozenset[str]
    """The uids of those that are on this node."""
    volumes: tuple[str, ...]
    why: str


@frozen
class Ask:
    """Read all pods of this namespace, then decide again."""

    namespace: str
    why: str


@frozen
class Hold:
    """Evict nobody now: this is why, and it may pass."""

    hindrance: Hindrance
    pod: str
    """`namespace/name`; empty: it is not about one pod."""
    why: str


@frozen
class Finished:
    """No pod here is ours to evict."""

    why: str


Decision = Evict | Ask | Hold | Finished


@frozen
class _Candidate:
    pod: Pod
    may: May
    held: tuple[LocalItem, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.held)


def decide(view: EmptyingView) -> Decision:
    """Of those who may go, pods of workloads that are wholly ready come first, then those with the fewest bytes."""
    snapshot, node = view.snapshot, view.snapshot.node
    if doubt := unsure(snapshot):
        return doubt
    assert node is not None
    users = users_of(snapshot)
    for pod, _ in users:
        if _leaves(pod, view):
            return Hold(Hindrance.POD_LEAVING, pod.full_name, f"{pod.full_name} was asked to end, and is still there")
    holds: list[Hold] = []
    candidates: list[_Candidate] = []
    for pod, held in users:
        may = may_evict(pod, node=snapshot.node_name, ours=view.ours)
        if isinstance(may, MayNot):
            continue
        hold = _stays(pod, held, node, snapshot) or _has_come_back(pod, view) or _refused(pod, view)
        if hold:
            holds.append(hold)
        else:
            candidates.append(_Candidate(pod, may, held))
    return _first(candidates, holds, view)


def unfinished(snapshot: Snapshot, *, ours: Set[str] = frozenset()) -> str:
    """What is left to evict, or is leaving; empty: nothing of which it is known that it can pass by itself."""
    decision = decide(EmptyingView(snapshot, ours=ours))
    match decision:
        case Ask(why=why):
            return why
        case Hold(hindrance, pod, why) if pod and hindrance not in _LASTING:
            return f"{hindrance}: {why}"
        case _:
            return ""


def in_words(decision: Decision) -> str:
    """For people who ask what comes next."""
    match decision:
        case Evict(pod=pod, why=why):
            return f"{pod.full_name} is evicted: {why}"
        case Hold(hindrance, pod, why):
            return f"nobody is evicted: {hindrance}{f' ({pod})' if pod else ''}: {why}. What to do: {HINDRANCES[hindrance].remedy}"
        case Ask(why=why) | Finished(why):
            return why


def unsure(snapshot: Snapshot) -> Hold | None:
    """Ignorance is never a yes."""
    if snapshot.node is None:
        return Hold(Hindrance.NOT_KNOWN, "", f"there is no Node {snapshot.node_name}")
    if snapshot.node.ready != nodes.TRUE:
        return Hold(Hindrance.SOURCE_OFFLINE, "", "the node is not ready, so that nobody would report that a pod has ended")
    unknown = tuple(filter(None, (*sorted(set(snapshot.ignorance)), snapshot.not_listed)))
    return Hold(Hindrance.NOT_KNOWN, "", first_few(unknown)) if unknown else None


def users_of(snapshot: Snapshot) -> Sequence[tuple[Pod, tuple[LocalItem, ...]]]:
    """Pods here that have not ended, with what each has of this driver: volumes, and those that are being made for it."""
    running = [pod for pod in snapshot.pods if not pod.ended and not counts_as_gone(pod, snapshot)]
    items = classify(snapshot, running)
    found = ((pod, tuple(item for item in items if _has(pod, item))) for pod in running)
    return sorted(((pod, held) for pod, held in found if held), key=lambda each: (each[0].full_name, each[0].uid))


def _has(pod: Pod, item: LocalItem) -> bool:
    if item.class_ is VolumeClass.IN_FLIGHT:
        return item.claim in pod.claim_names
    return any(user.uid == pod.uid for user in item.pods)


def _leaves(pod: Pod, view: EmptyingView) -> bool:
    return bool(pod.deleting_since) or pod.uid in view.leaving


def _stays(pod: Pod, held: Iterable[LocalItem], node: Node, snapshot: Snapshot) -> Hold | None:
    """Why it is not evicted, whatever anybody else says."""
    for item in held:
        if item.class_ is VolumeClass.IN_FLIGHT:
            return Hold(Hindrance.PROVISIONING_IN_FLIGHT, pod.full_name, f"{item.name} is being created")
        if not _may_leave(item):
            said = item.policy(Intent.RETIRE)
            policy = f", whose policy is {said.policy} ({said.source})" if said else ""
            return Hold(Hindrance.DATA_STAYS, pod.full_name, f"it uses {item.name}{policy}")
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


def _has_come_back(pod: Pod, view: EmptyingView) -> Hold | None:
    """Somebody puts pods here whatever keeps them off. To evict them again and again would help nobody."""
    before = view.before.get(pod.owner.uid) if pod.owner else None
    if before is None or pod.uid in before:
        return None
    return Hold(Hindrance.WOULD_COME_BACK, pod.full_name, "it was put on this node after another pod of its workload had been evicted")


def _may_leave(item: LocalItem) -> bool:
    """It goes with its pod, or another node has it too, or its policy lets it be lost, and nobody can have meant anything else."""
    if item.class_ is VolumeClass.EPHEMERAL or item.shared:
        return True
    said = item.policy(Intent.RETIRE)
    return said is not None and said.policy is Policy.IGNORE and said.certain and not said.problem


def keeping_off(node: Node) -> tuple[Taint, ...]:
    """What keeps pods off the node that do not tolerate it."""
    effective = tuple(taint for taint in node.taints if taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE))
    cordon = (_CORDON,) if node.unschedulable and _CORDON.key not in {taint.key for taint in effective} else ()
    return (*effective, *cordon)


def _refused(pod: Pod, view: EmptyingView) -> Hold | None:
    """What the API server would say, or has said."""
    if pod.uid in view.paused:
        return Hold(Hindrance.PAUSED, pod.full_name, view.paused[pod.uid])
    findings = check_budgets(view.snapshot.budgets or (), [pod], stranded=frozenset())
    if budgets := findings.conflicting(pod):
        return Hold(Hindrance.TWO_BUDGETS, pod.full_name, f"selected by {' and '.join(budgets)}")
    if budget := findings.blocked.get(pod.full_name):
        return Hold(Hindrance.PDB_BLOCKED, pod.full_name, f"the budget is {budget}")
    if budget := findings.outdated.get(pod.full_name):
        return Hold(Hindrance.PDB_BLOCKED, pod.full_name, f"the status of the budget {budget} is not up to date yet")
    return None


def _first(candidates: Iterable[_Candidate], holds: Sequence[Hold], view: EmptyingView) -> Decision:
    unready: list[Evict] = []
    refused: list[Hold] = []
    for each in sorted(candidates, key=lambda each: (each.bytes, each.pod.full_name, each.pod.uid)):
        peers = view.peers.get(each.pod.namespace)
        if peers is None:
            return Ask(each.pod.namespace, f"whether the other replicas of {each.pod.full_name} are ready is not known yet")
        decision = _among(each, peers, view)
        if isinstance(decision, Hold):
            refused.append(decision)
        elif each.pod.ready:
            return decision
        else:
            unready.append(decision)
    if unready:
        return unready[0]
    return next(iter((*refused, *sorted(holds, key=_passes_first))), None) or Finished("no pod here has a volume that may leave")


def _among(each: _Candidate, peers: Iterable[Pod], view: EmptyingView) -> Evict | Hold:
    """With this pod at most one of its workload is away: all others are there, and ready."""
    assert each.pod.owner is not None
    owner, pod = each.pod.owner.uid, each.pod
    replicas = [peer for peer in peers if peer.owner is not None and peer.owner.uid == owner and not peer.ended]
    others = [peer for peer in replicas if peer.uid != pod.uid]
    if len(others) == len(replicas):
        return Hold(Hindrance.NOT_KNOWN, pod.full_name, "the API server does not have it any more")
    for peer in sorted(others, key=lambda peer: peer.full_name):
        if not peer.ready or peer.deleting_since:
            where = f" on {peer.node}" if peer.node else ", which waits for a node,"
            return Hold(Hindrance.REPLICA_NOT_READY, pod.full_name, f"{peer.full_name}{where} is not ready")
    missing = view.expected.get(owner, 0) - len(replicas)
    if missing > 0:
        return Hold(Hindrance.REPLICA_NOT_READY, pod.full_name, f"{each.pod.owner.name} has not made its last pod again yet")
    if why := view.rivals.objection(pod, others, view.snapshot.budgets or ()):
        return Hold(Hindrance.ANOTHER_NODE_FIRST, pod.full_name, why)
    volumes = tuple(item.name for item in each.held)
    here = frozenset(peer.uid for peer in replicas if peer.node == view.snapshot.node_name)
    return Evict(each.may, owner, len(replicas), here, volumes, f"{', '.join(volumes)} may leave with it")


_LASTING: Final = (Hindrance.DATA_STAYS, Hindrance.WOULD_COME_BACK, Hindrance.BARE_POD)


def _passes_first(hold: Hold) -> tuple[bool, str]:
    """What passes by itself is told before what somebody has to change."""
    return hold.hindrance in _LASTING, hold.pod
