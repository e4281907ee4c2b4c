"""Converts the values of `csi.api` to CSI messages and back. Secrets are put into a request here and stored nowhere."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from csi_proto import csi_pb2 as pb
from sidecar.csi.api import NOTHING, Capability, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import BadAnswer
from sidecar.model.topology import Segment

LONGEST_HANDLE: Final = 4096
"""Characters. CSI allows 128 bytes. Handles are kept, compared, and written to the journal."""

LONGEST_TOKEN: Final = 4096
"""Of a page. All tokens of a list are kept until it ends, to notice one that comes again. CSI allows 128 bytes."""

# ---- requests -----------------------------------------------------------------------------------------------------------


def create_volume(request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> pb.CreateVolumeRequest:
    return pb.CreateVolumeRequest(
        name=request.name,
        # As upstream it is always set, even for zero bytes, and has no limit: drivers check whether it is set.
        capacity_range=pb.CapacityRange(required_bytes=request.required_bytes),
        volume_capabilities=[_capability(item) for item in request.capabilities],
        parameters=request.parameters,
        secrets=secrets,
        volume_content_source=_source(request),
        accessibility_requirements=_requirement(request),
        mutable_parameters=request.mutable_parameters,
    )


def delete_volume(volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> pb.DeleteVolumeRequest:
    return pb.DeleteVolumeRequest(volume_id=volume_id, secrets=secrets)


def get_capacity(query: CapacityQuery) -> pb.GetCapacityRequest:
    return pb.GetCapacityRequest(
        volume_capabilities=[_capability(item) for item in query.capabilities],
        parameters=query.parameters,
        accessible_topology=None if query.segment is None else _topology(query.segment),
    )


def list_volumes(token: str) -> pb.ListVolumesRequest:
    """The driver chooses the size of a page."""
    return pb.ListVolumesRequest(starting_token=token)


def _capability(item: Capability) -> pb.VolumeCapability:
    mode = pb.VolumeCapability.AccessMode(mode=item.access_mode)
    if item.block:
        return pb.VolumeCapability(block=pb.VolumeCapability.BlockVolume(), access_mode=mode)
    mount = pb.VolumeCapability.MountVolume(fs_type=item.fs_type, mount_flags=item.mount_flags)
    return pb.VolumeCapability(mount=mount, access_mode=mode)


def _source(request: CreateRequest) -> pb.VolumeContentSource | None:
    if request.source_snapshot:
        return pb.VolumeContentSource(snapshot=pb.VolumeContentSource.SnapshotSource(snapshot_id=request.source_snapshot))
    if request.source_volume:
        return pb.VolumeContentSource(volume=pb.VolumeContentSource.VolumeSource(volume_id=request.source_volume))
    return None


def _requirement(request: CreateRequest) -> pb.TopologyRequirement | None:
    if not request.requisite and not request.preferred:
        return None
    return pb.TopologyRequirement(
        requisite=[_topology(segment) for segment in request.requisite],
        preferred=[_topology(segment) for segment in request.preferred],
    )


def _topology(segment: Segment) -> pb.Topology:
    return pb.Topology(segments=segment.labels())


# ---- answers ------------------------------------------------------------------------------------------------------------


def created_volume(answer: pb.CreateVolumeResponse) -> CreatedVolume:
    if not answer.HasField("volume"):
        raise BadAnswer("the driver answered CreateVolume with OK but without a volume")
    volume = answer.volume
    if not volume.volume_id:
        raise BadAnswer("the driver answered CreateVolume with OK but with an empty volume_id")
    if len(volume.volume_id) > LONGEST_HANDLE:
        raise BadAnswer(f"the driver answered CreateVolume with a volume_id of more than {LONGEST_HANDLE} characters")
    return CreatedVolume(
        volume_id=volume.volume_id,
        capacity_bytes=volume.capacity_bytes,
        context=dict(volume.volume_context),
        topologies=_segments(volume),
        has_source=volume.HasField("content_source"),
    )


def _segments(volume: pb.Volume) -> tuple[Segment, ...]:
    return tuple(Segment.of(topology.segments) for topology in volume.accessible_topology)


def listed(answer: pb.ListVolumesResponse) -> tuple[tuple[tuple[str, tuple[Segment, ...]], ...], str]:
    """The handle and topologies of each volume, and the token of the next page, which is empty on the last."""
    if not all(entry.volume.volume_id for entry in answer.entries):
        raise BadAnswer("the driver answered ListVolumes with OK but with an empty volume_id")
    if any(len(entry.volume.volume_id) > LONGEST_HANDLE for entry in answer.entries):
        raise BadAnswer(f"the driver answered ListVolumes with a volume_id of more than {LONGEST_HANDLE} characters")
    if len(answer.next_token) > LONGEST_TOKEN:
        raise BadAnswer(f"the driver answered ListVolumes with a next_token of more than {LONGEST_TOKEN} characters")
    return tuple((entry.volume.volume_id, _segments(entry.volume)) for entry in answer.entries), answer.next_token


def capacity(answer: pb.GetCapacityResponse) -> CapacityAnswer:
    return CapacityAnswer(
        available=answer.available_capacity,
        maximum=answer.maximum_volume_size.value if answer.HasField("maximum_volume_size") else None,
        minimum=answer.minimum_volume_size.value if answer.HasField("minimum_volume_size") else None,
    )


def is_ready(answer: pb.ProbeResponse) -> bool:
    """A driver that does not set `ready` is ready (CSI specification, Probe)."""
    return answer.ready.value if answer.HasField("ready") else True


def name_and_version(answer: pb.GetPluginInfoResponse) -> tuple[str, str]:
    if not answer.name:
        raise BadAnswer("the driver answered GetPluginInfo with an empty name")
    return answer.name, answer.vendor_version


def plugin_capabilities(answer: pb.GetPluginCapabilitiesResponse) -> frozenset[str]:
    """Only the capabilities that are services: the ones about volume expansion are not used here."""
    services = (item.service.type for item in answer.capabilities if item.HasField("service"))
    return _names(pb.PluginCapability.Service.Type, services)


def controller_capabilities(answer: pb.ControllerGetCapabilitiesResponse) -> frozenset[str]:
    rpcs = (item.rpc.type for item in answer.capabilities if item.HasField("rpc"))
    return _names(pb.ControllerServiceCapability.RPC.Type, rpcs)


def node(answer: pb.NodeGetInfoResponse) -> tuple[str, Segment]:
    """The node's id and its segment; neither is required, as upstream."""
    return answer.node_id, Segment.of(answer.accessible_topology.segments)


_UNNAMED: Final = "UNKNOWN_"


class _Enum(Protocol):
    def Name(self, number: int) -> str: ...  # noqa: N802  # protobuf's spelling


def _names(enum: _Enum, numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(_name(enum, number) for number in numbers)


def _name(enum: _Enum, number: int) -> str:
    """Enums are open: a capability newer than our copy of the specification must not stop an old sidecar."""
    try:
        return enum.Name(number)
    except ValueError:
        return f"{_UNNAMED}{number}"
