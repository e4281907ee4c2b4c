"""Reads what a node that is gone has left: claims, pods, attachments, StatefulSets. What cannot be read is named and hides nothing else."""

from collections.abc import Awaitable, Collection, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from sidecar.drain.node_loss.evidence import Gone, Unproven, Unread
from sidecar.drain.node_loss.remains import RemainsView, Step, remains
from sidecar.drain.node_loss.report import Left
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, PodThere, ThingThere
from sidecar.drain.remade import ReplicatedSet
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CSI_NODES, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, KubeApi, Resource, find, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Pod, SnapshotContent
from sidecar.model.objects import Attachment, Json, Volume

R = TypeVar("R")

MOST_NAMESPACES: Final = 20
"""Beyond that a list of the whole cluster is fewer requests than one for each namespace."""


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
        claims = await _attempt(unread, "claims", self._claims(volumes))
        pods = await _attempt(unread, "pods", self._pods_of_node(node))
        attachments = await _attempt(unread, "attachments", self._attachments(node)) if self._attaches else ()
        untold: list[str] = []
        snapshots = await _attempt(untold, "snapshots", self._snapshots({lost.volume.handle for lost in volumes} - {""}))
        return Left(volumes, claims, pods, attachments, tuple(unread), snapshots, tuple(untold))

    async def claim(self, there: ClaimThere) -> ClaimThere | None:
        """As it is stored now; None: it is gone, or another one has its name."""
        found = await find(self._kube, CLAIMS, there.claim.name, namespace=there.claim.namespace)
        return ClaimThere.of(found) if found is not None and found["metadata"]["uid"] == there.uid else None

    async def claim_of(self, volume: Volume) -> ClaimThere | None:
        """As it is stored now, if it is the one for which the volume is. Raises ApiError."""
        if (ref := volume.claim) is None:
            return None
        found = await find(self._kube, CLAIMS, ref.name, namespace=ref.namespace)
        return ClaimThere.of(found) if found is not None and found["metadata"]["uid"] == ref.uid else None

    async def sets_in(self, namespaces: Iterable[str]) -> tuple[ReplicatedSet, ...]:
        """Raises ApiError."""
        wanted = frozenset(namespaces)
        return tuple(
            [
                each
                for namespace in _scopes(wanted)
                async for each in records(self._kube, STATEFUL_SETS, ReplicatedSet.of, namespace=namespace)
                if each.namespace in wanted
            ]
        )

    async def view(self, loss: Gone | Unproven, left: Left) -> RemainsView:
        """What the rule looks at under Cleanup. Raises ApiError."""
        view = RemainsView(
            loss,
            cleanup=True,
            volumes=left.volumes,
            claims=MappingProxyType({there.uid: there for there in left.claims}),
            sets=await self.sets_in(there.claim.namespace for there in left.claims),
            pods=left.pods,
            attachments=left.attachments,
        )
        # Pods of other nodes matter only to claims that would be deleted but for them.
        going = {(item.namespace, item.name) for item in remains(view) if item.kind == names.CLAIM and item.step is not Step.NOTHING}
        return replace(view, pods=(*left.pods, *await self._users_of(going))) if going else view

    async def _users_of(self, claims: Collection[tuple[str, str]]) -> tuple[PodThere, ...]:
        """Pods with a node that have one of these claims, perhaps of a while ago: before an effect they are asked for anew."""

        def user(obj: Json) -> PodThere | None:
            pod = _pod(Pod.of(obj))
            return pod if pod.node and any((pod.namespace, name) in claims for name in pod.claims) else None

        scopes = _scopes(namespace for namespace, _ in claims)
        return tuple([pod for scope in scopes async for pod in records(self._kube, PODS, user, namespace=scope, cached=True)])

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

    async def _claims(self, volumes: Iterable[LostVolume]) -> tuple[ClaimThere, ...]:
        """Of a few, one by one would be fewer bytes; of a node's many, a list is fewer requests."""
        wanted = {lost.volume.claim.uid: lost.volume.claim.namespace for lost in volumes if lost.volume.claim is not None}
        found: list[ClaimThere] = []
        for namespace in _scopes(wanted.values()):
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

    async def _snapshots(self, handles: Collection[str]) -> tuple[ThingThere, ...]:
        """Of volumes with these handles. Without their type there are none."""

        def of(obj: Json) -> ThingThere | None:
            found = SnapshotContent.of(obj)
            ours = found.driver == self._driver and found.source_handle in handles
            return ThingThere(names.SNAPSHOT_CONTENT, "", found.name, found.uid) if ours else None

        try:
            return tuple([item async for item in records(self._kube, SNAPSHOT_CONTENTS, of, cached=True)])
        except NotFound:
            return ()

    async def _asked(self, resource: Resource, name: str) -> Json | Unread | None:
        """None only if the API server says so in its own words: a proxy before it may answer 404 too."""
        try:
            return await self._kube.get(resource, name)
        except NotFound as error:
            return None if error.reason == "NotFound" else Unread(str(error))
        except ApiError as error:
            return Unread(str(error))


def _scopes(namespaces: Iterable[str]) -> list[str]:
    """What to list; an empty name is that of all namespaces. A node may have had volumes of any number of them."""
    found = sorted(set(namespaces))
    return found if len(found) <= MOST_NAMESPACES else [""]


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
