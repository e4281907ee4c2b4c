"""Connections of whoever asks for our pages: requests in, answers out, and no client takes more than its share.

The port asks for no credentials, and every pod of a cluster may reach it. So there are bounds to the memory and the time of each client,
whatever it sends or does not send, and to the number of clients. What an answer says is in `pages`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast

from sidecar.http1.fields import Malformed
from sidecar.http1.requests import Request, read_request
from sidecar.http1.writing import answer_bytes, date_text
from sidecar.observe.pages import UNREADABLE, Answer
from sidecar.observe.turns import Turns

Phase = Literal["request", "answer", "idle", "farewell"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections, how many bytes, and seconds for each phase of a connection."""

    connections: int = 32
    """A kubelet, scrapers and people have one or two each. With one more, one of them is closed. If the new one were refused, whoever holds
    many open could make the kubelet's probes fail, and have the container restarted."""
    of_one_address: int = 12
    """More than a kubelet and people behind one address need, and so few that two addresses do not fill all."""
    discarded: int = 2**16
    """Bytes behind a request that is the last one of its connection. Nobody reads them."""
    request: float = 5.0
    """From its first byte, or from the beginning of the connection, until its head is complete."""
    answer: float = 10.0
    """From the request until the client has taken it."""
    idle: float = 120.0
    """Between requests. A scraper that comes every minute keeps its connection."""
    farewell: float = 1.0
    """From the last answer until the client closes the connection. If we closed it first, with bytes of the client unread, the client would
    hear of a broken connection and might not read the answer."""


BOUNDS: Final = Bounds()


class Connections:
    """All that are open; the one that has been without a request for longest comes first."""

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        *,
        at_once: Callable[[Request], bool] = lambda request: True,
        bounds: Bounds = BOUNDS,
    ) -> None:
        """`at_once` says which requests are answered without waiting for a turn."""
        self.answer = answer
        self.at_once = at_once
        self.bounds = bounds
        self.turns = Turns()
        self._open: dict[Connection, None] = {}
        self._closing = False
        self._none_left = asyncio.Event()
        self._none_left.set()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self) -> "Connection":
        """What the listening socket calls for each that comes in."""
        return Connection(self)

    def opened(self, connection: "Connection") -> None:
        if self._closing:
            connection.abort()
            return
        of_its_address = [other for other in self._open if other.address == connection.address]
        if len(of_its_address) >= self.bounds.of_one_address:
            of_its_address[0].abort()
        elif len(self._open) >= self.bounds.connections:
            self.give_way()
        self._open[connection] = None
        self._none_left.clear()

    def give_way(self) -> None:
        """Close one: of those whose address has the most, the one that has been without a request for longest."""
        held = Counter(connection.address for connection in self._open)
        most = max(held.values(), default=0)
        for connection in self._open:
            if held[connection.address] == most:
                connection.abort()
                return

    def asked(self, connection: "Connection") -> None:
        """A request came on it."""
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)

    def lost(self, connection: "Connection") -> None:
        self.turns.forget(connection)
        self._open.pop(connection, None)
        if not self._open:
            self._none_left.set()

    async def close(self, *, grace: float) -> None:
        """Return when all are closed. Answers that were given are sent to whoever takes them within `grace`."""
        self._closing = True
        for connection in tuple(self._open):
            connection.close()
        try:
            async with asyncio.timeout(grace):
                await self._none_left.wait()
        except TimeoutError:
            for connection in tuple(self._open):
                connection.abort()
            await self._none_left.wait()


class Connection(asyncio.Protocol):
    """One client. Its requests are answered one by one, each in a turn of the event loop of its own.

    While it waits for a turn, and while an answer is being sent, nothing more is read: a client that asks and never listens holds one
    answer and one packet of ours.
    """

    def __init__(self, connections: Connections) -> None:
        self.address = ""
        self._all = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._rest = b""
        self._waiting = False
        self._sending = False
        self._answered_last = False
        self._discarded = 0
        self._client_ended = False
        self._phase: Phase | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None

    def close(self) -> None:
        """When what was written has been sent."""
        self._transport.close()

    def abort(self) -> None:
        self._all.lost(self)
        self._transport.abort()

    # --- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # `resume_writing` says when all of an answer has been sent
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._begin("request")
        self._all.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._answered_last:
            self._discarded += len(data)
            if self._discarded > self._all.bounds.discarded:
                self.abort()
            return
        self._rest += data
        self._begin("request")
        self._take_turn()

    def eof_received(self) -> bool:
        """Whether to stay open. Who says that he is done may still wait for answers, as `nc -N` does."""
        self._client_ended = True
        self._take_turn()
        return not self._answered_last

    def pause_writing(self) -> None:
        self._sending = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._sending = False
        self._transport.resume_reading()
        self._sent()

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._all.lost(self)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def _begin(self, phase: Phase) -> None:
        """Whatever comes within a phase does not prolong it."""
        if phase == self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(getattr(self._all.bounds, phase), self.abort)

    def _take_turn(self) -> None:
        if self._turn is None and not self._waiting and not self._sending and not self._answered_last:
            self._turn = self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._turn = None
        if self._transport.is_closing():
            return
        try:
            request, self._rest = read_request(self._rest)
        except Malformed:
            self._send(UNREADABLE, last=True)
            return
        if request is not None:
            self._all.asked(self)
            self._begin("answer")
            if self._all.at_once(request):
                self._answer(request)
            else:
                self._waiting = True
                self._transport.pause_reading()
                self._all.turns.wait(self, lambda: self._answer(request))
        elif self._client_ended:
            self.close()

    def _answer(self, request: Request) -> None:
        if self._waiting:
            self._waiting = False
            self._transport.resume_reading()
        self._send(self._all.answer(request), last=not request.stays_open, with_body=request.method != "HEAD")

    def _send(self, answer: Answer, *, last: bool, with_body: bool = True) -> None:
        self._begin("answer")
        headers = {"Date": date_text(time.time()), "Connection": "close" if last else "keep-alive"}
        self._transport.write(answer_bytes(answer.status, {**answer.headers, **headers}, answer.body, with_body=with_body))
        if last:
            self._answered_last, self._rest = True, b""
            try:
                self._transport.write_eof()
            except OSError:  # the client has left, which asyncio only learns by the next read or write
                self.abort()
        if not self._sending:
            self._sent()

    def _sent(self) -> None:
        if self._answered_last:
            self._begin("farewell")
        elif self._rest or self._client_ended:
            self._begin("request")
            self._take_turn()
        else:
            self._begin("idle")
