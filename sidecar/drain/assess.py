"""The judgement: may this node be drained, may it be retired, and what stands against it. Nothing is asked and nothing is written here."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Final

from sidecar.drain import blockers
from sidecar.drain.assessment import Assessment, Blocker, Place, PodEnd, Verdict
from sidecar.drain.blockers import some
from sidecar.drain.budgets import Weighed, weigh
from sidecar.drain.ends import Outcome, outcome_of
from sidecar.drain.fit import may_go, places
from sidecar.drain.policy import quoted
from sidecar.drain.signals import read
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.volumes import Held, classify, counts_as_gone, stays
from sidecar.drain.words import Intent, Policy, Reason, Status, VolumeClass
from sidecar.model import nodes
from sidecar.model.nodes import Pod

_DISPENSABLE: Final = (VolumeClass.IN_USE, VolumeClass.IDLE, VolumeClass.RETAINED)

_NOT_LISTED: Final = "what the driver has without a PersistentVolume is not known: "


def assess(snapshot: Snapshot) -> Assessment:
    """Both verdicts and all that speaks against them."""
    there = sorted((pod for pod in snapshot.pods if not pod.ended), key=lambda pod: pod.full_name)
    running = [pod for pod in there if not counts_as_gone(pod, snapshot)]
    held = classify(snapshot, running)
    found = () if snapshot.surroundings is None else places(held, surroundings=snapshot.surroundings, classes=snapshot.classes)
    users = _Users(running, held, found)
    weighed = weigh(snapshot.budgets or (), running, stranded=users.stranded)
    of_volumes = chain.from_iterable(blockers.of_volume(item, snapshot, place=users.places.get(item.name)) for item in held)
    of_pods = chain.from_iterable(blockers.of_pod(pod, users.held(pod), snapshot, weighed=weighed) for pod in running)
    against = blockers.in_order(chain(of_volumes, of_pods))
    return Assessment(
        node=snapshot.node_name,
        node_uid=snapshot.node.uid if snapshot.node else "",
        driver=snapshot.driver,
        at=snapshot.now,
        drain=_verdict(Intent.REBOOT, snapshot, held=held, against=against, unknown=(*_unknown(snapshot), *_uncounted(users, weighed))),
        retire=_verdict(Intent.RETIRE, snapshot, held=held, against=against, unknown=(*_unknown(snapshot), *_unlisted(snapshot))),
        blockers=against,
        volumes=tuple(item.as_result() for item in held),
        pods=tuple(users.end(pod, weighed) for pod in running if users.held(pod)),
        places=found,
        budgets=weighed.falls,
        notes=tuple(_notes(snapshot, held, users=users, weighed=weighed, gone=[pod for pod in there if pod not in users])),
        complete=not _unknown(snapshot),
    )


class _Users:
    """The pods of the node, with the volumes of ours that each uses and the ends it comes to."""

    def __init__(self, pods: Sequence[Pod], held: Iterable[Held], found: Iterable[Place]) -> None:
        self.places: Mapping[str, Place] = {name: place for place in found for name in place.volumes}
        self.pods = pods
        self._held: dict[str, list[Held]] = defaultdict(list)
        for item in held:
            for pod in item.pods:
                self._held[pod.full_name].append(item)
        self._outcomes: dict[str, Outcome] = {pod.full_name: outcome_of(pod, self.held(pod), self._place(pod)) for pod in pods}
        self.stranded: Set[str] = {name for name, outcome in self._outcomes.items() if outcome.stranded}

    def __contains__(self, pod: Pod) -> bool:
        return pod.full_name in self._outcomes

    def held(self, pod: Pod) -> Sequence[Held]:
        return self._held.get(pod.full_name, ())

    def end(self, pod: Pod, weighed: Weighed) -> PodEnd:
        outcome, volumes = self._outcomes[pod.full_name], tuple(item.name for item in self.held(pod))
        budgets = weighed.selecting.get(pod.full_name, ())
        return PodEnd(pod.namespace, pod.name, pod.uid, outcome.reboot, outcome.retire, volumes, budgets, outcome.why)

    def _place(self, pod: Pod) -> Place | None:
        """All volumes of a pod that may go, go to one."""
        return next((self.places[item.name] for item in self.held(pod) if item.name in self.places), None)


# --- the verdicts -----------------------------------------------------------------------------------------------------


def _verdict(intent: Intent, snapshot: Snapshot, *, held: Sequence[Held], against: Iterable[Blocker], unknown: Sequence[str]) -> Verdict:
    blocking = [blocker for blocker in against if intent in blocker.blocks]
    if snapshot.expected_uid and snapshot.node and snapshot.node.uid != snapshot.expected_uid:
        what = f"Node {snapshot.node_name} has the uid {snapshot.node.uid}, and {snapshot.expected_uid} was expected"
        return Verdict(Status.UNKNOWN, Reason.NODE_IDENTITY, what)
    if snapshot.node and snapshot.node.ready == nodes.UNKNOWN:
        return _offline(intent, snapshot.node, blocking)
    if blocking:
        return Verdict(Status.FALSE, blocking[0].reason, _worst(blocking))
    if unknown:
        return Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, some(unknown))
    if not held:
        return Verdict(Status.TRUE, Reason.NOTHING_HERE, f"no volume of {snapshot.driver} is on this node")
    return Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, f"none of what {snapshot.driver} has on this node blocks it")


def _offline(intent: Intent, node: nodes.Node, blocking: Sequence[Blocker]) -> Verdict:
    """What happens to its pods is anybody's guess. That data lies there is known."""
    silent = f"the node does not answer since {node.ready_since}" if node.ready_since else "the node does not answer"
    if intent is Intent.RETIRE and blocking:
        return Verdict(Status.FALSE, Reason.SOURCE_OFFLINE, f"{silent}; {_worst(blocking)}")
    return Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, silent)


def _worst(blocking: Sequence[Blocker]) -> str:
    first, rest = blocking[0], len(blocking) - 1
    name = f"{first.namespace}/{first.name}" if first.namespace else first.name
    return f"{first.kind} {name}: {first.reason}" + (f" and {rest} more" if rest else "")


def _unknown(snapshot: Snapshot) -> tuple[str, ...]:
    nameless = () if snapshot.node else (f"there is no Node {snapshot.node_name}",)
    return *nameless, *sorted(set(snapshot.ignorance))


def _unlisted(snapshot: Snapshot) -> tuple[str, ...]:
    """Only where it would block if it were there."""
    return (_NOT_LISTED + snapshot.untracked_unknown,) if snapshot.untracked_blocks and snapshot.untracked_unknown else ()


def _uncounted(users: _Users, weighed: Weighed) -> tuple[str, ...]:
    """Budgets of which it is not known whether they let our pods go."""
    pinned = (pod.full_name for pod in users.pods if any(item.pinned for item in users.held(pod)))
    ours = {weighed.uncounted[pod] for pod in pinned if pod in weighed.uncounted}
    return tuple(f"the API server has not counted PodDisruptionBudget {budget} yet" for budget in sorted(ours))


# --- what is worth knowing and blocks nothing ----------------------------------------------------------------------------


def _notes(snapshot: Snapshot, held: Sequence[Held], *, users: _Users, weighed: Weighed, gone: Sequence[Pod]) -> Iterable[str]:
    if snapshot.node:
        yield from read(snapshot.node, snapshot.driver, now=snapshot.now, usual=snapshot.node_policy).notes
    if snapshot.node and snapshot.node.ready == nodes.FALSE:
        yield "the kubelet says that the node is not ready"
    yield from _about_volumes(held)
    if gone:
        yield f"no longer counted, for the node does not answer and they should have ended long ago: {_these(gone)}"
    yield from _about_other_pods(snapshot.driver, users)
    if snapshot.budgets is None:
        yield "disruption budgets were not looked at"
    yield from _uncounted(users, weighed)
    if snapshot.untracked_unknown:
        yield _NOT_LISTED + snapshot.untracked_unknown
    if snapshot.surroundings is None and any(may_go(item) for item in held):
        yield "where volumes could go was not looked at"


def _about_volumes(held: Sequence[Held]) -> Iterable[str]:
    """One line for what many have in common: a word in a StorageClass concerns all its volumes."""
    lines: dict[str, list[str]] = defaultdict(list)
    for item in held:
        if item.excuse:
            lines[item.excuse].append(quoted(item.name) if item.class_ is VolumeClass.UNTRACKED else item.name)
        resolved = item.retire
        if resolved and resolved.problem:
            lines[resolved.problem].append(item.name)
        if resolved and resolved.certain and resolved.policy is Policy.IGNORE and item.class_ in _DISPENSABLE:
            lines["may vanish by the policy Ignore"].append(item.name)
    return (f"{line}: {some(volumes)}" for line, volumes in lines.items())


def _about_other_pods(driver: str, users: _Users) -> Iterable[str]:
    others = sum(not users.held(pod) for pod in users.pods)
    if others:
        yield f"pods without a volume of {driver}: {others}"
    foreign = [pod for pod in users.pods if pod.local and not stays(pod)]
    if foreign:
        kinds = [kind for pod in foreign for kind in pod.local]
        counted = " and ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        yield f"volumes that no driver looks after: {counted}, of {len(foreign)} pods"


def _these(pods: Sequence[Pod]) -> str:
    return some(tuple(pod.full_name for pod in pods))
