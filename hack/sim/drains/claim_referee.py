"""Records each deletion of a claim by a sidecar as it is carried out, and holds it against `claim_deletions`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.deletion import Options
from hack.sim.drains.claim_deletions import ClaimDeletion, Replica, faults
from hack.sim.drains.replicas import ReplicaReferee, is_whole
from hack.sim.drains.sender import SENDER
from hack.sim.drains.truth import RETIRE, said
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins import stateful_set_objects as objects
from sidecar.kube.api import CLAIMS, LEASES, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

CLAIM_DELETED: Final = "claim deleted"
LEFT_BEHIND: Final = "left behind"
_LEASE: Final = "reprovision-"
ALLOW: Final = "--allow-reprovision"


class ClaimReferee:
    """Stands before the API server. `asked` says how many seconds ago somebody wanted a node to be retired last."""

    def __init__(self, world: "DrainWorld", replicas: ReplicaReferee, *, asked: Callable[[str], float], late: float) -> None:
        self._world, self._replicas, self._asked, self._late = world, replicas, asked, late
        self._delete = world.cluster.delete
        self.seen: list[ClaimDeletion] = []
        world.cluster.delete = self._judge  # type: ignore[method-assign]

    def left_behind(self) -> list[str]:
        """To be asked at rest: marks on claims, and Leases of workloads, whose machine is not being retired."""
        found = []
        for claim in self._world.cluster.store.all_of(CLAIMS):
            mark = (claim["metadata"].get("annotations") or {}).get(names.REPROVISIONED_BY)
            if mark is not None and self._asked(mark.partition("/")[0]) > 0.0:
                found.append(f"{claim['metadata']['name']} has the mark of {mark}, which is not being retired")
        for lease in self._world.cluster.store.all_of(LEASES):
            meta = lease["metadata"]
            nodes = [owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == names.NODE]
            if meta["name"].startswith(_LEASE) and all(self._asked(node) > 0.0 for node in nodes):
                found.append(f"the Lease {meta['name']} of {', '.join(nodes) or 'nobody'} is there, and nothing is made anew for it")
        return found

    def _judge(self, resource: Resource, name: str, *, namespace: str = "", options: Options | None = None) -> Any:
        claim = self._world.cluster.store.find(CLAIMS, name, namespace) if resource == CLAIMS else None
        tried = options is not None and options.dry_run
        if claim is None or tried or not SENDER.get() or claim["metadata"].get("deletionTimestamp"):
            return self._delete(resource, name, namespace=namespace, options=options)
        seen = self.record(claim, options or Options())
        answer = self._delete(resource, name, namespace=namespace, options=options)
        self.seen.append(seen)
        self._world.transcript.tell(seen.sender, f"deleted the claim {name}")
        for wrong in faults(seen):
            self._world.found(CLAIM_DELETED, f"{name} was deleted by {seen.sender}: {wrong}")
        return answer

    def record(self, claim: Json, options: Options) -> ClaimDeletion:
        """As everything is now."""
        self._replicas.look()
        sender, store = SENDER.get(), self._world.cluster.store
        node, full = store.find(NODES, sender), f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        users = [pod["spec"].get("nodeName") for pod in store.all_of(PODS) if full in claims_of(pod)]
        workload, ordinal = self._maker(claim)
        return ClaimDeletion(
            sender=sender,
            sender_uid=node["metadata"]["uid"] if node else "",
            claim=claim,
            workload=workload,
            ordinal=ordinal,
            policy=self._policy(claim),
            allowed=ALLOW in self._world.plan.args,
            rolling=self._replicas.rolling(workload["metadata"]["uid"], ordinal) if workload else 0.0,
            preconditions={"uid": options.uid, "resourceVersion": options.resource_version},
            users=tuple(filter(None, users)),
            others=tuple(self._others(workload, ordinal)) if workload else (),
            asked=self._asked(sender),
            snapshots=tuple(self._snapshots(claim)),
            late=self._late,
        )

    def _maker(self, claim: Json) -> tuple[Json | None, int]:
        """The set whose name and template the claim's name is made of, and which ordinal it is for."""
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            meta, number = workload["metadata"], name.rpartition("-")[2]
            if meta["namespace"] != namespace or meta.get("deletionTimestamp") or not number.isdigit():
                continue
            if any(made["metadata"]["name"] == name for made in objects.claims_of(workload, int(number)).values()):
                return workload, int(number)
        return None, -1

    def _others(self, workload: Json, ordinal: int) -> list[Replica]:
        uid, found = workload["metadata"]["uid"], []
        for other in objects.ordinals(workload):
            if other != ordinal:
                name = f"{workload['metadata']['name']}-{other}"
                pod = self._world.cluster.store.find(PODS, name, workload["metadata"]["namespace"])
                own = pod if pod and uid in {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()} else None
                away, by_us = self._replicas.away(uid, other)
                claims = frozenset(each.partition("/")[2] for each in claims_of(own)) if own else frozenset()
                found.append(Replica(name, (own or {}).get("spec", {}).get("nodeName", ""), is_whole(own), away, by_us, claims))
        return found

    def _policy(self, claim: Json) -> str:
        scene = self._world.truth.look()
        volume = next((item for item in scene.volumes if item["metadata"]["name"] == claim["spec"].get("volumeName")), None)
        return said(scene, volume, claim, RETIRE, heeded=self._world.heeds_tenants).policy if volume else ""

    def _snapshots(self, claim: Json) -> list[str]:
        volume = self._world.cluster.store.find(VOLUMES, claim["spec"].get("volumeName") or "")
        handle = volume["spec"]["csi"]["volumeHandle"] if volume else ""
        return [
            item["metadata"]["name"]
            for item in self._world.cluster.store.all_of(SNAPSHOT_CONTENTS)
            if item["spec"].get("source", {}).get("volumeHandle") == handle
            and not (item["metadata"].get("annotations") or {}).get(names.ACKNOWLEDGED)
        ]
