"""Sends one batch to the collector, with a deadline, and reads no more of its answer than is of use."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import sidecar
from sidecar.http1.fields import Malformed
from sidecar.http1.writing import request_with
from sidecar.kube.connections import Connections, NoConnection, Route, headers_for, target
from sidecar.kube.proxy import proxy_for
from sidecar.tracing.answers import Outcome, TryAgain, outcome_of
from sidecar.tracing.variables import Settings

_CONNECT_SECONDS: Final = 5.0
# Bytes of an answer. One to a batch that was taken has a few.
_MOST_READ: Final = 2**14

Lookup = Callable[[str, int], list[str]]


class Collector:
    """One connection, kept while batches follow each other. Redirections are not followed."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], *, clock: Callable[[], float], lookup: Lookup | None = None) -> None:
        """OSError if a certificate cannot be read."""
        parts = urlsplit(settings.url)
        tls = _tls(settings)
        self._route = Route(f"{parts.scheme}://{parts.netloc}", tls, parts.hostname, proxy_for(settings.url, environ))
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._timeout = settings.timeout
        self._connections = Connections(1, connect_seconds=min(_CONNECT_SECONDS, settings.timeout), clock=clock)
        headers = {"User-Agent": f"csi-node-sidecar/{sidecar.__version__}", "Content-Type": "application/json", **dict(settings.headers)}
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in (headers_for(self._route) | headers).items())
        self._names = _Names(lookup or _addresses)

    async def send(self, body: bytes) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(body)
        except TimeoutError:
            why = "it does not answer in time"
        except NoConnection as error:
            why = str(error)
        except (OSError, Malformed) as error:
            why = f"the connection broke: {type(error).__name__}"
        self._names.turn += 1
        return TryAgain(why)

    async def close(self) -> None:
        await self._connections.close()

    async def _send(self, body: bytes) -> Outcome:
        route = await self._found()
        connection = await self._connections.acquire(route)
        try:
            head = await connection.ask(request_with("POST", target(self._route, self._path), self._lines, body), whole=False)
            answer = b""
            while len(answer) < _MOST_READ and (piece := await connection.read()):
                answer += piece
        finally:
            self._connections.release(connection)  # what was not read to its end is closed
        return outcome_of(head.status, head.headers, answer[:_MOST_READ])

    async def _found(self) -> Route:
        """With the address in the place of the name. A proxy finds the name itself."""
        parts = urlsplit(self._route.server)
        if self._route.proxy is not None or parts.hostname is None:
            return self._route
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = await self._names.address(parts.hostname, port)
        shown = f"[{address}]" if ":" in address else address
        return replace(self._route, server=f"{parts.scheme}://{shown}:{port}")


class _Names:
    """Asks for one name at a time, in a thread of its own. asyncio would use a thread of the few that write the journal, and a name server
    that does not answer would hold one after the other."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._asked: asyncio.Future[list[str]] | None = None
        self.turn = 0
        """Which of several addresses is taken."""

    async def address(self, name: str, port: int) -> str:
        asked = self._asked = self._asked or _in_thread(lambda: self._lookup(name, port))
        # Shielded: who gives up waiting leaves the question to the next one.
        try:
            found = await asyncio.shield(asked)
        except OSError as error:
            raise NoConnection(f"its name {name} is not found: {error.strerror or type(error).__name__}") from None
        finally:
            if asked.done():
                self._asked = None
        return found[self.turn % len(found)]


def _in_thread(ask: Callable[[], list[str]]) -> "asyncio.Future[list[str]]":
    """A daemon: the process does not wait for it at its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()
    future.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # also if nobody waits any more

    def tell(set_: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_(value)

    def run() -> None:
        try:
            found = ask()
            told = (future.set_result, found)
        except OSError as error:
            told = (future.set_exception, error)  # type: ignore[assignment]
        except Exception as error:  # noqa: BLE001 - such as a name that no resolver takes
            told = (future.set_exception, OSError(0, str(error)))  # type: ignore[assignment]
        try:
            loop.call_soon_threadsafe(tell, *told)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits any more

    threading.Thread(target=run, name="collector's name", daemon=True).start()
    return future


def _addresses(name: str, port: int) -> list[str]:
    return [str(item[4][0]) for item in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.certificate or None)
    if settings.client_certificate:
        context.load_cert_chain(settings.client_certificate, settings.client_key or None)
    return context
