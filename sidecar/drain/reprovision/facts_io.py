"""Reads what the locks look at, from the API server itself and from no cache, for one replica."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType

from sidecar.drain.emptying import rivals
from sidecar.drain.reprovision.beyond_io import Beyond
from sidecar.drain.reprovision.facts import Facts, FoundClaim, ends, keeping, labels_of
from sidecar.drain.reprovision.record import Target
from sidecar.drain.reprovision.workload import Workload
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SNAPSHOT_CONTENTS,
    STATEFUL_SETS,
    VOLUMES,
    KubeApi,
    Resource,
    find,
    records,
)
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Class, Json, Volume, notes_of


class Reading:
    """For one node. Whatever cannot be read is raised as ApiError: then nothing is decided."""

    def __init__(self, kube: KubeApi, node: str, driver: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._beyond = Beyond(kube, clock=clock)
        self._node = node
        self._driver = driver

    async def facts(self, target: Target, *, users: Set[str], rivals_matter: bool = True) -> Facts:
        """`users` are the uids of pods of this node with a volume of this driver."""
        namespace = target.namespace
        pods = await self._pods(namespace)
        pod = next((pod for pod in pods if pod.name == target.pod), None)
        wanted = {claim.name for claim in target.claims} | (set(keeping(pod)) if pod else set())
        found = await self._claims(namespace, sorted(wanted))
        of_set = await self._workload(target)
        said = await self._namespace(namespace)
        classes, default = await self._classes(found.values(), of_set)
        there = pod is not None and pod.uid == target.pod_uid and bool(pod.node) and not pod.deleting_since
        return Facts(
            pods=pods,
            leaving=await self._leaving(users),
            workload=of_set,
            claims=found,
            classes=classes,
            default_class=default,
            namespace=said.namespace,
            namespace_ends=said.namespace_ends,
            labels=said.labels,
            beyond=await self._beyond.of(of_set, namespace) if of_set else MappingProxyType({}),
            budgets=await self._budgets(namespace) if there else (),
            emptied=await self._emptied() if there and rivals_matter else frozenset(),
        )

    async def replacement(self, target: Target) -> Facts:
        """As little as shows whether it is Ready: it is asked for again and again."""
        pod, workload = await asyncio.gather(self._find(PODS, target.pod, namespace=target.namespace), self._workload(target))
        return Facts(pods=(Pod.of(pod),) if pod else (), workload=workload)

    async def newer(self, target: Target, facts: Facts) -> Facts:
        """With the replicas and their StatefulSet as they are now."""
        pods, workload = await asyncio.gather(self._pods(target.namespace), self._workload(target))
        return replace(facts, pods=pods, workload=workload)

    async def claim(self, namespace: str, name: str) -> FoundClaim | None:
        """Without its volume."""
        stored = await self._find(CLAIMS, name, namespace=namespace)
        return FoundClaim.of(stored, None) if stored else None

    async def snapshots(self, handles: Set[str]) -> tuple[SnapshotContent, ...]:
        """Of volumes with these handles. No snapshots are installed where there is no such type."""

        def of(obj: Json) -> SnapshotContent | None:
            content = SnapshotContent.of(obj)
            return content if content.driver == self._driver and content.source_handle in handles else None

        try:
            return tuple([content async for content in records(self._kube, SNAPSHOT_CONTENTS, of)])
        except NotFound:
            return ()

    async def _pods(self, namespace: str) -> tuple[Pod, ...]:
        return tuple([pod async for pod in records(self._kube, PODS, Pod.of, namespace=namespace)])

    async def _workload(self, target: Target) -> Workload | None:
        found = await self._find(STATEFUL_SETS, target.workload, namespace=target.namespace)
        return Workload.of(found) if found else None

    async def _claims(self, namespace: str, wanted: Iterable[str]) -> Mapping[str, FoundClaim]:
        found: dict[str, FoundClaim] = {}
        for name in wanted:
            stored = await self._find(CLAIMS, name, namespace=namespace)
            if stored is not None:
                volume = str((stored.get("spec") or {}).get("volumeName") or "")
                of_volume = await self._find(VOLUMES, volume) if volume else None
                found[name] = FoundClaim.of(stored, Volume.of(of_volume) if of_volume else None)
        return MappingProxyType(found)

    async def _classes(self, claims: Iterable[FoundClaim], workload: Workload | None) -> tuple[Mapping[str, Class], str]:
        """By name, and the name of the default one, if a template leaves it to that."""
        wishes = workload.wishes if workload else ()
        default = await self._default_class() if any(not wish.class_name for wish in wishes) else ""
        wanted = {each.volume.class_name for each in claims if each.volume} | {wish.class_name for wish in wishes} | {default}
        found = {name: await self._find(CLASSES, name) for name in sorted(wanted) if name}
        return MappingProxyType({name: Class.of(stored) for name, stored in found.items() if stored}), default

    async def _default_class(self) -> str:
        """Of several the one that was made last, as the API server chooses."""

        def default(obj: Json) -> tuple[str, str] | None:
            meta = obj["metadata"]
            said = (meta.get("annotations") or {}).get(names.DEFAULT_CLASS)
            return (str(meta.get("creationTimestamp") or ""), meta["name"]) if said == "true" else None

        found = [each async for each in records(self._kube, CLASSES, default)]
        return max(found, key=lambda each: each[0], default=("", ""))[1]

    async def _namespace(self, name: str) -> Facts:
        """What is said there, and nothing else."""
        found = await self._find(NAMESPACES, name)
        if found is None:
            return Facts(namespace_ends=True)
        return Facts(namespace=notes_of(found["metadata"].get("annotations")), namespace_ends=ends(found), labels=labels_of(found))

    async def _budgets(self, namespace: str) -> tuple[Budget, ...]:
        return tuple([budget async for budget in records(self._kube, BUDGETS, Budget.of, namespace=namespace)])

    async def _emptied(self) -> frozenset[str]:
        found = records(self._kube, NODES, Node.of, label_selector=rivals.selector(self._driver))
        return frozenset([node.name async for node in found]) - {self._node}

    async def _leaving(self, users: Set[str]) -> tuple[str, ...]:
        """A pod that was evicted a moment ago may not show in the watch yet."""
        here = records(self._kube, PODS, Pod.of, field_selector=f"spec.nodeName={self._node}")
        return tuple([pod.full_name async for pod in here if pod.deleting_since and pod.uid in users])

    async def _find(self, resource: Resource, name: str, *, namespace: str = "") -> Json | None:
        return await find(self._kube, resource, name, namespace=namespace)
