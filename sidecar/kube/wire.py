"""What a request and an answer look like on the wire: paths, bodies, Retry-After, one line of a watch. Decided without a socket."""

import json
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from sidecar.kube.api import SECRETS, Resource, WatchEvent
from sidecar.kube.errors import ApiError, BadRequest, Unavailable, from_status
from sidecar.model.objects import Json

JSON = "application/json"

# A page of HTML from a proxy is no use in a log; its first words are.
_LONGEST_QUOTE = 200


def group_path(api_version: str) -> str:
    """`v1` lives under /api, everything with a group under /apis."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(resource: Resource, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Without a name the collection; of a namespaced resource without a namespace, that of all namespaces."""
    for part in (namespace, name):
        if part in (".", ".."):
            raise BadRequest(f"{part!r} names no object: it would lead to another address")
    parts = [group_path(resource.api_version)]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def request_text(verb: str, resource: Resource | str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """How a request is named in exceptions and logs: `get persistentvolumeclaims ns/name`."""
    what = f"{resource}/{subresource}" if subresource else str(resource)
    whom = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {what} {whom}".rstrip()


def query_of(**wanted: str | int) -> dict[str, str]:
    """Query parameters that say something; snake_case becomes the API's camelCase. `continue_token` is `continue`."""
    return {_camel(name): str(value) for name, value in wanted.items() if value not in ("", 0)}


def _camel(name: str) -> str:
    if name == "continue_token":
        return "continue"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def encode(body: Mapping[str, Any] | list[Any] | bytes) -> bytes:
    """Bytes are JSON already and are sent as they are."""
    return body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()


def decode(raw: bytes, *, what: str) -> Json:
    """An answer that is not a JSON object did not come from an API server: whatever stands in its place is not available."""
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        # Half an answer about a Secret is half a secret.
        quote = "not shown here, for it may be secret" if f" {SECRETS} " in f"{what} " else _quoted(raw)
        raise Unavailable(f"{what}: the answer is not a JSON object: {quote}")
    return answer


def refusal(status: int, raw: bytes, *, what: str, retry_after: float | None) -> ApiError:
    """The exception for an answer that is not 2xx, whether or not it carries a Status."""
    return from_status(status, status_body(raw), what=what, retry_after=retry_after)


def status_body(raw: bytes) -> Json:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"message": _quoted(raw)} if raw.strip() else {}


def is_disruption_budget(raw: bytes) -> bool:
    """A 429 of an eviction speaks about that pod's budget and says nothing about how busy the server is."""
    details = status_body(raw).get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget" for cause in causes or ())


def retry_after_seconds(header: str | None, *, wall: Callable[[], float]) -> float | None:
    """Seconds or an HTTP date; None when there is none or it cannot be understood."""
    if not header:
        return None
    try:
        return max(0.0, float(int(header)))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - wall())
    except (ValueError, TypeError):
        return None


def watch_event(line: bytes, *, what: str) -> WatchEvent:
    """One line of a watch. An ERROR event is raised as the exception it carries; garbage is Unavailable."""
    event = decode(line, what=what)
    kind, obj = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise Unavailable(f"{what}: this is no watch event: {_quoted(line)}")
    if kind == "ERROR":
        raise from_status(_code_of(obj), obj, what=what)
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "resourceVersion" not in meta:
        raise Unavailable(f"{what}: an event without a resourceVersion: {_quoted(line)}")
    return WatchEvent(kind, obj)


def _code_of(status: Mapping[str, Any]) -> int:
    """A Status without a usable code is a server that is unwell."""
    code = status.get("code")
    return code if isinstance(code, int) and code >= 400 else 500


def _quoted(raw: bytes) -> str:
    text = " ".join(raw.decode(errors="replace").split())
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + " …"
