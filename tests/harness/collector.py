"""A trace collector that speaks OTLP over HTTP with JSON, in a thread of its own. It reads as strictly as real ones do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class Collector:
    """`statuses` are answered in turn, then 200."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[Json]:
        return [
            span for body in list(self.bodies) for one in body["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]
        ]

    def named(self, name: str) -> list[Json]:
        return [span for span in self.spans() if span["name"] == name]

    def resource(self) -> Json:
        return values(self.bodies[0]["resourceSpans"][0]["resource"])


def values(of: Json) -> Json:
    """The attributes of a span, an event or a resource."""
    found: Json = {}
    for item in of["attributes"]:
        ((kind, value),) = item["value"].items()
        assert kind in ("stringValue", "boolValue", "intValue", "doubleValue")
        assert isinstance(value, str) == (kind in ("stringValue", "intValue"))  # integers of 64 bits are text in the JSON of protobuf
        found[item["key"]] = int(value) if kind == "intValue" else value
    return found


def checked(span: Json) -> Json:
    """As a collector reads it: anything else is refused, and with it all that came in the same request."""
    known = {"traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "events"}
    assert span.keys() <= known | {"droppedEventsCount", "status", "flags"}
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and set(span["traceId"]) != {"0"}
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and set(span["spanId"]) != {"0"}
    assert re.fullmatch("([0-9a-f]{16})?", span.get("parentSpanId", ""))
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    values(span)
    for event in span.get("events", []):
        int(event["timeUnixNano"])
        values(event)
    return span


@contextmanager
def collecting(*statuses: int) -> Iterator[Collector]:
    found = Collector(statuses=list(statuses))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.statuses.pop(0) if found.statuses else 200
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.paths.append(self.path)
            if status == 200:
                body = json.loads(raw.decode())
                for one in body["resourceSpans"]:
                    for scope in one["scopeSpans"]:
                        for span in scope["spans"]:
                            checked(span)
                found.bodies.append(body)
            answer = b'{"partialSuccess":{}}'
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
