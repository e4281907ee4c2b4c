"""What blocks a reboot or a retirement: what is on the node, by a table, and the pods that use it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.drain.policy import CLAIM, Resolved, unread_key
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.things import Thing
from sidecar.drain.words import Intent, Policy, Reason, VolumeClass
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names, nodes
from sidecar.model.nodes import Pod
from sidecar.model.timestamps import to_seconds

TERMINATING_TOO_LONG: Final = 300.0  # seconds after the end of its grace period: before that a pod that ends is no blocker


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that keeps a verdict from being True."""

    object: ObjectRef
    volume: str  # name of the PersistentVolume, or the handle if it has none; empty for a volume that is being created
    bytes: int
    class_: VolumeClass
    reason: Reason
    policy: Policy | None
    policy_source: str
    blocks: tuple[Intent, ...]
    message: str  # what is special about this one; the reason explains the rest

    @property
    def remedy(self) -> str:
        """Where the policy stands on the PersistentVolume, or there is no claim, a word on the claim would not count."""
        remedy = self.reason.remedy
        if "annotate the claim" in remedy and names.VOLUME in (self.object.kind, self.policy_source):
            return f"{remedy} (on the PersistentVolume {self.volume} instead: there it counts)"
        return remedy

    @property
    def named(self) -> str:
        """The object as people call it. Most are claims, so that kind is left out."""
        full = f"{self.object.namespace}/{self.object.name}" if self.object.namespace else self.object.name
        return full if self.object.kind == names.CLAIM else f"{self.object.kind} {full}"


@dataclass(frozen=True, slots=True)
class Row:
    """A thing of this class, under one of these policies, blocks these intents for this reason."""

    class_: VolumeClass
    policies: tuple[Policy | None, ...]
    blocks: tuple[Intent, ...]
    reason: Reason


_BOTH, _REBOOT, _RETIRE = tuple(Intent), (Intent.REBOOT,), (Intent.RETIRE,)
_ANY: Final = (None, *Policy)
_BLOCK, _STAY, _ANEW = (Policy.BLOCK,), (Policy.ALLOW_IDLE, Policy.BLOCK), (Policy.REPROVISION,)
_ALL_BUT_IGNORE: Final = (Policy.ALLOW_IDLE, Policy.REPROVISION, Policy.BLOCK)

# fmt: off
OF_THINGS: Final = (
    # what is on the node       its policy         blocks    reason
    Row(VolumeClass.IN_FLIGHT,  _ANY,              _BOTH,    Reason.PROVISIONING_IN_FLIGHT),
    Row(VolumeClass.IN_USE,     _ANEW,             _RETIRE,  Reason.REPROVISION_PENDING),
    Row(VolumeClass.IN_USE,     _BLOCK,            _REBOOT,  Reason.WOULD_STRAND),
    Row(VolumeClass.IN_USE,     _STAY,             _RETIRE,  Reason.VOLUME_IN_USE),
    Row(VolumeClass.IDLE,       (*_BLOCK, *_ANEW), _RETIRE,  Reason.LAST_COPY),
    Row(VolumeClass.RETAINED,   _ALL_BUT_IGNORE,   _RETIRE,  Reason.RECLAIM_RETAIN),
    Row(VolumeClass.RELEASING,  _ALL_BUT_IGNORE,   _RETIRE,  Reason.RELEASE_PENDING),
    Row(VolumeClass.SNAPSHOT,   _ANY,              _RETIRE,  Reason.SNAPSHOT_ON_NODE),
)
# fmt: on
"""What is in no row blocks nothing. Two exceptions: what has an excuse (`Thing.excuse`) never blocks, and a volume blocks no reboot if no
drain evicts any of the pods that use it."""


def is_bare(pod: Pod) -> bool:
    """Nothing creates it again after an eviction, and nobody has asked it to end yet."""
    return pod.owner is None and not pod.stays and not pod.deleting_since


def find(snapshot: Snapshot, things: Sequence[Thing]) -> tuple[Blocker, ...]:
    """Those that block a reboot first, then the largest first."""
    found = [blocker for thing in things for blocker in _of_thing(thing)]
    used: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        for pod in thing.use.pods if thing.in_use else ():
            used[pod.uid].append(thing)
    found += [blocker for pod in snapshot.running if pod.uid in used for blocker in _of_pod(pod, used[pod.uid], snapshot)]
    return tuple(sorted(found, key=lambda item: (Intent.REBOOT not in item.blocks, -item.bytes, item.named, item.volume, item.reason)))


def why_blocked(thing: Thing, intent: Intent) -> Reason | None:
    """The reason from the table; None: it does not block. A wrong word for a policy counts as the strictest, and is the reason itself if
    nothing would block without it. Where the policy is not certain only what blocks under the laxest one does: beyond that the verdict is
    Unknown."""
    if thing.excuse or (intent is Intent.REBOOT and thing.use.evicts_nobody):
        return None
    resolved = thing.policy(intent)
    if resolved is None:
        return _in_table(thing, intent, None)
    if not resolved.certain and _in_table(thing, intent, Policy.IGNORE) is None:
        return None
    reason = _in_table(thing, intent, resolved.policy)
    if thing.replicated and reason in (Reason.LAST_COPY, Reason.VOLUME_IN_USE, Reason.WOULD_STRAND):
        reason = Reason.LAST_UP_TO_DATE_COPY
    if reason and resolved.problem and _in_table(thing, intent, resolved.by_order) is None:
        return Reason.POLICY_CONFLICT
    return reason


def _in_table(thing: Thing, intent: Intent, policy: Policy | None) -> Reason | None:
    rows = (row for row in OF_THINGS if row.class_ is thing.class_ and policy in row.policies and intent in row.blocks)
    return next((row.reason for row in rows), None)


def _of_thing(thing: Thing) -> Iterable[Blocker]:
    intents: dict[Reason, list[Intent]] = defaultdict(list)
    for intent in Intent:
        if reason := why_blocked(thing, intent):
            intents[reason].append(intent)
    for reason, blocks in intents.items():
        resolved = thing.policy(blocks[0])
        said = (thing.says, resolved.problem if resolved else "", resolved.remark if resolved and not thing.use else "")
        yield _blocker(thing.object, (thing,), reason, tuple(blocks), resolved, "; ".join(filter(None, said)))


def _of_pod(pod: Pod, used: Sequence[Thing], snapshot: Snapshot) -> Iterable[Blocker]:
    """`used` are the volumes of this driver that it uses. A pod that no volume keeps here is for others to judge."""
    # A claim that could not be read may be a generic ephemeral volume's, which goes with its pod and keeps it nowhere.
    in_use = tuple(thing for thing in used if unread_key(CLAIM, thing.claim) not in snapshot.unread)
    if not in_use or pod.stays:
        return
    said = sorted((thing.policies[Intent.REBOOT] for thing in in_use), key=lambda item: (tuple(Policy).index(item.policy), item.source))
    strictest, named = said[-1], ObjectRef("v1", names.POD, pod.namespace, pod.name, pod.uid)
    if is_bare(pod):
        yield _blocker(named, in_use, Reason.BARE_POD, _BOTH, strictest, "no controller owns it")
    due = to_seconds(pod.deleting_since)
    # Not on a node that does not answer: there nobody could report that the pod has ended.
    answers = snapshot.node is not None and snapshot.node.ready != nodes.UNKNOWN
    if due is not None and answers and snapshot.now - due > TERMINATING_TOO_LONG:
        message = f"it should have ended at {pod.deleting_since}"
        yield _blocker(named, in_use, Reason.POD_TERMINATING, _REBOOT, strictest, message)


def _blocker(
    named: ObjectRef, things: Sequence[Thing], reason: Reason, blocks: tuple[Intent, ...], resolved: Resolved | None, message: str
) -> Blocker:
    first = things[0]
    return Blocker(
        object=named,
        volume="" if first.class_ is VolumeClass.IN_FLIGHT else first.name,
        bytes=sum(thing.bytes for thing in things),
        class_=first.class_,
        reason=reason,
        policy=resolved.policy if resolved else None,
        policy_source=resolved.source if resolved else "",
        blocks=blocks,
        message=message,
    )
