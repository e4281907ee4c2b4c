"""Holds what sidecars touch of other machines against the truth: where the bytes are, whether that machine has its Node, who gave it up.

A second reading of the promise, which shares no rule with the product. It stands before the API server and sees each request as it arrives.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.deletion import Options
from hack.sim.drains.node_loss_plan import CLEANUP
from hack.sim.drains.sender import SENDER
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins import stateful_set_objects as objects
from sidecar.kube.api import CAPACITIES, CLAIMS, CSI_NODES, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.node_loss_world import NodeLossWorld

TOUCHED: Final = "existing node touched"
NO_EVIDENCE: Final = "no evidence"
WRONG_CLAIM: Final = "claim lost"
KEPT_GOES: Final = "kept goes"
NOT_ASKED: Final = "not looked for anew"
_MANAGER: Final = "external-provisioner-"


class LossReferee:
    """`late`: seconds between the last look and the moment at which a request arrives."""

    def __init__(self, world: "NodeLossWorld", *, late: float) -> None:
        self._world, self._late = world, late
        self.effects = 0
        """On what other machines have left."""
        self._missed: set[tuple[str, str]] = set()
        """Sidecars by node that were told that there is no such Node, and have touched nothing since."""
        cluster = world.cluster
        self._delete: Callable[..., Any] = cluster.delete
        self._patch: Callable[..., Any] = cluster.patch
        cluster.delete, cluster.patch = self._on_delete, self._on_patch  # type: ignore[method-assign]

    # --- requests -------------------------------------------------------------------------------------------------------

    def _on_delete(self, resource: Resource, name: str, *, namespace: str = "", options: Options | None = None) -> Any:
        found, sender = self._world.cluster.store.find(resource, name, namespace), SENDER.get()

        def doing() -> Any:
            return self._delete(resource, name, namespace=namespace, options=options)

        if found is None or not sender:
            return doing()
        given = options or Options()
        if resource == CLAIMS:
            conditions = bool(given.uid and given.resource_version)
            return self._effect(found, lambda: self._claim_deleted(found, sender, conditions=conditions), doing)
        if resource == VOLUMES and self._is_anothers(found, sender):
            return self._effect(found, lambda: self._volume_touched(found, sender), doing)
        if resource == CAPACITIES:
            self._capacity_deleted(found, sender)
        if resource in (PODS, SNAPSHOT_CONTENTS):
            self._world.found(KEPT_GOES, f"{resource} {name} was deleted by {sender}")
        return doing()

    def _on_patch(self, resource: Resource, name: str, patch: Any, *, namespace: str = "", **rest: Any) -> Any:
        found, sender = self._world.cluster.store.find(resource, name, namespace), SENDER.get()

        def doing() -> Any:
            return self._patch(resource, name, patch, namespace=namespace, **rest)

        meta = patch.get("metadata") or {} if isinstance(patch, dict) else {}
        if found is None or not sender:
            return doing()
        if resource == VOLUMES and "finalizers" in meta and self._is_anothers(found, sender):
            return self._effect(found, lambda: self._volume_touched(found, sender), doing)
        if resource == CLAIMS and (meta.get("annotations") or {}).get(names.LOST_WITH):
            return self._effect(found, lambda: self._claim_touched(found, sender), doing)
        return doing()

    def _effect(self, found: Json, judge: Callable[[], list[tuple[str, str]]], doing: Callable[[], Any]) -> Any:
        """The verdict holds only if it is carried out."""
        self.effects += 1
        meta, sender = found["metadata"], SENDER.get()
        deaths = self._world.at_effects
        how = deaths.pop(0) if deaths else ""
        if how == "before" and sender in self._world.nodes:
            self._world.nodes[sender].kill()
        wrong = judge()
        answer = doing()
        self._world.transcript.tell(sender, f"has written on {meta['name']}, which another machine had")
        for kind, text in wrong:
            self._world.found(kind, f"{meta['name']}, by {sender}: {text}")
        if how == "after" and sender in self._world.nodes:
            self._world.nodes[sender].kill()
        return answer

    def driver_deleted(self, sender: str, handle: str) -> None:
        """The driver of that node was asked to delete a volume, and has said yes."""
        volumes = self._world.cluster.store.all_of(VOLUMES)
        volume = next((item for item in volumes if (item["spec"].get("csi") or {}).get("volumeHandle") == handle), None)
        if volume is None or not self._is_anothers(volume, sender):
            return
        self.effects += 1
        for kind, text in self._volume_touched(volume, sender):
            self._world.found(kind, f"{volume['metadata']['name']}, by the driver of {sender}: {text}")

    def node_read(self, sender: str, name: str) -> None:
        """That sidecar asks for that Node at this moment."""
        if self._world.cluster.store.find(NODES, name) is None:
            self._missed.add((sender, name))
        else:
            self._missed.discard((sender, name))

    # --- verdicts -------------------------------------------------------------------------------------------------------

    def _claim_deleted(self, claim: Json, sender: str, *, conditions: bool) -> list[tuple[str, str]]:
        found = self._claim_touched(claim, sender)
        meta = claim["metadata"]
        full = f"{meta['namespace']}/{meta['name']}"
        users = [pod["metadata"]["name"] for pod in self._pods() if pod["spec"].get("nodeName") and full in claims_of(pod)]
        users = [name for name in users if not self._world.is_new(PODS, name, self._late)]
        found += [(WRONG_CLAIM, f"pod {name} with a node uses it") for name in users]
        found += [] if conditions else [(WRONG_CLAIM, "it is deleted whatever it is by now")]
        if not (meta.get("annotations") or {}).get(names.LOST_WITH):
            found.append((WRONG_CLAIM, "it does not say with which machine it was lost"))
        return found + ([] if self.is_made_again(claim) else [(WRONG_CLAIM, "nobody makes it again")])

    def _claim_touched(self, claim: Json, sender: str) -> list[tuple[str, str]]:
        volume = self.volume_of(claim)
        return self._of_machine(volume, sender) if volume is not None else [(WRONG_CLAIM, "its volume is not there")]

    def _volume_touched(self, volume: Json, sender: str) -> list[tuple[str, str]]:
        found = self._of_machine(volume, sender)
        policy, phase = volume["spec"].get("persistentVolumeReclaimPolicy"), (volume.get("status") or {}).get("phase")
        return found + ([] if (policy, phase) == ("Delete", "Released") else [(KEPT_GOES, f"it is {phase}, and its policy {policy}")])

    def _of_machine(self, volume: Json, sender: str) -> list[tuple[str, str]]:
        name = self.machine_of(volume)
        if not name:
            return []  # its bytes are gone: nothing is lost with it
        asked = (sender, name) in self._missed
        self._missed.discard((sender, name))
        lost = self._world.lost.get(name)
        if lost is None or any(self._world.cluster.store.find(each, name) for each in (NODES, CSI_NODES)):
            if self._world.is_new(NODES, name, self._late) or self._world.is_new(CSI_NODES, name, self._late):
                return []  # it came while the request was on its way
            return [(TOUCHED, f"it is on {name}, which is there")]
        if not asked and not self._world.strays:
            return [(NOT_ASKED, f"it was on {name}, and nobody has looked for that node since the last such request")]
        if CLEANUP not in self._world.plan.args:
            return [(NO_EVIDENCE, f"it was on {name}, and the policy is Orphan")]
        return [] if lost.given_up else [(NO_EVIDENCE, f"it was on {name}, and nobody has said that its disks do not come back")]

    def _capacity_deleted(self, obj: Json, sender: str) -> None:
        node = (obj["metadata"].get("labels") or {}).get("csi.storage.k8s.io/managed-by", "").removeprefix(_MANAGER)
        there = self._world.cluster.store.find(NODES, node)
        if node != sender and there is not None and not self._world.is_new(NODES, node, self._late):
            self._world.found(TOUCHED, f"the capacity of {node} was deleted by {sender}, and {node} is there")

    # --- the truth ------------------------------------------------------------------------------------------------------

    def machine_of(self, volume: Json | None) -> str:
        """The name of the machine that has the bytes, whether it is there or lost; empty: none has."""
        handle = ((volume or {}).get("spec", {}).get("csi") or {}).get("volumeHandle")
        everybody = {**{name: lost.node for name, lost in self._world.lost.items()}, **self._world.nodes}
        return next((name for name, node in everybody.items() if any(held.id == handle for held in node.driver.volumes())), "")

    def is_made_again(self, claim: Json) -> bool:
        meta = claim["metadata"]
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            if workload["metadata"].get("deletionTimestamp"):
                continue
            ordinals = range(self._world.most_replicas(workload, self._late))
            made = {each["metadata"]["name"] for ordinal in ordinals for each in objects.claims_of(workload, ordinal).values()}
            if meta["name"] in made:
                return True
        return False

    def volume_of(self, claim: Json) -> Json | None:
        return self._world.cluster.store.find(VOLUMES, claim["spec"].get("volumeName") or "")

    def _is_anothers(self, volume: Json, sender: str) -> bool:
        return self.machine_of(volume) not in ("", sender)

    def _pods(self) -> Iterable[Json]:
        return self._world.cluster.store.all_of(PODS)
