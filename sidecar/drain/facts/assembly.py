"""Builds the snapshot of one driver on one node from facts: one set of rules for the two sources that supply them.

`lookups` supplies the facts of a running sidecar, `cluster_listing` those of anybody who asks from outside. A rule that only one of
them followed would let the report and `explain node` disagree about the same cluster.
"""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.drain.facts.locations import doubt_about
from sidecar.drain.facts.snapshot import InFlight, Snapshot, Surroundings
from sidecar.drain.vocabulary import Policy
from sidecar.model import timestamps
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Json, Notes, Volume, notes_of
from sidecar.model.topology import Requirement

# Seconds for which a claim counts for which nothing was begun. What could be made is begun within seconds, or given to another node.
LONGEST_WAIT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source knows of one driver on one node. More claims, classes and contents than count are welcome: `assemble` chooses."""

    driver: str
    node_name: str
    node: Node | None
    volumes: tuple[Volume, ...]
    """PersistentVolumes of the driver that are on this node and on no other."""
    doubtful: tuple[str, ...]
    """Names of volumes that may be here: the node lacks labels that they ask for."""
    claims: tuple[Claim, ...]
    """At least those of `volumes` and those whose volume is to be created here. Of two with one name the later one counts."""
    pods: tuple[Pod, ...]
    contents: tuple[SnapshotContent, ...]
    classes: tuple[Class, ...]
    namespace_policies: Mapping[str, Notes]
    budgets: tuple[Budget, ...] | None
    """None: they could not be read."""
    surroundings: Surroundings | None
    """None: not looked at, or not to be read."""
    unread: frozenset[str]
    """As `Snapshot.unread`."""
    ignorance: tuple[str, ...]
    claimants: tuple[Pod, ...] = ()
    """Pods without a node, or of other nodes. `assemble` chooses those that count."""
    attached: frozenset[str] = frozenset()
    """As `Snapshot.attached`; so are the next ones."""
    lately_used: frozenset[str] = frozenset()
    lately_named: frozenset[str] = frozenset()
    lately_left: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By claim among `lately_used`: seconds for which it still counts."""
    shared_with: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    renamed: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    foreign: tuple[Volume, ...] = ()
    unplaced_contents: tuple[SnapshotContent, ...] = ()
    unplaced: tuple[tuple[Volume, Claim | None], ...] = ()
    unheeded_namespaces: frozenset[str] = frozenset()
    begun: frozenset[str] | None = None
    """Uids of claims for which something was begun in the driver; None: not known, as from outside."""
    not_listed: str = ""
    """As `Snapshot.not_listed`."""
    waited: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a claim without a volume: seconds since it was first seen to wait here. Others are taken to wait since they were made."""


def assemble(facts: Facts, *, now: float, default_policy: Policy | None = None) -> Snapshot:
    """What only the node's own sidecar knows (untracked volumes, volumes never used) keeps its default; its caller adds it."""
    doubt = (doubt_about(sorted(facts.doubtful)),) if facts.doubtful else ()
    return Snapshot(
        now=now,
        driver=facts.driver,
        node_name=facts.node_name,
        node=facts.node,
        volumes=facts.volumes,
        claims=MappingProxyType({claim.full_name: claim for claim in _of_volumes(facts)}),
        pods=facts.pods,
        claimants=tuple(_claimants(facts)),
        attached=facts.attached,
        lately_used=facts.lately_used,
        lately_named=facts.lately_named,
        lately_until=MappingProxyType({claim: now + left for claim, left in facts.lately_left.items()}),
        shared_with=facts.shared_with,
        renamed=facts.renamed,
        hidden=facts.hidden,
        foreign=facts.foreign,
        not_listed=facts.not_listed,
        contents=tuple(_contents(facts)),
        unplaced_contents=facts.unplaced_contents,
        unplaced=facts.unplaced,
        classes=MappingProxyType({class_.name: class_ for class_ in _classes(facts)}),
        in_flight=tuple(_in_flight(facts, now)),
        namespace_policies=facts.namespace_policies,
        unheeded_namespaces=facts.unheeded_namespaces,
        default_policy=default_policy,
        budgets=facts.budgets,
        surroundings=facts.surroundings,
        unread=facts.unread,
        ignorance=(*facts.ignorance, *doubt),
    )


def is_unseen(claim: Claim, *, node_name: str, seen: Container[str]) -> bool:
    """The claim is bound on this node to a volume that is not among `seen`: it has not been shown yet, or it is gone."""
    return bool(claim.volume_name) and claim.selected_node == node_name and claim.volume_name not in seen


def content_lies_here(content: SnapshotContent, *, node_name: str, handles: Set[tuple[str, str]]) -> bool:
    """Not every snapshotter labels contents with their node: those without a label are where their source is.

    `handles` are the (driver, handle) of the volumes that lie here.
    """
    return content.managed_by == node_name or (content.driver, content.source_handle) in handles


def policy_namespaces(volumes: Iterable[Volume]) -> list[str]:
    """The namespaces whose policy counts. A namespace may be gone while volumes that were kept still name it."""
    return sorted({volume.claim.namespace for volume in volumes if volume.claim is not None})


def namespace_notes(namespace: Json | None) -> Notes:
    """Where a namespace says its policies. An empty text is not the same as none: somebody wrote it, and it is judged as a wrong word."""
    return notes_of(((namespace or {}).get("metadata") or {}).get("annotations"))


def namespace_is_heeded(namespace: Json | None, heeded: Iterable[Requirement]) -> bool:
    """Whether a namespace's own word for Block, and that of its claims, counts: its labels have to fit `--drain-tenant-policies`."""
    labels: Mapping[str, str] = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    return all(requirement.holds(labels) for requirement in heeded)


def _of_volumes(facts: Facts) -> Iterable[Claim]:
    """All claims that go by the name which a volume notes, bound or not: only from the claim itself can `volumes` tell a later one.

    A claim whose volume may yet be created here counts from the moment on that the volume names it.
    """
    refs = [volume.claim for volume in facts.volumes if volume.claim is not None]
    uids, full_names = {ref.uid for ref in refs}, {ref.full_name for ref in refs}
    named = (claim for claim in facts.claims if claim.full_name in full_names)
    return (claim for claim in named if claim.uid in uids or not _may_be_created_here(claim, facts))


def _may_be_created_here(claim: Claim, facts: Facts) -> bool:
    return not claim.volume_name and claim.provisioner == facts.driver and claim.selected_node in ("", facts.node_name)


def _claimants(facts: Facts) -> Iterable[Pod]:
    """A pod may have come here since it was listed elsewhere."""
    named = {(volume.claim.namespace, volume.claim.name) for volume in facts.volumes if volume.claim is not None}
    here = {pod.full_name for pod in facts.pods}
    others = (pod for pod in facts.claimants if not pod.ended and pod.node != facts.node_name and pod.full_name not in here)
    return (pod for pod in others if any((pod.namespace, claim) in named for claim in pod.claims))


def _in_flight(facts: Facts, now: float) -> Iterable[InFlight]:
    """Whoever may write a claim can have it name this node. So it counts only if something was begun for it, or for a while if it looks as
    if its volume could be made."""
    classes = {class_.name: class_ for class_ in facts.classes}
    for claim in facts.claims:
        if claim.volume_name or claim.selected_node != facts.node_name or claim.provisioner != facts.driver:
            continue
        begun = claim.uid in (facts.begun or ())
        if begun or (could_succeed(claim, classes.get(claim.class_name)) and _has_waited(claim, facts, now) < LONGEST_WAIT):
            yield InFlight(claim.uid, claim.namespace, claim.name, claim.class_name, claim.requested or 0, begun=begun)


def _has_waited(claim: Claim, facts: Facts, now: float) -> float:
    created = timestamps.to_seconds(claim.created)
    return facts.waited.get(claim.uid, 0.0 if created is None else now - created)


def could_succeed(claim: Claim, class_: Class | None) -> bool:
    """Nothing in the claim keeps its driver from making a volume for it. Whether there is room for it only the driver knows."""
    made_by = class_ is not None and class_.provisioner == claim.provisioner
    return made_by and claim.requested is not None and not (claim.has_selector or claim.deleting)


def _contents(facts: Facts) -> Iterable[SnapshotContent]:
    handles = {(volume.driver, volume.handle) for volume in facts.volumes}
    ours = (content for content in facts.contents if content.driver == facts.driver)
    return (content for content in ours if content_lies_here(content, node_name=facts.node_name, handles=handles))


def _classes(facts: Facts) -> Iterable[Class]:
    """The class of a volume that people made names no driver, and its policy counts all the same."""
    named = {volume.class_name for volume in facts.volumes}
    return (class_ for class_ in facts.classes if class_.provisioner == facts.driver or class_.name in named)
