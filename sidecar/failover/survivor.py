"""Decides whether a pod of another node, whose storage is lost there, is replaced: every guard is a fact, and all of them have to hold.

What is not known holds nothing up but this. The guards are shown as they are, before a failure and during one (`explain pod`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sidecar.drain.places import why_unfit
from sidecar.drain.words import first_few
from sidecar.failover.brakes import DEBOUNCE
from sidecar.failover.evidence import Fact
from sidecar.failover.unit import Attached, PodVolume, Unit, Victim, Word
from sidecar.model import names
from sidecar.model.nodes import TRUE, Node, Pod

SILENT: Final = 15.0  # seconds without a sign of the kubelet, with which ForceOnExclusion need not wait until the Node is not Ready
MAINTAINED_FOR: Final = 600.0  # seconds that a node which is meant to be away is left alone
_SOON, _LATER = 2.0, 10.0


class Step(StrEnum):
    """What is done next."""

    NONE = "None"
    WAIT = "Wait"  # what was begun goes on by itself
    TAINT = "Taint"
    EVICT = "Evict"
    DELETE = "Delete"
    DETACH = "Detach"


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    why: str
    guards: tuple[Guard, ...] = ()
    again: float = _LATER  # seconds
    detach: Attached | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    victim: Victim
    driver: str
    nodes: tuple[Node, ...]  # all others
    drivers: Mapping[str, frozenset[str]]  # by node: those that its CSINode has
    may_taint: bool = True  # False: it was not possible a moment ago, and no pod waits for that

    @property
    def of_driver(self) -> tuple[Node, ...]:
        """With the victim."""
        return tuple(node for node in (*self.nodes, self.victim.node) if self.driver in self.drivers.get(node.name, ()))


def judge(unit: Unit, cluster: Cluster, *, proven_for: Mapping[str, float], brakes: Fact, acts: bool) -> Decision:
    """`proven_for`: by volume, for how many seconds its proof has held without a break."""
    guards = (*guards_of(unit, cluster), *_proofs(unit, proven_for), Guard("brakes", brakes))
    failing = next((guard for guard in guards if not guard.fact.holds), None)
    if failing is not None:
        short = [DEBOUNCE - proven_for.get(volume.name, 0.0) for volume in unit.proven]
        return Decision(Step.NONE, failing.fact.says, guards, max(short) if failing.name.startswith("debounce") else _LATER)
    found = _detach(unit, cluster) if unit.pod is None else _replace(unit.pod, unit, cluster)
    if acts or found.step in (Step.NONE, Step.WAIT):
        return replace(found, guards=guards)
    observed = Guard("mode", Fact(False, f"it is only observed: {found.step} would be next", "--failover"))
    return Decision(Step.NONE, observed.fact.says, (*guards, observed))


def guards_of(unit: Unit, cluster: Cluster) -> Iterable[Guard]:
    """Those that say beforehand whether it would fail over."""
    said, pod, victim = unit.said, unit.pod, cluster.victim
    yield Guard("policy", Fact(said.word is not Word.IGNORE, said.why, names.FAILOVER))
    if pod is not None:
        yield Guard("owner", _owned(pod))
        others = f"it may write to {', '.join(unit.others)}, of which nothing can be proven" if unit.others else "it writes to nothing else"
        yield Guard("other writers", Fact(not unit.others, others, "Pod"))
    yield Guard("others who act", _left_to_us(victim))
    if pod is not None:
        yield Guard("target", feasible(pod, unit.volumes, cluster))


def _owned(pod: Pod) -> Fact:
    if pod.static or pod.of_daemon_set:
        return Fact(False, "it belongs to its node: a static pod, or of a DaemonSet", "Pod")
    if pod.ended:
        return Fact(False, f"it has ended: {pod.phase}", "Pod")
    if pod.owner is None:
        return Fact(False, "no controller owns it, so nobody would make it again", "Pod")
    return Fact(True, f"{pod.owner.kind} {pod.owner.name} makes it again", "Pod")


def _left_to_us(victim: Victim) -> Fact:
    if victim.remediated_by:
        return Fact(False, f"{victim.remediated_by}: somebody else acts on this node", "Node")
    if victim.maintained and victim.missing_for < MAINTAINED_FOR:
        return Fact(False, f"{victim.maintained}: it is left alone for {MAINTAINED_FOR / 60:.0f} minutes", "Node")
    return Fact(True, "nobody else acts on the node", "Node")


def feasible(pod: Pod, volumes: Iterable[PodVolume], cluster: Cluster) -> Fact:
    """Whether some other node could run the pod with its volumes: what only this one has is left where it is."""
    affinities = [volume.affinity for volume in volumes if volume.affinity is not None]
    lost, why = names.of_driver(cluster.driver, names.STORAGE_LOST), list[str]()
    for node in cluster.nodes:
        if not all(any(term.matches(node.name, node.labels) for term in terms) for terms in affinities):
            continue
        if cluster.driver not in cluster.drivers.get(node.name, ()):
            unfit = f"it does not have {cluster.driver}"
        elif any(taint.key == lost for taint in node.taints):
            unfit = "it has lost its storage"
        else:
            unfit = why_unfit(node, pod)
        if not unfit:
            return Fact(True, f"node {node.name} could run it", "Node")
        why.append(f"{node.name}: {unfit}")
    return Fact(False, f"NoTarget: {first_few(why, 3) or 'its volumes are on this node alone; see node loss and Reprovision'}", "Node")


def _proofs(unit: Unit, proven_for: Mapping[str, float]) -> Iterable[Guard]:
    """Of every volume that it may write to: one is not enough."""
    if not any(unit.proven):
        yield Guard("proof", Fact(None, "it has no volume of this driver that it can write to", "Pod"))
    for volume in unit.proven:
        yield Guard(f"proof of {volume.name}", volume.proof)
        held = proven_for.get(volume.name, 0.0)
        says = f"{volume.name}: proven for {min(held, 9999):.0f} s, {DEBOUNCE:.0f} are needed"
        yield Guard(f"debounce of {volume.name}", Fact(held >= DEBOUNCE, says, "clock"))


def _replace(pod: Pod, unit: Unit, cluster: Cluster) -> Decision:
    victim, key = cluster.victim, names.of_driver(cluster.driver, names.STORAGE_LOST)
    is_ready = victim.node.ready == TRUE
    forced = unit.said.word is Word.FORCE and victim.silent_for >= SILENT
    if is_ready and not forced:
        if pod.deleting_since:
            return Decision(Step.WAIT, "it is ending; its kubelet may still answer", again=_SOON)
        return Decision(Step.EVICT, "its node is Ready, so it ends with its own grace period", again=_SOON)
    if cluster.may_taint and not is_ready and not any(taint.key == key for taint in victim.node.taints):
        return Decision(Step.TAINT, "the node's storage is lost", again=_SOON)
    why = "its node is not Ready" if not is_ready else f"its kubelet has been silent for {victim.silent_for:.0f} s"
    return Decision(Step.DELETE, f"{why}, and it is proven that it cannot write", again=_SOON)


def _detach(unit: Unit, cluster: Cluster) -> Decision:
    """Of a pod that is gone. One that is being deleted already is waited for, whatever its detacher says; its finalizers stay."""
    attached = (volume.attached for volume in unit.volumes if volume.attached and not (volume.many or volume.read_only))
    found = next((one for one in attached if one.attacher == cluster.driver), None)
    if found is not None and found.deleting:
        return Decision(Step.WAIT, f"{found.volume} is being detached{f': {found.error}' if found.error else ''}", again=_SOON)
    if found is None:
        return Decision(Step.NONE, "nothing is attached there that is ours to detach", again=60.0)
    if cluster.victim.node.ready == TRUE and cluster.victim.silent_for < SILENT:
        return Decision(Step.NONE, "its node is Ready: Kubernetes detaches what nobody uses there", again=_LATER)
    return Decision(Step.DETACH, f"no pod uses {found.volume} there any more", again=_SOON, detach=found)
