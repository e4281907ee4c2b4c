"""The picture that everything here decides on: one driver on one node, at one moment. `build` makes it from raw lists, whoever listed them.

A running sidecar (`look_io`) and anybody who asks from outside (`explain.listing_io`) list the same kinds, so that the report and
`explain` say the same of the same cluster.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.where import Locator, Where
from sidecar.drain.words import Policy
from sidecar.model import timestamps
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, CapacityRecord, Claim, Class, Notes, Volume
from sidecar.model.topology import Segment

LONGEST_WAIT: Final = 600.0  # seconds for which a claim counts for which nothing was begun: what can be made is begun soon, or elsewhere


@dataclass(frozen=True, slots=True)
class InFlight:
    claim: Claim
    begun: bool = True  # the driver may have something of it already; False: it is only asked for, and could succeed


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A volume or snapshot of this driver whose data may be here."""

    name: str
    why: str
    notes: Notes
    volume: Volume | None = None  # None: it is a VolumeSnapshotContent


@dataclass(frozen=True, slots=True)
class Raw:
    """What was listed: `build` chooses. What could not be listed is empty, and `ignorance` says so."""

    at: float  # wall clock
    nodes: tuple[Node, ...]  # of other nodes only those whose labels matter need be there; `others_known` says whether all are
    volumes: tuple[Volume, ...]
    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]  # those of the node, and those anywhere that name a claim of a volume that may be here
    classes: tuple[Class, ...]
    namespaces: Mapping[str, Notes]
    contents: tuple[SnapshotContent, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    capacities: tuple[CapacityRecord, ...] | None = None  # None: not looked at
    others_known: bool = True
    gone: frozenset[str] = frozenset()  # PersistentVolumes that a claim here names, and that are known to be gone
    unread: frozenset[str] = frozenset()  # by `unread_key`: objects with a say in policies that could not be read
    unlisted: frozenset[str] = frozenset()  # CLAIM, CLASS or NAMESPACE: none of these could be read
    ignorance: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """What only the node's own sidecar knows. The default is what is known from outside: nothing."""

    segment: Segment | None = None
    begun: frozenset[str] | None = None  # uids of claims for which something was begun in the driver; None: not known
    waited: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a claim without a volume: seconds since it was first seen to wait here. Others wait since they were made."""
    lately_used: frozenset[str] = frozenset()  # `namespace/name` of claims that a pod named a moment ago, or may have before the start
    listed: frozenset[str] = frozenset()  # handles that the driver lists
    untracked: tuple[str, ...] = ()  # handles of volumes that the driver has here and that have no PersistentVolume
    untracked_unknown: str = ""  # why there may be more of them: a driver need not be able to list its volumes
    not_listed: str = ""  # why the driver, which can list its volumes, has not said yet which it has here
    copies: Mapping[str, bool | None] = field(default_factory=lambda: MappingProxyType({}))
    """By name of a replicated resource: whether the only copy that is up to date is here; None: not known."""
    default_policy: Policy | None = None
    reprovisions: bool = False  # replicas whose policy is Reprovision are made anew; False also where that is not known


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node, one driver. The order of its tuples means nothing."""

    now: float
    driver: str
    node_name: str
    node: Node | None  # None: there is no such Node
    own: Own
    volumes: tuple[Volume, ...] = ()  # PersistentVolumes of this driver that are here, in whatever phase
    unplaced: tuple[Unplaced, ...] = ()
    claims: Mapping[str, Claim] = field(default_factory=lambda: MappingProxyType({}))  # by `namespace/name`: those that volumes name
    pods: tuple[Pod, ...] = ()  # of this node, ended ones included
    claimants: tuple[Pod, ...] = ()  # pods without a node, or of other nodes, that have not ended and name a claim of a volume that is here
    attached: frozenset[str] = frozenset()  # names of PersistentVolumes that are attached to this node
    contents: tuple[SnapshotContent, ...] = ()  # snapshots whose data is here
    in_flight: tuple[InFlight, ...] = ()
    classes: Mapping[str, Class] = field(default_factory=lambda: MappingProxyType({}))
    namespaces: Mapping[str, Notes] = field(default_factory=lambda: MappingProxyType({}))
    others: tuple[Node, ...] = ()
    capacities: tuple[CapacityRecord, ...] | None = None  # of this driver, all nodes'; None: not looked at
    unread: frozenset[str] = frozenset()
    ignorance: tuple[str, ...] = ()  # what should be known and could not be read: with any of this, neither verdict is True

    @property
    def running(self) -> list[Pod]:
        """Pods of the node that have not ended."""
        return [pod for pod in self.pods if not pod.ended]


def build(raw: Raw, node_name: str, driver: str, own: Own | None = None) -> Snapshot:
    own = own or Own()
    node = next((each for each in raw.nodes if each.name == node_name), None)
    others = tuple(each for each in raw.nodes if each.name != node_name)
    ours = [volume for volume in raw.volumes if volume.driver == driver]
    volumes, unplaced, unlisted = _placed(ours, node, others, raw, own)
    here = [pod for pod in raw.pods if pod.node == node_name]
    # It may have come here since it was listed without a node.
    come = {pod.uid for pod in here}
    waiting = [pod for pod in raw.pods if pod.node != node_name and pod.uid not in come and not pod.ended]
    claims = {claim.full_name: claim for claim in raw.claims}
    known = [*volumes, *(each.volume for each in unplaced if each.volume is not None)]
    refs = {volume.claim.full_name for volume in known if volume.claim is not None}
    handles = {volume.handle for volume in ours}
    at_hand = {volume.handle for volume in volumes}
    contents = [content for content in raw.contents if content.driver == driver]
    lost = [content for content in contents if not content.managed_by and content.source_handle not in handles]
    if CLAIM not in raw.unlisted:
        unlisted += _unseen(raw, node_name, driver, raw.gone | {volume.name for volume in raw.volumes})
    return Snapshot(
        now=raw.at,
        driver=driver,
        node_name=node_name,
        node=node,
        own=own,
        volumes=tuple(volumes),
        unplaced=(
            *unplaced,
            *(Unplaced(content.name, "it has no label that names its node, and its volume is gone", content.notes) for content in lost),
        ),
        claims=MappingProxyType({name: claims[name] for name in refs if name in claims}),
        pods=tuple(here),
        claimants=tuple(pod for pod in waiting if refs.intersection(pod.claim_names)),
        attached=frozenset(item.volume for item in raw.attachments if item.node == node_name),
        contents=tuple(
            content
            for content in contents
            if content.managed_by == node_name or (not content.managed_by and content.source_handle in at_hand)
        ),
        in_flight=tuple(_in_flight(raw, node_name, driver, own)),
        classes=MappingProxyType({class_.name: class_ for class_ in raw.classes}),
        namespaces=raw.namespaces,
        others=others,
        capacities=raw.capacities,
        unread=raw.unread | unread_of(raw.unlisted, known),
        ignorance=(*raw.ignorance, *unlisted),
    )


def _placed(
    ours: Iterable[Volume], node: Node | None, others: Iterable[Node], raw: Raw, own: Own
) -> tuple[list[Volume], list[Unplaced], list[str]]:
    if node is None:
        return [], [], []
    locator = Locator(node, others, segment=own.segment)
    here: list[Volume] = []
    unplaced: list[Unplaced] = []
    depending: list[str] = []
    for volume in ours:
        place = locator.place(volume, listed=volume.handle in own.listed)
        if place.where is Where.HERE:
            here.append(volume)
        elif place.where is Where.UNKNOWN and (resource := volume.handle.partition("/")[0]) in own.copies:
            # Its affinity says nothing of where its data is, and its storage does.
            if own.copies[resource]:
                here.append(volume)
            elif own.copies[resource] is None:
                why = "whether another node has a copy that is up to date is not known"
                unplaced.append(Unplaced(volume.name, why, volume.notes, volume))
        elif place.where is Where.UNKNOWN:
            unplaced.append(Unplaced(volume.name, place.why, volume.notes, volume))
        if not raw.others_known and place.where is not Where.ELSEWHERE and locator.needs_others(volume, listed=volume.handle in own.listed):
            depending.append(volume.name)
    unknown = [f"on which node {depending[0]} is depends on nodes that could not be listed"] if depending else []
    return here, unplaced, unknown


def _unseen(raw: Raw, node_name: str, driver: str, seen: Set[str]) -> list[str]:
    """A claim may be bound on this node to a volume that a list of volumes does not show yet: without it too little would block."""
    missing = sorted(
        claim.full_name
        for claim in raw.claims
        if claim.volume_name and claim.volume_name not in seen and claim.selected_node == node_name and claim.provisioner == driver
    )
    return [f"claim {missing[0]} is bound to a PersistentVolume that has not been seen yet"] if missing else []


def _in_flight(raw: Raw, node_name: str, driver: str, own: Own) -> Iterable[InFlight]:
    """Whoever may write a claim can have it name this node. So it counts only if something was begun for it, or for a while if it looks as
    if its volume could be made."""
    classes = {class_.name: class_ for class_ in raw.classes}
    for claim in raw.claims:
        if claim.volume_name or claim.selected_node != node_name or claim.provisioner != driver:
            continue
        begun = own.begun is not None and claim.uid in own.begun
        made = timestamps.to_seconds(claim.created)
        waited = own.waited.get(claim.uid, raw.at - made if made is not None else 0.0)
        class_ = classes.get(claim.class_name)
        possible = class_ is not None and class_.provisioner == driver and claim.requested is not None
        if begun or (possible and waited < LONGEST_WAIT and not (claim.has_selector or claim.deleting)):
            yield InFlight(claim, begun)


def unread_of(kinds: Set[str], volumes: Iterable[Volume]) -> frozenset[str]:
    """What of these volumes' claims, classes and namespaces could have said a policy, and was in a list that failed."""
    found: set[str] = set()
    for volume in volumes if kinds else ():
        names = {CLASS: volume.class_name}
        names |= {CLAIM: volume.claim.full_name, NAMESPACE: volume.claim.namespace} if volume.claim else {}
        found |= {unread_key(kind, name) for kind, name in names.items() if kind in kinds and name}
    return frozenset(found)
