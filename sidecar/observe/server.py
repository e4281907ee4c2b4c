"""Serves our pages: opens the only sockets that listen, and closes them with all their connections.

`pages` makes the answers, `listening` accepts the clients, `connections` limits them. Pages are served by the event loop that does the
work, so an answer within a probe's timeout proves that the loop runs.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from sidecar.errors import Fatal
from sidecar.http1.requests import Request
from sidecar.observe.connections import BOUNDS, Bounds, Connections
from sidecar.observe.debug import DebugPages, debug_pages
from sidecar.observe.listening import Listening
from sidecar.observe.pages import FAILED, Answer, Exposition, Pages, Verdict

log = logging.getLogger("sidecar.observe")

# A page takes milliseconds. A client that needs longer to read must not delay the end of the process.
SHUTDOWN_GRACE: Final = 0.5
_BACKLOG: Final = 128


class ObserveServer:
    """Serves from `start` to `stop`. An address is as in Go: `:8080`, `0.0.0.0:8080`, `[::1]:8080`; an empty one is not served on.

    `live` and `ready` return a verdict and its reasons, one for each line; `scopes` returns the lines of `/readyz?verbose`. A debug page
    exists if its callable was passed in, and shows what that returns, at the second address alone. That may be the first as well.
    """

    def __init__(
        self,
        address: str,
        metrics_path: str = "/metrics",
        *,
        metrics: Exposition,
        live: Callable[[], Verdict],
        ready: Callable[[], Verdict],
        scopes: Callable[[], Iterable[object]] = tuple,
        queues: Callable[[], object] | None = None,
        decisions: Callable[[str | None], object] | None = None,
        debug_address: str = "",
        bounds: Bounds = BOUNDS,
    ) -> None:
        debug = debug_pages(queues=queues, decisions=decisions)
        beside = debug if debug_address == address else {}
        pages = Pages(metrics_path, metrics=metrics, live=live, ready=ready, scopes=scopes, beside=beside)
        if pages.hidden:
            fields = {"path": pages.hidden}
            log.warning("The metrics hide another page: choose another --metrics-path to have both", extra={"fields": fields})
        self._ports = [_Port(address, "--http-endpoint", "metrics and health", pages, bounds)] if address else []
        if debug_address and debug_address != address:
            self._ports.append(_Port(debug_address, "--debug-endpoint", "debug pages", DebugPages(debug), bounds))

    @property
    def ports(self) -> list[int]:
        """The ports it listens on, also if an address had port 0."""
        return [port.number for port in self._ports]

    @property
    def port(self) -> int:
        return self.ports[0]

    async def start(self) -> None:
        """Listen and serve. Fatal if an address is malformed, in use, or not one of this host."""
        for port in self._ports:
            await port.start()

    async def stop(self) -> None:
        """Close the sockets and all connections. May be called at any time, also twice."""
        for port in self._ports:
            await port.stop()


class _Answers(Protocol):
    def answer(self, request: Request) -> Answer: ...

    def at_once(self, request: Request) -> bool: ...


class _Port:
    """One address to serve these pages on, as the flag says."""

    def __init__(self, address: str, flag: str, what: str, pages: _Answers, bounds: Bounds) -> None:
        self._address = address
        self._flag = flag
        self._what = what
        self._pages = pages
        self._bounds = bounds
        self._listening: Listening | None = None
        self._connections: Connections | None = None

    @property
    def number(self) -> int:
        if self._listening is None:
            raise RuntimeError("the server has not been started")
        return self._listening.port

    async def start(self) -> None:
        if self._listening is not None:
            raise RuntimeError("the server has been started already")
        host, port = parse_address(self._address, self._flag)
        try:
            opened = _listen(host, port)
        except (OSError, UnicodeError) as error:  # the latter for a host name that cannot be one
            raise Fatal(
                f"cannot listen on {self._address} for {self._what}: {_reason(error)}; "
                f"free that port or choose another address with {self._flag}"
            ) from error
        self._connections = Connections(self._answer, at_once=self._pages.at_once, bounds=self._bounds)
        self._listening = Listening(opened, self._connections.begin, give_way=self._connections.give_way)
        log.info(f"Serving {self._what}", extra={"fields": {"address": self._address, "port": self.number}})

    async def stop(self) -> None:
        listening, self._listening = self._listening, None
        connections, self._connections = self._connections, None
        if listening is not None:
            await listening.close()
        if connections is not None:
            await connections.close(grace=SHUTDOWN_GRACE)

    def _answer(self, request: Request) -> Answer:
        try:
            return self._pages.answer(request)
        except Exception:
            # The reason goes to the log only, since anybody in the cluster may reach the port.
            log.exception("Page failed", extra={"fields": {"path": request.path}})
            return FAILED


def parse_address(address: str, flag: str = "--http-endpoint") -> tuple[str, int]:
    """Host and port; an empty host means all interfaces. Fatal if the address is malformed."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= 65535) or (":" in host and not bracketed):
        raise Fatal(f"{address!r} is no address to listen on; {flag} wants host:port, such as :8080 or [::1]:8080")
    return (host[1:-1] if bracketed else host), int(port)


def _listen(host: str, port: int) -> socket.socket:
    """One socket. As in Go, an empty host and [::] mean IPv4 and IPv6; without IPv6 in the kernel, IPv4 only."""
    if host in ("", "::"):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        return socket.create_server(("", port), backlog=_BACKLOG)
    # Blocks, but only once at the start, and hardly ever for a name: a thread is not worth it.
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # Go prefers IPv4 as well
    return socket.create_server((str(place[0]), port), family=family, backlog=_BACKLOG)


def _reason(error: OSError | UnicodeError) -> str:
    """The kernel's text without Python's additions. Errors of the resolver have numbers of their own."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
