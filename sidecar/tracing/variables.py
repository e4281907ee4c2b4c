"""Reads the variables of the OpenTelemetry specification. What cannot be used is told in words that hold no value: one may be a secret."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from sidecar.tracing.sampling import DEFAULT, NAMED, Sampler
from sidecar.tracing.waiting_spans import Bounds

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
_PATH: Final = "/v1/traces"
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "user-agent"}
)
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WITHOUT_EFFECT: Final = (
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_CONFIG_FILE",
    "OTEL_EXPERIMENTAL_CONFIG_FILE",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
)
_LONGEST_ATTRIBUTES: Final = 64
"""Of the resource, which is sent with each batch."""

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str
    """Without user name and password; it may have a query, which is not to be logged."""
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""
    service: str = ""
    resource: tuple[tuple[str, str], ...] = ()
    sampler: Sampler = DEFAULT
    delay: float = 5.0
    bounds: Bounds = field(default_factory=Bounds)
    reads_parents: bool = True

    def __repr__(self) -> str:
        return f"Settings({self.where})"  # the others may be secret

    @property
    def where(self) -> str:
        """Of the address what may be logged."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"


@dataclass(frozen=True, slots=True)
class Off:
    """Empty if that is what was asked for."""

    why: str = ""


def read(environ: Mapping[str, str]) -> tuple[Settings | Off, list[str]]:
    """With what has no effect, for one line of the log. An empty variable counts as unset."""
    given = {name: value.strip() for name, value in environ.items() if name.startswith("OTEL_") and value.strip()}
    return _Reader(given).read()


class _Reader:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._remarks: list[str] = []

    def read(self) -> tuple[Settings | Off, list[str]]:
        if (disabled := self._given.get("OTEL_SDK_DISABLED", "false").lower()) not in ("true", "false"):
            self._remarks.append("OTEL_SDK_DISABLED is neither true nor false, and counts as false")
        exporters = [name.strip() for name in self._given.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
        if disabled == "true" or "none" in exporters:
            return Off(), []
        if "otlp" not in exporters:
            return Off("of OTEL_TRACES_EXPORTER only otlp and none are supported"), []
        if len(exporters) > 1:
            self._remarks.append("of OTEL_TRACES_EXPORTER only otlp is used")
        url = self._url()
        if isinstance(url, Off):
            return url, []
        protocol = self._otlp("PROTOCOL", "http/json")
        if protocol not in ("http/json", "http/protobuf"):
            name = self._name("PROTOCOL")
            return Off(f"{name} must be http/json; the port for it is usually 4318, where that for grpc is 4317"), []
        if protocol == "http/protobuf":
            self._remarks.append(f"{self._name('PROTOCOL')}: spans are sent as http/json, to the same address")
        if self._otlp("COMPRESSION", "none") != "none":
            self._remarks.append(f"{self._name('COMPRESSION')}: spans are sent uncompressed")
        if without := [name for name in _WITHOUT_EFFECT if name in self._given]:
            self._remarks.append(f"without effect: {', '.join(without)}")
        return self._settings(url), self._remarks

    def _settings(self, url: str) -> Settings:
        resource = self._resource()
        return Settings(
            url=url,
            headers=self._headers(),
            timeout=self._milliseconds(self._name("TIMEOUT"), 10.0, most=60.0),
            certificate=self._otlp("CERTIFICATE", ""),
            client_certificate=self._otlp("CLIENT_CERTIFICATE", ""),
            client_key=self._otlp("CLIENT_KEY", ""),
            service=self._given.get("OTEL_SERVICE_NAME") or dict(resource).get("service.name", ""),
            resource=resource,
            sampler=self._sampler(),
            delay=self._milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5.0, most=60.0, least=0.1),
            bounds=self._bounds(),
            reads_parents="tracecontext" in self._given.get("OTEL_PROPAGATORS", "tracecontext").replace(" ", "").split(","),
        )

    def _name(self, end: str) -> str:
        """That for traces alone, if it is set, wins over that for all signals."""
        own = f"{_OTLP}TRACES_{end}"
        return own if own in self._given else f"{_OTLP}{end}"

    def _otlp(self, end: str, usual: str) -> str:
        return self._given.get(self._name(end), usual)

    def _url(self) -> str | Off:
        name = self._name("ENDPOINT")
        said = self._given.get(name, "")
        try:
            parts = urlsplit(said)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return Off(f"{name} cannot be read as an address")
        if not usable or not said.isascii() or not said.isprintable() or " " in said:
            return Off(f"{name} must be an address such as http://collector.observability:4318")
        if "@" in parts.netloc:
            return Off(f"{name} has a user name or a password; put what the collector asks for into {_OTLP}HEADERS")
        path = parts.path.rstrip("/") + _PATH if name == f"{_OTLP}ENDPOINT" else parts.path or "/"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    def _headers(self) -> tuple[tuple[str, str], ...]:
        name = self._name("HEADERS")
        found: dict[str, str] = {}
        for number, item in enumerate(filter(str.strip, self._given.get(name, "").split(",")), 1):
            key, equals, value = item.partition("=")
            key, value = unquote(key.strip()), unquote(value.strip())
            if not equals or not key or not _TOKEN.issuperset(key) or not (value.isascii() and value.isprintable()):
                self._remarks.append(f"{name}: entry {number} is no name=value that can be sent, and is left out")
            elif key.lower() in _OWN_HEADERS:
                self._remarks.append(f"{name}: entry {number} is a header that this program sets itself, and is left out")
            else:
                found[key] = value
        return tuple(found.items())

    def _resource(self) -> tuple[tuple[str, str], ...]:
        """All of it is left out if one pair cannot be read, as the specification has it."""
        name = "OTEL_RESOURCE_ATTRIBUTES"
        pairs = [item.partition("=") for item in filter(str.strip, self._given.get(name, "").split(","))]
        if any(not equals or not key.strip() for key, equals, _ in pairs) or len(pairs) > _LONGEST_ATTRIBUTES:
            self._remarks.append(f"{name} is left out: it must be key=value pairs, joined by commas, {_LONGEST_ATTRIBUTES} at most")
            return ()
        return tuple({unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}.items())

    def _sampler(self) -> Sampler:
        name = self._given.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        if name not in NAMED:
            self._remarks.append(f"OTEL_TRACES_SAMPLER: known are {', '.join(NAMED)}; parentbased_always_on is used")
            return DEFAULT
        ratio, by_parent = NAMED[name]
        if ratio is None:
            ratio = self._number("OTEL_TRACES_SAMPLER_ARG", float, 1.0, least=0.0, most=1.0)
        return Sampler(ratio, by_parent)

    def _bounds(self) -> Bounds:
        usual = Bounds()
        spans = self._number("OTEL_BSP_MAX_QUEUE_SIZE", int, usual.spans, least=1, most=16_384)
        batch = self._number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", int, min(usual.batch, spans), least=1, most=spans)
        return Bounds(spans=spans, batch=batch)

    def _milliseconds(self, name: str, usual: float, *, most: float, least: float = 0.001) -> float:
        return self._number(name, float, usual * 1000, least=least * 1000, most=most * 1000) / 1000

    def _number(self, name: str, read: Callable[[str], N], usual: N, *, least: N, most: N) -> N:
        said = self._given.get(name)
        if said is None:
            return usual
        try:
            value = read(said)
            usable = math.isfinite(value) and least <= value <= most
        except ValueError:
            usable, value = False, usual
        if not usable:
            self._remarks.append(f"{name} must be a number from {least:g} to {most:g}; {usual:g} is used")
            return usual
        return value
