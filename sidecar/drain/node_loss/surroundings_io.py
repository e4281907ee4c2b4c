"""Reads what a node that is gone has left: claims, pods, attachments, StatefulSets. What cannot be read is named and hides nothing else."""

from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

from sidecar.drain.node_loss.evidence import Unread
from sidecar.drain.node_loss.report import Left
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, PodThere
from sidecar.drain.remade import ReplicatedSet
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CSI_NODES, NODES, PODS, STATEFUL_SETS, KubeApi, Resource, find, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model.nodes import Pod
from sidecar.model.objects import Attachment, Json

R = TypeVar("R")

MOST_NAMESPACES: Final = 20
"""Whose claims are read in one look."""


class Surroundings:
    """`attaches`: whether the driver has VolumeAttachments at all."""

    def __init__(self, kube: KubeApi, *, driver: str, attaches: bool) -> None:
        self._kube = kube
        self._driver = driver
        self._attaches = attaches

    async def node_uid(self, name: str) -> str | Unread:
        """Of the Node of that name, as it is stored now; empty: there is none."""
        found = await self._asked(NODES, name)
        return found if isinstance(found, Unread) else str((found or {"metadata": {}})["metadata"].get("uid") or "")

    async def has_csi_node(self, name: str) -> bool | Unread:
        found = await self._asked(CSI_NODES, name)
        return found if isinstance(found, Unread) else found is not None

    async def left(self, node: str, volumes: tuple[LostVolume, ...]) -> Left:
        unread: list[str] = []
        claims = await _attempt(unread, "claims", self._claims(volumes, unread))
        pods = await _attempt(unread, "pods", self._pods_of_node(node))
        attachments = await _attempt(unread, "attachments", self._attachments(node)) if self._attaches else ()
        return Left(volumes, claims, pods, attachments, tuple(unread))

    async def claim(self, there: ClaimThere) -> ClaimThere | None:
        """As it is stored now; None: it is gone, or another one has its name."""
        found = await find(self._kube, CLAIMS, there.claim.name, namespace=there.claim.namespace)
        return ClaimThere.of(found) if found is not None and found["metadata"]["uid"] == there.uid else None

    async def sets_in(self, namespaces: Iterable[str]) -> tuple[ReplicatedSet, ...]:
        """Raises ApiError."""
        return tuple(
            [
                each
                for namespace in sorted(set(namespaces))
                async for each in records(self._kube, STATEFUL_SETS, ReplicatedSet.of, namespace=namespace)
            ]
        )

    async def pods_in(self, namespace: str) -> tuple[PodThere, ...]:
        """Those with a node. Raises ApiError."""
        found = [_pod(pod) async for pod in records(self._kube, PODS, Pod.of, namespace=namespace)]
        return tuple(pod for pod in found if pod.node)

    async def attachments_of(self, volume: str) -> tuple[AttachmentThere, ...]:
        """To whatever node, past every cache. Raises ApiError."""
        if not self._attaches:
            return ()
        listed = records(self._kube, ATTACHMENTS, lambda obj: _attachment(obj, self._driver, ""))
        return tuple([item async for item in listed if item.volume == volume])

    async def _claims(self, volumes: Iterable[LostVolume], unread: list[str]) -> tuple[ClaimThere, ...]:
        """Of a few, one by one would be fewer bytes; of a node's many, a namespace's list is fewer requests."""
        wanted = {lost.volume.claim.uid: lost.volume.claim.namespace for lost in volumes if lost.volume.claim is not None}
        namespaces = sorted(set(wanted.values()))
        if len(namespaces) > MOST_NAMESPACES:
            unread.append(f"claims of {len(namespaces) - MOST_NAMESPACES} more namespaces: the next looks read no more either")
        found: list[ClaimThere] = []
        for namespace in namespaces[:MOST_NAMESPACES]:
            listed = records(
                self._kube, CLAIMS, lambda obj: ClaimThere.of(obj) if obj["metadata"]["uid"] in wanted else None, namespace=namespace
            )
            found += [there async for there in listed]
        return tuple(found)

    async def _pods_of_node(self, node: str) -> tuple[PodThere, ...]:
        listed = records(self._kube, PODS, Pod.of, field_selector=f"spec.nodeName={node}")
        return tuple([_pod(pod) async for pod in listed])

    async def _attachments(self, node: str) -> tuple[AttachmentThere, ...]:
        listed = records(self._kube, ATTACHMENTS, lambda obj: _attachment(obj, self._driver, node), cached=True)
        return tuple([item async for item in listed])

    async def _asked(self, resource: Resource, name: str) -> Json | Unread | None:
        """None only if the API server says so in its own words: a proxy before it may answer 404 too."""
        try:
            return await self._kube.get(resource, name)
        except NotFound as error:
            return None if error.reason == "NotFound" else Unread(str(error))
        except ApiError as error:
            return Unread(str(error))


async def _attempt(unread: list[str], what: str, reading: Awaitable[tuple[R, ...]]) -> tuple[R, ...]:
    try:
        return await reading
    except ApiError as error:
        unread.append(f"{what}: {error}")
        return ()


def _pod(pod: Pod) -> PodThere:
    return PodThere(pod.namespace, pod.name, pod.uid, pod.node, pod.claims)


def _attachment(obj: Json, driver: str, node: str) -> AttachmentThere | None:
    """`node` empty: to whatever node."""
    item, meta = Attachment.of(obj), obj["metadata"]
    if (node and item.node != node) or (obj.get("spec") or {}).get("attacher") != driver:
        return None
    return AttachmentThere(item.name, meta.get("uid", ""), item.volume, "deletionTimestamp" in meta)
