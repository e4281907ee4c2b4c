"""What lies on a node, each thing in exactly one class, and what of it blocks a reboot or a retirement."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain.assessment import HeldVolume, Place
from sidecar.drain.instants import to_seconds
from sidecar.drain.policy import STRICTNESS, Resolved, resolve
from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.drain.words import NOT_YET, Intent, Policy, Reason, VolumeClass
from sidecar.model import names, nodes
from sidecar.model.nodes import Pod, SnapshotContent
from sidecar.model.objects import Claim, Notes, Volume

ACKNOWLEDGED: Final = "acknowledged as dispensable"
NEVER_USED: Final = "never used"
UNTRACKED: Final = "known to the driver alone"

_EPHEMERAL: Final = Resolved(Policy.IGNORE, "default", Policy.IGNORE)


@dataclass(frozen=True, slots=True)
class Named:
    """The object that speaks for a volume to people."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Held:
    """One thing of ours on this node, with all that is judged about it."""

    name: str
    class_: VolumeClass
    bytes: int
    object: Named
    claim: str = ""
    storage_class: str = ""
    pods: tuple[Pod, ...] = ()
    reboot: Resolved | None = None
    retire: Resolved | None = None
    excuse: str = ""
    """Why it blocks nothing although its kind would."""

    @property
    def pinned(self) -> bool:
        """It keeps its pods on this node."""
        return self.class_ is VolumeClass.IN_USE

    @property
    def fixed_policy(self) -> Policy | None:
        """None where it depends on the intent, or where there is none."""
        if self.reboot is None or self.retire is None or self.reboot.policy is not self.retire.policy:
            return None
        return self.reboot.policy

    def policy(self, intent: Intent) -> Resolved | None:
        return self.reboot if intent is Intent.REBOOT else self.retire

    def as_result(self) -> HeldVolume:
        source = self.retire.source if self.retire else ""
        users = tuple(pod.full_name for pod in self.pods)
        return HeldVolume(self.name, self.claim, self.class_, self.bytes, self.fixed_policy, source, users)


def stays(pod: Pod) -> bool:
    """Nobody who drains a node evicts it."""
    return pod.static or pod.of_daemon_set


def asked_to_end(pod: Pod, now: float) -> float:
    """For how many seconds it should have ended by now; negative while it has time, or where nobody asked it to."""
    due = to_seconds(pod.deleting_since)
    return -1.0 if due is None else now - due


def counts_as_gone(pod: Pod, snapshot: Snapshot) -> bool:
    """Its node does not answer, so nobody will ever say that it has ended."""
    unanswered = snapshot.node is not None and snapshot.node.ready == nodes.UNKNOWN
    return unanswered and asked_to_end(pod, snapshot.now) > snapshot.skip_terminating_after


def classify(snapshot: Snapshot, pods: Iterable[Pod]) -> tuple[Held, ...]:
    """`pods` are those that run here as far as volumes are concerned. Sorted by name."""
    pods = sorted(pods, key=lambda pod: pod.full_name)
    users: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        for claim in set(pod.claims):
            users[f"{pod.namespace}/{claim}"].append(pod)
    there = {volume.claim.uid for volume in snapshot.volumes if volume.claim}
    held = [_of_volume(volume, snapshot, users) for volume in snapshot.volumes]
    held += [_of_flight(flight) for flight in set(snapshot.in_flight) if flight.claim_uid not in there]
    held += [_of_content(content) for content in snapshot.contents]
    held += [_of_handle(handle, blocks=snapshot.untracked_blocks) for handle in sorted(set(snapshot.untracked))]
    held += [item for pod in pods for item in _inline(pod, snapshot.driver)]
    return tuple(sorted(held, key=lambda item: (item.name, item.class_, item.object.uid)))


def why_blocked(held: Held, intent: Intent, *, place: Place | None) -> Reason | None:
    """`place` is where it could go, if that was looked at. A wrong word is the reason only if nothing would block without it.

    Of a volume whose policy is not certain, only what would block under the laxest one does: the rest is ignorance.
    """
    resolved = held.policy(intent)
    if resolved and not resolved.certain and _judged(held, intent, policy=STRICTNESS[0], place=place) is None:
        return None
    reason = _judged(held, intent, policy=resolved.policy if resolved else None, place=place)
    if reason and resolved and resolved.problem and _judged(held, intent, policy=resolved.by_order, place=place) is None:
        return Reason.POLICY_CONFLICT
    return reason


def _judged(held: Held, intent: Intent, *, policy: Policy | None, place: Place | None) -> Reason | None:
    if held.excuse:
        return None
    if held.class_ is VolumeClass.IN_FLIGHT:
        return Reason.PROVISIONING_IN_FLIGHT
    return _rebooting(held, policy, place) if intent is Intent.REBOOT else _retiring(held, policy, place)


def _rebooting(held: Held, policy: Policy | None, place: Place | None) -> Reason | None:
    if held.class_ is not VolumeClass.IN_USE or all(stays(pod) for pod in held.pods):
        return None
    if policy in NOT_YET:
        return _cannot_move(place)
    return Reason.WOULD_STRAND if policy is Policy.BLOCK else None


def _retiring(held: Held, policy: Policy | None, place: Place | None) -> Reason | None:
    match held.class_:
        case VolumeClass.IN_USE | VolumeClass.IDLE if policy in NOT_YET:
            return _cannot_move(place)
        case VolumeClass.IN_USE if policy is not Policy.IGNORE:
            return Reason.VOLUME_IN_USE
        case VolumeClass.IDLE if policy not in (Policy.IGNORE, Policy.ALLOW_IDLE):
            return Reason.LAST_COPY
        case VolumeClass.RETAINED if policy is not Policy.IGNORE:
            return Reason.RECLAIM_RETAIN
        case VolumeClass.RELEASING:
            return Reason.RELEASE_PENDING
        case VolumeClass.SNAPSHOT:
            return Reason.SNAPSHOT_ON_NODE
        case VolumeClass.UNTRACKED:
            return Reason.UNTRACKED_DATA
        case _:
            return None


def _cannot_move(place: Place | None) -> Reason:
    if place is None or place.node:
        return Reason.NOT_AVAILABLE_YET
    return Reason.NO_CAPACITY if place.shortfall else Reason.NO_NODE_FITS


def _of_volume(volume: Volume, snapshot: Snapshot, users: Mapping[str, list[Pod]]) -> Held:
    claim_name = f"{volume.claim.namespace}/{volume.claim.name}" if volume.claim else ""
    found = snapshot.claims.get(claim_name)
    # A claim of the same name that was made later has nothing to do with this volume, nor have its pods.
    ours = found is None or volume.claim is None or (volume.claim.uid in ("", found.uid) and found.volume_name in ("", volume.name))
    claim = found if ours else None
    pods = tuple(users.get(claim_name, ())) if claim_name and ours else ()
    class_ = _class_of(volume, claim, used=bool(pods))
    ephemeral = class_ is VolumeClass.EPHEMERAL
    return Held(
        name=volume.name,
        class_=class_,
        bytes=volume.size,
        object=_spokesman(volume, claim),
        claim="" if volume.phase == "Available" else claim_name,
        storage_class=volume.class_name,
        pods=pods if class_ in (VolumeClass.IN_USE, VolumeClass.EPHEMERAL) else (),
        reboot=_EPHEMERAL if ephemeral else _resolved(volume, claim, snapshot, Intent.REBOOT),
        retire=_EPHEMERAL if ephemeral else _resolved(volume, claim, snapshot, Intent.RETIRE),
        excuse=_excuse(volume, claim, class_, never_used=volume.name in snapshot.never_used),
    )


def _class_of(volume: Volume, claim: Claim | None, *, used: bool) -> VolumeClass:
    deleted = volume.reclaim_policy == "Delete"
    released = volume.phase in ("Released", "Failed")
    if released:
        return VolumeClass.RELEASING if deleted else VolumeClass.RETAINED
    if claim and claim.owner and claim.owner.kind == "Pod":
        return VolumeClass.EPHEMERAL
    if used:
        return VolumeClass.IN_USE
    if volume.deleting and deleted:
        return VolumeClass.RELEASING
    never_bound = volume.phase == "Available" or volume.claim is None
    return VolumeClass.RETAINED if never_bound and not deleted else VolumeClass.IDLE


def _excuse(volume: Volume, claim: Claim | None, class_: VolumeClass, *, never_used: bool) -> str:
    if class_ in (VolumeClass.RETAINED, VolumeClass.IDLE) and _acknowledged(volume.notes):
        return ACKNOWLEDGED
    # What was filled from a snapshot or a clone has data before any pod comes.
    filled = claim is not None and claim.source is not None
    return NEVER_USED if never_used and not filled and class_ not in (VolumeClass.IN_USE, VolumeClass.EPHEMERAL) else ""


def _resolved(volume: Volume, claim: Claim | None, snapshot: Snapshot, intent: Intent) -> Resolved:
    return resolve(
        volume,
        claim,
        class_=snapshot.classes.get(volume.class_name),
        namespace_word=snapshot.namespace_policies.get(volume.claim.namespace) if volume.claim else None,
        default=snapshot.default_policy,
        intent=intent,
        unread=snapshot.unread,
    )


def _spokesman(volume: Volume, claim: Claim | None) -> Named:
    if claim and volume.phase not in ("Available", "Released", "Failed"):
        return Named("PersistentVolumeClaim", claim.namespace, claim.name, claim.uid)
    return Named("PersistentVolume", "", volume.name, volume.uid)


def _of_flight(flight: InFlight) -> Held:
    claim = Named("PersistentVolumeClaim", flight.namespace, flight.name, flight.claim_uid)
    full_name = f"{flight.namespace}/{flight.name}"
    return Held(full_name, VolumeClass.IN_FLIGHT, flight.size, claim, claim=full_name, storage_class=flight.class_name)


def _of_content(content: SnapshotContent) -> Held:
    named = Named("VolumeSnapshotContent", "", content.name, content.uid)
    excuse = ACKNOWLEDGED if _acknowledged(content.notes) else ""
    return Held(content.name, VolumeClass.SNAPSHOT, content.size, named, excuse=excuse)


def _of_handle(handle: str, *, blocks: bool) -> Held:
    return Held(handle, VolumeClass.UNTRACKED, 0, Named("Volume", "", handle, ""), excuse="" if blocks else UNTRACKED)


def _inline(pod: Pod, driver: str) -> Iterable[Held]:
    """They have no object and no name of their own."""
    for number in range(1, pod.inline.count(driver) + 1):
        named = Named("Pod", pod.namespace, pod.name, pod.uid)
        name = f"{pod.full_name}#{number}"
        yield Held(name, VolumeClass.EPHEMERAL, 0, named, pods=(pod,), reboot=_EPHEMERAL, retire=_EPHEMERAL)


def _acknowledged(notes: Notes) -> bool:
    return any(key == names.ACKNOWLEDGED and text.strip() for key, text in notes)
