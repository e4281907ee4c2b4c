"""Sorts what is on a node: each thing is of exactly one class and has one policy per intent. What of it blocks: `blockers`."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Final

from sidecar.drain.facts.snapshot import CLAIM, NAMESPACE, InFlight, Snapshot, unread_key
from sidecar.drain.judgement.acknowledged import MOST, Acknowledged, acknowledgement_of, is_acknowledged
from sidecar.drain.judgement.assessment import HeldVolume
from sidecar.drain.judgement.policy import Resolved, resolve
from sidecar.drain.judgement.use import NOBODY, Use, Users
from sidecar.drain.vocabulary import NOT_AVAILABLE_YET, Intent, Policy, VolumeClass
from sidecar.drain.wording import first_few
from sidecar.model import names
from sidecar.model.nodes import Pod, SnapshotContent
from sidecar.model.objects import Claim, Volume

ACKNOWLEDGED: Final = "acknowledged as dispensable"
NEVER_USED: Final = "never used"
ASKED_FOR: Final = "its creation was asked for a moment ago, and is not known to have begun"
UNTRACKED: Final = "known to the driver alone"

_EPHEMERAL: Final = Resolved(Policy.IGNORE, "default", Policy.IGNORE)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The object by which people know a volume."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class LocalItem:
    """One thing of this driver on this node, with all that is judged about it: a volume, a creation, a snapshot."""

    name: str
    class_: VolumeClass
    bytes: int
    object: ObjectName
    claim: str = ""
    storage_class: str = ""
    use: Use = NOBODY
    reboot: Resolved | None = None
    retire: Resolved | None = None
    excuse: str = ""
    """Why it blocks nothing although its class would; empty: no reason."""

    shared: bool = False
    """Other nodes reach it too."""
    renamed: bool = False
    """Its PersistentVolume names another node."""
    acknowledged: Acknowledged | None = None
    remark: str = ""
    """What is special about it, in place of what is said of its class."""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Those of this node that use it."""
        return self.use.pods

    @property
    def in_use(self) -> bool:
        """It keeps its pods on this node."""
        return self.class_ is VolumeClass.IN_USE and not self.shared

    @property
    def moves(self) -> bool:
        """Some policy asks that it is to be elsewhere."""
        return any(resolved.policy in NOT_AVAILABLE_YET for resolved in (self.reboot, self.retire) if resolved)

    @property
    def fixed_policy(self) -> Policy | None:
        """None if it depends on the intent, or if there is none."""
        if self.reboot is None or self.retire is None or self.reboot.policy is not self.retire.policy:
            return None
        return self.reboot.policy

    def policy(self, intent: Intent) -> Resolved | None:
        return self.reboot if intent is Intent.REBOOT else self.retire

    def as_result(self) -> HeldVolume:
        source = self.retire.source if self.retire else ""
        users = tuple(pod.full_name for pod in self.use.everybody)
        said = ((intent, resolved.policy, resolved.source) for intent in Intent if (resolved := self.policy(intent)))
        by_intent = () if self.fixed_policy else tuple(said)
        return HeldVolume(self.name, self.claim, self.class_, self.bytes, self.fixed_policy, source, users, by_intent)


def classify(snapshot: Snapshot, pods: Iterable[Pod]) -> tuple[LocalItem, ...]:
    """`pods` are those that run here, without those counted as gone. The result is sorted by name."""
    pods = tuple(pods)
    believed = frozenset(sorted(volume.uid for volume in snapshot.volumes if is_acknowledged(volume.notes))[:MOST])
    users = Users(snapshot, pods)
    there = {volume.claim.uid for volume in snapshot.volumes if volume.claim}
    held = [_of_volume(volume, snapshot, users, believed) for volume in snapshot.volumes]
    held += [_of_flight(flight) for flight in set(snapshot.in_flight) if flight.claim_uid not in there]
    held += [_of_content(content) for content in snapshot.contents]
    held += [_of_handle(handle, blocks=snapshot.untracked_blocks) for handle in sorted(set(snapshot.untracked))]
    held += [item for pod in pods for item in _inline(pod, snapshot.driver)]
    return tuple(sorted(held, key=lambda item: (item.name, item.class_, item.object.uid)))


def may_be_lost(volume: Volume, claim: Claim | None, snapshot: Snapshot) -> bool:
    """Of one of which it is not known where it is: it is given up already, or the PersistentVolume or its class says so.

    Its namespace is not asked, nor is a claim that is not known; that one may be stricter.
    """
    if volume.phase in ("Released", "Failed") and volume.reclaim_policy == "Delete":
        return True
    ref = volume.claim
    unasked = {unread_key(NAMESPACE, ref.namespace)} | ({unread_key(CLAIM, ref.full_name)} if claim is None else set()) if ref else set()
    said = resolve(
        volume,
        claim,
        class_=snapshot.classes.get(volume.class_name),
        default=None,
        intent=Intent.RETIRE,
        heeded=ref is None or ref.namespace not in snapshot.unheeded_namespaces,
        unread=snapshot.unread | unasked,
    )
    return said.certain and said.policy is Policy.IGNORE


def _of_volume(volume: Volume, snapshot: Snapshot, users: Users, believed: Set[str]) -> LocalItem:
    claim_name = volume.claim_name
    found = snapshot.claims.get(claim_name)
    # A claim of this name that was made later has nothing to do with this volume, nor have its pods.
    ours = found is None or volume.claim is None or (volume.claim.uid in ("", found.uid) and found.volume_name in ("", volume.name))
    claim = found if ours else None
    use = users.of(volume, claim_name if ours else "")
    class_ = _class_of(volume, claim, use, ephemeral=claim is not None and users.asks_for(claim), renamed=volume.name in snapshot.renamed)
    ephemeral = class_ is VolumeClass.EPHEMERAL
    acknowledged = _acknowledged(volume, use, snapshot) if volume.uid in believed else None
    excuse = _excuse(claim, use, acknowledged, never_used=volume.name in snapshot.never_used)
    reached_by = snapshot.shared_with.get(volume.name, ())
    return LocalItem(
        name=volume.name,
        class_=class_,
        bytes=volume.size,
        object=_object_of(volume, claim),
        claim="" if volume.phase == "Available" else claim_name,
        storage_class=volume.class_name,
        use=use if class_ in (VolumeClass.IN_USE, VolumeClass.EPHEMERAL) else NOBODY,
        reboot=_EPHEMERAL if ephemeral else _resolved(volume, claim, snapshot, Intent.REBOOT),
        retire=_EPHEMERAL if ephemeral else _resolved(volume, claim, snapshot, Intent.RETIRE),
        excuse=_shared(reached_by) if reached_by else "" if ephemeral else excuse,
        shared=bool(reached_by),
        renamed=volume.name in snapshot.renamed,
        acknowledged=acknowledged,
    )


def _class_of(volume: Volume, claim: Claim | None, use: Use, *, ephemeral: bool, renamed: bool) -> VolumeClass:
    if renamed and not use:
        return VolumeClass.RENAMED
    deleted = volume.reclaim_policy == "Delete"
    released = volume.phase in ("Released", "Failed")
    if released:
        return VolumeClass.RELEASING if deleted else VolumeClass.RETAINED
    if ephemeral:
        return VolumeClass.EPHEMERAL
    if use:
        return VolumeClass.IN_USE
    if volume.deleting and deleted:
        return VolumeClass.RELEASING
    never_bound = volume.phase == "Available" or volume.claim is None
    return VolumeClass.RETAINED if never_bound and not deleted else VolumeClass.IDLE


def _shared(others: tuple[str, ...]) -> str:
    return f"also reached by {first_few(sorted(others))}"


def _excuse(claim: Claim | None, use: Use, acknowledged: Acknowledged | None, *, never_used: bool) -> str:
    if use:
        return ""
    if acknowledged and not acknowledged.given.void:
        return ACKNOWLEDGED
    # A volume that was filled from a snapshot or a clone has data before any pod uses it.
    filled = claim is not None and claim.source is not None
    return NEVER_USED if never_used and not filled else ""


def _resolved(volume: Volume, claim: Claim | None, snapshot: Snapshot, intent: Intent) -> Resolved:
    return resolve(
        volume,
        claim,
        class_=snapshot.classes.get(volume.class_name),
        namespace=snapshot.namespace_policies.get(volume.claim.namespace, ()) if volume.claim else (),
        default=snapshot.default_policy,
        intent=intent,
        heeded=volume.claim is None or volume.claim.namespace not in snapshot.unheeded_namespaces,
        unread=snapshot.unread,
    )


def _object_of(volume: Volume, claim: Claim | None) -> ObjectName:
    if claim and volume.phase not in ("Available", "Released", "Failed"):
        return ObjectName(names.CLAIM, claim.namespace, claim.name, claim.uid)
    return ObjectName(names.VOLUME, "", volume.name, volume.uid)


def _of_flight(flight: InFlight) -> LocalItem:
    claim = ObjectName(names.CLAIM, flight.namespace, flight.name, flight.claim_uid)
    full_name = f"{flight.namespace}/{flight.name}"
    return LocalItem(
        full_name,
        VolumeClass.IN_FLIGHT,
        flight.size,
        claim,
        claim=full_name,
        storage_class=flight.class_name,
        remark="" if flight.begun else ASKED_FOR,
    )


def _of_content(content: SnapshotContent) -> LocalItem:
    named = ObjectName(names.SNAPSHOT_CONTENT, "", content.name, content.uid)
    excuse = ACKNOWLEDGED if is_acknowledged(content.notes) else ""
    return LocalItem(content.name, VolumeClass.SNAPSHOT, content.size, named, excuse=excuse)


def _of_handle(handle: str, *, blocks: bool) -> LocalItem:
    return LocalItem(handle, VolumeClass.UNTRACKED, 0, ObjectName("Volume", "", handle, ""), excuse="" if blocks else UNTRACKED)


def _inline(pod: Pod, driver: str) -> Iterable[LocalItem]:
    """Inline volumes have neither an object nor a name of their own."""
    for number in range(1, pod.inline.count(driver) + 1):
        named = ObjectName(names.POD, pod.namespace, pod.name, pod.uid)
        name = f"{pod.full_name}#{number}"
        yield LocalItem(name, VolumeClass.EPHEMERAL, 0, named, use=Use((pod,)), reboot=_EPHEMERAL, retire=_EPHEMERAL)


def _acknowledged(volume: Volume, use: Use, snapshot: Snapshot) -> Acknowledged | None:
    given = acknowledgement_of(volume)
    return (
        Acknowledged(replace(given, void=volume.uid in snapshot.void_acknowledgements), runs=bool(use.pods), used=use.seen, at_rest=not use)
        if given
        else None
    )
