"""What a node that is gone may have left, as slim records of what the API server has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.drain import machine_mark
from sidecar.drain.facts.locations import maker_of
from sidecar.drain.machine_mark import Machine
from sidecar.drain.remade import LostClaim
from sidecar.model import names
from sidecar.model.objects import Json, Volume, claim_provisioner, controller_of, selected_node


@dataclass(frozen=True, slots=True)
class LostVolume:
    """A PersistentVolume, with what its own notes say."""

    volume: Volume
    lies_on: Machine | None
    """None: it does not say, or in words that nobody understands."""
    leaving: str

    @property
    def node(self) -> str:
        """Where it was, as it says itself, or else the node of its maker."""
        return self.lies_on.node if self.lies_on else maker_of(self.volume)


def volume_of(obj: Json, driver: str) -> LostVolume | None:
    """None: it is another driver's."""
    spec = obj.get("spec") or {}
    if (spec.get("csi") or {}).get("driver") != driver:
        return None
    return LostVolume(Volume.of(obj), lies_on(obj), _note(obj, names.LEAVING))


def lies_on(volume: Json) -> Machine | None:
    return machine_mark.parse(_note(volume, names.LIES_ON))


@dataclass(frozen=True, slots=True)
class ClaimThere:
    """A claim as it is stored now."""

    claim: LostClaim
    uid: str
    resource_version: str
    volume: str
    deleting: bool
    lost_with: str
    """What it says as `names.LOST_WITH`; empty: nothing."""
    selected_node: str = ""
    """For which node its volume was made. Nothing else on a claim says where its data is, and policies see no more than the claim."""
    provisioner: str = ""
    """The driver that was asked to make its volume."""
    finalizers: tuple[str, ...] = ()

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "ClaimThere":
        meta = obj["metadata"]
        owner, said = controller_of(meta), (meta.get("annotations") or {}).get(names.ALLOW_CLAIM_DELETION)
        return cls(
            claim=LostClaim(
                meta.get("namespace", ""),
                meta["name"],
                None if said is None else str(said),
                of_pod=owner is not None and owner.kind == names.POD,
            ),
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            volume=str((obj.get("spec") or {}).get("volumeName") or ""),
            deleting="deletionTimestamp" in meta,
            lost_with=_note(obj, names.LOST_WITH),
            selected_node=selected_node(obj),
            provisioner=claim_provisioner(obj),
            finalizers=tuple(meta.get("finalizers") or ()),
        )


@dataclass(frozen=True, slots=True)
class PodThere:
    """A pod of the node that is gone, or one that names a claim whose volume was there."""

    namespace: str
    name: str
    uid: str
    node: str
    claims: tuple[str, ...]
    """Names of the claims it mounts."""


@dataclass(frozen=True, slots=True)
class AttachmentThere:
    """A VolumeAttachment that names the node."""

    name: str
    uid: str
    volume: str
    deleting: bool


@dataclass(frozen=True, slots=True)
class ThingThere:
    """Something of which nothing but its name matters."""

    kind: str
    namespace: str
    name: str
    uid: str


def _note(obj: Mapping[str, Any], key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")
