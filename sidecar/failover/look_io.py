"""Asks the API server, anew each time, for what may have to fail over: pods of one node, their claims, volumes and attachments.

Nothing here is kept but what only time can show: since when a kubelet's Lease has not changed. Nobody asks anything while all is well.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sidecar.drain.marks import NodePolicy, read
from sidecar.failover.evidence import Fact, resource_of
from sidecar.failover.survivor import Cluster
from sidecar.failover.unit import MANY, READ_ONLY, Attached, PodVolume, Said, Unit, Victim, is_remediated, said_of, writes_to
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, CSI_NODES, LEASES, NAMESPACES, NODES, PODS, VOLUMES, KubeApi, find, records
from sidecar.model import timestamps
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json, Volume

SATELLITE: Final = "app.kubernetes.io/component=linstor-satellite"
# Another program that fails over by what DRBD shows: by its operator, and by its chart.
_RIVALS: Final = ("app.kubernetes.io/component=ha-controller", "app.kubernetes.io/name=piraeus-ha-controller")
_KUBELETS: Final = "kube-node-lease"

Proof = Callable[[str, Victim], Fact]
"""Whether the victim cannot write to the volume of this handle, by what is known at this moment."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod of the victim, or, without one, a volume that is attached there and that no pod there uses."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    volume: str = ""

    @property
    def named(self) -> str:
        return f"{self.namespace}/{self.pod}" if self.pod else self.volume


class Looks:
    def __init__(self, kube: KubeApi, driver: str, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._kube, self._driver, self._clock, self._wall = kube, driver, clock, wall
        self._leases: dict[str, tuple[str, float]] = {}  # by node: its kubelet's last sign, and since when this process sees that one

    # --- the victim -----------------------------------------------------------------------------------------------------

    async def node_of(self, peer: str, namespace: str) -> str:
        """The Node that the storage calls so: by its name, or as that of a pod of the storage's own there; empty: not known. In other
        namespaces than the sidecar's anybody may name a pod so."""
        if await find(self._kube, NODES, peer) is not None:
            return peer
        found = [pod async for pod in records(self._kube, PODS, Pod.of, namespace=namespace, label_selector=SATELLITE) if pod.name == peer]
        return found[0].node if len(found) == 1 else ""

    async def victim(self, name: str) -> Victim | None:
        """None: there is no such Node."""
        stored = await find(self._kube, NODES, name)
        if stored is None:
            self._leases.pop(name, None)
            return None
        node = Node.of(stored)
        marks = read(node, self._driver, now=self._wall(), policy=NodePolicy.IGNORE)
        maintained = "it is cordoned" if marks.cordoned else "somebody has announced that it is emptied" if marks.drain_expected else ""
        boot_id = str(((stored.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
        return Victim(node, boot_id, await self._silent_for(node), is_remediated(node), maintained)

    async def _silent_for(self, node: Node) -> float:
        """By what this process has seen alone: no clock of another machine counts. 0: not known."""
        lease = await find(self._kube, LEASES, node.name, namespace=_KUBELETS)
        renewed = ((lease or {}).get("spec") or {}).get("renewTime")
        if not renewed:
            self._leases.pop(node.name, None)
            return 0.0
        sign = f"{node.uid}/{renewed}"
        if self._leases.get(node.name, ("", 0.0))[0] != sign:
            self._leases[node.name] = sign, self._clock()
        return self._clock() - self._leases[node.name][1]

    # --- who may have to fail over ----------------------------------------------------------------------------------------

    async def volumes(self, is_wanted: Callable[[str], bool]) -> list[Volume]:
        """Of this driver, by their resources' names."""

        def ours(obj: Json) -> Volume | None:
            csi = (obj.get("spec") or {}).get("csi") or {}
            return Volume.of(obj) if csi.get("driver") == self._driver and is_wanted(resource_of(csi.get("volumeHandle") or "")) else None

        return [volume async for volume in records(self._kube, VOLUMES, ours, cached=True)]

    async def candidates(self, node: str, volumes: Iterable[Volume]) -> list[Candidate]:
        """Those that have to do with these volumes; sorted, so that all who look begin with the same one."""
        by_name = {volume.name: volume for volume in volumes}
        claims = {volume.claim_name for volume in by_name.values()} - {""}
        listed = records(self._kube, PODS, Pod.of, field_selector=f"spec.nodeName={node}")
        pods = [pod async for pod in listed if claims.intersection(pod.claim_names)]
        used = {claim for pod in pods if not pod.ended for claim in pod.claim_names}
        attached = [
            one.volume
            async for one in records(self._kube, ATTACHMENTS, Attached.of, cached=True)
            if one.node == node and one.volume in by_name and by_name[one.volume].claim_name not in used
        ]
        found = [Candidate(pod.namespace, pod.name, pod.uid) for pod in pods]
        return sorted((*found, *(Candidate(volume=name) for name in attached)), key=lambda one: one.named)

    async def cluster(self, victim: Victim) -> Cluster:
        """All other nodes, and which of them have the driver."""
        nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True) if node.name != victim.node.name]
        drivers = dict([pair async for pair in records(self._kube, CSI_NODES, _drivers_of, cached=True)])
        return Cluster(victim=victim, driver=self._driver, nodes=tuple(nodes), drivers=drivers)

    async def rival(self) -> str:
        """Another program that acts on the same evidence; empty: none runs here."""
        for selector in _RIVALS:
            async for pod in records(self._kube, PODS, Pod.of, label_selector=selector, cached=True):
                return f"pod {pod.full_name}"
        return ""

    # --- one of them, as it is now ------------------------------------------------------------------------------------------

    async def unit(self, candidate: Candidate, victim: Victim, proof: Proof) -> Unit | None:
        """None: it is not there any more, or not on that node. Raises ApiError."""
        if not candidate.pod:
            return await self._left_behind(candidate, victim, proof)
        stored = await find(self._kube, PODS, candidate.pod, namespace=candidate.namespace)
        if stored is None:
            return None
        pod = Pod.of(stored)
        if pod.uid != candidate.uid or pod.node != victim.node.name:
            return None
        read_only, others = writes_to(stored)
        mounted = [await self._mounted(pod, name, victim, proof, read_only=name in read_only) for name in dict.fromkeys(pod.claims)]
        volumes = tuple(one for one in mounted if isinstance(one, PodVolume))
        made_at = timestamps.to_seconds(str(stored["metadata"].get("creationTimestamp") or ""))
        said = await self._said(pod.namespace, pod.claims, volumes, _notes(stored))
        is_seen = pod.phase != "Pending" or bool((stored.get("status") or {}).get("startTime"))
        return Unit(pod, volumes, (*others, *(one for one in mounted if isinstance(one, str))), said, made_at, is_seen)

    async def _left_behind(self, candidate: Candidate, victim: Victim, proof: Proof) -> Unit | None:
        """An attachment whose pod is gone. What people have said of the claim holds for it too."""
        stored = await find(self._kube, VOLUMES, candidate.volume)
        if stored is None or Volume.of(stored).driver != self._driver:
            return None
        found = await self._volume(stored, victim, proof, read_only=False)
        users = records(self._kube, PODS, Pod.of, field_selector=f"spec.nodeName={victim.node.name}")
        if found.attached is None or any([found.claim in pod.claim_names and not pod.ended async for pod in users]):
            return None
        namespace, _, claim = found.claim.partition("/")
        return Unit(None, (found,), (), await self._said(namespace, (claim,), (found,)))

    async def _mounted(self, pod: Pod, name: str, victim: Victim, proof: Proof, *, read_only: bool) -> PodVolume | str | None:
        """A text: what it is instead, of which nothing can be proven; None: it is nothing that the pod could write to."""
        claim = await find(self._kube, CLAIMS, name, namespace=pod.namespace)
        bound = str(((claim or {}).get("spec") or {}).get("volumeName") or "")
        if claim is None or not bound:
            return f"claim {pod.namespace}/{name}, which is not bound"
        stored = await find(self._kube, VOLUMES, bound)
        volume = Volume.of(stored) if stored is not None else None
        if stored is None or volume is None or volume.claim is None or volume.claim.uid != claim["metadata"]["uid"]:
            return f"claim {pod.namespace}/{name}, whose volume {bound} is not its own"
        if volume.driver != self._driver:
            return None if read_only else f"volume {bound} of {volume.driver or 'no CSI driver'}"
        return await self._volume(stored, victim, proof, read_only=read_only)

    async def _volume(self, stored: Json, victim: Victim, proof: Proof, *, read_only: bool) -> PodVolume:
        volume, modes = Volume.of(stored), (stored.get("spec") or {}).get("accessModes") or ()
        attached = await find(self._kube, ATTACHMENTS, attachment_name(volume.handle, self._driver, victim.node.name))
        return PodVolume(
            name=volume.name,
            uid=volume.uid,
            handle=volume.handle,
            claim=volume.claim_name,
            claim_uid=volume.claim.uid if volume.claim else "",
            class_name=volume.class_name,
            read_only=read_only or list(modes) == [READ_ONLY],
            many=MANY in modes or READ_ONLY in modes,
            affinity=volume.affinity,
            proof=proof(volume.handle, victim),
            attached=Attached.of(attached) if attached is not None else None,
        )

    async def _said(self, namespace: str, claims: Iterable[str], volumes: Iterable[PodVolume], *words: Mapping[str, str]) -> Said:
        """What people say of the namespace, of all these claims, also of other drivers' and of none, and of their classes, beside these
        words of the pod."""
        bound = [await find(self._kube, CLAIMS, name, namespace=namespace) for name in dict.fromkeys(claims) if name]
        classes = {volume.class_name for volume in volumes}
        classes |= {str((claim.get("spec") or {}).get("storageClassName") or "") for claim in bound if claim is not None}
        others = [(NAMESPACES, namespace), *((CLASSES, name) for name in sorted(classes))]
        found = [*bound, *[await find(self._kube, resource, name) for resource, name in others if name]]
        return said_of(*words, *(_notes(obj) for obj in found if obj is not None))

    async def running(self, claims: Mapping[str, str]) -> set[str]:
        """Those of these claims that a pod uses which runs on another node than the one that is named."""
        found = set[str]()
        for namespace in sorted({claim.partition("/")[0] for claim in claims}):
            async for pod in records(self._kube, PODS, Pod.of, namespace=namespace, cached=True):
                if pod.phase == "Running" and not pod.deleting_since:
                    found |= {claim for claim in pod.claim_names if claim in claims and claims[claim] != pod.node}
        return found

    # --- this node, for the victim's own rules ----------------------------------------------------------------------------------

    async def local(self, node: str) -> tuple[list[Pod], dict[str, float]]:
        """All pods of this node that have claims, and by uid of one that is being deleted: the seconds that it was given."""
        noted = records(
            self._kube,
            PODS,
            lambda obj: (Pod.of(obj), obj["metadata"].get("deletionGracePeriodSeconds")),
            field_selector=f"spec.nodeName={node}",
        )
        found = [(pod, seconds) async for pod, seconds in noted if pod.claims]
        return [pod for pod, _ in found], {pod.uid: seconds for pod, seconds in found if seconds is not None}


def attachment_name(handle: str, driver: str, node: str) -> str:
    """As Kubernetes names the VolumeAttachment of a CSI volume."""
    return f"csi-{sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def _notes(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _drivers_of(obj: Json) -> tuple[str, frozenset[str]]:
    return obj["metadata"]["name"], frozenset(str(one.get("name")) for one in (obj.get("spec") or {}).get("drivers") or ())
