"""What keeps a verdict from being True, one thing for each object and reason."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sidecar.drain.assessment import Blocker, Place
from sidecar.drain.budgets import Weighed
from sidecar.drain.ends import bare
from sidecar.drain.policy import CLAIM, Resolved, called, strictest
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.volumes import Held, Named, asked_to_end, stays, why_blocked
from sidecar.drain.words import MEANING, Intent, Policy, Reason, VolumeClass
from sidecar.model import nodes
from sidecar.model.nodes import Pod

_SPECIAL: Final = {
    VolumeClass.IDLE: "no pod of this node uses it",
    VolumeClass.RELEASING: "its PersistentVolume is still there",
    VolumeClass.RETAINED: "no claim has it, and its reclaim policy is Retain",
    VolumeClass.IN_FLIGHT: "no PersistentVolume stands for it yet",
    VolumeClass.SNAPSHOT: "nobody has acknowledged that it may vanish",
    VolumeClass.UNTRACKED: "the driver lists it",
}
_SHOWN: Final = 3


def of_volume(held: Held, snapshot: Snapshot, *, place: Place | None) -> Iterable[Blocker]:
    """`place` is where it could go, if that was looked at."""
    intents: dict[Reason, list[Intent]] = defaultdict(list)
    for intent in Intent:
        reason = why_blocked(held, intent, place=place)
        if reason:
            intents[reason].append(intent)
    for reason, blocks in intents.items():
        resolved = held.policy(blocks[0])
        said = (_special(held), _about_place(place, reason), _about_peers(held, snapshot, resolved), resolved.problem if resolved else "")
        message = "; ".join(filter(None, said))
        yield _blocker(held.object, snapshot, (held,), reason=reason, blocks=tuple(blocks), resolved=resolved, message=message)


def of_pod(pod: Pod, held: Sequence[Held], snapshot: Snapshot, *, weighed: Weighed) -> Iterable[Blocker]:
    """`held` are the volumes of ours it uses. What keeps nothing here is none of our business, nor are pods that nobody evicts."""
    # A claim that could not be read may be the pod's own, which goes with it.
    pinned = tuple(item for item in held if item.pinned and called(CLAIM, item.claim) not in snapshot.unread)
    if not pinned or stays(pod):
        return
    resolved = strictest(tuple(item.reboot for item in pinned if item.reboot))
    for reason, blocks, message in _about_pod(pod, snapshot, weighed):
        named = Named("Pod", pod.namespace, pod.name, pod.uid)
        yield _blocker(named, snapshot, pinned, reason=reason, blocks=blocks, resolved=resolved, message=message)


def in_order(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    return tuple(sorted(blockers, key=lambda item: (Intent.REBOOT not in item.blocks, -item.bytes, item.key, item.volume, item.reason)))


def _about_pod(pod: Pod, snapshot: Snapshot, weighed: Weighed) -> Iterable[tuple[Reason, tuple[Intent, ...], str]]:
    if bare(pod):
        yield Reason.BARE_POD, tuple(Intent), "no controller owns it"
    doubled = weighed.doubled(pod)
    if doubled:
        yield Reason.TWO_BUDGETS, (Intent.REBOOT,), f"selected by {' and '.join(doubled)}"
    if pod.full_name in weighed.blocked:
        yield Reason.PDB_BLOCKED, (Intent.REBOOT,), f"the budget is {weighed.blocked[pod.full_name]}"
    answers = snapshot.node is not None and snapshot.node.ready != nodes.UNKNOWN
    if answers and asked_to_end(pod, snapshot.now) > snapshot.terminating_too_long:
        yield Reason.POD_TERMINATING_TOO_LONG, (Intent.REBOOT,), f"it was to end at {pod.deleting_since}"


def _special(held: Held) -> str:
    if not held.pods:
        return _SPECIAL.get(held.class_, "")
    return f"used by {some(tuple(pod.full_name for pod in held.pods))}"


def _about_place(place: Place | None, reason: Reason) -> str:
    match reason:
        case Reason.NO_CAPACITY if place:
            return f"{place.shortfall} bytes are missing where it comes closest"
        case Reason.NO_NODE_FITS if place:
            return "; ".join(f"{node}: {why}" for node, why in place.excluded[:_SHOWN]) or "there is no other node"
        case Reason.NOT_AVAILABLE_YET:
            return f"it would fit on {place.node}" if place and place.node else "whether it fits elsewhere was not looked at"
        case _:
            return ""


def _about_peers(held: Held, snapshot: Snapshot, resolved: Resolved | None) -> str:
    """Whether the application could do without this copy."""
    if resolved is None or resolved.policy is not Policy.REPROVISION:
        return ""
    sets = {pod.owner.uid for pod in held.pods if pod.owner and pod.owner.uid in snapshot.ready_peers}
    return f"replicas that are ready on other nodes: {min(snapshot.ready_peers[uid] for uid in sets)}" if sets else ""


def _blocker(
    named: Named,
    snapshot: Snapshot,
    held: Sequence[Held],
    *,
    reason: Reason,
    blocks: tuple[Intent, ...],
    resolved: Resolved | None,
    message: str,
) -> Blocker:
    blocker = Blocker(
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
        since=snapshot.now,
        message=message,
        remedy=MEANING[reason].remedy,
    )
    return _dated(blocker, snapshot.since)


def _dated(blocker: Blocker, known: Mapping[tuple[str, Reason], float]) -> Blocker:
    """It has been there since it was first noted."""
    since = known.get((blocker.key, blocker.reason))
    return blocker if since is None else replace(blocker, since=since)


def some(names: Sequence[str]) -> str:
    """The first few of many."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
