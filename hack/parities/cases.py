"""The cases for both programs, each for one rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hack.parities.driver import OWN_NODE

Json = dict[str, Any]
Words = Mapping[str, str]

NOTHING: Mapping[str, Any] = MappingProxyType({})
NAMESPACE, OTHER_NAMESPACE = "default", "other"
NODE_KEY, ZONE_KEY = "topology.parity/node", "topology.parity/zone"
OWN_ZONE = "zone-1"
OUR_SEGMENT = MappingProxyType({NODE_KEY: OWN_NODE, ZONE_KEY: OWN_ZONE})
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER, PROVISIONER_BETA = "volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"
CLASS_BETA = "volume.beta.kubernetes.io/storage-class"
RESERVED = "csi.storage.k8s.io/"
SECRET_KINDS = (
    "provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand", "controller-modify",
)  # fmt: skip
DEPRECATED_KINDS = ("Provisioner", "ControllerPublish", "NodeStage", "NodePublish")
FINAL_CODES = (
    "UNKNOWN", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "DATA_LOSS", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED",
)  # fmt: skip
OPEN_CODES = ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED")


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to deploy: flags for the program, and what the driver says it can do."""

    name: str
    flags: tuple[str, ...]
    capabilities: tuple[str, ...]
    segments: Words = field(default_factory=lambda: OUR_SEGMENT)

    @property
    def driver(self) -> str:
        return f"{self.name}.parity.csi-node-sidecar.io"


_BASIC = ("CREATE_DELETE_VOLUME", "GET_CAPACITY")
SETTINGS = (
    Setting(
        "plain",
        ("--feature-gates=Topology=true",),
        (*_BASIC, "CREATE_DELETE_SNAPSHOT", "CLONE_VOLUME", "MODIFY_VOLUME", "SINGLE_NODE_MULTI_WRITER"),
    ),
    Setting(
        "strict",
        (
            "--feature-gates=Topology=true",
            "--strict-topology",
            "--extra-create-metadata",
            "--default-fstype=xfs",
            "--controller-publish-readonly",
            "--volume-name-prefix=vol",
        ),
        (*_BASIC, "PUBLISH_UNPUBLISH_VOLUME"),
    ),
    Setting("flat", ("--volume-name-uuid-length=14",), (*_BASIC, "CLONE_VOLUME"), NOTHING),
)
PLAIN, STRICT, FLAT = (setting.name for setting in SETTINGS)
DRIVERS = {setting.name: setting.driver for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A VolumeSnapshot and its content, as a snapshot controller would have left them; empty fields are not written."""

    ready: bool = True
    size: str = "1Gi"
    handle: str = "snap-1"
    driver: str = ""
    """Empty: that of the setting."""
    mode: str = ""
    may_change_mode: bool = False
    bound: bool = True
    content: bool = True
    deleting: bool = False
    back_reference: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """The claim that another is cloned from; it has the class of the clone unless it has one of its own."""

    spec: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    own_class: bool = False
    bound: bool = True
    goes_first: bool = False
    """Deleted before the clone is."""


@dataclass(frozen=True, slots=True)
class Case:
    """One class, one claim, and the objects beside them. The value `None` removes a field of the usual claim or class."""

    name: str
    setting: str = PLAIN
    parameters: Words = field(default_factory=lambda: NOTHING)
    class_: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    spec: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str | None] = field(default_factory=lambda: NOTHING)
    labels: Words = field(default_factory=lambda: NOTHING)
    secrets: tuple[str, ...] = ()
    """Names of Secrets that only this case has, in the claim's namespace."""
    source: Source | None = None
    snapshot: Snapshot | None = None
    attributes: Mapping[str, Any] | None = None
    """Its VolumeAttributesClass, named like the case: fields besides the name."""
    without_class: bool = False
    deleting: bool = False
    """The claim is deleted before it is selected for this node."""
    leaves_early: bool = False
    """The claim is deleted as soon as its first attempt has failed."""
    between: tuple[str, ...] = ()
    """What somebody does to it between binding and deletion; the words are explained in `stage`."""
    silent: bool = False
    """Nothing is expected to happen, so that there is nothing to wait for."""

    @property
    def id(self) -> str:
        return f"{self.setting}-{self.name}"

    @property
    def driver(self) -> str:
        return DRIVERS[self.setting]

    def in_settings(self, *settings: str) -> Iterator[Case]:
        return (replace(self, setting=setting) for setting in settings)


SMOKE = (
    "plain-plainest", "strict-plainest", "flat-plainest", "plain-mode-rwop-block", "strict-mode-rox", "plain-fstype-deprecated",
    "plain-fstype-twice", "strict-mount-options", "plain-reclaim-retain", "plain-allowed-own-and-other", "strict-allowed-own-and-other",
    "strict-allowed-other", "plain-size-thousandths", "plain-secret-provisioner", "plain-secret-defaults", "plain-secret-half-name",
    "plain-secret-unknown-token", "plain-secret-missing", "plain-reserved-unknown", "plain-beta-class", "plain-selector",
    "plain-deleting", "plain-bytes-more", "plain-bytes-less", "plain-context", "plain-topology-two", "plain-create-fails-internal",
    "plain-create-fails-once-unavailable", "plain-delete-fails-internal", "plain-clone", "plain-clone-missing", "plain-restore",
    "plain-attributes", "plain-immediate", "plain-then-delete", "plain-secret-goes", "strict-attached",
)  # fmt: skip


def all_cases() -> Iterator[Case]:
    yield from Case("plainest").in_settings(PLAIN, STRICT, FLAT)
    yield from _modes()
    yield from _file_systems()
    yield from _classes()
    yield from _topologies()
    yield from _sizes()
    yield from _secrets()
    yield from _answers()
    yield from _claims()
    yield from _clones()
    yield from _snapshots()
    yield from _attributes()
    yield from _interventions()


MODES: Mapping[str, Sequence[str]] = {
    "rwo": ["ReadWriteOnce"],
    "rox": ["ReadOnlyMany"],
    "rwx": ["ReadWriteMany"],
    "rwop": ["ReadWriteOncePod"],
    "rwo-rox": ["ReadWriteOnce", "ReadOnlyMany"],
    "all": ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"],
}


def _modes() -> Iterator[Case]:
    for word, modes in MODES.items():
        yield from Case(f"mode-{word}", spec={"accessModes": modes}).in_settings(PLAIN, STRICT)
        yield from Case(f"mode-{word}-block", spec={"accessModes": modes, "volumeMode": "Block"}).in_settings(PLAIN, STRICT)
    yield Case("mode-rwop", FLAT, spec={"accessModes": MODES["rwop"]})
    yield Case("block", FLAT, spec={"volumeMode": "Block"})


FS_TYPES: Mapping[str, Words] = {
    "prefixed": {f"{RESERVED}fstype": "ext4"},
    "deprecated": {"fstype": "ext4"},
    "capitals": {"FsType": "btrfs"},
    "twice": {"fstype": "ext4", f"{RESERVED}fstype": "ext4"},
    "twice-deprecated": {"fstype": "ext4", "FSTYPE": "xfs"},
    "empty": {f"{RESERVED}fstype": ""},
    "prefixed-capitals": {f"{RESERVED}FsType": "ext4"},
}


def _file_systems() -> Iterator[Case]:
    for word, parameters in FS_TYPES.items():
        yield from Case(f"fstype-{word}", parameters=parameters).in_settings(PLAIN, STRICT)
    for word in ("prefixed", "deprecated", "twice"):
        yield Case(f"fstype-{word}-block", parameters=FS_TYPES[word], spec={"volumeMode": "Block"})


def _classes() -> Iterator[Case]:
    options = {"mountOptions": ["noatime", "discard"]}
    yield from Case("mount-options", class_=options).in_settings(PLAIN, STRICT)
    yield Case("mount-options-block", class_=options, spec={"volumeMode": "Block"})
    yield from Case("reclaim-retain", class_={"reclaimPolicy": "Retain"}).in_settings(PLAIN, STRICT, FLAT)
    yield Case("expansion", class_={"allowVolumeExpansion": True})
    yield Case("parameters-ordinary", parameters={"kind": "fast", "a/b": "", "list": "x,y", "ünïcode": "ß<&>"})
    yield Case("reserved-unknown", parameters={f"{RESERVED}colour": "red"})
    yield from Case("reserved-pvc-name", parameters={f"{RESERVED}pvc/name": "mine"}).in_settings(PLAIN, STRICT)
    yield Case("reserved-snapshotter", parameters={f"{RESERVED}snapshotter-list-secret-name": "x"})
    yield Case("reserved-bare", parameters={RESERVED: "x"})
    yield Case("class-of-another-driver", class_={"provisioner": "else.example.com"}, silent=True)
    claimed = {PROVISIONER: DRIVERS[PLAIN]}
    yield Case("class-of-another-driver-claimed", class_={"provisioner": "else.example.com"}, annotations=claimed, silent=True)
    yield Case("class-missing", without_class=True, annotations=claimed, silent=True)
    yield Case("class-missing-unclaimed", without_class=True, silent=True)
    yield Case("class-changed-case", class_={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})


def _term(**values: Sequence[str]) -> Json:
    keys = {"node": NODE_KEY, "zone": ZONE_KEY}
    return {"matchLabelExpressions": [{"key": keys.get(key, key), "values": list(found)} for key, found in values.items()]}


TOPOLOGIES: Mapping[str, Sequence[Json]] = {
    "own": [_term(node=[OWN_NODE], zone=[OWN_ZONE])],
    "own-and-other": [_term(node=["node-b", OWN_NODE, "node-c"], zone=[OWN_ZONE])],
    "own-node-only": [_term(node=[OWN_NODE])],
    "zone-only": [_term(zone=["zone-0", OWN_ZONE])],
    "other": [_term(node=["node-b"], zone=[OWN_ZONE])],
    "two-terms": [_term(node=["node-z"], zone=["zone-9"]), _term(zone=[OWN_ZONE])],
    "three-terms": [_term(node=[OWN_NODE]), _term(zone=[OWN_ZONE]), _term(node=["node-b", OWN_NODE])],
    "unknown-key": [_term(rack=["r1"])],
    "unknown-key-besides": [_term(zone=[OWN_ZONE], rack=["r1"])],
    "product": [_term(node=["node-c", OWN_NODE, "node-b"], zone=["zone-2", OWN_ZONE])],
    "same-twice": [_term(zone=[OWN_ZONE]), _term(zone=[OWN_ZONE, "zone-2"])],
}


def _topologies() -> Iterator[Case]:
    for word, terms in TOPOLOGIES.items():
        yield from Case(f"allowed-{word}", class_={"allowedTopologies": terms}).in_settings(PLAIN, STRICT)
    yield Case("allowed-own", FLAT, class_={"allowedTopologies": TOPOLOGIES["own"]})
    now = {"volumeBindingMode": "Immediate"}
    yield from Case("immediate", class_=now).in_settings(PLAIN, STRICT)
    for word in ("own", "own-and-other", "product"):
        yield Case(f"immediate-allowed-{word}", class_={**now, "allowedTopologies": TOPOLOGIES[word]})
    yield Case("immediate-allowed-other", class_={**now, "allowedTopologies": TOPOLOGIES["other"]}, silent=True)
    yield Case("immediate-no-space", class_=now, parameters={"answer-free": "1048576"}, silent=True)
    yield Case("immediate-just-fits", class_=now, parameters={"answer-free": str(2**30)})
    yield Case("immediate-unknown-parameter", class_=now, parameters={f"{RESERVED}colour": "red"})
    yield Case("immediate-fails", class_=now, parameters=fails("INTERNAL"))
    yield Case("immediate-fails-once", class_=now, parameters=fails("UNAVAILABLE", times=1))
    yield Case("immediate-exhausted-once", class_=now, parameters=fails("RESOURCE_EXHAUSTED", times=1))
    yield Case("immediate-secret", class_=now, parameters=secret("provisioner"))
    yield Case("immediate-block", class_=now, spec={"volumeMode": "Block"})


SIZES: Mapping[str, str] = {
    "thousandths": "1073741824500m",
    "one-byte": "1",
    "decimal": "1G",
    "exponent": "1e9",
    "fraction": "0.5Gi",
    "odd": "123456789",
    "kilo": "100k",
    "huge": "7Ei",
    "largest": "9223372036854775807",
    "tebi": "3Ti",
}


def _size(size: str) -> Json:
    return {"resources": {"requests": {"storage": size}}}


def _sizes() -> Iterator[Case]:
    for word, size in SIZES.items():
        yield Case(f"size-{word}", spec=_size(size))
    yield Case("size-with-limit", spec={"resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}}})
    for word in ("thousandths", "odd", "exponent"):
        yield Case(f"size-{word}-unsaid", spec=_size(SIZES[word]), parameters={"answer-bytes": "zero"})


def secret(kind: str, *, name: str = "secret-a", namespace: str = NAMESPACE) -> dict[str, str]:
    dashed = f"{kind}-" if kind else ""
    return {f"{RESERVED}{dashed}secret-name": name, f"{RESERVED}{dashed}secret-namespace": namespace}


def _deprecated(kind: str, *, name: str = "secret-a") -> dict[str, str]:
    return {f"csi{kind}SecretName": name, f"csi{kind}SecretNamespace": NAMESPACE}


def _secrets() -> Iterator[Case]:
    for kind in SECRET_KINDS:
        yield Case(f"secret-{kind}", parameters=secret(kind))
    for kind in DEPRECATED_KINDS:
        yield Case(f"secret-deprecated-{kind.lower()}", parameters=_deprecated(kind))
    yield from Case("secret-defaults", parameters=secret("")).in_settings(PLAIN, STRICT, FLAT)
    yield Case("secret-defaults-and-one", parameters=secret("") | secret("node-stage", name="secret-b"))
    yield Case("secret-elsewhere", parameters=secret("provisioner", namespace=OTHER_NAMESPACE))
    name, namespace = f"{RESERVED}provisioner-secret-name", f"{RESERVED}provisioner-secret-namespace"
    yield Case("secret-half-name", parameters={name: "secret-a"})
    yield Case("secret-half-namespace", parameters={namespace: NAMESPACE})
    yield Case("secret-half-default", parameters={f"{RESERVED}secret-name": "secret-a"})
    yield Case("secret-half-node-stage", parameters={f"{RESERVED}node-stage-secret-name": "secret-a"})
    yield Case("secret-empty-name", parameters={name: "", namespace: NAMESPACE})
    yield Case("secret-both-empty", parameters={name: "", namespace: ""})
    yield Case("secret-twice", parameters=secret("provisioner") | _deprecated("Provisioner"))
    yield Case("secret-mixed", parameters={"csiProvisionerSecretName": "secret-a", namespace: NAMESPACE})
    yield Case("secret-unknown-token", parameters=secret("provisioner", name="${pvc.colour}-${pod.name}"))
    yield Case("secret-name-token-in-namespace", parameters=secret("node-stage", namespace="${pvc.name}"))
    yield Case("secret-missing", parameters=secret("provisioner", name="nobody"))
    yield Case("secret-missing-node-stage", parameters=secret("node-stage", name="nobody"))
    yield Case("secret-claim-tokens", parameters=secret("provisioner", name="${pvc.name}", namespace="${pvc.namespace}"), secrets=("",))
    yield Case("secret-claim-tokens-in-all", parameters=secret("", name="${pvc.name}", namespace="${pvc.namespace}"), secrets=("",))
    yield Case("secret-volume-token", parameters=secret("node-publish", name="of-${pv.name}", namespace="${pv.name}"))
    noted = {"team.io/secret": "secret-a"}
    yield Case("secret-annotation", parameters=secret("provisioner", name="${pvc.annotations['team.io/secret']}"), annotations=noted)
    yield Case("secret-annotation-absent", parameters=secret("provisioner", name="${pvc.annotations['team.io/secret']}"))
    yield Case("secret-without-braces", parameters=secret("provisioner", name="$pvc.name"))
    yield Case("secret-dollar", parameters=secret("node-stage", name="a$"))
    yield Case("secret-capitals", parameters=secret("node-stage", name="Secret-A"))
    yield Case("secret-dotted-namespace", parameters=secret("node-stage", namespace="a.b"))
    yield Case("secret-of-no-data", parameters=secret("provisioner", name="secret-empty"))
    yield Case("secret-unreadable", parameters=secret("provisioner", name="secret-binary"))
    yield Case("secret-modify-and-provisioner", parameters=secret("controller-modify") | secret("provisioner", name="secret-b"))


def fails(code: str, *, times: int | None = None, what: str = "create") -> dict[str, str]:
    """So often, or always."""
    return {f"answer-{what}-code": code, **({f"answer-{what}-times": str(times)} if times else {})}


def _answers() -> Iterator[Case]:
    for word in ("zero", "less", "more"):
        yield from Case(f"bytes-{word}", parameters={"answer-bytes": word}).in_settings(PLAIN, FLAT)
    yield from Case("context", parameters={"answer-context": "a=b,c="}).in_settings(PLAIN, STRICT)
    yield Case("context-with-identity", parameters={"answer-context": "storage.kubernetes.io/csiProvisionerIdentity=mine"})
    for word in ("none", "two", "wider", "more-keys", "one-empty", "empty"):
        yield Case(f"topology-{word}", parameters={"answer-topology": word})
    for code in FINAL_CODES + OPEN_CODES:
        word = code.lower().replace("_", "-")
        yield Case(f"create-fails-{word}", parameters=fails(code))
        yield Case(f"create-fails-once-{word}", parameters=fails(code, times=1))
    yield Case("create-fails-resource-exhausted", FLAT, parameters=fails("RESOURCE_EXHAUSTED"))
    for code in ("INTERNAL", "NOT_FOUND", "FAILED_PRECONDITION"):
        yield Case(f"delete-fails-{code.lower().replace('_', '-')}", parameters=fails(code, what="delete"))
    for code in ("INTERNAL", "UNAVAILABLE", "ABORTED"):
        yield Case(f"delete-fails-once-{code.lower()}", parameters=fails(code, times=1, what="delete"))
    yield Case("handle-empty", parameters={"answer-handle": "empty"})
    yield Case("bytes-less-delete-fails", parameters={"answer-bytes": "less", **fails("INTERNAL", what="delete")})
    yield Case("bytes-less-secret", parameters={"answer-bytes": "less", **secret("provisioner")})
    yield Case("delete-fails-retain", parameters=fails("INTERNAL", what="delete"), class_={"reclaimPolicy": "Retain"})
    for code in ("UNAVAILABLE", "INTERNAL"):
        yield Case(f"leaves-early-{code.lower()}", parameters=fails(code, times=2), leaves_early=True)
    yield Case("leaves-early-exhausted", parameters=fails("RESOURCE_EXHAUSTED"), leaves_early=True)


def _claims() -> Iterator[Case]:
    yield from Case("beta-class", spec={"storageClassName": None}, annotations={CLASS_BETA: ""}).in_settings(PLAIN, STRICT, FLAT)
    yield Case("beta-class-block", spec={"storageClassName": None, "volumeMode": "Block"}, annotations={CLASS_BETA: ""})
    yield Case("beta-class-wins", spec={"storageClassName": "nobody"}, annotations={CLASS_BETA: ""})
    yield Case("beta-provisioner", annotations={PROVISIONER_BETA: DRIVERS[PLAIN]})
    yield Case("beta-provisioner-else", annotations={PROVISIONER_BETA: "else.example.com"})
    yield Case("provisioner-else", annotations={PROVISIONER: "else.example.com"})
    yield Case("selector", spec={"selector": {"matchLabels": {"a": "b"}}})
    yield Case("selector-empty", spec={"selector": {}})
    yield from Case("deleting", deleting=True).in_settings(PLAIN, FLAT)
    yield Case("selected-elsewhere", annotations={SELECTED_NODE: "node-b"}, silent=True)
    yield Case("selected-nowhere", annotations={SELECTED_NODE: None}, silent=True)
    yield Case("selected-empty", annotations={SELECTED_NODE: ""}, silent=True)
    yield Case("selected-by-alpha", annotations={SELECTED_NODE: None, "volume.alpha.kubernetes.io/selected-node": OWN_NODE}, silent=True)
    yield Case("volume-named", spec={"volumeName": "nobody"}, silent=True)
    yield Case("labels-and-notes", labels={"app": "db", "tier": ""}, annotations={"team.io/note": 'ünïcode "quoted" <tag>'})
    yield Case("a.name.with.dots-" + "x" * 100)
    yield Case("migrated", annotations={PROVISIONER: "kubernetes.io/else", "pv.kubernetes.io/migrated-to": DRIVERS[PLAIN]}, silent=True)
    yield Case("no-binding-mode", class_={"volumeBindingMode": None})


def _from(kind: str, *, name: str = "{}-source", group: str = "", field_: str = "dataSource", **more: Any) -> Json:
    return {field_: {"apiGroup": group, "kind": kind, "name": name} if group else {"kind": kind, "name": name}, **more}


def _clones() -> Iterator[Case]:
    own, by_ref = _from("PersistentVolumeClaim"), _from("PersistentVolumeClaim", field_="dataSourceRef")
    here, unsaid = Source(), {"answer-source": "none"}
    yield from Case("clone", spec=own, source=here).in_settings(PLAIN, FLAT, STRICT)
    yield Case("clone-by-ref", spec=by_ref, source=here)
    yield Case("clone-larger", spec={**own, **_size("2Gi")}, source=here)
    yield Case("clone-smaller", spec={**own, **_size("1Mi")}, source=here)
    yield Case("clone-missing", spec=own)
    yield Case("clone-missing-by-ref", spec=by_ref)
    yield Case("clone-of-pending", spec=own, source=Source(bound=False))
    yield Case("clone-of-another-class", spec=own, source=Source(own_class=True))
    yield Case("clone-mode-differs", spec={**own, "volumeMode": "Block"}, source=here)
    yield Case("clone-block", spec={**own, "volumeMode": "Block"}, source=Source({"volumeMode": "Block"}))
    yield Case("clone-beta-class", spec={**own, "storageClassName": None}, annotations={CLASS_BETA: ""}, source=Source(own_class=True))
    yield Case("clone-unsaid", spec=own, source=here, parameters=unsaid)
    yield Case("clone-unsaid-by-ref", spec=by_ref, source=here, parameters=unsaid)
    yield Case("clone-secret", spec=own, source=here, parameters=secret(""))
    yield Case("clone-fails", spec=own, source=here, parameters={**fails("INTERNAL"), "answer-for": "clone"})
    yield Case("clone-source-goes-first", spec=own, source=Source(goes_first=True))
    yield Case("clone-immediate", spec=own, source=here, class_={"volumeBindingMode": "Immediate"})
    yield Case("clone-of-itself", spec=_from("PersistentVolumeClaim", name="{}"))
    yield Case("populated", spec=_from("Sheet", group="example.com", name="any", field_="dataSourceRef"))


def _snapshots() -> Iterator[Case]:
    own = _from("VolumeSnapshot", group="snapshot.storage.k8s.io")
    yield from Case("restore", spec=own, snapshot=Snapshot()).in_settings(PLAIN, STRICT)
    yield Case("restore-by-ref", spec=_from("VolumeSnapshot", group="snapshot.storage.k8s.io", field_="dataSourceRef"), snapshot=Snapshot())
    yield Case("restore-missing", spec=own)
    kinds = {
        "not-ready": Snapshot(ready=False),
        "too-large": Snapshot(size="2Gi"),
        "smaller": Snapshot(size="1Mi"),
        "size-unknown": Snapshot(size=""),
        "of-another-driver": Snapshot(driver="else.example.com"),
        "without-handle": Snapshot(handle=""),
        "unbound": Snapshot(bound=False),
        "content-missing": Snapshot(content=False),
        "content-of-another": Snapshot(back_reference=False),
        "deleting": Snapshot(deleting=True),
        "mode-differs": Snapshot(mode="Block"),
        "mode-may-differ": Snapshot(mode="Block", may_change_mode=True),
        "mode-same": Snapshot(mode="Filesystem"),
    }
    for word, snapshot in kinds.items():
        yield Case(f"restore-{word}", spec=own, snapshot=snapshot)
    yield Case("restore-unsaid", spec=own, snapshot=Snapshot(), parameters={"answer-source": "none"})
    yield Case("restore-fails", spec=own, snapshot=Snapshot(), parameters=fails("INTERNAL"))
    yield Case("restore-immediate", spec=own, snapshot=Snapshot(), class_={"volumeBindingMode": "Immediate"})


def _attributes() -> Iterator[Case]:
    named = {"volumeAttributesClassName": "{}"}
    yield from Case("attributes", spec=named, attributes={"parameters": {"iops": "100", "b": "x"}}).in_settings(PLAIN, STRICT)
    yield Case("attributes-empty", spec=named, attributes={"parameters": {"iops": ""}})
    yield Case("attributes-missing", spec=named)
    yield Case("attributes-of-another-driver", spec=named, attributes={"driverName": "else.example.com", "parameters": {"a": "b"}})
    yield Case("attributes-secret", spec=named, attributes={"parameters": {"a": "b"}}, parameters=secret("controller-modify"))


def _interventions() -> Iterator[Case]:
    kept = {"reclaimPolicy": "Retain"}
    yield from Case("then-delete", class_=kept, between=("delete",)).in_settings(PLAIN, FLAT)
    yield Case("then-retain", between=("retain",))
    yield from Case("volume-goes-first", between=("volume goes",)).in_settings(PLAIN, STRICT, FLAT)
    yield Case("volume-goes-first-retain", class_=kept, between=("volume goes",))
    yield Case("finalizer-goes", between=("finalizer goes",))
    yield Case("provisioned-by-goes", between=("provisioned-by goes",))
    yield Case("class-goes", parameters=secret("provisioner"), between=("class goes",))
    of_claim = secret("provisioner", name="${pvc.name}", namespace="${pvc.namespace}")
    yield Case("secret-goes", parameters=of_claim, secrets=("",), between=("secret goes",))
    yield Case("notes-go", parameters=of_claim, secrets=("",), between=("notes go",))
    yield Case("one-note-goes", parameters=of_claim, secrets=("",), between=("one note goes",))
    yield Case("one-note-emptied", parameters=of_claim, secrets=("",), between=("one note emptied",))
    yield Case("notes-go-default", parameters=secret(""), between=("notes go",))
    yield Case("notes-and-class-go", parameters=of_claim, secrets=("",), between=("notes go", "class goes"))
    yield Case("notes-and-secret-go", parameters=of_claim, secrets=("",), between=("notes go", "secret goes"))
    noted = {"team.io/secret": "secret-a"}
    by_annotation = secret("provisioner", name="${pvc.annotations['team.io/secret']}")
    yield Case("notes-go-annotation", parameters=by_annotation, annotations=noted, between=("notes go",))
    yield Case("attached", STRICT, between=("attached",))
    yield Case("attached-retain", STRICT, class_=kept, between=("attached",))
    yield Case("attached-to-plain", between=("attached",))
