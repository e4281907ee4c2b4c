"""A StatefulSet, as far as it matters here: which pods and claims it makes, whether it is rolled out, how far apart its pods want to be.

Whoever deletes a claim asks here first whether somebody makes it again: a claim that nobody makes again takes the application with it.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Claim
from sidecar.model.topology import Requirement

MOST_CLAIMS: Final = 32  # of one replica: each is read anew at every look, and stands in the record
_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LEAST_READY: Final = 10.0  # seconds: a pod that has been Ready for less may fall at once
_MUST: Final = "DoNotSchedule"
_PLAIN_TERM: Final = frozenset({"topologyKey", "labelSelector"})
_PLAIN_SPREAD: Final = frozenset({"topologyKey", "labelSelector", "maxSkew", "whenUnsatisfiable"})
_MOST_TERMS: Final = 20


@dataclass(frozen=True, slots=True)
class Apart:
    """In no domain of this label is more than so many pods that are selected: one for anti-affinity, as many as the skew for a spread."""

    key: str
    selector: tuple[Requirement, ...]
    skew: int | None = None  # None: anti-affinity


@dataclass(frozen=True, slots=True)
class StatefulSet:
    namespace: str
    name: str
    uid: str
    deleting: bool
    replicas: int
    start: int
    wishes: tuple[Claim, ...]  # what its claim templates ask for, by their names; without class for the default one
    ready_for: float  # seconds that a pod has to be Ready until it counts
    revision: str  # of its pods once it is rolled out; empty: its controller has not said it
    observed: bool  # its controller has seen the last change
    in_sync: str  # the type of the condition that its pods have when they have all their data; empty: its owner has named none
    template: Pod
    apart: tuple[Apart, ...]
    not_understood: str  # what its template asks for of nodes or claims that is not looked at here; empty: nothing

    def wants(self, pod: str) -> bool:
        """Whether a pod of this name is one of its replicas. Anybody may ask for two billion of them, so nobody goes through all."""
        text = pod.removeprefix(f"{self.name}-")
        return text != pod and _ORDINAL.fullmatch(text) is not None and self.start <= int(text) < self.start + self.replicas

    def missing(self, there: Container[str]) -> str:
        """The first of its pods that is not there; empty: none. After at most one look more than there are pods."""
        ordinals = range(self.start, self.start + self.replicas)
        return next((pod for pod in (f"{self.name}-{ordinal}" for ordinal in ordinals) if pod not in there), "")

    def claims_of(self, pod: str) -> frozenset[str]:
        return frozenset(f"{wish.name}-{pod}" for wish in self.wishes)

    def wish_for(self, claim: str, pod: str) -> Claim | None:
        return next((wish for wish in self.wishes if f"{wish.name}-{pod}" == claim), None)

    def replica_of(self, claim: str) -> str:
        """The pod that it makes this claim for, whether it wants that now or not; empty: it has no template for it."""
        for wish in self.wishes:
            pod = claim.removeprefix(f"{wish.name}-")
            if pod != claim and _ORDINAL.fullmatch(pod.removeprefix(f"{self.name}-")) and pod.startswith(f"{self.name}-"):
                return pod
        return ""

    def replica(self, pod: str) -> Pod:
        own = {names.POD_REVISION: self.revision, names.POD_NAME: pod, names.POD_INDEX: pod.rpartition("-")[2]}
        return replace(self.template, labels=MappingProxyType({**self.template.labels, **own}))

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "StatefulSet":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        template = spec.get("template") or {}
        pod = template.get("spec") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        asked = spec.get("volumeClaimTemplates") or ()
        apart, strange = _apart(pod)
        if len(asked) > MOST_CLAIMS:
            asked, strange = (), f"it has more than {MOST_CLAIMS} claim templates"
        replicas = spec.get("replicas")
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            deleting="deletionTimestamp" in meta,
            replicas=1 if replicas is None else max(_whole(replicas), 0),
            start=max(_whole((spec.get("ordinals") or {}).get("start")), 0),
            wishes=tuple(_wish(item) for item in asked),
            ready_for=max(float(_whole(spec.get("minReadySeconds"))), _LEAST_READY),
            revision=str(status.get("updateRevision") or ""),
            observed=_whole(status.get("observedGeneration")) >= _whole(meta.get("generation")),
            in_sync=str((meta.get("annotations") or {}).get(names.IN_SYNC_CONDITION) or "").strip(),
            template=Pod.of({"metadata": {"name": meta["name"], "labels": labels}, "spec": pod}),
            apart=apart,
            not_understood=strange,
        )


def is_of_statefulset(pod: Pod) -> bool:
    owner = pod.owner
    return owner is not None and owner.kind == names.STATEFUL_SET and owner.api_version.startswith(f"{names.APPS_GROUP}/")


# --- who makes a claim again ------------------------------------------------------------------------------------------


def who_makes_again(claim: str, namespace: str, sets: Iterable[StatefulSet], *, of_pod: bool, said: str | None) -> tuple[str, str]:
    """Who, and if nobody does, why not. `said`: what the claim's annotation says by which a person vouches for somebody else."""
    if of_pod:
        return "", "it belongs to its pod, and goes with that"
    if said == "true":
        return f"whoever has annotated it with {names.ALLOW_CLAIM_DELETION}: true", ""
    for each in sets:
        pod = each.replica_of(claim) if each.namespace == namespace else ""
        if not pod:
            continue
        if each.deleting:
            return "", f"StatefulSet {each.name} is being deleted"
        if not each.wants(pod):
            # The claim of a replica that is not wanted is left to the set's own retention policy.
            return "", f"StatefulSet {each.name} does not want replica {pod} any more"
        return f"StatefulSet {each.name}, for {pod}", ""
    return "", "no StatefulSet has a template for it"


# --- how far apart its pods want to be --------------------------------------------------------------------------------


def shut_out(wanted: StatefulSet, pod: str, pods: Iterable[Pod], nodes: Iterable[Node]) -> Mapping[str, str]:
    """By name of a node that does not take this replica beside the others: why. `pods` are the others of its namespace.

    Three replicas that may not share a node need a fourth node: where none is, the replica would wait for one without its data.
    """
    nodes, labels, found = tuple(nodes), wanted.replica(pod).labels, dict[str, str]()
    others = [other for other in pods if other.node and not other.ended and other.name != pod]
    for term in wanted.apart:
        domains = {node.name: node.labels[term.key] for node in nodes if term.key in node.labels}
        there = Counter(domains[other.node] for other in others if other.node in domains and _selects(term, other.labels))
        if term.skew is None:
            full = {domain for domain, number in there.items() if number}
        else:
            fewest = min((there[domain] for domain in domains.values()), default=0)
            full = {domain for domain in domains.values() if there[domain] + int(_selects(term, labels)) - fewest > term.skew}
            found |= {node.name: f"it has no label {term.key}" for node in nodes if term.key not in node.labels}
        why = "another replica is there" if term.skew is None else "more replicas are there than elsewhere"
        found |= {node: f"{term.key}={domain}: {why}" for node, domain in domains.items() if domain in full}
    return found


def _selects(term: Apart, labels: Mapping[str, str]) -> bool:
    return bool(term.selector) and all(requirement.holds(labels) for requirement in term.selector)


def _apart(pod: Mapping[str, Any]) -> tuple[tuple[Apart, ...], str]:
    """And what of it is not understood: anything but a label and a selector over the set's own namespace."""
    terms = ((pod.get("affinity") or {}).get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    spreads = [item for item in pod.get("topologySpreadConstraints") or () if item.get("whenUnsatisfiable", _MUST) == _MUST]
    if len(terms) + len(spreads) > _MOST_TERMS:
        return (), "more terms of anti-affinity and spread than are looked at"
    for item, plain in (*((term, _PLAIN_TERM) for term in terms), *((item, _PLAIN_SPREAD) for item in spreads)):
        if strange := sorted(key for key, value in item.items() if value is not None and key not in plain):
            return (), f"{', '.join(strange)} in required anti-affinity or spread"
    found = [Apart(str(term.get("topologyKey") or ""), _selector(term.get("labelSelector"))) for term in terms]
    found += [
        Apart(str(item.get("topologyKey") or ""), _selector(item.get("labelSelector")), max(_whole(item.get("maxSkew")), 1))
        for item in spreads
    ]
    return tuple(found), ""


def _selector(said: Mapping[str, Any] | None) -> tuple[Requirement, ...]:
    labels = tuple(Requirement(key, "In", (value,)) for key, value in ((said or {}).get("matchLabels") or {}).items())
    return labels + tuple(
        Requirement(item.get("key", ""), item.get("operator", ""), tuple(item.get("values") or ()))
        for item in (said or {}).get("matchExpressions") or ()
    )


def _wish(template: Mapping[str, Any]) -> Claim:
    meta = template.get("metadata") or {}
    said = {"uid": "", "name": str(meta.get("name") or ""), "annotations": meta.get("annotations")}
    return Claim.of({"metadata": said, "spec": template.get("spec") or {}})


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
