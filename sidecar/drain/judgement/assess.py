"""Judges a snapshot: may this node be drained for a reboot, may it be retired, and what blocks that. What blocks what: `blockers`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

from sidecar.drain.emptying.decisions import EmptyingView
from sidecar.drain.emptying.rules import decide, in_words
from sidecar.drain.evacuation.rules import retires
from sidecar.drain.facts.node_marks import read
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement import blockers
from sidecar.drain.judgement.assessment import Assessment, Blocker, Hidden, Place, PodFate, Verdict
from sidecar.drain.judgement.budgets import BudgetFindings, check_budgets
from sidecar.drain.judgement.notes import NOT_LISTED, about_the_rest, about_volumes, where_is
from sidecar.drain.judgement.placement import places
from sidecar.drain.judgement.pod_fates import Fates, counts_as_gone, fates_of
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.vocabulary import Intent, Policy, Reason, Status
from sidecar.drain.wording import first_few
from sidecar.model import nodes
from sidecar.model.nodes import Pod


def assess(snapshot: Snapshot) -> Assessment:
    """Both verdicts, what blocks them, and what becomes of pods and volumes."""
    there = sorted((pod for pod in snapshot.pods if not pod.ended), key=lambda pod: pod.full_name)
    running = [pod for pod in there if not counts_as_gone(pod, snapshot)]
    held = classify(snapshot, running)
    found = () if snapshot.surroundings is None else places(held, surroundings=snapshot.surroundings, classes=snapshot.classes)
    users = _VolumeUsers(running, held, found, anew=snapshot.reprovisions)
    findings = check_budgets(snapshot.budgets or (), running, stranded=users.stranded)
    of_volumes = chain.from_iterable(blockers.of_volume(item, snapshot, place=users.places.get(item.name)) for item in held)
    of_pods = chain.from_iterable(blockers.of_pod(pod, users.held(pod), snapshot, findings=findings) for pod in running)
    against = blockers.in_order(chain(of_volumes, of_pods))
    return Assessment(
        node=snapshot.node_name,
        node_uid=snapshot.node.uid if snapshot.node else "",
        driver=snapshot.driver,
        at=snapshot.now,
        drain=_verdict(
            Intent.REBOOT, snapshot, held=held, against=against, unknown=(*_unknown(snapshot), *_outdated_budgets(users, findings))
        ),
        retire=_verdict(Intent.RETIRE, snapshot, held=held, against=against, unknown=(*_unknown(snapshot), *_unknown_of_data(snapshot))),
        blockers=against,
        volumes=tuple(item.as_result() for item in held),
        pods=tuple(users.fate(pod, findings) for pod in running if users.held(pod)),
        places=found,
        budgets=findings.exhausted,
        notes=tuple(_notes(snapshot, held, found=found, users=users, findings=findings, gone=[pod for pod in there if pod not in users])),
        complete=not _unknown(snapshot),
        acknowledged=tuple(item.acknowledged for item in held if item.acknowledged),
        pods_seen=snapshot.pods_seen,
        hidden=tuple(Hidden(name, listed=name in snapshot.renamed) for name in sorted(snapshot.hidden)),
    )


class _VolumeUsers:
    """The pods of the node, the volumes of this driver that each uses, and its fate."""

    def __init__(self, pods: Sequence[Pod], held: Iterable[LocalItem], found: Iterable[Place], *, anew: bool) -> None:
        self.places: Mapping[str, Place] = {name: place for place in found for name in place.volumes}
        self.pods = pods
        self._held: dict[str, list[LocalItem]] = defaultdict(list)
        for item in held:
            for pod in item.pods:
                self._held[pod.full_name].append(item)
        self._fates: dict[str, Fates] = {pod.full_name: fates_of(pod, self.held(pod), self._place(pod), anew=anew) for pod in pods}
        self.stranded: Set[str] = {name for name, outcome in self._fates.items() if outcome.stranded}

    def __contains__(self, pod: Pod) -> bool:
        return pod.full_name in self._fates

    def held(self, pod: Pod) -> Sequence[LocalItem]:
        return self._held.get(pod.full_name, ())

    def fate(self, pod: Pod, findings: BudgetFindings) -> PodFate:
        outcome, volumes = self._fates[pod.full_name], tuple(item.name for item in self.held(pod))
        budgets = findings.selecting.get(pod.full_name, ())
        return PodFate(pod.namespace, pod.name, pod.uid, outcome.reboot, outcome.retire, volumes, budgets, outcome.why)

    def _place(self, pod: Pod) -> Place | None:
        """One for all volumes of the pod: they move to one node or to none."""
        return next((self.places[item.name] for item in self.held(pod) if item.name in self.places), None)


# --- the verdicts -----------------------------------------------------------------------------------------------------


def _verdict(
    intent: Intent, snapshot: Snapshot, *, held: Sequence[LocalItem], against: Iterable[Blocker], unknown: Sequence[str]
) -> Verdict:
    blocking = [blocker for blocker in against if intent in blocker.blocks]
    if snapshot.node and snapshot.node.ready == nodes.UNKNOWN:
        return _offline(intent, snapshot.node, blocking)
    if blocking:
        return Verdict(Status.FALSE, blocking[0].reason, _first_blocker(blocking))
    if unknown:
        return Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, first_few(unknown))
    if not held:
        return Verdict(Status.TRUE, Reason.NOTHING_HERE, f"no volume of {snapshot.driver} is on this node")
    return Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, f"nothing that {snapshot.driver} has on this node blocks it")


def _offline(intent: Intent, node: nodes.Node, blocking: Sequence[Blocker]) -> Verdict:
    """Nobody knows whether its pods run, so a drain is Unknown. Its data is known to be there, so retiring it is blocked."""
    silent = f"the node has not answered since {node.ready_since}" if node.ready_since else "the node does not answer"
    if intent is Intent.RETIRE and blocking:
        return Verdict(Status.FALSE, Reason.SOURCE_OFFLINE, f"{silent}; {_first_blocker(blocking)}")
    return Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, silent)


def _first_blocker(blocking: Sequence[Blocker]) -> str:
    first, rest = blocking[0], len(blocking) - 1
    name = f"{first.namespace}/{first.name}" if first.namespace else first.name
    return f"{first.kind} {name}: {first.reason}" + (f" and {rest} more" if rest else "")


def _unknown(snapshot: Snapshot) -> tuple[str, ...]:
    nameless = () if snapshot.node else (f"there is no Node {snapshot.node_name}",)
    return *nameless, *sorted(set(snapshot.ignorance))


def _unknown_of_data(snapshot: Snapshot) -> tuple[str, ...]:
    """Data that may be here, or may be dispensable no more. Untracked volumes only if they would block; otherwise it is a note."""
    untracked = (NOT_LISTED + snapshot.untracked_unknown,) if snapshot.untracked_blocks and snapshot.untracked_unknown else ()
    # Nothing that a reboot could lose: what pods of the node mount is known without the driver.
    said = f"which volumes the driver has on this node is not known: {snapshot.not_listed}"
    return *filter(None, (snapshot.not_remembered, said if snapshot.not_listed else "")), *untracked, *where_is(snapshot)


def _outdated_budgets(users: _VolumeUsers, findings: BudgetFindings) -> tuple[str, ...]:
    """Budgets of pods with volumes in use whose status is behind: whether they allow an eviction is not known."""
    in_use = (pod.full_name for pod in users.pods if any(item.in_use for item in users.held(pod)))
    ours = {findings.outdated[pod] for pod in in_use if pod in findings.outdated}
    return tuple(f"the status of PodDisruptionBudget {budget} is not up to date yet" for budget in sorted(ours))


# --- what is worth knowing and blocks nothing ----------------------------------------------------------------------------


def _notes(
    snapshot: Snapshot,
    held: Sequence[LocalItem],
    *,
    found: Iterable[Place],
    users: _VolumeUsers,
    findings: BudgetFindings,
    gone: Sequence[Pod],
) -> Iterable[str]:
    if snapshot.node:
        signals = read(snapshot.node, snapshot.driver, now=snapshot.now, default_policy=snapshot.node_policy)
        yield from signals.notes
        if retires(signals) and (signals.state in (State.IN_PROGRESS, State.BLOCKED) or snapshot.put_back):
            yield f"next, where the sidecar evicts (--evacuation-evict): {in_words(decide(EmptyingView(snapshot)))}"
            yield from _about_replicas(snapshot, held, found)
    if snapshot.node and snapshot.node.ready == nodes.FALSE:
        yield "the kubelet reports that the node is not ready"
    yield from about_volumes(held)
    if gone:
        why = "because the node does not answer and they should have ended long ago"
        yield f"pods counted as gone, {why}: {first_few([pod.full_name for pod in gone])}"
    yield from _about_other_pods(snapshot.driver, users)
    if snapshot.budgets is None:
        yield "disruption budgets were not checked"
    yield from _outdated_budgets(users, findings)
    yield from about_the_rest(snapshot, held)


def _about_replicas(snapshot: Snapshot, held: Iterable[LocalItem], found: Iterable[Place]) -> Iterable[str]:
    """A sidecar that makes replicas anew says itself what it has read. Imports inside, so that few processes have it in memory."""
    if snapshot.reprovisions or not any(item.retire is not None and item.retire.policy is Policy.REPROVISION for item in held):
        return
    from sidecar.drain.reprovision.outlook import from_outside

    for said in from_outside(snapshot, found):
        yield f"where the sidecar makes replicas anew (--allow-reprovision): {said}"


def _about_other_pods(driver: str, users: _VolumeUsers) -> Iterable[str]:
    others = sum(not users.held(pod) for pod in users.pods)
    if others:
        yield f"pods without a volume of {driver}: {others}"
    foreign = [pod for pod in users.pods if pod.local and not pod.stays]
    if foreign:
        kinds = [kind for pod in foreign for kind in pod.local]
        counted = " and ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        yield f"volumes that belong to no driver: {counted}, in {len(foreign)} pods"
