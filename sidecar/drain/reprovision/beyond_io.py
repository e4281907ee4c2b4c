"""Reads the pods of other namespaces that a StatefulSet's anti-affinity concerns, from the API server itself."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sidecar.drain.reprovision.facts import labels_of
from sidecar.drain.reprovision.spread import Apart, Selector, as_query, takes_place
from sidecar.drain.reprovision.workload import Workload
from sidecar.kube.api import NAMESPACES, PODS, KubeApi, find, records
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

# Seconds for which the labels of a namespace are taken for those that it has. On a large cluster hundreds may have such pods, and this
# program may not list namespaces; what was asked in a pass that took too long serves the next one.
_LABELS_SERVE: Final = 300.0


class Beyond:
    def __init__(self, kube: KubeApi, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._labels: dict[str, tuple[float, Mapping[str, str]]] = {}
        """By name of a namespace: when it was asked for, and what it had."""

    async def of(self, workload: Workload, home: str) -> Mapping[Apart, tuple[Pod, ...]]:
        """As `Facts.beyond`. Pods of one place that two terms select alike are listed once. Raises ApiError."""
        found: dict[Apart, tuple[Pod, ...]] = {}
        lists: dict[tuple[str, Selector], tuple[Pod, ...]] = {}
        self._labels = {name: each for name, each in self._labels.items() if self._clock() - each[0] < _LABELS_SERVE}
        for apart in dict.fromkeys(each for each in workload.spread.apart if each.reaches_out):
            pods: list[Pod] = []
            for where in sorted(set(apart.namespaces) - {home}) if apart.of_namespaces is None else [""]:
                if (where, apart.selector) not in lists:
                    lists[where, apart.selector] = await self._selected(apart, where)
                pods += (pod for pod in lists[where, apart.selector] if pod.namespace != home)
            asked = {pod.namespace for pod in pods} - set(apart.namespaces) if apart.asks_for_labels else set[str]()
            labels = {namespace: await self._labels_of(namespace) for namespace in sorted(asked)}
            found[apart] = tuple(pod for pod in pods if apart.concerns(pod.namespace, labels.get(pod.namespace, {})))
        return MappingProxyType(found)

    async def _selected(self, apart: Apart, namespace: str) -> tuple[Pod, ...]:
        """Pods on nodes, of this namespace or of all, that its selector may select, whatever depends on the replica."""

        def selected(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return pod if takes_place(pod) and apart.may_select(pod.labels) else None

        if apart.selector is None:
            return ()
        found = records(self._kube, PODS, selected, namespace=namespace, label_selector=as_query(apart.selector))
        return tuple([pod async for pod in found])

    async def _labels_of(self, namespace: str) -> Mapping[str, str]:
        if namespace not in self._labels:
            stored = await find(self._kube, NAMESPACES, namespace)
            self._labels[namespace] = self._clock(), labels_of(stored) if stored else {}
        return self._labels[namespace][1]
