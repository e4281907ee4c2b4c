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
    """The word that counts, and why."""

    word: Word = Word.NONE
    why: str = "nobody says Ignore"


IGNORED_BY_PIRAEUS: Final = "drbd.linbit.com/ignore-fail-over"


def said_of(*annotations: Mapping[str, str]) -> Said:
    """What people say on a pod, its claims, their classes, its namespace. Ignore anywhere wins; what cannot be understood counts as it."""
    if any(IGNORED_BY_PIRAEUS in notes for notes in annotations):
        return Said(Word.IGNORE, f"the annotation {IGNORED_BY_PIRAEUS} is there")
    words = {notes[names.FAILOVER].strip() for notes in annotations if names.FAILOVER in notes}
    if odd := words - {Word.IGNORE, Word.FORCE}:
        return Said(Word.IGNORE, f"{names.FAILOVER}={min(odd)[:40]!r} is neither {Word.IGNORE} nor {Word.FORCE}")
    word = next((word for word in (Word.IGNORE, Word.FORCE) if word in words), Word.NONE)
    return Said(word, f"{names.FAILOVER} says {word}") if word else Said()


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
    handle: str
    claim: str  # `namespace/name`
    claim_uid: str
    class_name: str
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
    made_at: float | None = None  # when the pod was made, by the API server's clock
    seen: bool = True  # by the pod's kubelet: False: nothing of it has ever run

    @property
    def proven(self) -> Iterable[PodVolume]:
        return (volume for volume in self.volumes if not volume.read_only)


@dataclass(frozen=True, slots=True)
class Victim:
    """The node that has lost its storage, as it was read just now."""

    node: Node
    boot_id: str
    silent_for: float  # seconds that its kubelet's Lease has not changed, as this process has seen; 0: not known
    remediated_by: str = ""  # what says that another program acts on it
    maintained: str = ""  # what announces that it is meant to be away
    missing_for: float = 0.0  # seconds since its storage was seen to be away first


REMEDIATORS: Final = (f"{names.NODE_TAINTS}out-of-service", "drbd.linbit.com/", "medik8s.io/", "remediation.medik8s.io/")


def is_remediated(node: Node) -> str:
    """The taint that says that another program acts there, or, out-of-service, Kubernetes itself; empty: there is none."""
    for taint in node.taints:
        domain = taint.key.partition("/")[0]
        if taint.key.startswith(REMEDIATORS) or domain.endswith(("podmon.storage.dell.com", "podmon.dellemc.com")):
            return f"taint {taint.key}"
    return ""


_SAFE: Final = ("configMap", "secret", "projected", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "ephemeral")


def writes_to(pod: Json) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names of claims that are mounted read-only on the node, and what else it may write to that outlives it. A container that mounts
    a volume read-only does not count: the node has it mounted for writing all the same, and its file system writes."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), *(spec.get("ephemeralContainers") or ())]
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    written = {mount.get("name") for mount in mounts if not mount.get("readOnly")}
    by_claim, others = dict[str, bool](), list[str]()
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            name = str(claim.get("claimName") or "")
            by_claim[name] = by_claim.get(name, True) and bool(claim.get("readOnly"))
        kind = next((key for key in volume if key not in ("name", *_SAFE)), "")
        if kind and not (kind == "hostPath" and volume.get("name") not in written):
            others.append(f"{kind} {volume.get('name')}")
    return frozenset(name for name, read_only in by_claim.items() if read_only), tuple(others)
