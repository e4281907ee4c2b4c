"""Feature gates: which there are, how `--feature-gates` is read, and which of them are on."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from sidecar.config.errors import UsageError
from sidecar.config.kinds import read_bool, show_bool
from sidecar.config.words import closest, quoted


@dataclass(frozen=True, slots=True)
class Gate:
    default: bool
    stage: str


GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "CrossNamespaceVolumeDataSource": Gate(False, "ALPHA"),
        "Topology": Gate(True, "GA"),
        "VolumeAttributesClass": Gate(True, "GA"),
    }
)
# Each of these sets all gates of one stage that were not named themselves.
STAGES: Mapping[str, str] = MappingProxyType({"AllAlpha": "ALPHA", "AllBeta": "BETA"})
# external-provisioner's flag also takes the gates of the libraries that it links. None of them changes what a provisioner does.
# HonorPVReclaimPolicy was a gate of its own until it was always on; manifests still name it.
# fmt: off
_FOREIGN_GATES = frozenset({
    "HonorPVReclaimPolicy",
    "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions", "ReleaseLeaderElectionOnExit", "APIResponseCompression",
    "APIServerIdentity", "APIServerTracing", "APIServingWithRoutine", "AggregatedDiscoveryRemoveBetaType",
    "AllowParsingUserUIDFromCertAuth", "AllowUnsafeMalformedObjectDeletion", "AnonymousAuthConfigurableEndpoints",
    "AuthorizeWithSelectors", "BtreeWatchCache", "CBORServingAndStorage", "ComponentFlagz", "ComponentStatusz",
    "ConcurrentWatchObjectDecode", "ConsistentListFromCache", "ConstrainedImpersonation", "CoordinatedLeaderElection",
    "DeclarativeValidation", "DeclarativeValidationBeta", "DeclarativeValidationTakeover", "DetectCacheInconsistency", "KMSv1",
    "ListFromCacheSnapshot", "ManifestBasedAdmissionControlConfig", "MutatingAdmissionPolicy", "NativeHistograms", "OpenAPIEnums",
    "RemoteRequestHeaderUID", "ResilientWatchCacheInitialization", "RetryGenerateName", "SeparateCacheWatchRPC", "ShardedListAndWatch",
    "SizeBasedListCostEstimate", "StorageVersionAPI", "StorageVersionHash", "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration",
    "StructuredAuthenticationConfigurationEgressSelector", "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation", "UnauthenticatedHTTP2DOSMitigation", "UnknownVersionInteroperabilityProxy",
    "WatchCacheInitializationPostStartHook", "WatchList",
})
# fmt: on

GatePairs: TypeAlias = tuple[tuple[str, bool], ...]


def _read_gate(pair: str) -> tuple[str, bool]:
    name, equals, text = (part.strip() for part in pair.partition("="))
    known = [*GATES, *STAGES, *sorted(_FOREIGN_GATES)]
    if not equals:
        raise UsageError([f"{quoted(pair)} is not Name=true or Name=false"])
    if name not in known:
        meant = closest(name, known)
        hint = f"did you mean {meant}?" if meant else f"known are {', '.join(GATES)}"
        raise UsageError([f"{quoted(name)} is not a feature gate; {hint}"])
    try:
        return name, read_bool(text)
    except UsageError as malformed:
        raise UsageError(f"gate {name}: {message}" for message in malformed.messages) from None


def read_gates(text: str) -> GatePairs:
    """The pairs of one occurrence of the flag, in order; of two with the same name the later one wins."""
    pairs: list[tuple[str, bool]] = []
    mistakes: list[str] = []
    for pair in filter(None, text.split(",")):
        try:
            pairs.append(_read_gate(pair))
        except UsageError as mistake:
            mistakes.extend(mistake.messages)
    if mistakes:
        raise UsageError(mistakes)
    return tuple(pairs)


def show_gates(pairs: GatePairs) -> str:
    return ",".join(f"{name}={show_bool(on)}" for name, on in pairs)


def resolve_gates(named: GatePairs) -> tuple[GatePairs, list[str]]:
    """The final value of every gate that has an effect here, and warnings about the others."""
    asked = dict(named)
    of_stage = {STAGES[name]: on for name, on in asked.items() if name in STAGES}
    gates = tuple((name, asked.get(name, of_stage.get(gate.stage, gate.default))) for name, gate in GATES.items())
    return gates, list(filter(None, (_gate_warning(name) for name in asked)))


def _gate_warning(name: str) -> str:
    if name in _FOREIGN_GATES:
        return f"--feature-gates: {name} is accepted and ignored: it changes nothing in this program"
    if name == "AllBeta":
        return "--feature-gates: AllBeta changes nothing: no gate of this program is in beta"
    if name in GATES and GATES[name].stage == "GA":
        return f"--feature-gates: {name} is generally available; the gate will be removed in a future release"
    return ""
