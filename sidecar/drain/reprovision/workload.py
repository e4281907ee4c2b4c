"""A StatefulSet, as far as it matters for making a replica anew: which pods and claims it makes, and whether it is being rolled out."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from sidecar.drain.reprovision.record import MOST_CLAIMS
from sidecar.drain.reprovision.spread import Spread
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim

_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LEAST_READY: Final = 10.0
"""Seconds: a pod that has been Ready for less may fall at once."""


@dataclass(frozen=True, slots=True)
class Workload:
    uid: str
    name: str
    deleting: bool
    replicas: int
    start: int
    templates: tuple[str, ...]
    """Names of its claim templates."""
    ready_for: float
    """Seconds that a pod has to be Ready until it counts."""
    revision: str
    """Of its pods once it is rolled out; empty: its controller has not said it."""
    observed: bool
    """Its controller has seen the last change."""
    template: Pod
    """What its pods ask for. `replica` has the labels of one."""
    wishes: tuple[Claim, ...] = ()
    """What its claim templates ask for, by the names of `templates`; without class for the default one."""
    spread: Spread = field(default_factory=Spread)
    """How far they want to be from each other."""
    ordered: bool = False
    """A pod is made only once all before it are ready."""
    excess: str = ""
    """Why its claim templates are not looked at, and `templates` and `wishes` are empty: for each a class would be read at every look."""
    one_by_one: bool = False
    """Its rollout takes away one pod at a time, and waits until that is ready again."""
    in_sync: str = ""
    """The type of the condition that its pods have when they have all their data; empty: its owner has named none."""

    def pod(self, ordinal: int) -> str:
        return f"{self.name}-{ordinal}"

    def wants(self, pod: str) -> bool:
        """Whether a pod of this name is one of its replicas. Anybody may ask for two billion of them, so nobody goes through all."""
        text = pod.removeprefix(f"{self.name}-")
        return text != pod and _ORDINAL.fullmatch(text) is not None and self.start <= int(text) < self.start + self.replicas

    def missing(self, there: Container[str]) -> str:
        """The first of its pods that is not there; empty: none. After at most one look more than there are pods."""
        ordinals = range(self.start, self.start + max(self.replicas, 0))
        return next((pod for pod in map(self.pod, ordinals) if pod not in there), "")

    def replica(self, pod: str) -> Pod:
        """As it will be made."""
        own = {names.POD_REVISION: self.revision, names.POD_NAME: pod, names.POD_INDEX: pod.rpartition("-")[2]}
        return replace(self.template, labels=MappingProxyType({**self.template.labels, **own}))

    def claims_of(self, pod: str) -> frozenset[str]:
        """That it makes for this pod."""
        return frozenset(f"{template}-{pod}" for template in self.templates)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Workload":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        template = spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        asked = spec.get("volumeClaimTemplates") or ()
        wishes = tuple(_wish(item) for item in asked) if len(asked) <= MOST_CLAIMS else ()
        replicas = spec.get("replicas")
        return cls(
            uid=meta.get("uid", ""),
            name=meta["name"],
            deleting="deletionTimestamp" in meta,
            replicas=1 if replicas is None else _whole(replicas),
            start=_whole((spec.get("ordinals") or {}).get("start")),
            templates=tuple(wish.name for wish in wishes),
            wishes=wishes,
            ready_for=max(float(_whole(spec.get("minReadySeconds"))), _LEAST_READY),
            revision=str(status.get("updateRevision") or ""),
            observed=_whole(status.get("observedGeneration")) >= _whole(meta.get("generation")),
            ordered=spec.get("podManagementPolicy") != "Parallel",
            one_by_one=_is_one_by_one(spec.get("updateStrategy") or {}),
            template=Pod.of({"metadata": {"name": meta["name"], "labels": labels}, "spec": template.get("spec") or {}}),
            spread=Spread.of(template),
            in_sync=str((meta.get("annotations") or {}).get(names.IN_SYNC_CONDITION) or "").strip(),
            excess=f"it has {len(asked)} claim templates, and at most {MOST_CLAIMS} are looked at" if len(asked) > MOST_CLAIMS else "",
        )


def is_supported(pod: Pod) -> bool:
    owner = pod.owner
    return owner is not None and owner.kind == names.STATEFUL_SET and owner.api_version.startswith(f"{names.APPS_GROUP}/")


def _wish(template: Mapping[str, Any]) -> Claim:
    meta = template.get("metadata") or {}
    said = {"uid": "", "name": str(meta.get("name") or ""), "annotations": meta.get("annotations")}
    return Claim.of({"metadata": said, "spec": template.get("spec") or {}})


def _is_one_by_one(strategy: Mapping[str, Any]) -> bool:
    most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    return strategy.get("type", "RollingUpdate") == "RollingUpdate" and _whole(most) == 1


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
