"""Sorts what is on a node: each thing is of exactly one class and has one policy for each intent. What of it blocks: `blockers`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.drain.policy import Resolved, resolve
from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.drain.words import Intent, Policy, VolumeClass, first_few
from sidecar.kube.api import SNAPSHOT_CONTENTS
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Pod, SnapshotContent
from sidecar.model.objects import Claim, Notes, Volume

ACKNOWLEDGED: Final = "acknowledged as dispensable"
UNTRACKED: Final = "known to the driver alone"
_EPHEMERAL: Final = dict.fromkeys(Intent, Resolved(Policy.IGNORE, "default", Policy.IGNORE))


@dataclass(frozen=True, slots=True)
class Use:
    """Whatever shows that a volume is in use, or is about to be. An evicted pod that is made again uses it wherever it waits."""

    pods: tuple[Pod, ...] = ()  # of this node
    claimants: tuple[Pod, ...] = ()  # without a node, or on another one
    attached: bool = False
    lately: bool = False

    def __bool__(self) -> bool:
        return bool(self.pods or self.claimants or self.attached or self.lately)

    @property
    def everybody(self) -> tuple[Pod, ...]:
        return (*self.pods, *self.claimants)

    @property
    def evicts_nobody(self) -> bool:
        """All who use it are pods that no drain evicts. One that was evicted a moment ago is none, and it is not known who that was."""
        return bool(self.everybody) and not self.lately and all(pod.stays for pod in self.everybody)

    @property
    def says(self) -> str:
        """Why it counts as in use; empty: it does not."""
        if self.pods:
            return f"used by {first_few([pod.full_name for pod in self.pods], 1)}"
        if self.claimants:
            first = self.claimants[0]
            where = f"on node {first.node}" if first.node else "which waits for a node"
            return f"pod {first_few([pod.full_name for pod in self.claimants], 1)}, {where}, names its claim"
        if self.attached:
            return "it is attached to this node"
        return "a pod used it until a moment ago, or may have: that counts for a minute" if self.lately else ""


NOBODY: Final = Use()


class Users:
    """All pods by the claims that they name, and by the claims that are made for them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._here, self._elsewhere = _by_claim(snapshot.running), _by_claim(snapshot.claimants)
        self._ephemeral = {(pod.uid, pod.namespace, claim) for pod in (*snapshot.pods, *snapshot.claimants) for claim in pod.ephemeral}
        self._attached, self._lately = snapshot.attached, snapshot.own.lately_used

    def of(self, volume: Volume, claim_name: str) -> Use:
        """`claim_name` is the full name of the claim that it is bound to; empty for none."""
        return Use(
            pods=tuple(self._here.get(claim_name, ())),
            claimants=tuple(self._elsewhere.get(claim_name, ())),
            attached=volume.name in self._attached,
            lately=claim_name in self._lately,
        )

    def asks_for(self, claim: Claim) -> bool:
        """A pod asked for it as a generic ephemeral volume. That a pod owns it is not enough: anybody may name a pod as owner."""
        return claim.owner is not None and (claim.owner.uid, claim.namespace, claim.name) in self._ephemeral


def _by_claim(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: (pod.full_name, pod.uid)):
        for claim in dict.fromkeys(pod.claim_names):
            found[claim].append(pod)
    return found


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing of this driver on this node: a volume, a creation, a snapshot."""

    name: str  # of the PersistentVolume; without one, of the claim, the snapshot or the handle
    class_: VolumeClass
    bytes: int
    object: ObjectRef  # by which people know it
    claim: str = ""  # `namespace/name`, or empty
    volume: Volume | None = None
    use: Use = NOBODY
    policies: Mapping[Intent, Resolved] = field(default_factory=dict)
    excuse: str = ""  # why it blocks nothing although its class would; empty: no reason
    says: str = ""  # what shows that it is of its class
    replicated: bool = False  # other nodes have copies of it, and none that is up to date

    @property
    def in_use(self) -> bool:
        return self.class_ is VolumeClass.IN_USE

    def policy(self, intent: Intent) -> Resolved | None:
        return self.policies.get(intent)

    @property
    def may_be_lost(self) -> bool:
        """It goes with its pod, or its policy lets it be lost when the node is retired, and nobody can have meant anything else."""
        return self.class_ is VolumeClass.EPHEMERAL or self._is_plainly(Policy.IGNORE)

    @property
    def is_made_anew(self) -> bool:
        return self.in_use and self._is_plainly(Policy.REPROVISION)

    def _is_plainly(self, policy: Policy) -> bool:
        said = self.policies.get(Intent.RETIRE)
        return said is not None and said.policy is policy and said.plain


def is_acknowledged(notes: Notes) -> bool:
    return any(text.strip() for key, text in notes if key == names.ACKNOWLEDGED)


def classify(snapshot: Snapshot) -> tuple[Thing, ...]:
    """Sorted by name."""
    users = Users(snapshot)
    made = {volume.claim.uid for volume in snapshot.volumes if volume.claim}
    found = [_of_volume(volume, snapshot, users) for volume in snapshot.volumes]
    found += [_of_flight(flight) for flight in snapshot.in_flight if flight.claim.uid not in made]
    found += [_of_content(content) for content in snapshot.contents]
    found += [_of_handle(handle) for handle in sorted(set(snapshot.own.untracked))]
    found += [thing for pod in snapshot.running for thing in _inline(pod, snapshot.driver)]
    return tuple(sorted(found, key=lambda thing: (thing.name, thing.class_, thing.object.uid)))


def used_though_acknowledged(things: Iterable[Thing]) -> list[Volume]:
    """Volumes that a pod uses though somebody has said that they may be lost: that word is void, and is taken off. A use while no sidecar
    ran is not seen: what is never needed again has the policy Ignore."""
    found = [thing.volume for thing in things if thing.use.everybody and thing.volume is not None]
    return [volume for volume in found if is_acknowledged(volume.notes)]


def policies_of(volume: Volume, claim: Claim | None, snapshot: Snapshot) -> dict[Intent, Resolved]:
    return {
        intent: resolve(
            volume,
            claim,
            class_=snapshot.classes.get(volume.class_name),
            namespace=snapshot.namespaces.get(volume.claim.namespace, ()) if volume.claim else (),
            default=snapshot.own.default_policy,
            intent=intent,
            unread=snapshot.unread,
        )
        for intent in Intent
    }


def _of_volume(volume: Volume, snapshot: Snapshot, users: Users) -> Thing:
    found = snapshot.claims.get(volume.claim_name)
    # A claim of this name that was made later has nothing to do with this volume, nor have its pods.
    ours = found is None or volume.claim is None or (volume.claim.uid in ("", found.uid) and found.volume_name in ("", volume.name))
    claim = found if ours else None
    use = users.of(volume, volume.claim_name if ours and volume.phase != "Available" else "")
    class_ = _class_of(volume, use, ephemeral=claim is not None and users.asks_for(claim))
    named = ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid)
    if claim and volume.phase not in ("Available", "Released", "Failed"):
        named = ObjectRef("v1", names.CLAIM, claim.namespace, claim.name, claim.uid)
    return Thing(
        name=volume.name,
        class_=class_,
        bytes=volume.size,
        object=named,
        claim="" if volume.phase == "Available" else volume.claim_name,
        volume=volume,
        use=use if class_ in (VolumeClass.IN_USE, VolumeClass.EPHEMERAL) else NOBODY,
        policies=_EPHEMERAL if class_ is VolumeClass.EPHEMERAL else policies_of(volume, claim, snapshot),
        excuse=ACKNOWLEDGED if not use and is_acknowledged(volume.notes) else "",
        says=use.says or _SAYS.get(class_, ""),
        replicated=volume.handle.partition("/")[0] in snapshot.own.copies,
    )


_SAYS: Final = {
    VolumeClass.IDLE: "no pod uses it",
    VolumeClass.RELEASING: "its PersistentVolume is still there",
    VolumeClass.RETAINED: "no claim has it, and its reclaim policy is Retain",
}


def _class_of(volume: Volume, use: Use, *, ephemeral: bool) -> VolumeClass:
    deleted = volume.reclaim_policy == "Delete"
    if volume.phase in ("Released", "Failed"):
        return VolumeClass.RELEASING if deleted else VolumeClass.RETAINED
    if ephemeral:
        return VolumeClass.EPHEMERAL
    if use:
        return VolumeClass.IN_USE
    if volume.deleting and deleted:
        return VolumeClass.RELEASING
    never_bound = volume.phase == "Available" or volume.claim is None
    return VolumeClass.RETAINED if never_bound and not deleted else VolumeClass.IDLE


def _of_flight(flight: InFlight) -> Thing:
    claim = flight.claim
    named = ObjectRef("v1", names.CLAIM, claim.namespace, claim.name, claim.uid)
    says = "its PersistentVolume does not exist yet" if flight.begun else "its creation was asked for, and is not known to have begun"
    return Thing(claim.full_name, VolumeClass.IN_FLIGHT, claim.requested or 0, named, claim=claim.full_name, says=says)


def _of_content(content: SnapshotContent) -> Thing:
    named = ObjectRef(SNAPSHOT_CONTENTS.api_version, names.SNAPSHOT_CONTENT, "", content.name, content.uid)
    excuse = ACKNOWLEDGED if is_acknowledged(content.notes) else ""
    says = f"it has no annotation {names.ACKNOWLEDGED}"
    return Thing(content.name, VolumeClass.SNAPSHOT, content.size, named, excuse=excuse, says=says)


def _of_handle(handle: str) -> Thing:
    says = "the driver lists it, and it has no PersistentVolume"
    return Thing(handle, VolumeClass.UNTRACKED, 0, ObjectRef("", "Volume", "", handle), excuse=UNTRACKED, says=says)


def _inline(pod: Pod, driver: str) -> Iterable[Thing]:
    """Inline volumes have neither an object nor a name of their own."""
    for number in range(1, pod.inline.count(driver) + 1):
        named = ObjectRef("v1", names.POD, pod.namespace, pod.name, pod.uid)
        name = f"{pod.full_name}#{number}"
        yield Thing(name, VolumeClass.EPHEMERAL, 0, named, use=Use((pod,)), policies=_EPHEMERAL)
