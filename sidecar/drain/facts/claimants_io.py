"""Finds pods elsewhere that name claims of volumes here: pods without a node, which may come here, and pods of other nodes.

They are listed, and not watched: a watch of all pods without a node brings every pod of the cluster to every node, twice, and most nodes
have no volume whose judgement depends on it (hack/benchmarks tells the figures). Asked are only the namespaces of claims that are here and
that no pod of this node names.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.kube.api import PODS, KubeApi, records
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

_UNSCHEDULED: Final = "spec.nodeName="


class Claimants:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, recent: RecentUse) -> None:
        self._kube = kube
        self._asking = asking
        self._recent = recent
        self._asked_for: dict[str, frozenset[str]] = {}
        """By question: the names of the claims for which the pods were kept."""

    async def of(self, claims: Iterable[str], *, observed: bool) -> tuple[Pod, ...]:
        """`claims` (`namespace/name`) have their volume here, and no pod of this node names them.

        While somebody empties the node a pod that was bound to another node by hand counts as well, and the API server itself is asked,
        not its cache. Of a node in peace only pods without a node are looked for.
        """
        found: list[Pod] = []
        for namespace, wanted in sorted(_by_namespace(claims).items()):
            what = f"pods of namespace {namespace}" if observed else f"pods of namespace {namespace} that have no node"
            settled = max(self._recent.settled_at(f"{namespace}/{claim}") for claim in wanted)
            not_before = settled if wanted <= self._asked_for.get(what, frozenset()) else float("inf")
            listed = await self._asking.ask(
                what,
                lambda: self._naming(what, namespace, wanted, observed=observed),  # noqa: B023
                not_before=not_before,
            )
            found += [pod for pod in listed or () if wanted.intersection(pod.claims)]
        return tuple(found)

    async def _naming(self, what: str, namespace: str, wanted: frozenset[str], *, observed: bool) -> tuple[Pod, ...]:
        """Of a namespace's pods only these are kept: it may have thousands."""
        self._asked_for = {key: names for key, names in self._asked_for.items() if self._asking.knows(key)} | {what: wanted}

        def naming(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return pod if wanted.intersection(pod.claims) else None

        which = "" if observed else _UNSCHEDULED
        pods = records(self._kube, PODS, naming, namespace=namespace, field_selector=which, cached=not observed)
        every_pod = [pod async for pod in pods]
        found = tuple(pod for pod in every_pod if not pod.ended)
        for pod in found:
            self._recent.named(pod)
        return found


def _by_namespace(claims: Iterable[str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for claim in claims:
        namespace, _, name = claim.partition("/")
        found[namespace].add(name)
    return {namespace: frozenset(names) for namespace, names in found.items()}
