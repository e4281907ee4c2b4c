"""The local driver behind a gRPC socket: `python -m hack.sim.driver.serve --endpoint /run/csi.sock --node-id node-a`.

It is the driver of the demo and the tests, not a product: its volumes are entries in a journal or, with `--volumes`, plain folders, and
nobody's data should live there. Identity, Controller and Node share one socket; on a second one it registers itself with a kubelet that is
told of. What a file of faults may say is told in `calls`.
"""

import os
import signal
from dataclasses import dataclass

if __name__ == "__main__":
    # As PID 1 of a container a process without a handler ignores SIGTERM; importing what follows takes a while. `run` has its own.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # Read by gRPC's core when it is imported: no child process is ever started here.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue, Int64Value

from csi_proto import csi_pb2 as pb
from csi_proto import plugin_registration_pb2 as kubelet
from hack.sim.driver.calls import Faults, Reception, Record
from hack.sim.driver.folders import Folders
from hack.sim.driver.local_driver import DEFAULT_NAME, DEFAULT_POOLS, LocalDriver, Spec
from sidecar.csi import api, redact
from sidecar.csi.api import Capability, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError
from sidecar.model.quantity import parse_bytes
from sidecar.model.topology import Segment

Act = Callable[[LocalDriver, Any], Message]
Serve = Callable[[Any, Any], Awaitable[Message]]

_LONGEST_SOCKET_PATH: Final = 107
_GRACE_SECONDS: Final = 1.0
_CSI_VERSIONS: Final = ("1.0.0",)
"""What the kubelet asks for: any driver of CSI 1.x says the first of them."""


# ---- the driver's answers, as messages ----


def _plugin_info(driver: LocalDriver, _: Message) -> Message:
    return pb.GetPluginInfoResponse(name=driver.info.name, vendor_version=driver.info.version)


def _plugin_capabilities(driver: LocalDriver, _: Message) -> Message:
    claimed = [{"service": {"type": name}} for name in sorted(driver.info.plugin)]
    return pb.GetPluginCapabilitiesResponse(capabilities=claimed)


def _controller_capabilities(driver: LocalDriver, _: Message) -> Message:
    claimed = [{"rpc": {"type": name}} for name in sorted(driver.info.controller)]
    return pb.ControllerGetCapabilitiesResponse(capabilities=claimed)


def _create(driver: LocalDriver, message: pb.CreateVolumeRequest) -> pb.CreateVolumeResponse:
    requirements, source = message.accessibility_requirements, message.volume_content_source
    request = CreateRequest(
        name=message.name,
        required_bytes=message.capacity_range.required_bytes,
        capabilities=_capabilities(message.volume_capabilities),
        parameters=dict(message.parameters),
        requisite=tuple(Segment.of(topology.segments) for topology in requirements.requisite),
        preferred=tuple(Segment.of(topology.segments) for topology in requirements.preferred),
        mutable_parameters=dict(message.mutable_parameters),
        source_snapshot=source.snapshot.snapshot_id,
        source_volume=source.volume.volume_id,
    )
    return pb.CreateVolumeResponse(volume=_volume(driver.create(request, limit_bytes=message.capacity_range.limit_bytes)))


def _delete(driver: LocalDriver, message: pb.DeleteVolumeRequest) -> pb.DeleteVolumeResponse:
    driver.delete(message.volume_id)
    return pb.DeleteVolumeResponse()


def _validate(driver: LocalDriver, message: pb.ValidateVolumeCapabilitiesRequest) -> pb.ValidateVolumeCapabilitiesResponse:
    why_not = driver.validate(message.volume_id, _capabilities(message.volume_capabilities))
    if why_not:
        return pb.ValidateVolumeCapabilitiesResponse(message=why_not)
    confirmed = {name: getattr(message, name) for name in ("volume_context", "volume_capabilities", "parameters")}
    return pb.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)


def _list(driver: LocalDriver, message: pb.ListVolumesRequest) -> pb.ListVolumesResponse:
    page, token = driver.list_volumes(message.max_entries, message.starting_token)
    entries = [pb.ListVolumesResponse.Entry(volume=_volume(volume)) for volume in page]
    return pb.ListVolumesResponse(entries=entries, next_token=token)


def _capacity(driver: LocalDriver, message: pb.GetCapacityRequest) -> pb.GetCapacityResponse:
    segment = Segment.of(message.accessible_topology.segments) if message.HasField("accessible_topology") else None
    answer = driver.get_capacity(CapacityQuery(dict(message.parameters), segment, _capabilities(message.volume_capabilities)))
    return pb.GetCapacityResponse(
        available_capacity=answer.available,
        maximum_volume_size=None if answer.maximum is None else Int64Value(value=answer.maximum),
        minimum_volume_size=None if answer.minimum is None else Int64Value(value=answer.minimum),
    )


def _node_info(driver: LocalDriver, _: Message) -> Message:
    segment = driver.info.segment
    return pb.NodeGetInfoResponse(node_id=driver.info.node_id, accessible_topology={"segments": segment.labels()} if segment else None)


def _node_capabilities(driver: LocalDriver, _: Message) -> Message:
    claimed = [{"rpc": {"type": name}} for name in (api.SINGLE_NODE_MULTI_WRITER,) if name in driver.info.controller]
    return pb.NodeGetCapabilitiesResponse(capabilities=claimed)


def _publish(driver: LocalDriver, message: pb.NodePublishVolumeRequest) -> pb.NodePublishVolumeResponse:
    use = _capability(message.volume_capability) if message.HasField("volume_capability") else None
    driver.publish(message.volume_id, message.target_path, capability=use, readonly=message.readonly)
    return pb.NodePublishVolumeResponse()


def _unpublish(driver: LocalDriver, message: pb.NodeUnpublishVolumeRequest) -> pb.NodeUnpublishVolumeResponse:
    driver.unpublish(message.volume_id, message.target_path)
    return pb.NodeUnpublishVolumeResponse()


def _volume(volume: CreatedVolume) -> pb.Volume:
    return pb.Volume(
        volume_id=volume.volume_id,
        capacity_bytes=volume.capacity_bytes,
        volume_context=volume.context,
        accessible_topology=[pb.Topology(segments=segment.labels()) for segment in volume.topologies],
    )


def _capabilities(messages: Iterable[pb.VolumeCapability]) -> tuple[Capability, ...]:
    return tuple(_capability(message) for message in messages)


def _capability(message: pb.VolumeCapability) -> Capability:
    kind = message.WhichOneof("access_type")
    if kind is None:
        raise DriverError(Code.INVALID_ARGUMENT, "a volume capability says neither block nor mount")
    try:
        mode = pb.VolumeCapability.AccessMode.Mode.Name(message.access_mode.mode)
    except ValueError as error:
        raise DriverError(Code.INVALID_ARGUMENT, f"no such access mode: {message.access_mode.mode}") from error
    return Capability(mode, kind == "block", message.mount.fs_type, tuple(message.mount.mount_flags))


# ---- the services ----


@dataclass(frozen=True, slots=True)
class Method:
    """One remote procedure: the message it takes, what it does, and the field that says which volume it is about."""

    takes: type[Message]
    act: Act
    about: str = ""


# What is not listed here gRPC itself answers with UNIMPLEMENTED.
SERVICES: Final = {
    "csi.v1.Identity": {
        "GetPluginInfo": Method(pb.GetPluginInfoRequest, _plugin_info),
        "GetPluginCapabilities": Method(pb.GetPluginCapabilitiesRequest, _plugin_capabilities),
        "Probe": Method(pb.ProbeRequest, lambda _driver, _message: pb.ProbeResponse(ready=BoolValue(value=True))),
    },
    "csi.v1.Controller": {
        "ControllerGetCapabilities": Method(pb.ControllerGetCapabilitiesRequest, _controller_capabilities),
        "CreateVolume": Method(pb.CreateVolumeRequest, _create, "name"),
        "DeleteVolume": Method(pb.DeleteVolumeRequest, _delete, "volume_id"),
        "ValidateVolumeCapabilities": Method(pb.ValidateVolumeCapabilitiesRequest, _validate, "volume_id"),
        "ListVolumes": Method(pb.ListVolumesRequest, _list),
        "GetCapacity": Method(pb.GetCapacityRequest, _capacity),
    },
    "csi.v1.Node": {
        "NodeGetInfo": Method(pb.NodeGetInfoRequest, _node_info),
        "NodeGetCapabilities": Method(pb.NodeGetCapabilitiesRequest, _node_capabilities),
        "NodePublishVolume": Method(pb.NodePublishVolumeRequest, _publish, "volume_id"),
        "NodeUnpublishVolume": Method(pb.NodeUnpublishVolumeRequest, _unpublish, "volume_id"),
    },
}


@asynccontextmanager
async def serving(
    driver: LocalDriver, endpoint: str | Path, *, reception: Reception | None = None, node_only: bool = False
) -> AsyncIterator[Reception]:
    """The driver answers on this socket inside the block. Faults are set, and calls read, at the Reception it gives. `node_only`: without
    the Controller service."""
    path = _socket_place(Path(str(endpoint).removeprefix("unix://")))
    reception = reception or Reception()
    server = grpc.aio.server()
    for service, methods in SERVICES.items():
        if not (node_only and service == "csi.v1.Controller"):
            served = {name: _handler(method.takes, _served(name, method, driver, reception)) for name, method in methods.items()}
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, served)])
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield reception
    finally:
        await server.stop(_GRACE_SECONDS)
        await reception.close()


def _handler(takes: type[Message], serve: Serve) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        serve, request_deserializer=takes.FromString, response_serializer=lambda message: message.SerializeToString()
    )


def _served(name: str, method: Method, driver: LocalDriver, reception: Reception) -> Serve:
    async def serve(message: Any, context: Any) -> Message:
        about = str(getattr(message, method.about)) if method.about else ""
        request = json.loads(redact.one_line(message))
        try:
            return await reception.attend(name, about, request=request, act=lambda: method.act(driver, message))
        except DriverError as error:
            await context.abort(grpc.StatusCode[error.code.name], error.message)
            raise

    return serve


def _socket_place(path: Path) -> Path:
    """Makes room for the socket: a driver that was killed leaves its own behind. Anything else at that path is left alone."""
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        raise ValueError(f"{path} is too long for a unix socket ({_LONGEST_SOCKET_PATH} bytes)")
    if path.exists() and not path.is_socket():
        raise FileExistsError(f"{path} is there already and is no socket")
    path.unlink(missing_ok=True)
    return path


# ---- the registration ----


@asynccontextmanager
async def registering(name: str, folder: Path, endpoint: str, refused: Callable[[str], None]) -> AsyncIterator[None]:
    """The kubelet, which looks into that folder, finds the driver inside the block, also after a restart of its own. `endpoint` is the
    driver's own socket, as the kubelet sees it."""
    path = _socket_place(folder / f"{name}-reg.sock")

    async def info(_: kubelet.InfoRequest, _context: Any) -> kubelet.PluginInfo:
        return kubelet.PluginInfo(type="CSIPlugin", name=name, endpoint=endpoint, supported_versions=_CSI_VERSIONS)

    async def status(message: kubelet.RegistrationStatus, _context: Any) -> kubelet.RegistrationStatusResponse:
        if message.plugin_registered:
            _say(f"the kubelet has registered {name} at {endpoint}")
        else:
            refused(message.error or "it gives no reason")
        return kubelet.RegistrationStatusResponse()

    handlers = {"GetInfo": _handler(kubelet.InfoRequest, info), "NotifyRegistrationStatus": _handler(kubelet.RegistrationStatus, status)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pluginregistration.Registration", handlers)])
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        # With the server gRPC takes away its socket, and by that the kubelet knows that the driver has gone.
        await server.stop(_GRACE_SECONDS)


# ---- the process ----


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """With `spec` made of them. Ends the process with exit code 2 and a reason if the arguments make no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.volumes and "/" in given.node_id:
        parser.error("with --volumes folders are named after the node id, which therefore has no slash")
    if (given.kubelet_registration_dir is None) != (given.kubelet_socket_path is None):
        parser.error("--kubelet-registration-dir and --kubelet-socket-path go together")
    # Beside its volumes, so that who moves or removes the folder has both in hand.
    given.state = given.volumes / ".journal" if given.volumes and not given.state else given.state
    try:
        given.spec = Spec(
            node_id=given.node_id,
            name=given.name,
            pools={name: parse_bytes(size) for name, size in given.pool} if given.pool else DEFAULT_POOLS,
            measured=given.volumes is not None and not given.pool,
            topology=dict(given.topology),
            knows_topology=not given.no_topology,
        )
    except ValueError as error:
        parser.error(str(error))
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.sim.driver.serve",
        description="A CSI driver for tests and demos: finite pools on one node, faults on demand, volumes that are entries in a journal "
        "or, with --volumes, folders that pods can write to. Not for anybody's data: no quota, no second copy.",
        epilog="Classes select a pool by the parameter `pool`; one without it gets the first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--endpoint", required=True, metavar="PATH", help="the unix socket; a stale one is replaced")
    add("--node-id", required=True, metavar="ID")
    add("--name", default=DEFAULT_NAME, help="the driver's name (default: %(default)s)")
    alone = "serve no Controller service, as the node plugins of drivers that provision centrally; what is claimed stays"
    add("--node-service-only", dest="node_only", action="store_true", help=alone)
    topology = "repeatable; default: topology.<name>/node=<node id>"
    add("--topology", type=pair, action="append", default=[], metavar="KEY=VALUE", help=topology)
    pools = "repeatable (default: standard=100Gi; with --volumes what the file system has free)"
    add("--pool", type=pair, action="append", metavar="NAME=SIZE", help=pools)
    real = "volumes are folders in here, bind-mounted into pods (needs the right to mount); no raw block volumes"
    add("--volumes", type=Path, metavar="DIR", help=real)
    journal = "the journal of volumes; without it a restart forgets them (default with --volumes: DIR/.journal)"
    add("--state", type=Path, metavar="FILE", help=journal)
    add("--calls", type=Path, metavar="FILE", help="where every call is recorded, as JSON lines")
    add("--faults", type=Path, metavar="FILE", help="a JSON list of faults, read anew whenever it changes")
    folder = "register with the kubelet, by a socket in this folder (on the node: /var/lib/kubelet/plugins_registry)"
    add("--kubelet-registration-dir", type=Path, metavar="DIR", help=folder)
    add("--kubelet-socket-path", metavar="PATH", help="the path of --endpoint on the node, which is what the kubelet is told")
    add("--no-topology", action="store_true", help=f"do not claim {api.TOPOLOGY}")
    return parser


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


async def run(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT. A kubelet that refuses the driver is a RuntimeError."""
    stop, refusals = asyncio.Event(), list[str]()

    def refused(why: str) -> None:
        refusals.append(why)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    backing = Folders(options.volumes, node_id=options.spec.node_id) if options.volumes else None
    driver = LocalDriver(options.spec, state=options.state, backing=backing)
    reception = Reception(record=Record(options.calls), faults=Faults(options.faults, complain=_say))
    async with AsyncExitStack() as stack:
        stack.callback(driver.close)
        await stack.enter_async_context(serving(driver, options.endpoint, reception=reception, node_only=options.node_only))
        _say(f"serving {options.spec.name} for node {options.spec.node_id} on {options.endpoint}")
        if folder := options.kubelet_registration_dir:
            await stack.enter_async_context(registering(options.spec.name, folder, options.kubelet_socket_path, refused))
        await stop.wait()
    if refusals:
        raise RuntimeError(f"the kubelet refuses to register the driver: {refusals[0]}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(sys.argv[1:] if arguments is None else arguments)
    try:
        asyncio.run(run(options))
    except (OSError, RuntimeError, ValueError) as error:  # gRPC tells with a RuntimeError that it cannot listen
        _say(str(error))
        return 1
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"serve_driver: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
