"""What blocks a reboot or a retirement, as two tables: what is on the node, and the pods that use it. The blockers are made from them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.drain.facts.snapshot import CLAIM, Snapshot, unread_key
from sidecar.drain.judgement.assessment import Blocker, Place
from sidecar.drain.judgement.budgets import BudgetFindings
from sidecar.drain.judgement.pod_fates import is_bare, overdue_seconds
from sidecar.drain.judgement.policy import STRICTNESS, Resolved, strictest
from sidecar.drain.judgement.remedies import remedy_of
from sidecar.drain.judgement.use import Use
from sidecar.drain.judgement.volumes import LocalItem, ObjectName
from sidecar.drain.vocabulary import NOT_AVAILABLE_YET, Intent, Policy, Reason, VolumeClass
from sidecar.drain.wording import all_or_few, first_few
from sidecar.model import names, nodes
from sidecar.model.nodes import Pod

# --- the tables -------------------------------------------------------------------------------------------------------


class Elsewhere(Enum):
    """Whether a volume that should leave the node fits on another one."""

    FITS = "it fits on another node, or that was not checked"
    NO_SPACE = "other nodes could take it, and have too little free space"
    NO_NODE = "no other node could take it"


@dataclass(frozen=True, slots=True)
class Row:
    """A thing of this class, under one of these policies, blocks these intents for this reason."""

    class_: VolumeClass
    policies: tuple[Policy | None, ...]
    blocks: tuple[Intent, ...]
    reason: Reason
    elsewhere: tuple[Elsewhere, ...] = tuple(Elsewhere)
    claimed: bool | None = None
    """Only one that a claim has, or that none has; None: both."""
    carried_out: bool = False
    """Only where the node's sidecar makes replicas anew."""


_BOTH, _REBOOT, _RETIRE = tuple(Intent), (Intent.REBOOT,), (Intent.RETIRE,)
_MOVE, _BLOCK, _STAY = NOT_AVAILABLE_YET, (Policy.BLOCK,), (Policy.ALLOW_IDLE, Policy.BLOCK)
_ALL_BUT_IGNORE: Final = (*_STAY, *_MOVE)
_ANY: Final = (None, *Policy)
_ANEW: Final = (Policy.REPROVISION,)
_FITS, _NO_SPACE, _NO_NODE = (Elsewhere.FITS,), (Elsewhere.NO_SPACE,), (Elsewhere.NO_NODE,)

# fmt: off
OF_VOLUMES: Final = (
    # what is on the node       its policy         blocks    reason                          on another node
    Row(VolumeClass.IN_FLIGHT,  _ANY,              _BOTH,    Reason.PROVISIONING_IN_FLIGHT),
    Row(VolumeClass.IN_USE,     _ANEW,             _RETIRE,  Reason.REPROVISION_PENDING,     _FITS,              carried_out=True),
    Row(VolumeClass.IN_USE,     _MOVE,             _RETIRE,  Reason.NOT_AVAILABLE_YET,       _FITS),
    Row(VolumeClass.IN_USE,     _MOVE,             _RETIRE,  Reason.NO_CAPACITY,             _NO_SPACE),
    Row(VolumeClass.IN_USE,     _MOVE,             _RETIRE,  Reason.NO_NODE_FITS,            _NO_NODE),
    Row(VolumeClass.IN_USE,     _BLOCK,            _REBOOT,  Reason.WOULD_STRAND),
    Row(VolumeClass.IN_USE,     _STAY,             _RETIRE,  Reason.VOLUME_IN_USE),
    Row(VolumeClass.IDLE,       _ANEW,             _RETIRE,  Reason.LAST_COPY,               _FITS,              carried_out=True),
    Row(VolumeClass.IDLE,       _MOVE,             _RETIRE,  Reason.NOT_AVAILABLE_YET,       _FITS),
    Row(VolumeClass.IDLE,       _MOVE,             _RETIRE,  Reason.NO_CAPACITY,             _NO_SPACE),
    Row(VolumeClass.IDLE,       _MOVE,             _RETIRE,  Reason.NO_NODE_FITS,            _NO_NODE),
    Row(VolumeClass.IDLE,       _BLOCK,            _RETIRE,  Reason.LAST_COPY),
    Row(VolumeClass.RETAINED,   _ALL_BUT_IGNORE,   _RETIRE,  Reason.RECLAIM_RETAIN),
    Row(VolumeClass.RELEASING,  _ALL_BUT_IGNORE,   _RETIRE,  Reason.RELEASE_PENDING),
    Row(VolumeClass.RENAMED,    (*_BLOCK, *_MOVE), _RETIRE,  Reason.NODE_RENAMED),
    Row(VolumeClass.RENAMED,    _ALL_BUT_IGNORE,   _RETIRE,  Reason.NODE_RENAMED,            claimed=False),
    Row(VolumeClass.SNAPSHOT,   _ANY,              _RETIRE,  Reason.SNAPSHOT_ON_NODE),
    Row(VolumeClass.UNTRACKED,  _ANY,              _RETIRE,  Reason.UNTRACKED_DATA),
)
# fmt: on
"""The first row that applies counts; what is in no row blocks nothing. Two exceptions: what has an excuse (`LocalItem.excuse`) never
blocks, and a volume blocks no reboot if it has pods and no drain evicts any of them."""


def _unowned(pod: Pod, snapshot: Snapshot, findings: BudgetFindings) -> str:
    return "no controller owns it" if is_bare(pod) else ""


def _doubly_selected(pod: Pod, snapshot: Snapshot, findings: BudgetFindings) -> str:
    budgets = findings.conflicting(pod)
    return f"selected by {all_or_few(budgets)}" if budgets else ""


def _forbidden_now(pod: Pod, snapshot: Snapshot, findings: BudgetFindings) -> str:
    return f"the budget is {findings.blocked[pod.full_name]}" if pod.full_name in findings.blocked else ""


def _overdue(pod: Pod, snapshot: Snapshot, findings: BudgetFindings) -> str:
    """Not on a node that does not answer: there nobody could report that the pod has ended."""
    answers = snapshot.node is not None and snapshot.node.ready != nodes.UNKNOWN
    overdue = answers and overdue_seconds(pod, snapshot.now) > snapshot.terminating_too_long
    return f"it should have ended at {pod.deleting_since}" if overdue else ""


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod in this situation blocks these intents for this reason. `says` describes the situation; empty: the pod is not in it."""

    says: Callable[[Pod, Snapshot, BudgetFindings], str]
    blocks: tuple[Intent, ...]
    reason: Reason


OF_PODS: Final = (
    PodRow(_unowned, _BOTH, Reason.BARE_POD),
    PodRow(_doubly_selected, _REBOOT, Reason.TWO_BUDGETS),
    PodRow(_forbidden_now, _REBOOT, Reason.PDB_BLOCKED),
    PodRow(_overdue, _REBOOT, Reason.POD_TERMINATING_TOO_LONG),
)
"""For pods that use a volume here and that a drain evicts. An eviction is the end of the first kind, whether the node comes back or not;
of the others the eviction is refused or does not finish."""


# --- the blockers -----------------------------------------------------------------------------------------------------

_ABOUT_CLASS: Final = {
    VolumeClass.IDLE: "no pod uses it",
    VolumeClass.RELEASING: "its PersistentVolume is still there",
    VolumeClass.RENAMED: "no pod uses it",
    VolumeClass.RETAINED: "no claim has it, and its reclaim policy is Retain",
    VolumeClass.IN_FLIGHT: "its PersistentVolume does not exist yet",
    VolumeClass.SNAPSHOT: f"it has no annotation {names.ACKNOWLEDGED}",
    VolumeClass.UNTRACKED: "the driver lists it, and it has no PersistentVolume",
}
_SHOWN: Final = 3


def of_volume(held: LocalItem, snapshot: Snapshot, *, place: Place | None) -> Iterable[Blocker]:
    """`place` is where it could move to, if that was checked."""
    intents: dict[Reason, list[Intent]] = defaultdict(list)
    for intent in Intent:
        reason = why_blocked(held, intent, place=place, anew=snapshot.reprovisions)
        if reason:
            intents[reason].append(intent)
    for reason, blocks in intents.items():
        resolved = held.policy(blocks[0])
        said = (
            _about_item(held),
            "its PersistentVolume names another node, and the driver lists it here" if held.renamed else "",
            _about_place(place, reason),
            resolved.problem if resolved else "",
            resolved.remark if resolved and held.class_ in (VolumeClass.IDLE, VolumeClass.RENAMED) else "",
        )
        message = "; ".join(filter(None, said))
        yield _blocker(held.object, snapshot, (held,), reason=reason, blocks=tuple(blocks), resolved=resolved, message=message)


def of_pod(pod: Pod, held: Sequence[LocalItem], snapshot: Snapshot, *, findings: BudgetFindings) -> Iterable[Blocker]:
    """`held` are the volumes of this driver that it uses. A pod that no volume keeps here is for others to judge."""
    # A claim that could not be read may be a generic ephemeral volume's, which goes with its pod and keeps it nowhere.
    in_use = tuple(item for item in held if item.in_use and unread_key(CLAIM, item.claim) not in snapshot.unread)
    if not in_use or pod.stays:
        return
    resolved = strictest(tuple(item.reboot for item in in_use if item.reboot))
    for row in OF_PODS:
        message = row.says(pod, snapshot, findings)
        if message:
            named = ObjectName(names.POD, pod.namespace, pod.name, pod.uid)
            yield _blocker(named, snapshot, in_use, reason=row.reason, blocks=row.blocks, resolved=resolved, message=message)


def in_order(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    return tuple(sorted(blockers, key=lambda item: (Intent.REBOOT not in item.blocks, -item.bytes, item.key, item.volume, item.reason)))


def why_blocked(held: LocalItem, intent: Intent, *, place: Place | None, anew: bool = False) -> Reason | None:
    """The reason from the table; None: it does not block. `place` is where it could move to, if that was checked.

    `anew`: the node's sidecar makes replicas anew.

    A wrong word for a policy counts as the strictest, and is the reason itself if nothing would block without it. If the policy is not
    certain, the volume blocks only if it would under the laxest one: beyond that the verdict is Unknown, not False.
    """
    resolved = held.policy(intent)
    if resolved and not resolved.certain and _in_table(held, intent, policy=STRICTNESS[0], place=place, anew=anew) is None:
        return None
    reason = _in_table(held, intent, policy=resolved.policy if resolved else None, place=place, anew=anew)
    if reason and resolved and resolved.problem and _in_table(held, intent, policy=resolved.by_order, place=place, anew=anew) is None:
        return Reason.POLICY_CONFLICT
    return reason


def _in_table(held: LocalItem, intent: Intent, *, policy: Policy | None, place: Place | None, anew: bool) -> Reason | None:
    if held.excuse or (intent is Intent.REBOOT and _evicts_nobody(held.use)):
        return None
    elsewhere = _elsewhere(place)
    rows = (row for row in OF_VOLUMES if row.class_ is held.class_ and policy in row.policies and elsewhere in row.elsewhere)
    claimed = held.object.kind == names.CLAIM
    rows = (row for row in rows if anew or not row.carried_out)
    return next((row.reason for row in rows if intent in row.blocks and row.claimed in (None, claimed)), None)


def _evicts_nobody(use: Use) -> bool:
    """A pod that was evicted a moment ago is none that stays, and it is not known who that was."""
    return bool(use.everybody) and not use.lately and all(pod.stays for pod in use.everybody)


def _elsewhere(place: Place | None) -> Elsewhere:
    if place is None or place.node:
        return Elsewhere.FITS
    return Elsewhere.NO_SPACE if place.shortfall else Elsewhere.NO_NODE


def _about_item(held: LocalItem) -> str:
    if held.pods:
        return f"used by {first_few(tuple(pod.full_name for pod in held.pods))}"
    return held.remark or held.use.says or _ABOUT_CLASS.get(held.class_, "")


def _about_place(place: Place | None, reason: Reason) -> str:
    match reason:
        case Reason.NO_CAPACITY if place:
            return f"{place.shortfall} bytes are missing on the node that comes closest, for all that fits nowhere"
        case Reason.NO_NODE_FITS if place:
            return "; ".join(f"{node}: {why}" for node, why in place.excluded[:_SHOWN]) or "there is no other node"
        case Reason.NOT_AVAILABLE_YET | Reason.REPROVISION_PENDING:
            return f"it would fit on {place.node}" if place and place.node else "whether it fits on another node was not checked"
        case _:
            return ""


def _blocker(
    named: ObjectName,
    snapshot: Snapshot,
    held: Sequence[LocalItem],
    *,
    reason: Reason,
    blocks: tuple[Intent, ...],
    resolved: Resolved | None,
    message: str,
) -> Blocker:
    return Blocker(
        kind=named.kind,
        namespace=named.namespace,
        name=named.name,
        uid=named.uid,
        volume="" if held[0].class_ is VolumeClass.IN_FLIGHT else held[0].name,
        bytes=sum(item.bytes for item in held),
        class_=held[0].class_,
        reason=reason,
        policy=resolved.policy if resolved else None,
        policy_source=resolved.source if resolved else "",
        blocks=blocks,
        message=message,
        remedy=remedy_of(reason, kind=named.kind, said_by=resolved.word_of if resolved else ""),
    )
