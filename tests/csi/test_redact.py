"""No secret of any message of the specification, known today or not, shows in a log line."""

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BoolValue, Int64Value
from hypothesis import given
from hypothesis import strategies as st

from csi_proto import csi_pb2 as pb
from sidecar.csi import redact

CANARY = "canary-7f3a"
CSI_SECRET: Any = pb.csi_secret  # the generated stub does not say whose option it is


def all_messages() -> Iterator[Descriptor]:
    waiting = list(pb.DESCRIPTOR.message_types_by_name.values())
    while waiting:
        descriptor = waiting.pop()
        waiting += descriptor.nested_types
        if not descriptor.GetOptions().map_entry:
            yield descriptor


def secrets_of(descriptor: Descriptor) -> list[str]:
    """By the generated extension object, a way that the code under test does not take."""
    return [field.name for field in descriptor.fields if bool(field.GetOptions().Extensions[CSI_SECRET])]


def filled(descriptor: Descriptor, text: str, *, depth: int = 0) -> Message:
    """A message with everything set, its secrets to the canary."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        kind = field.message_type
        value = CANARY if field.name in secrets_of(descriptor) else text
        if kind is not None and kind.GetOptions().map_entry:
            getattr(message, field.name)[f"{value}-key"] = f"{value}-value"
        elif kind is not None and depth < 4:
            inner = filled(kind, text, depth=depth + 1)
            target = getattr(message, field.name)
            target.append(inner) if field.is_repeated else target.CopyFrom(inner)
        elif field.type == field.TYPE_STRING:
            getattr(message, field.name).append(value) if field.is_repeated else setattr(message, field.name, value)
        elif kind is None and not field.is_repeated and field.type != field.TYPE_BYTES:
            setattr(message, field.name, 1)
    return message


MESSAGES = sorted(all_messages(), key=lambda descriptor: descriptor.full_name)
WITH_SECRETS = [descriptor for descriptor in MESSAGES if secrets_of(descriptor)]


def test_the_specification_has_secrets_to_hide() -> None:
    assert len(WITH_SECRETS) >= 15


def test_E7_a_canary_never_shows() -> None:
    for descriptor in MESSAGES:
        message = filled(descriptor, "plain")
        line = redact.one_line(message)
        assert CANARY not in line and "\n" not in line, descriptor.full_name
        said = json.loads(line)
        assert isinstance(said, dict)
        if descriptor in WITH_SECRETS:
            assert CANARY in str(message)
            assert [said[name] for name in secrets_of(descriptor)] == [redact.STRIPPED] * len(secrets_of(descriptor))


@given(st.dictionaries(st.text(), st.text().map(lambda text: CANARY + text), min_size=1), st.dictionaries(st.text(), st.text()))
def test_E7_whatever_the_secret_and_its_neighbours(secrets: dict[str, str], parameters: dict[str, str]) -> None:
    line = redact.one_line(pb.CreateVolumeRequest(name="n", secrets=secrets, parameters=parameters))
    assert CANARY not in line
    assert len(line.split("\n")) == 1
    assert json.loads(line).get("parameters", {}) == dict.fromkeys(parameters, redact.STRIPPED)


BY_KEY = ("parameters", "mutable_parameters", "volume_context", "publish_context")


def test_of_parameters_and_contexts_only_the_keys_show() -> None:
    for descriptor in MESSAGES:
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if field.name in BY_KEY:
                getattr(message, field.name)["adminPassword"] = CANARY
        line = redact.one_line(message)
        assert CANARY not in line, descriptor.full_name
        assert line.count("adminPassword") == sum(field.name in BY_KEY for field in descriptor.fields)


def test_every_map_of_text_shows_its_keys_alone_or_has_a_reason_not_to() -> None:
    maps = {f.name for d in MESSAGES for f in d.fields if f.message_type and f.message_type.GetOptions().map_entry}
    assert maps - {field for descriptor in MESSAGES for field in secrets_of(descriptor)} == {*BY_KEY, "segments", "manifest"}


def test_a_secret_inside_a_message_inside_a_list_is_stripped_too() -> None:
    """No message of the specification is nested like this; the next version may have one."""
    file = descriptor_pb2.FileDescriptorProto(name="nested.proto", package="nested", dependency=["csi_proto/csi.proto"])
    outer = file.message_type.add(name="Outer")
    inner = descriptor_pb2.FieldDescriptorProto
    outer.field.add(name="all", number=1, type=inner.TYPE_MESSAGE, type_name=".csi.v1.DeleteVolumeRequest", label=inner.LABEL_REPEATED)
    one = outer.field.add(name="token", number=2, type=inner.TYPE_STRING, label=inner.LABEL_OPTIONAL)
    one.options.Extensions[CSI_SECRET] = True
    pool = pb.DESCRIPTOR.pool
    pool.Add(file)
    message: Any = GetMessageClass(pool.FindMessageTypeByName("nested.Outer"))(
        all=[pb.DeleteVolumeRequest(volume_id="v", secrets={"a": CANARY})], token=CANARY
    )
    assert redact.one_line(message) == '{"all":[{"volume_id":"v","secrets":"***stripped***"}],"token":"***stripped***"}'


def test_how_a_request_reads() -> None:
    message = pb.CreateVolumeRequest(
        name="pvc-1",
        capacity_range=pb.CapacityRange(required_bytes=1 << 40),
        volume_capabilities=[
            pb.VolumeCapability(
                mount=pb.VolumeCapability.MountVolume(fs_type="ext4", mount_flags=["ro"]),
                access_mode=pb.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"),
            )
        ],
        parameters={"b": "2", "a": "1"},
        secrets={"password": CANARY},
    )
    assert redact.one_line(message) == (
        '{"name":"pvc-1","capacity_range":{"required_bytes":1099511627776},"volume_capabilities":[{"mount":{"fs_type":"ext4",'
        '"mount_flags":["ro"]},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}],"parameters":{"a":"***stripped***","b":"***stripped***"},"secrets":"***stripped***"}'
    )


def test_how_an_answer_reads() -> None:
    assert redact.one_line(pb.ProbeResponse()) == "{}"
    assert redact.one_line(pb.ProbeResponse(ready=BoolValue(value=True))) == '{"ready":{"value":true}}'
    assert redact.one_line(pb.GetCapacityResponse(maximum_volume_size=Int64Value())) == '{"maximum_volume_size":{}}'
