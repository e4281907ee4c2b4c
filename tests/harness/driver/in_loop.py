"""A CSI driver behind a real socket, in the event loop of the test. Its answers, its failures and its slowness are plain fields."""

from __future__ import annotations  # the gRPC classes are generic for the type checker only

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BoolValue

from csi_proto import csi_pb2 as pb
from sidecar.csi.driver import DriverConnection
from sidecar.csi.link import Limits, LinkState
from sidecar.engine.backoff import Backoff
from tests.harness.loops import until

PLUGIN = pb.PluginCapability.Service
RPC = pb.ControllerServiceCapability.RPC
QUICK = Limits(start=1.5, probe_pause=0.02, patience=0.5, backoff=Backoff(start=0.02, cap=0.05))


@dataclass
class FakeDriver:
    path: Path
    name: str = "test-driver"
    plugin: list[Any] = field(default_factory=lambda: [PLUGIN.CONTROLLER_SERVICE, PLUGIN.VOLUME_ACCESSIBILITY_CONSTRAINTS])
    controller: list[Any] = field(default_factory=lambda: [RPC.CREATE_DELETE_VOLUME, RPC.GET_CAPACITY])
    node_id: str = "node-1"
    segments: dict[str, str] = field(default_factory=lambda: {"topology.test/node": "node-1"})
    ready: bool | None = None
    volume: pb.Volume | None = field(default_factory=lambda: pb.Volume(volume_id="test-volume-id", capacity_bytes=100))
    pages: list[pb.ListVolumesResponse] = field(default_factory=lambda: [pb.ListVolumesResponse()])
    """The last one for ever."""
    fails: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    """Methods that are not answered before `let_go` is set."""
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    running: int = 0
    cancelled: int = 0
    _server: grpc.aio.Server | None = None

    async def start(self, *options: tuple[str, int]) -> None:
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(tuple(self._services()))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def __aenter__(self) -> FakeDriver:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self, grace: float = 0) -> None:
        """Without grace it is a kill: connections break, and gRPC removes the socket."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    def count(self, method: str) -> int:
        return self.calls.count(method)

    def _services(self) -> list[grpc.GenericRpcHandler]:
        services: dict[str, dict[str, tuple[Any, Callable[[], Any]]]] = {
            "Identity": {
                "Probe": (pb.ProbeRequest, self._probe),
                "GetPluginInfo": (pb.GetPluginInfoRequest, lambda: pb.GetPluginInfoResponse(name=self.name, vendor_version="v1")),
                "GetPluginCapabilities": (pb.GetPluginCapabilitiesRequest, self._plugin),
            },
            "Controller": {
                "ControllerGetCapabilities": (pb.ControllerGetCapabilitiesRequest, self._controller),
                "CreateVolume": (pb.CreateVolumeRequest, lambda: pb.CreateVolumeResponse(volume=self.volume)),
                "DeleteVolume": (pb.DeleteVolumeRequest, pb.DeleteVolumeResponse),
                "ListVolumes": (pb.ListVolumesRequest, lambda: self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]),
                "GetCapacity": (pb.GetCapacityRequest, lambda: pb.GetCapacityResponse(available_capacity=1000)),
            },
            "Node": {"NodeGetInfo": (pb.NodeGetInfoRequest, self._node)},
        }
        return [
            grpc.method_handlers_generic_handler(
                f"csi.v1.{service}", {name: self._handler(name, *method) for name, method in methods.items()}
            )
            for service, methods in services.items()
        ]

    def _handler(self, name: str, request: Any, answer: Callable[[], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        async def handle(asked: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            self.calls.append(name)
            self.requests.append(asked)
            self.running += 1
            try:
                await asyncio.sleep(self.slow.get(name, 0.0))
                if name in self.held:
                    await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.running -= 1
            if name in self.fails:
                await context.abort(*self.fails[name])
            return self.raw[name] if name in self.raw else answer().SerializeToString()

        return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=request.FromString)

    def _probe(self) -> pb.ProbeResponse:
        return pb.ProbeResponse(ready=None if self.ready is None else BoolValue(value=self.ready))

    def _plugin(self) -> pb.GetPluginCapabilitiesResponse:
        services = [pb.PluginCapability(service=PLUGIN(type=number)) for number in self.plugin]
        return pb.GetPluginCapabilitiesResponse(capabilities=services)

    def _controller(self) -> pb.ControllerGetCapabilitiesResponse:
        rpcs = [pb.ControllerServiceCapability(rpc=RPC(type=number)) for number in self.controller]
        return pb.ControllerGetCapabilitiesResponse(capabilities=rpcs)

    def _node(self) -> pb.NodeGetInfoResponse:
        return pb.NodeGetInfoResponse(node_id=self.node_id, accessible_topology=pb.Topology(segments=self.segments))


@dataclass
class Seen:
    """What a connection told about itself."""

    states: list[LinkState] = field(default_factory=list)
    calls: list[tuple[str, str, float]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [type(state).__name__ for state in self.states]

    def codes(self, method: str) -> list[str]:
        return [code for path, code, _seconds in self.calls if path.endswith("/" + method)]


@contextlib.asynccontextmanager
async def connection(
    path: Path | str, *, timeout: float = 5.0, **settings: Any
) -> AsyncIterator[tuple[DriverConnection, Seen, asyncio.Task[None]]]:
    """A connection whose `run` is a task of its own, ended and closed afterwards."""
    seen = Seen()
    door = DriverConnection(
        str(path),
        call_timeout=timeout,
        limits=QUICK,
        on_state=seen.states.append,
        on_call=lambda *call: seen.calls.append(call),
        **settings,
    )
    task = asyncio.create_task(door.run())
    try:
        yield door, seen, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await door.close()


async def becomes(seen: Seen, state: type[LinkState]) -> None:
    await until(lambda: bool(seen.states) and isinstance(seen.states[-1], state))
