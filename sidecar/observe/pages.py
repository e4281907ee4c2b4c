"""Makes the pages: metrics, two probes, two debug tables. Each page shows what a callable returns that was passed in."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qs, quote, unquote

from sidecar.errors import Fatal
from sidecar.http1.requests import Request
from sidecar.observe.sanitize import Limits, plain, to_json

Verdict = tuple[bool, list[str]]

LEADER_ELECTION_PATH: Final = "/healthz/leader-election"

_TABLE: Final = Limits(items=5_000)
_HEADERS: Final = {"Server": "csi-node-sidecar", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_GZIP: Final = zlib.MAX_WBITS | 16


class Exposition(Protocol):
    """The part of `observe.metrics.Metrics` that is used here."""

    def render(self) -> tuple[bytes, str]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def text(said: str, *, status: int = 200, **headers: str) -> Answer:
    return Answer(status, {**_HEADERS, "Content-Type": "text/plain; charset=utf-8", **headers}, said.encode())


# The answer quotes nothing of the request, which may contain a token.
UNREADABLE: Final = text("this is no request that can be read", status=400)
FAILED: Final = text("internal error, see the log", status=500)
NOT_FOUND: Final = text("not found", status=404)

Page = Callable[[Request], Answer]


def answered(page: Page, request: Request) -> Answer:
    if request.method not in ("GET", "HEAD"):
        return text("only GET and HEAD", status=405, Allow="GET, HEAD")
    return page(request)


class Pages:
    """All pages, by their paths. The parameters are `server.ObserveServer`'s."""

    def __init__(
        self,
        metrics_path: str,
        *,
        metrics: Exposition,
        live: Callable[[], Verdict],
        ready: Callable[[], Verdict],
        scopes: Callable[[], Iterable[object]],
        beside: Mapping[str, Page],
    ) -> None:
        """`beside`: other pages, at the same address."""
        self._metrics = metrics
        self._metrics_path = unquote(metrics_path)
        if not self._metrics_path.startswith("/"):
            raise Fatal(f"metrics cannot be served at {self._metrics_path!r}; choose another path, such as /metrics, with --metrics-path")
        pages: dict[str, Page] = {
            "/healthz": lambda _: _verdict(live()),
            "/readyz": lambda request: _verdict(ready(), verbose=scopes() if "verbose" in query(request) else ()),
            LEADER_ELECTION_PATH: lambda _: text("ok"),  # a probe of upstream's; here nobody is ever elected
        }
        pages |= beside
        self.hidden = self._metrics_path if self._metrics_path in pages else ""
        """The path of a page that the metrics replace."""
        pages[self._metrics_path] = self._metrics_page
        index = "".join(f"{path}\n" for path in sorted(pages))
        pages.setdefault("/", lambda _: text(index))
        self._pages = pages
        self._probes = {"/healthz", "/readyz", LEADER_ELECTION_PATH} - {self._metrics_path}

    def at_once(self, request: Request) -> bool:
        """Whether this costs so little that nobody need wait for it, as what probes ask for."""
        return request.path in self._probes or self._page(request.path) is None

    def answer(self, request: Request) -> Answer:
        """Raises what the page's callable raises."""
        page = self._page(request.path)
        if page is None:
            return NOT_FOUND
        return answered(page, request)

    def _page(self, path: str) -> Page | None:
        return self._pages.get(path) or self._below_metrics(path)

    def _below_metrics(self, path: str) -> Page | None:
        """As in Go, a path that ends in a slash stands for all that begins with it, and the same without the slash leads there."""
        if not self._metrics_path.endswith("/"):
            return None
        if path.startswith(self._metrics_path):
            return self._metrics_page
        return self._moved if f"{path}/" == self._metrics_path else None

    def _moved(self, request: Request) -> Answer:
        query = f"?{request.query}" if request.query else ""
        return text("moved", status=301, Location=f"{quote(self._metrics_path)}{query}")

    def _metrics_page(self, request: Request) -> Answer:
        page, content_type = self._metrics.render()
        headers = {**_HEADERS, "Content-Type": content_type}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Answer(200, {**headers, "Content-Encoding": "gzip"}, zlib.compress(page, wbits=_GZIP))
        return Answer(200, headers, page)


def query(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.query, keep_blank_values=True)


def _verdict(verdict: Verdict, *, verbose: Iterable[object] = ()) -> Answer:
    good, reasons = verdict
    lines = ["ok"] if good else reasons or ["not ok"]
    return text("\n".join([*lines, *map(str, verbose)]), status=200 if good else 503)


def as_json(value: object) -> Answer:
    return Answer(200, {**_HEADERS, "Content-Type": "application/json; charset=utf-8"}, to_json(plain(value, _TABLE)).encode())
