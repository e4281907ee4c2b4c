"""Which nodes the other pods leave to a replica that is made anew: by required anti-affinity, and by topology spread that must be kept.

Three replicas that may not share a node need a fourth node: where none is, the replica would wait for one without its data. Processors,
memory, affinity to other pods, and what other pods ask for are left to the scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.placement import places
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.model.nodes import Node, Pod
from sidecar.model.topology import Requirement

_MUST: Final = "DoNotSchedule"
_MOST: Final = 3
"""Nodes that are told of."""
_MOST_TERMS: Final = 20
_MOST_WORDS: Final = 400
_MOST_NAMESPACES: Final = 20
"""For each its pods are read at every look."""
_MOST_WIDE: Final = 2
"""For each the API server searches all pods of the cluster at every look."""

_LONGEST_QUERY: Final = 2048
"""Characters. A selector in an object may be longer than servers and proxies take in a request's first line."""

Selector = tuple[Requirement, ...] | None
"""Requirements on labels that must all hold; None selects nothing."""


@dataclass(frozen=True, slots=True)
class Apart:
    """A term of required anti-affinity: in no domain where such a pod is."""

    key: str
    selector: Selector
    alike: tuple[str, ...] = ()
    """Labels in which such a pod is besides like the replica."""
    unlike: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    of_namespaces: Selector = None
    """Namespaces whose labels are such count as well."""

    @property
    def reaches_out(self) -> bool:
        """It concerns not simply the namespace of the replica."""
        return bool(self.namespaces) or self.of_namespaces is not None

    @property
    def asks_for_labels(self) -> bool:
        """Of namespaces. A selector without any requirement selects them all."""
        return bool(self.of_namespaces)

    def concerns(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """`labels` are the namespace's."""
        return not self.reaches_out or namespace in self.namespaces or _holds(self.of_namespaces, labels)

    def may_select(self, labels: Mapping[str, str]) -> bool:
        """Whatever depends on the labels of the replica."""
        return _holds(self.selector, labels)

    def selects(self, labels: Mapping[str, str]) -> Selector:
        """With what depends on the labels of the replica."""
        return _with(self.selector, labels, alike=self.alike, unlike=self.unlike)


@dataclass(frozen=True, slots=True)
class Even:
    """A topology spread constraint that keeps the pod waiting."""

    key: str
    selector: Selector
    skew: int
    domains: int
    """How many there have to be; with fewer, the emptiest counts as empty."""
    affinity: bool
    """Only nodes that the pod's node selector and affinity allow count."""
    taints: bool
    """Only nodes whose taints the pod tolerates count."""
    alike: tuple[str, ...] = ()
    """Labels in which the pods that are counted are besides like the replica."""

    def selects(self, labels: Mapping[str, str]) -> Selector:
        """As of `Apart`."""
        return _with(self.selector, labels, alike=self.alike)


@dataclass(frozen=True, slots=True)
class Spread:
    """What a StatefulSet's template asks for."""

    apart: tuple[Apart, ...] = ()
    even: tuple[Even, ...] = ()
    excess: str = ""
    """Why nothing of it is looked at: it asks for so much that each look would take long, or many requests. Empty: it is."""

    @classmethod
    def of(cls, template: Mapping[str, Any]) -> "Spread":
        spec = template.get("spec") or {}
        terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        apart = tuple(_apart(term) for term in terms or ())
        even = tuple(_even(item) for item in spec.get("topologySpreadConstraints") or () if item.get("whenUnsatisfiable", _MUST) == _MUST)
        excess = _excess(apart, even)
        return cls(excess=excess) if excess else cls(apart, even)


@dataclass(frozen=True, slots=True)
class Others:
    """The pods that are there."""

    pods: tuple[Pod, ...]
    """All others of the namespace."""
    namespace: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Its labels."""
    beyond: Mapping[Apart, tuple[Pod, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Those of other namespaces that a term concerns."""


def nowhere(held: Iterable[LocalItem], *, out: Mapping[str, str], snapshot: Snapshot) -> str:
    """Why no node that is not `out` has room for these volumes; empty: one has, or where they could go was not looked at."""
    around = snapshot.surroundings
    if around is None:
        return ""
    left = tuple(other for other in around.nodes if other.name not in out)
    found = places(held, surroundings=replace(around, nodes=left), classes=snapshot.classes)
    if left and all(place.node for place in found):
        return ""
    why = dict(pair for place in found for pair in place.excluded)
    why |= {other.name: out[other.name] for other in around.nodes if other.name in out}
    return "; ".join(f"{name}: {said}" for name, said in sorted(why.items())[:_MOST]) or _shortfall(found)


def _shortfall(found: Iterable[Place]) -> str:
    missing = max((place.shortfall for place in found), default=0)
    return f"{missing} bytes are missing on the node that comes closest"


def shut_out(spread: Spread, wanted: Pod, *, others: Others, nodes: Iterable[Node]) -> Mapping[str, str]:
    """By name of a node that does not take one more of its pods: why. `nodes` are all, this one among them."""
    nodes = tuple(nodes)
    there = tuple(filter(takes_place, others.pods))
    found: dict[str, str] = {}
    for apart in spread.apart:
        home = there if there and apart.concerns(there[0].namespace, others.namespace) else ()
        beyond = filter(takes_place, others.beyond.get(apart, ()))
        found |= _by_anti_affinity(apart, wanted, (*home, *beyond), nodes)
    # A node that lacks the label of one of the constraints counts for none of them.
    counted = tuple(node for node in nodes if all(even.key in node.labels for even in spread.even))
    for even in spread.even:
        found |= _by_spread(even, wanted, there, nodes, counted=counted)
    return found


def takes_place(pod: Pod) -> bool:
    """It counts where others may not be beside it."""
    return bool(pod.node) and not pod.ended


def _by_anti_affinity(apart: Apart, wanted: Pod, pods: Iterable[Pod], nodes: tuple[Node, ...]) -> Mapping[str, str]:
    domains = {node.name: node.labels.get(apart.key) for node in nodes}
    selector = apart.selects(wanted.labels)
    # The first pod of a domain stands for all.
    taken = {domains[pod.node]: pod for pod in pods if domains.get(pod.node) is not None and _holds(selector, pod.labels)}
    return {
        node: f"anti-affinity: {taken[domain].full_name} has the same {apart.key}" for node, domain in domains.items() if domain in taken
    }


def _by_spread(even: Even, wanted: Pod, pods: Iterable[Pod], nodes: Iterable[Node], *, counted: Iterable[Node]) -> Mapping[str, str]:
    selector = even.selects(wanted.labels)
    domains = {node.name: node.labels[even.key] for node in counted if _counts(even, node, wanted)}
    # A selector without any requirement selects the replica itself, and the scheduler counts no pod for it.
    there = pods if selector else ()
    here = Counter(domains[pod.node] for pod in there if pod.node in domains and not pod.deleting_since and _holds(selector, pod.labels))
    numbers = {domain: here[domain] for domain in domains.values()}
    fewest = min(numbers.values(), default=0) if len(numbers) >= even.domains else 0
    itself = int(_holds(selector, wanted.labels))
    found: dict[str, str] = {}
    for node in nodes:
        domain = node.labels.get(even.key)
        if domain is None:
            found[node.name] = f"topology spread: it has no label {even.key}"
        elif numbers.get(domain, 0) + itself - fewest > even.skew:
            found[node.name] = f"topology spread: {even.key}={domain} has {numbers.get(domain, 0)} of these pods, and another one {fewest}"
    return found


def _counts(even: Even, node: Node, wanted: Pod) -> bool:
    if even.taints and not wanted.tolerates(node.taints):
        return False
    if not even.affinity:
        return True
    selected = all(node.labels.get(key) == value for key, value in wanted.node_selector.items())
    return selected and (wanted.affinity is None or any(term.matches(node.name, node.labels) for term in wanted.affinity))


def as_query(selector: Iterable[Requirement]) -> str:
    """So that the API server leaves out most of what these do not select. It may select more: what is long or unusual is not said."""
    parts: list[str] = []
    for part in filter(None, map(_as_query, selector)):
        if sum(map(len, parts)) + len(part) <= _LONGEST_QUERY:
            parts.append(part)
    return ",".join(parts)


def _as_query(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" | "NotIn" if values and all(values):
            return f"{key} {requirement.operator.lower()} ({','.join(values)})"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return ""


def _holds(selector: Selector, labels: Mapping[str, str]) -> bool:
    return selector is not None and all(requirement.holds(labels) for requirement in selector)


def _with(selector: Selector, labels: Mapping[str, str], *, alike: Iterable[str], unlike: Iterable[str] = ()) -> Selector:
    """A label that the replica has not is not looked at."""
    if selector is None:
        return None
    more = [Requirement(key, "In", (labels[key],)) for key in alike if key in labels]
    return (*selector, *more, *(Requirement(key, "NotIn", (labels[key],)) for key in unlike if key in labels))


def _excess(apart: tuple[Apart, ...], even: tuple[Even, ...]) -> str:
    """Whoever may write a template may write a megabyte of it."""
    selectors = [each.selector for each in apart] + [each.of_namespaces for each in apart] + [each.selector for each in even]
    for number, most, what in (
        (len(apart) + len(even), _MOST_TERMS, "terms of required anti-affinity and topology spread"),
        (sum(1 + len(item.values) for selector in selectors for item in selector or ()), _MOST_WORDS, "words in the selectors of these"),
        (sum(len(each.namespaces) for each in apart), _MOST_NAMESPACES, "namespaces that anti-affinity names"),
        (sum(each.of_namespaces is not None for each in apart), _MOST_WIDE, "terms of anti-affinity that select namespaces"),
    ):
        if number > most:
            return f"{number} {what} are more than the {most} that are looked at"
    return ""


def _apart(term: Mapping[str, Any]) -> Apart:
    return Apart(
        key=str(term.get("topologyKey") or ""),
        selector=_selector(term.get("labelSelector")),
        alike=tuple(term.get("matchLabelKeys") or ()),
        unlike=tuple(term.get("mismatchLabelKeys") or ()),
        namespaces=tuple(term.get("namespaces") or ()),
        of_namespaces=_selector(term.get("namespaceSelector")),
    )


def _even(item: Mapping[str, Any]) -> Even:
    skew, domains = item.get("maxSkew"), item.get("minDomains")
    return Even(
        key=str(item.get("topologyKey") or ""),
        selector=_selector(item.get("labelSelector")),
        skew=skew if isinstance(skew, int) else 1,
        domains=domains if isinstance(domains, int) else 1,
        affinity=item.get("nodeAffinityPolicy", "Honor") != "Ignore",
        taints=item.get("nodeTaintsPolicy", "Ignore") == "Honor",
        alike=tuple(item.get("matchLabelKeys") or ()),
    )


def _selector(said: Mapping[str, Any] | None) -> Selector:
    if said is None:
        return None
    labels = tuple(Requirement(key, "In", (value,)) for key, value in (said.get("matchLabels") or {}).items())
    expressions = said.get("matchExpressions") or ()
    return labels + tuple(
        Requirement(item.get("key", ""), item.get("operator", ""), tuple(item.get("values") or ())) for item in expressions
    )
