"""The pages: metrics, two probes, two debug tables. The only file that listens.

The server never asks anything itself: each page is a callable that was handed in. It answers from the event loop that does
the work, so an answer within the probe's timeout is in itself the proof that the loop turns.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Final, Protocol
from urllib.parse import unquote

from aiohttp import web

from sidecar.errors import Fatal
from sidecar.observe.plain import Limits, plain, to_json

log = logging.getLogger("sidecar.observe")

# The library logs a request that it cannot read, word by word: whoever reaches the port could fill the log, and a scraper that errs
# would find its token there. What fails here is logged here.
_UNHEARD: Final = logging.Logger("unheard")
_UNHEARD.disabled = True

Verdict = tuple[bool, list[str]]
Page = Callable[[web.BaseRequest], web.Response]

LEADER_ELECTION_PATH: Final = "/healthz/leader-election"

# A page takes milliseconds, so whoever is still reading after this is not worth a delayed shutdown.
SHUTDOWN_GRACE: Final = 0.5
_TABLE: Final = Limits(items=5_000)
_BACKLOG: Final = 128
_HEADERS: Final = {"Server": "csi-node-sidecar", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Exposition(Protocol):
    """`observe.metrics.Metrics`, as far as this file is concerned."""

    def render(self) -> tuple[bytes, str]: ...


class ObserveServer:
    """Serves on one address from `start` to `stop`. `address` is as in Go: `:8080`, `0.0.0.0:8080`, `[::1]:8080`.

    `live` and `ready` give a verdict with one reason each line; `scopes` are the lines of `/readyz?verbose`. The debug pages
    exist where a provider was handed in, and show whatever it returns.
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
    ) -> None:
        self._address = address
        self._metrics = metrics
        self._live = live
        self._ready = ready
        self._scopes = scopes
        self._metrics_path = unquote(metrics_path)
        self._pages = self._lay_out(queues, decisions)
        self._socket: socket.socket | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def port(self) -> int:
        """The port it listens on, which matters when 0 was asked for."""
        if self._socket is None:
            raise RuntimeError("the server has not been started")
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Listen and serve. Fatal if the address is malformed, taken or not ours."""
        if self._runner is not None:
            raise RuntimeError("the server has been started already")
        host, port = parse_address(self._address)
        try:
            self._socket = _listen(host, port)
        except (OSError, UnicodeError) as error:  # the latter for a host name that cannot be one
            raise Fatal(
                f"cannot listen on {self._address} for metrics and health: {_reason(error)}; "
                "free that port or choose another address with --http-endpoint"
            ) from error
        # The low-level server: no router, no middleware, no access log; the pages are a dict.
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None, logger=_UNHEARD), shutdown_timeout=SHUTDOWN_GRACE)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, backlog=_BACKLOG).start()
        log.info("Serving metrics and health", extra={"fields": {"address": self._address, "port": self.port}})

    async def stop(self) -> None:
        """Close everything, open connections included. May be called at any time, and twice."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lay_out(self, queues: Callable[[], object] | None, decisions: Callable[[str | None], object] | None) -> dict[str, Page]:
        pages: dict[str, Page] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            LEADER_ELECTION_PATH: lambda _: _text("ok"),  # a probe of upstream's; here nobody is ever elected
        }
        if queues is not None:
            pages["/debug/queue"] = lambda _: _json(queues())
        if decisions is not None:
            pages["/debug/decisions"] = lambda request: _json(decisions(request.query.get("key")))
        path = self._metrics_path
        if not path.startswith("/"):
            raise Fatal(f"metrics cannot be served at {path!r}; choose another path, such as /metrics, with --metrics-path")
        if path in pages:
            log.warning("The metrics hide another page: choose another --metrics-path to have both", extra={"fields": {"path": path}})
        pages[path] = self._metrics_page
        index = "".join(f"{path}\n" for path in sorted(pages))
        pages.setdefault("/", lambda _: _text(index))
        return pages

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        page = self._pages.get(request.path) or self._below_metrics(request.path)
        if page is None:
            return _text("not found", status=404)
        if request.method not in ("GET", "HEAD"):
            return _text("only GET and HEAD", status=405, Allow="GET, HEAD")
        try:
            return page(request)
        except Exception:
            # The reason goes to the log and not to whoever can reach the port.
            log.exception("Page failed", extra={"fields": {"path": request.path}})
            return _text("internal error, see the log", status=500)

    def _below_metrics(self, path: str) -> Page | None:
        """As in Go, a path that ends in a slash stands for all that begins with it, and has a signpost at the same without the slash."""
        if not self._metrics_path.endswith("/"):
            return None
        if path.startswith(self._metrics_path):
            return self._metrics_page
        return self._signpost if f"{path}/" == self._metrics_path else None

    def _signpost(self, request: web.BaseRequest) -> web.Response:
        target = request.rel_url.with_path(self._metrics_path, keep_query=True)
        return _text("moved", status=301, Location=str(target))

    def _metrics_page(self, request: web.BaseRequest) -> web.Response:
        page, content_type = self._metrics.render()
        response = web.Response(body=page, headers=_HEADERS | {"Content-Type": content_type})
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def _healthz(self, request: web.BaseRequest) -> web.Response:
        return _verdict(self._live())

    def _readyz(self, request: web.BaseRequest) -> web.Response:
        return _verdict(self._ready(), verbose=self._scopes() if "verbose" in request.query else ())


def parse_address(address: str) -> tuple[str, int]:
    """Host and port; an empty host is every interface. Fatal says what was wrong with it."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= 65535) or (":" in host and not bracketed):
        raise Fatal(f"{address!r} is no address to listen on; --http-endpoint wants host:port, such as :8080 or [::1]:8080")
    return (host[1:-1] if bracketed else host), int(port)


def _listen(host: str, port: int) -> socket.socket:
    """One socket. As in Go, no host and [::] both mean IPv4 and IPv6; where the kernel has no IPv6, IPv4 alone."""
    if host in ("", "::"):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        return socket.create_server(("", port), backlog=_BACKLOG)
    # Once, at the start, and nearly always of a literal address: not worth a thread.
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # Go prefers IPv4 as well
    return socket.create_server((str(place[0]), port), family=family, backlog=_BACKLOG)


def _reason(error: OSError | UnicodeError) -> str:
    """What the kernel says, without what Python adds to it; a resolver's errors have numbers of their own."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)


def _verdict(verdict: Verdict, *, verbose: Iterable[object] = ()) -> web.Response:
    good, reasons = verdict
    lines = ["ok"] if good else reasons or ["not ok"]
    return _text("\n".join([*lines, *map(str, verbose)]), status=200 if good else 503)


def _text(text: str, *, status: int = 200, **headers: str) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS | headers)


def _json(value: object) -> web.Response:
    return web.Response(text=to_json(plain(value, _TABLE)), content_type="application/json", headers=_HEADERS)
