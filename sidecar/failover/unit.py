"""What fails over as one: a pod with all its volumes and their attachments. What is not proven of one of them holds for all of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sidecar.failover.evidence import Fact
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json
from sidecar.model.topology import Term

MANY: Final = "ReadWriteMany"
READ_ONLY: Final = "ReadOnlyMany"


class Word(StrEnum):
    """What people say of a pod, a claim, a class or a namespace."""

    NONE = ""
    IGNORE = "Ignore"
    FORCE = "ForceOnExclusion"  # a proof and a silent kubelet are enough, before the Node is not Ready


@dataclass(frozen=True, slots=True)
class Said:
    """The word that counts, and where it stands. Ignore anywhere wins."""

    word: Word = Word.NONE
    by: str = ""
    wrong: str = ""  # an annotation that is none of the words: it counts as Ignore, and is told


@dataclass(frozen=True, slots=True)
class Attached:
    """A VolumeAttachment."""

    name: str
    uid: str
    attacher: str
    node: str
    volume: str
    error: str = ""  # its detachError
    deleting: bool = False

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Attached":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            attacher=spec.get("attacher") or "",
            node=spec.get("nodeName") or "",
            volume=(spec.get("source") or {}).get("persistentVolumeName") or "",
            error=str((status.get("detachError") or {}).get("message") or "")[:256],
            deleting="deletionTimestamp" in meta,
        )


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A PersistentVolume that the pod mounts through a claim."""

    name: str
    uid: str
    driver: str
    handle: str
    claim: str  # `namespace/name`
    claim_uid: str
    read_only: bool  # the pod cannot write to it
    many: bool  # several nodes may write to it at once: nobody else is ever detached
    affinity: tuple[Term, ...] | None
    proof: Fact  # that the victim cannot write to it
    attached: Attached | None = None  # to the victim


@dataclass(frozen=True, slots=True)
class Unit:
    """`pod` None: nobody is left of it on the victim, and its attachments are."""

    pod: Pod | None
    volumes: tuple[PodVolume, ...]
    others: tuple[str, ...]  # what else it may write to, in words: hostPath, another driver's inline volume
    said: Said

    @property
    def proven(self) -> Iterable[PodVolume]:
        return (volume for volume in self.volumes if not volume.read_only)


@dataclass(frozen=True, slots=True)
class Victim:
    """The node that has lost its storage, as it was read just now."""

    node: Node
    boot_id: str
    silent_for: float  # seconds that its kubelet's Lease has not changed, as this process has seen; 0: not known
    out_of_service: bool = False  # somebody has put node.kubernetes.io/out-of-service on it: Kubernetes acts
    remediated_by: str = ""  # another program acts on it, which is named
    maintained: str = ""  # what announces that it is meant to be away
    missing_for: float = 0.0  # seconds since its storage was seen to be away first


def victim_of(obj: Json, *, silent_for: float, missing_for: float, remediated_by: str = "", maintained: str = "") -> Victim:
    node = Node.of(obj)
    boot_id = str(((obj.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
    out = any(taint.key == f"{names.NODE_TAINTS}out-of-service" for taint in node.taints)
    return Victim(node, boot_id, silent_for, out, remediated_by, maintained, missing_for)
