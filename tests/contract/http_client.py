"""Requests as they go over the wire, for what `KubeApi` has no words for: server-side apply, field managers, the bytes of a watch."""

import http.client
import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Json

    @property
    def labels(self) -> dict[str, str]:
        return self.body["metadata"].get("labels") or {}

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


@dataclass
class HttpClient:
    """One connection, as the admin. `send` expects success; `try_to_send` expects nothing."""

    connection: http.client.HTTPSConnection
    token: str

    def send(self, method: str, path: str, body: Any = None, *, content: str = JSON, **query: str) -> Answer:
        answer = self.try_to_send(method, path, body, content=content, **query)
        assert answer.status < 300, answer.body
        return answer

    def try_to_send(self, method: str, path: str, body: Any = None, *, content: str = JSON, **query: str) -> Answer:
        status, raw = self._ask(method, path, body, content=content, **query)
        return Answer(status, json.loads(raw))

    def watch(self, path: str, since: str, *, seconds: int = 1, **query: str) -> list[Json]:
        """All events after that version until the watch ends by itself."""
        status, raw = self._ask("GET", path, None, content=JSON, watch="true", resourceVersion=since, timeoutSeconds=str(seconds), **query)
        assert status == 200, raw
        return [json.loads(line) for line in raw.splitlines()]

    def _ask(self, method: str, path: str, body: Any, *, content: str, **query: str) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": JSON, "Content-Type": content}
        whole = f"{path}?{urlencode(query)}" if query else path
        try:
            self.connection.request(method, whole, body=data, headers=headers)
            response = self.connection.getresponse()
        except (http.client.HTTPException, OSError):
            self.connection.close()  # an idle connection may have been closed behind our back, or the server restarted
            self.connection.request(method, whole, body=data, headers=headers)
            response = self.connection.getresponse()
        return response.status, response.read()


@contextmanager
def http_client(kubeconfig: Path) -> Iterator[HttpClient]:
    config = json.loads(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    place = urlsplit(cluster["server"])
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=context, timeout=30)
    try:
        yield HttpClient(connection, config["users"][0]["user"]["token"])
    finally:
        connection.close()
