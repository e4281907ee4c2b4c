"""Decides whether a volume can be filled from a snapshot here."""

from typing import Final

from sidecar.local.here import Here
from sidecar.model.names import ALLOW_MODE_CHANGE, CONTENT_MANAGED_BY, SNAPSHOT_FINALIZER
from sidecar.model.objects import Claim
from sidecar.provisioning.needs import CONTENT, Facts, Json, Need, Ref, items, part, text
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.source_facts import Asked, Content, Elsewhere, elsewhere, fact, leaves, reference, too_small

# The texts that Go parses as true; external-provisioner parses the annotation.
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")


def from_snapshot(here: Here, claim: Claim, asked: Asked, facts: Facts, *, keep_mode: bool) -> Content | Need | Unfit | Elsewhere:
    snapshot = fact(facts, asked.ref, otherwise="create it, or name another one")
    if isinstance(snapshot, Need | Unfit):
        return snapshot
    protected = SNAPSHOT_FINALIZER in items(snapshot, "metadata", "finalizers")
    # With our finalizer on it, the restore was begun before the deletion, and the snapshot waits for it: so it is finished.
    if leaves(snapshot) and not protected:
        return Unfit(f"{asked} is being deleted; use another snapshot")
    bound = text(snapshot, "status", "boundVolumeSnapshotContentName")
    if not bound:
        return Unfit(f"{asked} is not bound to a VolumeSnapshotContent; wait until the snapshot controller has bound it")
    content = fact(facts, Ref(CONTENT, bound), of=asked, otherwise="use another snapshot")
    if isinstance(content, Need | Unfit):
        return content
    wrong = (
        _not_its_content(here, asked, snapshot, content, bound)
        # Checked before the faults that pass with time, such as "not ready": on the wrong node, waiting does not help.
        or _snapshot_elsewhere(here, asked, content)
        or _not_restorable(asked, snapshot, content)
        or too_small(claim, asked, part(snapshot, "status", "restoreSize"), "can be restored to")
        or (_mode_changes(claim, asked, content, bound) if keep_mode else None)
    )
    return wrong or Content(snapshot=text(content, "status", "snapshotHandle"), protect=None if protected else asked.ref)


def _not_its_content(here: Here, asked: Asked, snapshot: Json, content: Json, bound: str) -> Unfit | None:
    uid = text(snapshot, "metadata", "uid")
    if not uid or reference(content, "spec", "volumeSnapshotRef") != (uid, asked.namespace, asked.name):
        return Unfit(f"{asked} names VolumeSnapshotContent {bound!r}, which belongs to another snapshot; use another snapshot")
    if (driver := text(content, "spec", "driver")) != here.driver.name:
        return Unfit(
            f"{asked} was taken by CSI driver {driver!r}; {here.driver.name!r} cannot restore it: use a StorageClass of that driver"
        )
    return None


def _snapshot_elsewhere(here: Here, asked: Asked, content: Json) -> Elsewhere | None:
    """Whether the snapshot was taken on another node. Where nodes take the snapshots, a label on the content names that node.

    Another node in the label proves that the snapshot is out of reach only when each node is a segment of its own. That is certain
    when this node's name is a value of its segment; otherwise several nodes may share a segment, and the snapshot may be within reach.
    """
    node = part(content, "metadata", "labels", CONTENT_MANAGED_BY)
    if not isinstance(node, str) or node in ("", here.node) or here.node not in here.segment.labels().values():
        return None
    return elsewhere(here, asked, f"node {node}")


def _not_restorable(asked: Asked, snapshot: Json, content: Json) -> Unfit | None:
    if part(snapshot, "status", "readyToUse") is not True:
        return Unfit(f"{asked} is not ready to use; wait until its status.readyToUse is true")
    if not text(content, "status", "snapshotHandle"):
        return Unfit(f"{asked} has no handle in its VolumeSnapshotContent; wait until the snapshotter has written it")
    return None


def _mode_changes(claim: Claim, asked: Asked, content: Json, bound: str) -> Unfit | None:
    """Refuses to change the volume mode, because a crafted file system can attack the kernel. An administrator may allow the change."""
    mode = text(content, "spec", "sourceVolumeMode")
    if not mode or not claim.volume_mode or mode == claim.volume_mode:
        return None
    if part(content, "metadata", "annotations", ALLOW_MODE_CHANGE) in _TRUE:
        return None
    return Unfit(
        f"{asked} was taken of a volume with volumeMode {mode}, the claim asks for {claim.volume_mode}; ask for {mode}, or have an"
        f' administrator annotate VolumeSnapshotContent {bound!r} with {ALLOW_MODE_CHANGE}="true"'
    )
