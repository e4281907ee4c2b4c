"""Makes the calls to the driver, each with a deadline. This is the only file that catches gRPC's errors.

`DriverConnection` is what wiring opens: the socket, the link that decides whether it may be used, and the driver behind it.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from csi_proto import csi_pb2 as pb
from sidecar.csi import channel, codec, link, redact, secret_words
from sidecar.csi.api import CONTROLLER_SERVICE, NOTHING, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest, DriverInfo
from sidecar.csi.outcome import BadAnswer, Code, DriverError, Lost, NotSent
from sidecar.errors import Fatal
from sidecar.observe.logs import V

LOG: Final = logging.getLogger("sidecar.csi")
VERBOSE: Final = V(5)
"""Where upstream logs requests and answers."""
REMIND: Final = 10.0
"""Seconds after which an unchanged state is logged again."""
# Seconds. When a connection breaks, its calls may fail a moment before the channel says so.
_BREAKS_WITHIN: Final = 0.2
_AS_IF_LOST: Final = frozenset({Code.UNAVAILABLE, Code.CANCELLED})

M = TypeVar("M", bound=Message)
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[M, A]):
    """One method of the driver, with the message of its answer and the function that reads it."""

    path: str
    message: type[M]
    read: Callable[[M], A]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


PROBE: Final = Rpc("/csi.v1.Identity/Probe", pb.ProbeResponse, codec.is_ready)
PLUGIN_INFO: Final = Rpc("/csi.v1.Identity/GetPluginInfo", pb.GetPluginInfoResponse, codec.name_and_version)
PLUGIN_CAPABILITIES: Final = Rpc("/csi.v1.Identity/GetPluginCapabilities", pb.GetPluginCapabilitiesResponse, codec.plugin_capabilities)
CONTROLLER_CAPABILITIES: Final = Rpc(
    "/csi.v1.Controller/ControllerGetCapabilities", pb.ControllerGetCapabilitiesResponse, codec.controller_capabilities
)
NODE_INFO: Final = Rpc("/csi.v1.Node/NodeGetInfo", pb.NodeGetInfoResponse, codec.node)
CREATE: Final = Rpc("/csi.v1.Controller/CreateVolume", pb.CreateVolumeResponse, codec.created_volume)
DELETE: Final = Rpc("/csi.v1.Controller/DeleteVolume", pb.DeleteVolumeResponse, lambda _answer: None)
CAPACITY: Final = Rpc("/csi.v1.Controller/GetCapacity", pb.GetCapacityResponse, codec.capacity)
LIST: Final = Rpc("/csi.v1.Controller/ListVolumes", pb.ListVolumesResponse, codec.listed)
MOST_PAGES: Final = 1000
# A driver may list the volumes of all nodes. More than a cluster can have, it says by mistake.
MOST_LISTED: Final = 100_000
# Bytes of memory that a list takes. Two are held at a time, what was said last and what is being said, and a page beside them takes as much
# as one more, of the 128 MiB that a sidecar has. That is for 70,000 handles of the usual 40 characters.
MOST_MEMORY: Final = 2**24
_ENTRY: Final = 100
"""Bytes of a place in a dictionary, roughly."""
# Bytes. To read more than this, and to make an object of it, takes milliseconds.
_LARGE: Final = 16 << 10


def code_of(status: grpc.StatusCode) -> Code:
    """Both enumerations have the same seventeen names, which a test checks."""
    return Code[status.name]


class Caller:
    """Makes one call: with its deadline, log lines and metric, and its failure as a DriverError."""

    def __init__(
        self, wire: channel.Wire, *, timeout: float, on_call: Callable[[str, str, float], None], clock: Callable[[], float]
    ) -> None:
        self._wire = wire
        self._timeout = timeout
        self._on_call = on_call
        self._clock = clock
        self._reading = asyncio.Lock()

    async def call(self, rpc: Rpc[M, A], request: Message) -> A:
        _log("GRPC call", rpc, "request", request)
        raw = await self._timed(rpc, request)
        if raw is not None and len(raw) > _LARGE:
            # A hundred may come at once. What follows would then be done for all of them in one turn of the event loop.
            async with self._reading:
                await asyncio.sleep(0)
        answer = _parsed(rpc, raw)
        _log("GRPC response", rpc, "response", answer)
        return rpc.read(answer)

    async def call_or_lose(self, rpc: Rpc[M, A], request: Message) -> A:
        """The same; the failure is `Lost` if the connection broke during the call."""
        connection = self._wire.connection
        try:
            return await self.call(rpc, request)
        except DriverError as error:
            if error.code in _AS_IF_LOST and await self._wire.breaks_within(_BREAKS_WITHIN, connection):
                raise Lost(error.code, error.message) from None
            raise

    async def _timed(self, rpc: Rpc[Any, Any], request: Message) -> bytes | None:
        started = self._clock()
        result = await self._sent(rpc, request)
        error = result if isinstance(result, DriverError) else None
        self._on_call(rpc.path, (error.code if error else Code.OK).value, self._clock() - started)
        if isinstance(result, DriverError):
            LOG.log(VERBOSE, "GRPC error", extra={"fields": {"method": rpc.path, "error": str(result)}})
            raise result
        return result

    async def _sent(self, rpc: Rpc[Any, Any], request: Message) -> bytes | DriverError | None:
        """Returns the failure, since raising it here would keep gRPC's error as its context, and with it this frame with the request."""
        try:
            return await self._wire.unary(rpc.path, request.SerializeToString(), timeout=self._timeout)
        except grpc.RpcError as error:
            return DriverError(code_of(error.code()), secret_words.without_secrets(error.details() or "", request))
        except (ConnectionError, grpc.aio.UsageError) as error:
            return DriverError(Code.UNAVAILABLE, str(error))
        except asyncio.CancelledError:
            if _cancelled_by_caller():
                raise
            # gRPC raises the same when the channel is closed during a call. This task was not cancelled, so it must go on.
            return DriverError(Code.CANCELLED, "the connection was closed during the call")


class GrpcDriver:
    """`csi.api.Driver` over gRPC."""

    def __init__(self, caller: Caller, *, standing: Callable[[], link.Link]) -> None:
        self._caller = caller
        self._standing = standing

    @property
    def info(self) -> DriverInfo:
        known = self._standing().known
        if known is None:
            raise RuntimeError("the driver has not been ready yet; wait for first_ready before using it")
        return known

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        return await self._call(CREATE, codec.create_volume(request, secrets=secrets))

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        await self._call(DELETE, codec.delete_volume(volume_id, secrets=secrets))

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        return await self._call(CAPACITY, codec.get_capacity(query))

    async def list_volumes(self) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        token, seen, taken = "", set[str](), 0
        while len(seen) < MOST_PAGES:
            page, token = await self._call(LIST, codec.list_volumes(token))
            own = self.info.segment
            here = ((handle, places) for handle, places in page if not places or any(place.within(own) for place in places))
            for handle, places in here:
                taken += 0 if handle in found else sys.getsizeof(handle) + _ENTRY
                found[handle] = found.get(handle, False) or (bool(own) and {*places} == {own})
            if len(found) > MOST_LISTED:
                raise BadAnswer(f"the driver answered ListVolumes with more than {MOST_LISTED} volumes")
            if taken > MOST_MEMORY:
                raise BadAnswer(f"the driver answered ListVolumes with handles that take more than {MOST_MEMORY} bytes of memory")
            if not token:
                return found
            if token in seen:
                raise BadAnswer("the driver answered ListVolumes with the token of a page that it has given before")
            seen.add(token)
        raise BadAnswer(f"the driver answered ListVolumes with more than {MOST_PAGES} pages")

    async def _call(self, rpc: Rpc[M, A], request: Message) -> A:
        state = self._standing().state
        if not isinstance(state, link.Ready):
            raise NotSent(Code.UNAVAILABLE, f"{rpc.name} was not sent, the driver is away: {state.why}")
        return await self._caller.call_or_lose(rpc, request)


class Interview:
    """Asks the driver what the link needs to know."""

    def __init__(self, caller: Caller, on_name: Callable[[str], None], *, needs_controller: bool = True) -> None:
        self._caller = caller
        self._needs_controller = needs_controller
        self._on_name = on_name
        self._asking = ""

    async def ask(self, action: link.Probe | link.Read) -> link.Event:
        try:
            if isinstance(action, link.Probe):
                return link.Probed(await self._ask(PROBE, pb.ProbeRequest()))
            return link.InfoRead(await self._info())
        except DriverError as error:
            return link.Failed(self._asking, error)

    async def _info(self) -> DriverInfo:
        name, version = await self._ask(PLUGIN_INFO, pb.GetPluginInfoRequest())
        self._on_name(name)
        plugin = await self._ask(PLUGIN_CAPABILITIES, pb.GetPluginCapabilitiesRequest())
        controller = await self._controller(plugin)
        node_id, segment = await self._ask(NODE_INFO, pb.NodeGetInfoRequest())
        return DriverInfo(name=name, version=version, plugin=plugin, controller=controller, node_id=node_id, segment=segment)

    async def _controller(self, plugin: frozenset[str]) -> frozenset[str]:
        """As upstream it is asked even of a driver that advertises no controller, which may then answer Unimplemented.

        The node sockets of central drivers advertise the controller that they have elsewhere, and do not serve it.
        """
        try:
            return await self._ask(CONTROLLER_CAPABILITIES, pb.ControllerGetCapabilitiesRequest())
        except DriverError as error:
            if error.code is Code.UNIMPLEMENTED and not (self._needs_controller and CONTROLLER_SERVICE in plugin):
                return frozenset()
            raise

    async def _ask(self, rpc: Rpc[M, A], request: Message) -> A:
        self._asking = rpc.name
        return await self._caller.call(rpc, request)


class DriverConnection:
    """The socket, the link and the driver behind it. One task runs `run`; the rooms use `driver`."""

    def __init__(
        self,
        address: str,
        *,
        call_timeout: float,
        start_limit: float = 30.0,
        topology: bool = True,
        judges: bool = False,
        needs_controller: bool = True,
        on_state: Callable[[link.LinkState], None],
        on_call: Callable[[str, str, float], None],
        on_name: Callable[[str], None] = lambda _name: None,
        clock: Callable[[], float] = time.monotonic,
        limits: link.Limits | None = None,
    ) -> None:
        """`limits` overrides `start_limit`. `judges`: as `link.Link.judges`. `needs_controller`: a Controller service that is advertised
        has to be served. `on_state` is called for each change, `on_call` for each call that was sent, and `on_name` with the driver's
        name, before it is asked for more.
        """
        path = channel.socket_path(address)
        self._limits = limits or link.Limits(start=start_limit, patience=call_timeout)
        self._topology, self._judges = topology, judges
        self._on_state = on_state
        self._clock = clock
        self._wire = channel.Wire(path, grace=call_timeout)
        self._link, self._first = link.Link.start(path, now=clock(), limits=self._limits, topology=topology, judges=judges)
        self._told: tuple[link.LinkState | None, float] = (None, 0.0)
        self._settled = asyncio.Event()
        caller = Caller(self._wire, timeout=call_timeout, on_call=on_call, clock=clock)
        self._interview = Interview(caller, on_name, needs_controller=needs_controller)
        self.driver: Final = GrpcDriver(caller, standing=lambda: self._link)

    @property
    def state(self) -> link.LinkState:
        return self._link.state

    async def run(self) -> None:
        """Keep the connection until cancelled. Raises Fatal when the link gives up."""
        start = link.Link.start(self._link.path, now=self._clock(), limits=self._limits, topology=self._topology, judges=self._judges)
        end = await channel.move(self._wire, start=start, ask=self._interview.ask, clock=self._clock, on_step=self._stepped)
        raise Fatal(end.text)

    async def first_ready(self) -> DriverInfo:
        """Wait until the driver has been ready once. Raises Fatal if the link gives up before. `run` must be running."""
        await self._settled.wait()
        if self._link.known is None:
            raise Fatal(self._link.state.why)
        return self._link.known

    async def close(self) -> None:
        """To be called when `run` has ended. Calls in flight end as Canceled, so wait for them before if their answers matter."""
        await self._wire.close()

    def _stepped(self, new: link.Link) -> None:
        old, self._link = self._link, new
        if isinstance(new.state, link.Ready):
            for remark in link.remarks(old.known, new.state.info, topology=self._topology):
                LOG.warning(remark.message, extra={"fields": dict(remark.fields)})
        self._tell(new.state)
        if isinstance(new.state, (link.Ready, link.GaveUp)):
            self._settled.set()

    def _tell(self, state: link.LinkState) -> None:
        told, at = self._told
        if state != told:
            self._on_state(state)
        elif self._clock() - at < REMIND:
            return
        self._told = (state, self._clock())
        level = logging.WARNING if isinstance(state, (link.Lost, link.GaveUp)) else logging.INFO
        LOG.log(level, "Driver connection", extra={"fields": {"state": type(state).__name__, **_details(state)}})


def _details(state: link.LinkState) -> dict[str, str]:
    if isinstance(state, link.Ready):
        return {"driver": state.info.name, "version": state.info.version, "node": state.info.node_id, "segment": str(state.info.segment)}
    return {"why": state.why}


def _parsed(rpc: Rpc[M, Any], raw: bytes | None) -> M:
    if raw is None:
        raise BadAnswer(f"the driver answered {rpc.name} with OK but without a message")
    if len(raw) > (channel.LARGEST_LIST if rpc is LIST else channel.LARGEST_ANSWER):
        raise BadAnswer(f"the driver answered {rpc.name} with {len(raw)} bytes, where CSI allows a few KiB")
    try:
        return rpc.message.FromString(raw)
    except DecodeError as error:
        raise BadAnswer(f"the driver answered {rpc.name} with bytes that are no {rpc.message.__name__}: {error}") from None


def _log(text: str, rpc: Rpc[Any, Any], kind: str, message: Message) -> None:
    if LOG.isEnabledFor(VERBOSE):  # so that redacting costs nothing where it is not logged
        LOG.log(VERBOSE, text, extra={"fields": {"method": rpc.path, kind: redact.one_line(message)}})


def _cancelled_by_caller() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
