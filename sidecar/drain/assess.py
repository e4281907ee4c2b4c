"""Judges a snapshot: may this node be drained for a reboot, may it be retired, what blocks that, and what becomes of its pods."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sidecar.drain import blockers
from sidecar.drain.blockers import Blocker
from sidecar.drain.policy import CLAIM, unread_key
from sidecar.drain.snapshot import Snapshot, Unplaced
from sidecar.drain.things import Thing, classify, is_acknowledged, policies_of
from sidecar.drain.words import Fate, Intent, Policy, Reason, Status, VolumeClass, first_few, quoted
from sidecar.model import names, nodes
from sidecar.model.nodes import Pod


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of the two answers: may the node be drained, may it be retired."""

    status: Status
    reason: Reason
    message: str  # one line for people: the first blocker, and how many more there are


@dataclass(frozen=True, slots=True)
class PodFate:
    pod: Pod
    reboot: Fate
    retire: Fate
    volumes: tuple[str, ...]  # names of the volumes of this driver that it uses
    why: str

    def fate(self, intent: Intent) -> Fate:
        return self.reboot if intent is Intent.REBOOT else self.retire


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement of one node for one driver. Report, conditions, events, metrics and `explain` show it and judge nothing themselves."""

    node: str
    node_uid: str
    driver: str
    at: float
    drain: Verdict
    retire: Verdict
    blockers: tuple[Blocker, ...]
    things: tuple[Thing, ...]
    pods: tuple[PodFate, ...]  # those that use a volume of this driver
    notes: tuple[str, ...]  # what is worth knowing and blocks nothing
    complete: bool  # all that should be known was read, so what is not among the blockers does not block

    def verdict(self, intent: Intent) -> Verdict:
        return self.drain if intent is Intent.REBOOT else self.retire

    @property
    def holds_volumes(self) -> bool | None:
        """Whether anything of the driver is on the node; None: not known."""
        return True if self.things else False if self.complete else None


def assess(snapshot: Snapshot) -> Assessment:
    things = classify(snapshot)
    against = blockers.find(snapshot, things)
    # What could not be read blocks nothing, as `blockers` has it, so whoever listed it, it is no ground for a yes.
    unread = [] if snapshot.ignorance else [f"{what} could not be read" for what in snapshot.unread]
    unknown = tuple(sorted({*snapshot.ignorance, *unread})) if snapshot.node else (f"there is no Node {snapshot.node_name}",)
    return Assessment(
        node=snapshot.node_name,
        node_uid=snapshot.node.uid if snapshot.node else "",
        driver=snapshot.driver,
        at=snapshot.now,
        drain=_verdict(Intent.REBOOT, snapshot, things, against, unknown),
        retire=_verdict(Intent.RETIRE, snapshot, things, against, (*unknown, *_unknown_of_data(snapshot))),
        blockers=against,
        things=things,
        pods=tuple(_fates(snapshot, things)),
        notes=tuple(_notes(snapshot, things)),
        complete=not unknown,
    )


def _verdict(intent: Intent, snapshot: Snapshot, things: Sequence[Thing], against: Iterable[Blocker], unknown: Sequence[str]) -> Verdict:
    blocking = [blocker for blocker in against if intent in blocker.blocks]
    first = f"{blocking[0].object.kind} {blocking[0].named.rpartition(' ')[2]}: {blocking[0].reason}" if blocking else ""
    message = first + (f" and {len(blocking) - 1} more" if len(blocking) > 1 else "")
    node = snapshot.node
    if node and node.ready == nodes.UNKNOWN:
        # Nobody knows whether its pods run, so a drain is Unknown. Its data is known to be there, so retiring it is blocked.
        silent = f"the node has not answered since {node.ready_since}" if node.ready_since else "the node does not answer"
        if intent is Intent.RETIRE and blocking:
            return Verdict(Status.FALSE, Reason.SOURCE_OFFLINE, f"{silent}; {message}")
        return Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, silent)
    if blocking:
        return Verdict(Status.FALSE, blocking[0].reason, message)
    if unknown:
        return Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, first_few(unknown))
    nothing = f"nothing that {snapshot.driver} has on this node blocks it" if things else f"no volume of {snapshot.driver} is on this node"
    return Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, nothing)


def _unknown_of_data(snapshot: Snapshot) -> Iterable[str]:
    """Data that may be here: nothing that a reboot could lose."""
    own = snapshot.own
    if own.not_listed:
        yield f"which volumes the driver has on this node is not known: {own.not_listed}"
    if doubtful := [each for each in snapshot.unplaced if not _may_be_lost(each, snapshot)]:
        kind = names.VOLUME if doubtful[0].volume is not None else names.SNAPSHOT_CONTENT
        more = f" ({len(doubtful) - 1} more like it)" if len(doubtful) > 1 else ""
        yield (
            f"the data of {kind} {doubtful[0].name} may be on this node: {doubtful[0].why}{more}; if that data may be lost, annotate it "
            f"with {names.ACKNOWLEDGED}: WHO; else give it the node affinity or label of its node"
        )


def _may_be_lost(each: Unplaced, snapshot: Snapshot) -> bool:
    volume = each.volume
    if is_acknowledged(each.notes):
        return True
    if volume is None:
        return False
    if volume.phase in ("Released", "Failed") and volume.reclaim_policy == "Delete":
        return True
    # Words on its claim and namespace make it stricter and never laxer: whoever may write there need not own data that may be on any node.
    retire = policies_of(volume, snapshot.claims.get(volume.claim_name), snapshot)[Intent.RETIRE]
    return retire.policy is Policy.IGNORE and retire.plain and retire.source in (names.VOLUME, f"StorageClass {volume.class_name}")


def _fates(snapshot: Snapshot, things: Iterable[Thing]) -> Iterable[PodFate]:
    used: dict[str, tuple[Pod, list[Thing]]] = {}
    for thing in things:
        for pod in thing.use.everybody:
            used.setdefault(pod.uid, (pod, []))[1].append(thing)
    for pod, its in sorted(used.values(), key=lambda each: each[0].full_name):
        reboot, retire, why = _fate(pod, its, snapshot)
        yield PodFate(pod, reboot, retire, tuple(thing.name for thing in its), why)


def _fate(pod: Pod, used: Sequence[Thing], snapshot: Snapshot) -> tuple[Fate, Fate, str]:
    if pod.stays:
        return Fate.STAYS, Fate.STAYS, f"{'a static pod' if pod.static else 'of a DaemonSet'}: no drain evicts it"
    if pod.owner is None:
        return Fate.LOST, Fate.LOST, "no controller owns it, so an eviction would delete it for good"
    keeping = [thing for thing in used if thing.in_use]
    if not keeping:
        return Fate.MOVES_FREE, Fate.MOVES_FREE, "no volume keeps it on this node"
    only = f"only this node has {first_few([thing.name for thing in keeping])}"
    waits = f"{only}, and it waits for that" if pod.node != snapshot.node_name else f"{only}: it stays Pending until the uncordon"
    if all(thing.may_be_lost for thing in keeping):
        return Fate.RETURNS, Fate.LOST, f"{waits}; retired, its data is lost, as the policy Ignore permits"
    if snapshot.own.reprovisions and all(thing.is_made_anew for thing in keeping):
        return Fate.RETURNS, Fate.REPROVISIONED, f"{waits}; retired, it is made anew on another node, empty, where nothing is in the way"
    return Fate.RETURNS, Fate.STRANDED, f"{waits}; retired, it stays Pending for as long as its claims exist"


def _notes(snapshot: Snapshot, things: Sequence[Thing]) -> Iterable[str]:
    if snapshot.node and snapshot.node.ready == nodes.FALSE:
        yield "the kubelet reports that the node is not ready"
    lines: dict[str, list[str]] = defaultdict(list)
    for thing in things:
        for line in dict.fromkeys(_about(thing)):
            lines[line].append(quoted(thing.name) if thing.class_ is VolumeClass.UNTRACKED else thing.name)
    yield from (f"{line}: {first_few(found)}" for line, found in lines.items())
    acknowledged = [each for each in snapshot.unplaced if _may_be_lost(each, snapshot)]
    if acknowledged:
        yield f"may be lost, wherever the data is: {first_few([each.name for each in acknowledged])}"
    if snapshot.own.untracked_unknown:
        yield f"whether the driver has volumes without a PersistentVolume is not known: {snapshot.own.untracked_unknown}"
    if lately := [thing.name for thing in things if thing.use.lately and not thing.use.everybody]:
        # Not how many seconds are left: that would be another report with every look.
        yield f"a volume counts as used for a minute after its last pod, which may come back in that time: {first_few(lately)}"


def _about(thing: Thing) -> Iterable[str]:
    if thing.excuse:
        yield thing.excuse
    yield from (resolved.problem for resolved in thing.policies.values() if resolved.problem)
    if thing.class_ is not VolumeClass.EPHEMERAL and thing.may_be_lost:
        yield "may be lost under the policy Ignore"


def unread_claims(pod: Pod, snapshot: Snapshot) -> list[str]:
    return [claim for claim in pod.claim_names if unread_key(CLAIM, claim) in snapshot.unread]
