"""Which nodes the other pods leave to a replica that is made anew: by required anti-affinity, and by topology spread that must be kept.

Three replicas that may not share a node need a fourth node: where none is, the replica would wait for one without its data. Looked at are
the pods of its own namespace. Processors, memory, affinity to other pods, and what other pods ask for are left to the scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.placement import places
from sidecar.drain.judgement.pod_fates import counts_as_gone
from sidecar.drain.judgement.volumes import classify
from sidecar.frozen import frozen
from sidecar.model.nodes import Node, Pod
from sidecar.model.topology import Requirement

_MUST: Final = "DoNotSchedule"
_MOST: Final = 3
"""Nodes that are told of."""

Selector = tuple[Requirement, ...] | None
"""Requirements on labels that must all hold; None selects nothing."""


@frozen
class Apart:
    """A term of required anti-affinity: in no domain where such a pod is."""

    key: str
    selector: Selector


@frozen
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


@frozen
class Spread:
    """What a StatefulSet's template asks for."""

    apart: tuple[Apart, ...] = ()
    even: tuple[Even, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """Of its pods."""

    @classmethod
    def of(cls, template: Mapping[str, Any]) -> "Spread":
        spec = template.get("spec") or {}
        terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        return cls(
            apart=tuple(Apart(str(term.get("topologyKey") or ""), _selector(term.get("labelSelector"))) for term in terms or ()),
            even=tuple(
                _even(item) for item in spec.get("topologySpreadConstraints") or () if item.get("whenUnsatisfiable", _MUST) == _MUST
            ),
            labels=tuple(sorted(((template.get("metadata") or {}).get("labels") or {}).items())),
        )


def nowhere(spread: Spread, wanted: Pod, *, pods: Iterable[Pod], claims: Set[str], snapshot: Snapshot) -> str:
    """Why no node that the others leave has room for the volumes of these claims, by uid; empty: one has, or all nodes are left.

    `wanted` says what the template asks of a node, `pods` are all others of the namespace.
    """
    around, node = snapshot.surroundings, snapshot.node
    if around is None or node is None:
        return ""
    out = shut_out(spread, wanted, pods=pods, nodes=(*around.nodes, node))
    left = tuple(other for other in around.nodes if other.name not in out)
    if len(left) == len(around.nodes):
        return ""
    running = [pod for pod in snapshot.pods if not pod.ended and not counts_as_gone(pod, snapshot)]
    held = [item for item in classify(snapshot, running) if item.object.uid in claims]
    found = places(held, surroundings=replace(around, nodes=left), classes=snapshot.classes)
    if found and all(place.node for place in found):
        return ""
    why = dict(pair for place in found for pair in place.excluded)
    why |= {other.name: out[other.name] for other in around.nodes if other.name in out}
    return "; ".join(f"{name}: {said}" for name, said in sorted(why.items())[:_MOST])


def shut_out(spread: Spread, wanted: Pod, *, pods: Iterable[Pod], nodes: Iterable[Node]) -> Mapping[str, str]:
    """By name of a node that does not take one more of its pods: why. `nodes` are all, this one among them."""
    nodes = tuple(nodes)
    there = tuple(pod for pod in pods if pod.node and not pod.ended)
    found: dict[str, str] = {}
    for apart in spread.apart:
        found |= _by_anti_affinity(apart, there, nodes)
    for even in spread.even:
        found |= _by_spread(even, spread, wanted, there, nodes)
    return found


def _by_anti_affinity(apart: Apart, pods: Iterable[Pod], nodes: tuple[Node, ...]) -> Mapping[str, str]:
    domains = {node.name: node.labels.get(apart.key) for node in nodes}
    # The first pod of a domain stands for all.
    taken = {domains[pod.node]: pod for pod in pods if domains.get(pod.node) is not None and _holds(apart.selector, pod.labels)}
    return {
        node: f"anti-affinity: {taken[domain].full_name} has the same {apart.key}" for node, domain in domains.items() if domain in taken
    }


def _by_spread(even: Even, spread: Spread, wanted: Pod, pods: Iterable[Pod], nodes: tuple[Node, ...]) -> Mapping[str, str]:
    counted = {node.name: node.labels[even.key] for node in nodes if even.key in node.labels and _counts(even, node, wanted)}
    here = Counter(
        counted[pod.node] for pod in pods if pod.node in counted and not pod.deleting_since and _holds(even.selector, pod.labels)
    )
    numbers = {domain: here[domain] for domain in counted.values()}
    fewest = min(numbers.values(), default=0) if len(numbers) >= even.domains else 0
    itself = int(_holds(even.selector, dict(spread.labels)))
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


def _holds(selector: Selector, labels: Mapping[str, str]) -> bool:
    return selector is not None and all(requirement.holds(labels) for requirement in selector)


def _even(item: Mapping[str, Any]) -> Even:
    skew, domains = item.get("maxSkew"), item.get("minDomains")
    return Even(
        key=str(item.get("topologyKey") or ""),
        selector=_selector(item.get("labelSelector")),
        skew=skew if isinstance(skew, int) else 1,
        domains=domains if isinstance(domains, int) else 1,
        affinity=item.get("nodeAffinityPolicy", "Honor") != "Ignore",
        taints=item.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _selector(said: Mapping[str, Any] | None) -> Selector:
    if said is None:
        return None
    labels = tuple(Requirement(key, "In", (value,)) for key, value in (said.get("matchLabels") or {}).items())
    expressions = said.get("matchExpressions") or ()
    return labels + tuple(
        Requirement(item.get("key", ""), item.get("operator", ""), tuple(item.get("values") or ())) for item in expressions
    )
