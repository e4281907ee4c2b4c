"""Values against messages, compared with the messages' own text form."""

import dataclasses
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import BoolValue, Int64Value

from csi_proto import csi_pb2 as pb
from sidecar.csi import codec
from sidecar.csi.api import Capability, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import BadAnswer, Code
from sidecar.model.topology import Segment

HERE = Segment((("rack", "a"), ("zone", "z")))
HERE_PB = pb.Topology(segments={"zone": "z", "rack": "a"})
WRITER = Capability("SINGLE_NODE_WRITER", fs_type="ext4", mount_flags=("noatime", "ro"))
MODE = pb.VolumeCapability.AccessMode
FULL = CreateRequest(
    name="pvc-1",
    required_bytes=100,
    capabilities=(WRITER, Capability("MULTI_NODE_MULTI_WRITER", block=True)),
    parameters={"kind": "fast"},
    requisite=(HERE,),
    preferred=(HERE,),
    mutable_parameters={"iops": "1"},
    source_snapshot="snap",
)


def test_a_full_create_request() -> None:
    assert codec.create_volume(FULL, secrets={"password": "x"}) == pb.CreateVolumeRequest(
        name="pvc-1",
        capacity_range=pb.CapacityRange(required_bytes=100),
        volume_capabilities=[
            pb.VolumeCapability(
                mount=pb.VolumeCapability.MountVolume(fs_type="ext4", mount_flags=["noatime", "ro"]),
                access_mode=MODE(mode=MODE.SINGLE_NODE_WRITER),
            ),
            pb.VolumeCapability(block=pb.VolumeCapability.BlockVolume(), access_mode=MODE(mode=MODE.MULTI_NODE_MULTI_WRITER)),
        ],
        parameters={"kind": "fast"},
        secrets={"password": "x"},
        volume_content_source=pb.VolumeContentSource(snapshot=pb.VolumeContentSource.SnapshotSource(snapshot_id="snap")),
        accessibility_requirements=pb.TopologyRequirement(requisite=[HERE_PB], preferred=[HERE_PB]),
        mutable_parameters={"iops": "1"},
    )


def test_the_smallest_create_request_still_says_a_size_and_says_nothing_else() -> None:
    message = codec.create_volume(CreateRequest(name="n", required_bytes=0, capabilities=()))
    assert [field.name for field, _ in message.ListFields()] == ["name", "capacity_range"]
    assert message.capacity_range == pb.CapacityRange()


def test_an_empty_mount_is_still_a_mount() -> None:
    message = codec.create_volume(CreateRequest(name="n", required_bytes=1, capabilities=(Capability("SINGLE_NODE_WRITER"),)))
    assert message.volume_capabilities[0].WhichOneof("access_type") == "mount"


@pytest.mark.parametrize("mode", [name for name in MODE.Mode.keys() if name != "UNKNOWN"])  # noqa: SIM118  # no dict, only looks like one
def test_every_access_mode_by_its_name(mode: str) -> None:
    message = codec.create_volume(CreateRequest(name="n", required_bytes=1, capabilities=(Capability(mode),)))
    assert MODE.Mode.Name(message.volume_capabilities[0].access_mode.mode) == mode


def test_an_access_mode_nobody_knows_is_our_bug() -> None:
    with pytest.raises(ValueError, match="SINGLE_NODE_DREAMER"):
        codec.create_volume(CreateRequest(name="n", required_bytes=1, capabilities=(Capability("SINGLE_NODE_DREAMER"),)))


def test_requisite_alone_and_a_volume_as_source() -> None:
    request = dataclasses.replace(FULL, preferred=(), source_snapshot="", source_volume="vol")
    message = codec.create_volume(request)
    assert message.accessibility_requirements == pb.TopologyRequirement(requisite=[HERE_PB])
    assert message.volume_content_source.volume.volume_id == "vol"


def test_delete() -> None:
    assert codec.delete_volume("v", secrets={"a": "b"}) == pb.DeleteVolumeRequest(volume_id="v", secrets={"a": "b"})


def test_capacity_queries() -> None:
    assert codec.get_capacity(CapacityQuery()) == pb.GetCapacityRequest()
    asked = codec.get_capacity(CapacityQuery(parameters={"kind": "fast"}, segment=HERE, capabilities=(WRITER,)))
    assert (asked.accessible_topology, asked.parameters["kind"], len(asked.volume_capabilities)) == (HERE_PB, "fast", 1)
    assert codec.get_capacity(CapacityQuery(segment=Segment())).HasField("accessible_topology")


def test_a_created_volume() -> None:
    answer = pb.CreateVolumeResponse(
        volume=pb.Volume(
            volume_id="v",
            capacity_bytes=5,
            volume_context={"a": "b"},
            content_source=pb.VolumeContentSource(),
            accessible_topology=[HERE_PB, pb.Topology()],
        )
    )
    assert codec.created_volume(answer) == CreatedVolume("v", 5, {"a": "b"}, (HERE, Segment()), has_source=True)
    assert codec.created_volume(pb.CreateVolumeResponse(volume=pb.Volume(volume_id="v"))) == CreatedVolume("v", context={})


@pytest.mark.parametrize(
    ("answer", "text"),
    [(pb.CreateVolumeResponse(), "without a volume"), (pb.CreateVolumeResponse(volume=pb.Volume(capacity_bytes=1)), "empty volume_id")],
    ids=["no volume", "no id"],
)
def test_V10_an_answer_without_a_volume_names_the_drivers_fault(answer: pb.CreateVolumeResponse, text: str) -> None:
    with pytest.raises(BadAnswer, match=f"the driver answered CreateVolume with OK but .*{text}") as caught:
        codec.created_volume(answer)
    assert caught.value.code is Code.INTERNAL


def test_capacity_answers() -> None:
    assert codec.capacity(pb.GetCapacityResponse(available_capacity=7)) == CapacityAnswer(7, None, None)
    zero = pb.GetCapacityResponse(available_capacity=-1, maximum_volume_size=Int64Value(value=0), minimum_volume_size=Int64Value(value=3))
    assert codec.capacity(zero) == CapacityAnswer(-1, 0, 3)


def test_lists() -> None:
    assert codec.list_volumes("") == pb.ListVolumesRequest()
    assert codec.list_volumes("7") == pb.ListVolumesRequest(starting_token="7")
    entry = pb.ListVolumesResponse.Entry
    entries = [entry(volume=pb.Volume(volume_id="a")), entry(volume=pb.Volume(volume_id="b", accessible_topology=[HERE_PB]))]
    assert codec.listed(pb.ListVolumesResponse(entries=entries, next_token="8")) == ((("a", ()), ("b", (HERE,))), "8")
    assert codec.listed(pb.ListVolumesResponse()) == ((), "")
    with pytest.raises(BadAnswer, match="ListVolumes with OK but with an empty volume_id"):
        codec.listed(pb.ListVolumesResponse(entries=[entry()]))


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (pb.ProbeResponse(), True),
        (pb.ProbeResponse(ready=BoolValue(value=True)), True),
        (pb.ProbeResponse(ready=BoolValue(value=False)), False),
    ],
    ids=["unset", "true", "false"],
)
def test_ready(answer: pb.ProbeResponse, ready: bool) -> None:
    assert codec.is_ready(answer) is ready


def test_name_and_version() -> None:
    assert codec.name_and_version(pb.GetPluginInfoResponse(name="d", vendor_version="v1")) == ("d", "v1")
    with pytest.raises(BadAnswer, match="GetPluginInfo with an empty name"):
        codec.name_and_version(pb.GetPluginInfoResponse(vendor_version="v1"))


def test_capabilities_newer_than_our_specification_are_kept_by_number() -> None:
    service: Any = pb.PluginCapability.Service  # Any: the stubs do not know that enums are open
    rpc: Any = pb.ControllerServiceCapability.RPC
    plugin = pb.GetPluginCapabilitiesResponse(
        capabilities=[
            pb.PluginCapability(service=service(type=service.CONTROLLER_SERVICE)),
            pb.PluginCapability(service=service(type=99)),
            pb.PluginCapability(volume_expansion=pb.PluginCapability.VolumeExpansion(type=pb.PluginCapability.VolumeExpansion.ONLINE)),
            pb.PluginCapability(),
        ]
    )
    assert codec.plugin_capabilities(plugin) == {"CONTROLLER_SERVICE", "UNKNOWN_99"}
    controller = pb.ControllerGetCapabilitiesResponse(
        capabilities=[pb.ControllerServiceCapability(rpc=rpc(type=number)) for number in (rpc.GET_CAPACITY, rpc.GET_CAPACITY, -5)]
    )
    assert codec.controller_capabilities(controller) == {"GET_CAPACITY", "UNKNOWN_-5"}


def test_node() -> None:
    assert codec.node(pb.NodeGetInfoResponse(node_id="n", accessible_topology=HERE_PB)) == ("n", HERE)
    assert codec.node(pb.NodeGetInfoResponse()) == ("", Segment())
