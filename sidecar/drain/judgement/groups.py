"""Which volumes go together: those of one pod go to one node, and to none if another volume of the pod has to stay."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sidecar.drain.judgement.free_space import FreeSpace
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.vocabulary import Intent, Policy, VolumeClass
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.topology import Term

EXCLUDED_SHOWN: Final = 10

PodDemand = tuple[tuple[Toleration, ...], tuple[tuple[str, str], ...], tuple[Term, ...] | None]
"""What a pod asks of its node: tolerations, node selector, required affinity."""
GroupKind = tuple[frozenset[PodDemand], frozenset[str]]
"""The demands of a group's pods and the classes of its volumes: groups of one kind have the same nodes to choose from."""


def may_go(held: LocalItem) -> bool:
    return held.class_ in (VolumeClass.IN_USE, VolumeClass.IDLE) and held.moves and not held.shared


def _keeps_pods(held: LocalItem) -> bool:
    """It stays here, and its data may not be lost."""
    return held.in_use and not held.moves and not (held.retire and held.retire.policy is Policy.IGNORE)


@dataclass(frozen=True, slots=True)
class Group:
    """Volumes that go to one node or to none, the largest first, and their pods."""

    volumes: tuple[LocalItem, ...]
    kind: GroupKind
    bound: tuple[tuple[str, str], ...]
    """(volume, why): the volumes that keep one of its pods here, and with it the group; no more than are shown."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(item.name for item in self.volumes))

    @property
    def demand(self) -> tuple[tuple[str, int], ...]:
        return tuple((item.storage_class, item.bytes) for item in self.volumes)

    @property
    def needs(self) -> FreeSpace:
        return FreeSpace(self.volumes[0].bytes, sum(item.bytes for item in self.volumes))


def joined(groups: Iterable[Group], kind: GroupKind) -> Group:
    """Several of one kind as if they had to go together."""
    return Group(_in_order(item for group in groups for item in group.volumes), kind, ())


def groups_of(held: Sequence[LocalItem]) -> list[Group]:
    """In the order in which they are placed. Pods that share a volume go together."""
    volumes = [item for item in held if may_go(item)]
    parent = {item.name: item.name for item in volumes}
    first: dict[str, str] = {}
    for item in volumes:
        for pod in item.use.everybody:
            parent[_root(parent, item.name)] = _root(parent, first.setdefault(pod.full_name, item.name))
    together: dict[str, list[LocalItem]] = defaultdict(list)
    for item in volumes:
        together[_root(parent, item.name)].append(item)
    bound: dict[str, dict[str, str]] = defaultdict(dict)
    for item in filter(_keeps_pods, held):
        # A pod that no drain evicts moves nowhere, so it keeps no volume from moving.
        for pod in (pod for pod in item.use.everybody if pod.full_name in first and not pod.stays):
            why = f"its policy {_policies(item)} keeps it here, and pod {pod.full_name} with it"
            bound[_root(parent, first[pod.full_name])].setdefault(item.name, why)
    groups = [_group(members, bound.get(root, {})) for root, members in together.items()]
    return sorted(groups, key=lambda group: (-group.needs.total, group.names))


def _root(parent: dict[str, str], name: str) -> str:
    while parent[name] != name:
        parent[name] = parent[parent[name]]
        name = parent[name]
    return name


def _policies(held: LocalItem) -> str:
    by_intent = {intent: resolved.policy for intent in Intent if (resolved := held.policy(intent))}
    return held.fixed_policy or " and ".join(f"{policy} ({intent})" for intent, policy in by_intent.items())


def _group(members: Iterable[LocalItem], bound: Mapping[str, str]) -> Group:
    volumes = _in_order(members)
    pod_demands = frozenset(_pod_demand(pod) for item in volumes for pod in item.use.everybody)
    classes = frozenset(item.storage_class for item in volumes)
    return Group(volumes, (pod_demands, classes), tuple(islice(bound.items(), EXCLUDED_SHOWN)))


def _in_order(members: Iterable[LocalItem]) -> tuple[LocalItem, ...]:
    return tuple(sorted(members, key=lambda item: (-item.bytes, item.storage_class, item.name)))


def _pod_demand(pod: Pod) -> PodDemand:
    return pod.tolerations, tuple(sorted(pod.node_selector.items())), pod.affinity
