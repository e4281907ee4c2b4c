"""Slim records of the Kubernetes objects this program looks at, projected from plain JSON at once.

Every node watches every claim and volume of the cluster, so a record keeps what a rule reads and nothing else. The one
exception is `Claim.whole`: claims are written by PUT (upstream's role grants `update`, not `patch`), so a claim that this
node may write is kept complete, as compact JSON text, until it is bound or belongs to another node. A large one is read again instead.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from sidecar.model import names
from sidecar.model.by_key import BY_KEY
from sidecar.model.quantity import BadQuantity, parse_bytes
from sidecar.model.topology import Term, terms_of

Json = dict[str, Any]
Notes = tuple[tuple[str, str], ...]
"""Annotations of our own group, as sorted pairs."""

_NOTES: Final = tuple(
    sorted(
        {
            names.DRAIN_POLICY: 256,
            names.DRAIN_POLICY_REBOOT: 256,
            names.DRAIN_POLICY_RETIRE: 256,
            names.ACKNOWLEDGED: 1024,
            names.HANDED_BACK: 32_768,
            names.TRIED_BY: 8192,
            names.REPROVISIONED_BY: 512,
            names.LOST_WITH: 512,
            names.ALLOW_CLAIM_DELETION: 64,
            names.REPROVISION_PEERS: 64,
        }.items()
    )
)
"""With as many characters as are kept. Sidecars add to the last two once for each node."""

LARGEST_WHOLE: Final = 16 * 2**10
"""Bytes of a claim that is kept whole. Tenants can make it a hundred times as large."""
_LONGEST_NAME: Final = 512
"""Characters of what ought to be a name. Objects have at most 253, but not every field that should hold a name is checked for that."""

LATE = "WaitForFirstConsumer"
IMMEDIATE = "Immediate"


@dataclass(frozen=True, slots=True)
class Source:
    """What a volume is to be filled from: a snapshot, another claim, or something that a populator knows."""

    kind: str
    group: str
    name: str
    namespace: str
    explicit: str | None = None
    """dataSourceRef.namespace as written. None means absent: the claim's own namespace. An empty text is a mistake and is refused."""
    in_data_source: bool = True
    """True: spec.dataSource names it. False: only spec.dataSourceRef does."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim of our driver."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    provisioner: str
    class_name: str
    selected_node: str
    volume_name: str
    deleting: bool
    requested: int | None
    """Whole bytes; None if the object has something that is not a quantity."""
    volume_mode: str
    access_modes: tuple[str, ...]
    has_selector: bool
    source: Source | None
    attributes_class: str
    is_source: bool = False
    """It has the finalizer that keeps it while another claim is cloned from it."""
    notes: Notes = ()
    """Our own annotations."""
    owner: "Owner | None" = None
    """What controls it: a Pod, if the claim is for a generic ephemeral volume."""
    label: str = ""
    """What an admission policy says of whom the claim concerns."""
    created: str = field(default="", compare=False)
    whole: bytes = field(default=b"", repr=False, compare=False)
    """Empty for a claim that nobody here writes, and for one that is larger than `LARGEST_WHOLE`."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def block(self) -> bool:
        return self.volume_mode == "Block"

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, keep_whole: bool = False) -> "Claim":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        notes = meta.get("annotations") or {}
        return cls(
            uid=meta["uid"],
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            resource_version=meta.get("resourceVersion", ""),
            provisioner=claim_provisioner(obj),
            class_name=_bounded(notes.get(names.STORAGE_CLASS_BETA, spec.get("storageClassName") or ""), _LONGEST_NAME),
            selected_node=_bounded(selected_node(obj), _LONGEST_NAME),
            volume_name=_bounded(spec.get("volumeName") or "", _LONGEST_NAME),
            deleting="deletionTimestamp" in meta,
            requested=_requested(spec),
            volume_mode=spec.get("volumeMode") or "",
            access_modes=tuple(spec.get("accessModes") or ()),
            has_selector=spec.get("selector") is not None,
            source=_source(spec, meta.get("namespace", "")),
            attributes_class=_bounded(spec.get("volumeAttributesClassName") or "", _LONGEST_NAME),
            is_source=names.CLONE_FINALIZER in (meta.get("finalizers") or ()),
            notes=notes_of(notes),
            owner=controller_of(meta),
            label=str((meta.get("labels") or {}).get(names.CLAIM_LABEL) or ""),
            created=meta.get("creationTimestamp") or "",
            whole=_whole_if_small(obj) if keep_whole else b"",
        )


def claim_provisioner(obj: Mapping[str, Any]) -> str:
    """Which driver is asked to provision this claim: the annotation, or if that is absent its beta form."""
    notes = obj["metadata"].get("annotations") or {}
    return str(notes.get(names.STORAGE_PROVISIONER, notes.get(names.STORAGE_PROVISIONER_BETA, "")))


def selected_node(obj: Mapping[str, Any]) -> str:
    """The node that the claim was given to; empty for none."""
    return str((obj["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, ""))


def is_source_that_leaves(obj: Mapping[str, Any]) -> bool:
    """A claim that is being deleted and kept by our finalizer while others are cloned from it."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and names.CLONE_FINALIZER in (meta.get("finalizers") or ())


@dataclass(frozen=True, slots=True)
class Class:
    """A StorageClass of our driver."""

    name: str
    uid: str
    provisioner: str
    parameters: Mapping[str, str] = field(repr=False, metadata=BY_KEY)
    reclaim_policy: str
    binding_mode: str
    """Empty if the object has none, which counts as late for capacity and as not Immediate for ownership, as upstream has it."""
    mount_options: tuple[str, ...]
    allowed: tuple[Mapping[str, tuple[str, ...]], ...]
    notes: Notes = ()

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Class":
        meta = obj["metadata"]
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            provisioner=obj.get("provisioner", ""),
            parameters=MappingProxyType(dict(obj.get("parameters") or {})),
            reclaim_policy=obj.get("reclaimPolicy") or "",
            binding_mode=obj.get("volumeBindingMode") or "",
            mount_options=tuple(obj.get("mountOptions") or ()),
            allowed=tuple(
                MappingProxyType({item["key"]: tuple(item.get("values") or ()) for item in term.get("matchLabelExpressions") or ()})
                for term in obj.get("allowedTopologies") or ()
            ),
            notes=notes_of(meta.get("annotations")),
        )


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Which claim a volume is for."""

    uid: str
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume of our driver."""

    name: str
    uid: str
    resource_version: str
    driver: str
    handle: str
    phase: str
    reclaim_policy: str
    class_name: str
    deleting: bool
    finalizers: tuple[str, ...]
    claim: ClaimRef | None
    provisioned_by: str | None
    """None if the annotation is absent."""
    affinity: tuple[Term, ...] | None
    """None when the volume has no node affinity at all, which is not the same as one that matches nothing."""
    deletion_secret: tuple[str, str] | None
    """(namespace, name) from the annotations; ("", "") when they say there is none; None when they are absent."""
    identity: str
    size: int
    """Whole bytes; 0 if there is none that can be read."""
    notes: Notes = ()
    lies_on: str = ""
    """The machine that has its bytes, as is noted there. Empty: nothing is."""
    created: str = field(default="", compare=False)

    @property
    def claim_name(self) -> str:
        """The full name of its claim; empty if it names none."""
        return self.claim.full_name if self.claim else ""

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Volume":
        return cls.with_affinity(obj, affinity_of(obj))

    @classmethod
    def with_affinity(cls, obj: Mapping[str, Any], affinity: tuple[Term, ...] | None) -> "Volume":
        """For those who have read its node affinity before."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        notes, csi = meta.get("annotations") or {}, spec.get("csi") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            driver=csi.get("driver", ""),
            handle=csi.get("volumeHandle", ""),
            phase=(obj.get("status") or {}).get("phase", ""),
            reclaim_policy=spec.get("persistentVolumeReclaimPolicy") or "",
            class_name=notes.get(names.STORAGE_CLASS_BETA, spec.get("storageClassName") or ""),
            deleting="deletionTimestamp" in meta,
            finalizers=tuple(meta.get("finalizers") or ()),
            claim=_claim_ref(spec.get("claimRef")),
            provisioned_by=notes.get(names.PROVISIONED_BY),
            affinity=affinity,
            deletion_secret=_deletion_secret(notes),
            identity=identity_of(obj),
            size=_bytes_or_none((spec.get("capacity") or {}).get("storage")) or 0,
            notes=notes_of(notes),
            lies_on=_bounded(str(notes.get(names.LIES_ON) or ""), _LONGEST_NAME),
            created=meta.get("creationTimestamp") or "",
        )


def affinity_of(volume: Mapping[str, Any]) -> tuple[Term, ...] | None:
    """The node affinity of a PersistentVolume in JSON."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return None if required is None else terms_of(required)


def identity_of(volume: Mapping[str, Any]) -> str:
    """Which process created a PersistentVolume, given in JSON."""
    csi = (volume.get("spec") or {}).get("csi") or {}
    return str((csi.get("volumeAttributes") or {}).get(names.PROVISIONER_IDENTITY, ""))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment: as long as it exists, its volume may be in use on that node."""

    name: str
    volume: str
    node: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Attachment":
        spec = obj.get("spec") or {}
        return cls(obj["metadata"]["name"], (spec.get("source") or {}).get("persistentVolumeName") or "", spec.get("nodeName") or "")


@dataclass(frozen=True, slots=True)
class Owner:
    """One ownerReference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    blocks: bool = False
    """blockOwnerDeletion: deleting the owner in the foreground waits for this object."""

    @classmethod
    def of(cls, ref: Mapping[str, Any]) -> "Owner":
        return cls(
            api_version=_bounded(ref.get("apiVersion", ""), _LONGEST_NAME),
            kind=_bounded(ref.get("kind", ""), _LONGEST_NAME),
            name=_bounded(ref.get("name", ""), _LONGEST_NAME),
            uid=_bounded(ref.get("uid", ""), _LONGEST_NAME),
            controller=bool(ref.get("controller")),
            blocks=bool(ref.get("blockOwnerDeletion")),
        )

    def as_json(self) -> Json:
        ref: Json = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}
        ref |= {"controller": True} if self.controller else {}
        return ref | {"blockOwnerDeletion": True} if self.blocks else ref


def controller_of(meta: Mapping[str, Any]) -> Owner | None:
    """The controlling owner in an object's metadata."""
    return next((Owner.of(ref) for ref in meta.get("ownerReferences") or () if ref.get("controller")), None)


def notes_of(annotations: Mapping[str, str] | None) -> Notes:
    """The annotations of our own group that mean something on claims, volumes, classes, namespaces and snapshots.

    Tenants write them, up to 256 KiB on each object, and they are kept: so none is kept longer than anybody needs it.
    """
    said = annotations or {}
    return tuple((key, _bounded(str(said[key]), most)) for key, most in _NOTES if key in said)


def _bounded(text: str, most: int) -> str:
    """Two texts that differ stay different."""
    return text if len(text) <= most else f"{text[:most]}… sha256 {sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """A published CSIStorageCapacity."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    owners: tuple[Owner, ...]
    class_name: str
    node_topology: Mapping[str, str] | None
    """matchLabels of the selector; None if there is no selector, or it has expressions, which this program never writes."""
    capacity: int | None
    maximum: int | None
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    finalizers: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def stale_since(self) -> str:
        """The annotation that says since when the figure is old; empty if it is not."""
        return self.annotations.get(names.STALE_SINCE, "")

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "CapacityRecord":
        meta, selector = obj["metadata"], obj.get("nodeTopology")
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            labels=MappingProxyType(dict(meta.get("labels") or {})),
            owners=tuple(Owner.of(ref) for ref in meta.get("ownerReferences") or ()),
            class_name=obj.get("storageClassName", ""),
            node_topology=_labels_alone(selector),
            capacity=_bytes_or_none(obj.get("capacity")),
            maximum=_bytes_or_none(obj.get("maximumVolumeSize")),
            annotations=MappingProxyType(dict(meta.get("annotations") or {})),
            finalizers=tuple(meta.get("finalizers") or ()),
            deleting="deletionTimestamp" in meta,
        )


def _labels_alone(selector: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    if selector is None or selector.get("matchExpressions"):
        return None
    return MappingProxyType(dict(selector.get("matchLabels") or {}))


def _requested(spec: Mapping[str, Any]) -> int | None:
    return _bytes_or_none(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _bytes_or_none(value: Any) -> int | None:
    try:
        return None if value is None else parse_bytes(value)
    except BadQuantity:
        return None


def _source(spec: Mapping[str, Any], namespace: str) -> Source | None:
    """dataSource wins over dataSourceRef, because it can only mean a source in the claim's own namespace."""
    ref = spec.get("dataSource")
    in_data_source = ref is not None
    ref = ref if in_data_source else spec.get("dataSourceRef")
    if ref is None:
        return None
    ref = ref if isinstance(ref, Mapping) else {}
    kind, group, name = (_name(ref.get(field)) for field in ("kind", "apiGroup", "name"))
    explicit = None if in_data_source or ref.get("namespace") is None else _name(ref["namespace"])
    return Source(kind, group, name, namespace if explicit is None else explicit, explicit, in_data_source)


def _name(value: Any) -> str:
    return _bounded(value, _LONGEST_NAME) if isinstance(value, str) else ""


def _claim_ref(ref: Mapping[str, Any] | None) -> ClaimRef | None:
    return None if not ref else ClaimRef(ref.get("uid", ""), ref.get("namespace", ""), ref.get("name", ""))


def _deletion_secret(notes: Mapping[str, str]) -> tuple[str, str] | None:
    if names.DELETION_SECRET_NAME not in notes or names.DELETION_SECRET_NAMESPACE not in notes:
        return None
    return notes[names.DELETION_SECRET_NAMESPACE], notes[names.DELETION_SECRET_NAME]


def compact(obj: Mapping[str, Any]) -> bytes:
    """The object as a PUT has to send it, without the managed fields: the server keeps those, and they are large."""
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return json.dumps({**obj, "metadata": meta}, separators=(",", ":")).encode()


def _whole_if_small(obj: Mapping[str, Any]) -> bytes:
    noted = 0
    for name in ("labels", "annotations"):
        for key, value in (obj["metadata"].get(name) or {}).items():
            noted += len(key) + len(str(value))
    if noted > LARGEST_WHOLE:  # to write it all down, only to see that, would take long
        return b""
    whole = compact(obj)
    return whole if len(whole) <= LARGEST_WHOLE else b""
