"""Holds each eviction by a sidecar against the truth at the moment it arrives: whom it hits, and whether anybody still asks for it."""

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Final

from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, NODES, PODS, Resource
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

WRONG_EVICTION: Final = "wrong eviction"
BY: Final = {"example.com/by": "drainer"}
"""The label of evictions that are not a sidecar's."""
_HEEDED: Final = 15.0
"""Seconds until a sidecar heeds another word of an owner."""


class EvictionReferee:
    """Stands before the API server."""

    def __init__(self, world: "DrainWorld", *, slack: float = 0.0, losable: Container[str] = ("Ignore",)) -> None:
        """`slack`: seconds by which all that a sidecar hears may be late. `losable`: policies with which a pod's data may be lost."""
        self._world = world
        self._heeded = _HEEDED + slack
        self._losable = losable
        self._post = world.cluster.post
        self._allowed: dict[str, float] = {}
        """By claim: when its policy let it go last."""
        self.count = 0
        world.cluster.post = self._judge  # type: ignore[method-assign]

    def sample(self) -> None:
        """Who may leave now."""
        for claim in self._world.cluster.store.all_of(CLAIMS):
            notes = claim["metadata"].get("annotations") or {}
            if (notes.get(names.DRAIN_POLICY_RETIRE) or notes.get(names.DRAIN_POLICY) or "") in self._losable:
                self._allowed[claim["metadata"]["uid"]] = self._world.clock()

    def _judge(self, resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        found = self._world.cluster.store.find(PODS, name, namespace)
        if subresource != "eviction" or (body["metadata"].get("labels") or {}) == BY:
            return self._post(resource, name, subresource, body, namespace=namespace)
        self.count += 1
        self.sample()
        options = body.get("deleteOptions") or {}
        found = found if found and _is_hit(options, found) else None
        for wrong in self._faults(options, found):
            self._world.found(WRONG_EVICTION, f"{namespace}/{name}: {wrong}")
        return self._carry_out(found, lambda: self._post(resource, name, subresource, body, namespace=namespace))

    def _carry_out(self, pod: Json | None, evict: Callable[[], Json]) -> Json:
        """`pod` is the one that is hit if nothing forbids it."""
        return evict()

    def node_of(self, pod: Json) -> str:
        """Where it is; of one without a node, where the volume is that was made for it alone."""
        if node := pod["spec"].get("nodeName"):
            return str(node)
        claims = self._world.cluster.store.all_of(CLAIMS)
        owned = (each for each in claims if pod["metadata"]["uid"] in {ref["uid"] for ref in each["metadata"].get("ownerReferences") or ()})
        volumes = {claim["spec"].get("volumeName") for claim in owned}
        return next((name for name, node in self._world.nodes.items() if volumes & {each.name for each in node.driver.volumes()}), "")

    def _faults(self, options: Mapping[str, Any], pod: Json | None) -> list[str]:
        """`pod` is the one that it hits."""
        wrong = []
        if not (options.get("preconditions") or {}).get("uid"):
            wrong.append("it names no uid")
        if "gracePeriodSeconds" in options:
            wrong.append("it takes the pod's grace period")
        if pod is None:
            return wrong
        if not pod["spec"].get("nodeName") and not (options.get("preconditions") or {}).get("resourceVersion"):
            wrong.append("it has no node, and may get one at any moment: which version of it was looked at is not said")
        node = self._world.cluster.store.find(NODES, self.node_of(pod))
        if node is None or not self._is_evacuated(node):
            wrong.append("nobody asks for its node to be emptied")
        wrong += [f"{other} is leaving" for other in self._leaving(pod)]
        wrong += [f"its claim {claim} may not be lost" for claim in self._kept(pod)]
        return wrong

    def _is_evacuated(self, node: Json) -> bool:
        asked = any(taint["key"] == names.EVACUATE_TAINT for taint in node["spec"].get("taints") or ())
        labels, notes = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
        asked = asked or names.DRAIN_INTENT in notes or bool(node["spec"].get("unschedulable"))
        return asked and labels.get(names.of_driver(DRIVER, names.EVACUATION_STATE)) == "InProgress"

    def _leaving(self, pod: Json) -> list[str]:
        """Others of its node that were asked to end and are still there. A pod without a node leaves none."""
        if not pod["spec"].get("nodeName"):
            return []
        there = (each for each in self._world.cluster.store.all_of(PODS) if each["spec"].get("nodeName") == pod["spec"].get("nodeName"))
        others = (each["metadata"] for each in there if each["metadata"]["uid"] != pod["metadata"]["uid"])
        return [meta["name"] for meta in others if meta.get("deletionTimestamp")]

    def _kept(self, pod: Json) -> list[str]:
        used = [
            volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"].get("volumes") or () if "persistentVolumeClaim" in volume
        ]
        claims = [self._world.cluster.store.find(CLAIMS, name, pod["metadata"]["namespace"]) for name in used]
        now = self._world.clock()
        return [
            claim["metadata"]["name"]
            for claim in claims
            if claim is not None and now - self._allowed.get(claim["metadata"]["uid"], float("-inf")) > self._heeded
        ]


def _is_hit(options: Mapping[str, Any], pod: Json) -> bool:
    """If no budget forbids it."""
    only, meta = options.get("preconditions") or {}, pod["metadata"]
    return only.get("uid") in (None, meta["uid"]) and only.get("resourceVersion") in (None, meta["resourceVersion"])
