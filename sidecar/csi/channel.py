"""Opens the driver's socket, and performs the actions that `link` decides. No other file knows of the socket.

A connection is one gRPC channel, and a new one is opened after each loss. gRPC could reconnect by itself, but then calls would reach a
restarted driver before it was asked whether it is the same one.
"""

import asyncio
import errno
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc

from sidecar.csi import link
from sidecar.csi.outcome import Code, DriverError
from sidecar.errors import Fatal

_READY: Final = grpc.ChannelConnectivity.READY
_FAILED: Final = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)

# gRPC takes a deadline more than about 220 years away for one that has passed.
_LONGEST_CALL: Final = 365 * 86400.0

# gRPC ends the process if it cannot open its own files: eight with the first channel, one with each.
_FILES_FOR_A_CHANNEL: Final = 12
# Bytes. Go's clients take as much, so drivers keep within it. Only lists of volumes are so large, of which one is asked at a time.
LARGEST_LIST: Final = 4 << 20
# Bytes of any other answer. By CSI it has a few KiB.
LARGEST_ANSWER: Final = 512 << 10
# An answer over its limit gRPC turns into RESOURCE_EXHAUSTED, and so a status whose text is over that for metadata. Nothing tells that from
# the driver's own word, by which there is no volume. So these have no limit, and `driver` looks at the size.
_UNLIMITED: Final = ("CreateVolume", "DeleteVolume")
_NO_LIMIT: Final = 2**31 - 1

OPTIONS: Final = (
    # By default the authority is the percent-encoded path, which servers written in Go refuse.
    ("grpc.default_authority", "localhost"),
    # By default half an hour without a call closes the connection, and a quiet node would seem to have lost its driver.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    # By default channels to the same address share connections and their back-off. Here `link` decides about both.
    ("grpc.use_local_subchannel_pool", 1),
    # No keepalive: on a unix socket deadlines find the same failures, and servers close connections because of it.
    # No reconnect back-off: its minimum would limit the first handshake too, which a busy driver may not complete in 200 ms.
    # By default gRPC lets each end send the more at once the faster that went before. On a socket of one machine that has no end: a hundred
    # answers of 5 MB, each of which it would refuse, took 100 MiB. Without that an answer has 64 KiB before it is known how long it is.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", -1),
    (
        "grpc.service_config",
        json.dumps(
            {
                "methodConfig": [
                    {"name": [{"service": "csi.v1.Controller", "method": method} for method in _UNLIMITED]},
                    {"name": [{"service": "csi.v1.Controller", "method": "ListVolumes"}], "maxResponseMessageBytes": LARGEST_LIST},
                    {"name": [{}], "maxResponseMessageBytes": LARGEST_ANSWER},
                ]
            }
        ),
    ),
    # Drivers put the output of their tools into the text of a status, which is metadata.
    ("grpc.max_metadata_size", _NO_LIMIT),
    ("grpc.absolute_max_metadata_size", _NO_LIMIT),
)


def socket_path(address: str) -> str:
    """The path of `/csi/csi.sock`, `unix:///csi/csi.sock` or `unix:csi.sock`. Only a unix socket is surely a driver on this node."""
    if address.startswith("/"):
        return address
    scheme, colon, rest = address.partition(":")
    if scheme != "unix" or not colon:
        raise Fatal(f"--csi-address={address} is no unix socket; write it as /path/to/csi.sock or unix:///path/to/csi.sock")
    return rest.removeprefix("//")


def _target(path: str) -> str:
    """The address for gRPC, with an empty authority: without one, a path that begins with two slashes would be taken for an authority."""
    return f"unix://{quote(os.fsencode(Path(path).absolute()))}"


class Wire:
    """The driver's socket, and the gRPC channels that are open on it."""

    def __init__(self, path: str, *, grace: float, recheck: float = 5.0) -> None:
        """`grace`: seconds for which calls on a replaced connection may continue. `recheck`: seconds between looks at whether the file
        was replaced."""
        self._path = path
        self._grace = grace
        self._recheck = recheck
        self._channel: grpc.aio.Channel | None = None
        self._changed: asyncio.Task[None] | None = None
        self._file: tuple[int, ...] = ()
        self._retiring: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    async def connect(self, patience: float) -> link.Connected | link.ConnectFailed:
        self._retire(self._grace)
        why = why_no_socket(self._path) or why_no_files(self._path)
        if why:
            return link.ConnectFailed(why)
        self._file = _identity(self._path)
        channel = grpc.aio.insecure_channel(_target(self._path), options=OPTIONS)
        try:
            why = await self._open(channel, patience)
            if not why:
                self._channel = channel
                self._changed = asyncio.create_task(channel.wait_for_state_change(_READY))
                return link.Connected()
            return link.ConnectFailed(why)
        finally:
            if self._channel is not channel:
                await channel.close()

    async def _open(self, channel: grpc.aio.Channel, patience: float) -> str:
        try:
            async with asyncio.timeout(patience):
                state = channel.get_state(try_to_connect=True)
                while state is not _READY:
                    if state in _FAILED:
                        return why_refused(self._path)
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            return f"{self._path} accepts connections, but did not answer on one for {patience:.3g} s; the driver seems to hang"
        return ""

    @property
    def connection(self) -> object:
        """The connection that is open now, to be compared with a later one."""
        return self._channel

    async def breaks_within(self, seconds: float, connection: object) -> bool:
        """Whether that connection is lost, or is within so many seconds."""
        if self._channel is connection and self._changed is not None:
            await asyncio.wait({self._changed}, timeout=seconds)
        return self._channel is not connection or self._changed is None or self._changed.done()

    def replaced(self) -> str:
        """Says so if another socket has taken the place of the one that is connected, whose driver may live on; else empty."""
        return "" if _identity(self._path) in (self._file, ()) else f"{self._path} has been replaced by another socket"

    async def broken(self) -> link.Disconnected:
        """Returns when the connection is lost, or when another socket has taken the place of this one."""
        changed = self._changed
        if changed is None:
            return link.Disconnected("the connection was closed")
        while not changed.done():
            await asyncio.wait({changed}, timeout=self._recheck)
            if not changed.done() and (why := self.replaced()):
                return link.Disconnected(why)
        return link.Disconnected(f"the connection to the driver at {self._path} was lost")

    async def unary(self, method: str, request: bytes, *, timeout: float) -> bytes | None:
        """One call. It raises gRPC's errors, which `driver` translates. None: the answer was OK and had no message."""
        if self._channel is None:
            raise ConnectionError(f"{self._path} is not connected")
        # Bytes in and out: messages are the codec's part.
        method_call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes | None] = self._channel.unary_unary(method, None, None)
        return await method_call(request, timeout=min(timeout, _LONGEST_CALL))

    async def close(self) -> None:
        """Close all connections at once, with their calls."""
        self._retire(0.0)
        retiring, self._retiring = self._retiring, {}
        for task, channel in retiring.items():
            task.cancel()
            await channel.close()

    def _retire(self, grace: float) -> None:
        """Calls on the old connection may still end by themselves: a server that stops gracefully waits for them."""
        channel, changed, self._channel, self._changed = self._channel, self._changed, None, None
        if changed is not None:
            changed.cancel()
        if channel is not None:
            task = asyncio.create_task(_close_after(channel, grace))
            self._retiring[task] = channel
            task.add_done_callback(lambda done: self._retiring.pop(done, None))


async def _close_after(channel: grpc.aio.Channel, grace: float) -> None:
    """Close after a while. gRPC's own grace period cannot be cut short once it has begun."""
    await asyncio.sleep(grace)
    await channel.close()


def why_no_socket(path: str) -> str:
    """Why there is no socket at this path; empty if there is one."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  # beside the other calls of os and socket a Path would only be in the way
    except FileNotFoundError:
        return f"{path} does not exist"
    except OSError as error:
        return f"{path} cannot be reached ({error.strerror})"
    if stat.S_ISSOCK(mode):
        return ""
    kind = "a directory" if stat.S_ISDIR(mode) else "a regular file" if stat.S_ISREG(mode) else "something else"
    return f"{path} is no socket but {kind}"


def why_no_files(path: str) -> str:
    """Why gRPC must not be asked to open a channel now; empty if it may."""
    try:
        with ExitStack() as opened:
            for _ in range(_FILES_FOR_A_CHANNEL):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} cannot be connected to ({error.strerror}: this process has used up the files that it may open)"
    return ""


def why_refused(path: str) -> str:
    """Why no connection could be opened. gRPC does not say, so the kernel is asked by a connection of our own, only after a failure."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except OSError as error:  # of `socket` too: this process may have used up its open files
        if error.errno == errno.ECONNREFUSED:
            return f"nobody listens on {path} (a socket left behind by a driver that ended)"
        return f"{path} cannot be connected to ({error.strerror or error})"
    return f"what listens on {path} does not speak gRPC"


def _identity(path: str) -> tuple[int, ...]:
    """The identity of the file; empty if there is none. The inode alone is not enough, since the next file may get the same one."""
    try:
        found = os.stat(path)  # noqa: PTH116  # as above
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


async def move(
    wire: Wire,
    *,
    start: tuple[link.Link, link.Action],
    ask: Callable[[link.Probe | link.Read], Awaitable[link.Event]],
    clock: Callable[[], float],
    on_step: Callable[[link.Link], None],
) -> link.GiveUp:
    """Perform one action of the link after the other, until it gives up."""
    current, action = start
    on_step(current)
    while not isinstance(action, link.GiveUp):
        await asyncio.sleep(action.after)
        event = await _perform(action, wire, ask)
        current, action = current.step(event, now=clock())
        on_step(current)
    return action


async def _perform(
    action: link.Connect | link.Probe | link.Read | link.Serve,
    wire: Wire,
    ask: Callable[[link.Probe | link.Read], Awaitable[link.Event]],
) -> link.Event:
    match action:
        case link.Connect(patience=patience):
            return await wire.connect(patience)
        case link.Serve():
            return await wire.broken()
        case link.Probe() | link.Read():
            # The driver that is connected may hang, or never get ready, for as long as it lives.
            if why := wire.replaced():
                return link.Failed(type(action).__name__, DriverError(Code.UNAVAILABLE, why))
            return await ask(action)
