"""Builds the CreateVolume request from claim, class and node. When that is impossible, it gives an `Unfit` that says what to change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from sidecar.csi.api import (
    CONTROLLER_SERVICE,
    CREATE_DELETE_VOLUME,
    SINGLE_NODE_MULTI_WRITER,
    Capability,
    CapacityQuery,
    CreateRequest,
)
from sidecar.local.here import Here
from sidecar.model import names
from sidecar.model.objects import Claim, Class
from sidecar.model.topology import Segment, allows

# The keys that external-provisioner knows under the reserved prefix. Any other key there is refused by name: the prefix is not
# the driver's, so an unknown key can only be a mistake in the class.
_SECRET_KINDS: Final = (
    "provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand", "controller-modify",
)  # fmt: skip
_SECRET_PARAMETERS: Final = frozenset(
    f"{names.RESERVED_PARAMETER_PREFIX}{kind}secret-{part}"
    for kind in ("", *(f"{kind}-" for kind in _SECRET_KINDS))
    for part in ("name", "namespace")
)
# Only these four kinds ever had a spelling without the prefix.
_DEPRECATED_SECRET_PARAMETERS: Final = frozenset(
    f"csi{kind}Secret{part}" for kind in ("Provisioner", "ControllerPublish", "NodeStage", "NodePublish") for part in ("Name", "Namespace")
)
_KNOWN_PARAMETERS: Final = _SECRET_PARAMETERS | {names.FSTYPE_PARAMETER}

# A driver without SINGLE_NODE_MULTI_WRITER knows one mode for writers on a single node, so both such modes of a claim become it.
_MODES: Final[Mapping[str, str]] = {
    "ReadWriteMany": "MULTI_NODE_MULTI_WRITER",
    "ReadOnlyMany": "MULTI_NODE_READER_ONLY",
    "ReadWriteOnce": "SINGLE_NODE_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_WRITER",
}
_MODES_WITH_MULTI_WRITER: Final[Mapping[str, str]] = {
    **_MODES,
    "ReadWriteOnce": "SINGLE_NODE_MULTI_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_SINGLE_WRITER",
}
ACCESS_MODES: Final = frozenset({*_MODES.values(), *_MODES_WITH_MULTI_WRITER.values()})
"""All that a request may ask for."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """No request can be made from this claim and class; `why` says what to change."""

    why: str


def build(here: Here, claim: Claim, class_: Class) -> CreateRequest | Unfit:
    """The request for an empty volume, or the first mistake found. Mistakes are looked for in the order in which a user would want to hear
    of them. What has to be looked up, the source of the volume and its mutable parameters, the caller adds."""
    unfit = missing_capability(here) or _contradiction(claim, class_)
    if unfit:
        return unfit
    capabilities = _capabilities(here, claim, class_)
    if isinstance(capabilities, Unfit):
        return capabilities
    topology = _topology(here, class_)
    if isinstance(topology, Unfit):
        return topology
    name = here.volume_name(claim.uid)
    return CreateRequest(
        name=name,
        required_bytes=claim.requested or 0,
        capabilities=capabilities,
        parameters=parameters(class_) | (_metadata(claim, name) if here.options.extra_create_metadata else {}),
        requisite=topology,
        preferred=_own_first(topology, here.segment),
    )


def capacity_query(here: Here, request: CreateRequest) -> CapacityQuery:
    """The GetCapacity query before this node bids for a claim: same parameters and capabilities as the creation, so that it fits it."""
    return CapacityQuery(request.parameters, here.segment if here.with_topology else None, request.capabilities)


def parameters(class_: Class) -> dict[str, str]:
    """The class's parameters as the driver gets them, without those meant for this program.

    Deprecated keys (`fstype`, `csiProvisionerSecretName` and so on) are passed on, as external-provisioner does.
    """
    return {key: value for key, value in class_.parameters.items() if key not in _KNOWN_PARAMETERS}


def secret_parameters(class_: Class) -> list[str]:
    """The keys of the class's parameters that name Secrets, in the present and in the deprecated spelling."""
    return sorted(key for key in class_.parameters if key in _SECRET_PARAMETERS | _DEPRECATED_SECRET_PARAMETERS)


def fs_type(here: Here, claim: Claim, class_: Class) -> str:
    """The file system that the class asks for, else the default of --default-fstype; none for a block volume."""
    if claim.block:
        return ""
    return next((value for _, value in _fs_type_parameters(class_)), "") or here.options.default_fstype


def missing_capability(here: Here) -> Unfit | None:
    """Why the driver cannot create volumes at all. This is checked for each claim, since a driver may run without creating volumes."""
    for capability, said in ((CONTROLLER_SERVICE, here.driver.plugin), (CREATE_DELETE_VOLUME, here.driver.controller)):
        if capability not in said:
            return Unfit(f"CSI driver {here.driver.name} does not support dynamic provisioning: it reports no {capability} capability")
    return None


def _contradiction(claim: Claim, class_: Class) -> Unfit | None:
    # Drivers are idempotent by name: two claims that had none would be given one volume.
    if not claim.uid:
        return Unfit("claim.metadata.uid is empty, and the volume is named after it; create the claim anew")
    # A selector chooses among volumes that exist; even an empty one is refused, as external-provisioner does.
    if claim.has_selector:
        return Unfit("claim.spec.selector is not supported for dynamic provisioning; remove it")
    if claim.requested is None or claim.requested < 0:
        return Unfit("claim.spec.resources.requests.storage is not a size; write bytes such as 10Gi")
    # CSI carries sizes as signed 64-bit integers.
    if claim.requested >= 2**63:
        return Unfit("claim.spec.resources.requests.storage is larger than any volume can be (2^63 bytes)")
    return wrong_parameters(class_)


def wrong_parameters(class_: Class) -> Unfit | None:
    """What is wrong with the class for every claim."""
    unknown = sorted(key for key in class_.parameters if key.startswith(names.RESERVED_PARAMETER_PREFIX) and key not in _KNOWN_PARAMETERS)
    if unknown:
        return Unfit(
            f"StorageClass {class_.name!r} has unknown parameters with a reserved prefix: {', '.join(unknown)}; correct or remove them"
        )
    if len(list(_fs_type_parameters(class_))) > 1:
        keys = ", ".join(sorted(key for key, _ in _fs_type_parameters(class_)))
        return Unfit(f"StorageClass {class_.name!r} names the file system more than once ({keys}); keep {names.FSTYPE_PARAMETER}")
    return None


def _fs_type_parameters(class_: Class) -> Iterator[tuple[str, str]]:
    for key, value in class_.parameters.items():
        # The deprecated key counts in any case of its letters, the present one only as it is written.
        if key == names.FSTYPE_PARAMETER or key.lower() == names.FSTYPE_PARAMETER_DEPRECATED:
            yield key, value


def _capabilities(here: Here, claim: Claim, class_: Class) -> tuple[Capability, ...] | Unfit:
    modes = _MODES_WITH_MULTI_WRITER if SINGLE_NODE_MULTI_WRITER in here.driver.controller else _MODES
    unknown = [mode for mode in claim.access_modes if mode not in modes]
    if unknown:
        return Unfit(f"unsupported access mode {unknown[0]!r}; use one of {', '.join(sorted(modes))}")
    if claim.block:
        return tuple(Capability(modes[mode], block=True) for mode in claim.access_modes)
    fs = fs_type(here, claim, class_)
    # One capability for each access mode of the claim, in the claim's order: modes are never merged into one.
    return tuple(Capability(modes[mode], fs_type=fs, mount_flags=class_.mount_options) for mode in claim.access_modes)


def _topology(here: Here, class_: Class) -> tuple[Segment, ...] | Unfit:
    """The requisite segments: this node's own; without --strict-topology, all that the class allows, if it names any."""
    if not here.with_topology:
        return ()
    if not here.segment:
        return Unfit(f"CSI driver {here.driver.name} supports topology but reported none for node {here.node} in NodeGetInfo")
    if flaw := here.segment.flaw():
        return Unfit(f"CSI driver {here.driver.name} reported a topology for node {here.node} that no PersistentVolume can name: {flaw}")
    if not class_.allowed:
        return (here.segment,)
    if not allows(class_.allowed, here.segment):
        return Unfit(f"allowedTopologies of StorageClass {class_.name!r} leave out the selected node ({here.segment})")
    return (here.segment,) if here.options.strict_topology else _flatten(class_.allowed)


def _flatten(allowed: tuple[Mapping[str, tuple[str, ...]], ...]) -> tuple[Segment, ...]:
    """Expands each term into the cross product of its values. Sorted and without duplicates, so that every retry sends the same request."""
    segments = {Segment.of(dict(zip(term, values, strict=True))) for term in allowed if term for values in product(*term.values())}
    return tuple(sorted(segments, key=lambda segment: (len(segment.pairs), segment.pairs)))


def _own_first(requisite: tuple[Segment, ...], own: Segment) -> tuple[Segment, ...]:
    """The same segments, rotated so that the first one that this node lies in comes first.

    The claim is for this node, so the driver should prefer it to the other places that the class allows.
    """
    start = next((index for index, segment in enumerate(requisite) if segment.within(own)), 0)
    return requisite[start:] + requisite[:start]


def _metadata(claim: Claim, volume_name: str) -> dict[str, str]:
    return {
        names.PVC_NAME_PARAMETER: claim.name,
        names.PVC_NAMESPACE_PARAMETER: claim.namespace,
        names.PV_NAME_PARAMETER: volume_name,
    }
