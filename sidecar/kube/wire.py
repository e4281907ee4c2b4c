"""What a request and an answer look like on the wire: paths, bodies, Retry-After, one line of a watch. Decided without a socket."""

import json
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from sidecar.kube.api import SECRETS, Page, Resource, WatchEvent
from sidecar.kube.errors import LONGEST_QUIET, ApiError, BadEvent, BadRequest, Unavailable, causes_of, from_status
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
    answer = _object(raw)
    if answer is None:
        raise Unavailable(f"{what}: the answer is not a JSON object: {_shown(raw, what)}")
    return answer


def page(raw: bytes, *, what: str, after: str) -> Page:
    """A page of a list, asked for by the token `after`. What is none must not be taken for an empty one: all that is held would go."""
    answer = decode(raw, what=what)
    meta, items = answer.get("metadata"), answer.get("items") or []
    version, token = (meta.get("resourceVersion"), meta.get("continue") or "") if isinstance(meta, dict) else (None, "")
    if not isinstance(version, str) or not version or not isinstance(token, str) or not isinstance(items, list):
        raise Unavailable(f"{what}: the answer is not a list: {_shown(raw, what)}")
    if token and token == after:
        raise Unavailable(f"{what}: the list has no end: the server gave the same continue token twice")
    return Page(items, version, token)


def refusal(status: int, raw: bytes, *, what: str, retry_after: float | None) -> ApiError:
    """The exception for an answer that is not 2xx, whether or not it carries a Status."""
    return from_status(status, status_body(raw), what=what, retry_after=retry_after)


def status_body(raw: bytes) -> Json:
    body = _object(raw)
    return body if body is not None else {"message": _quoted(raw)} if raw.strip() else {}


def is_disruption_budget(raw: bytes) -> bool:
    """A 429 of an eviction speaks about that pod's budget and says nothing about how busy the server is."""
    return "DisruptionBudget" in causes_of(status_body(raw))


def retry_after_seconds(header: str | None, *, wall: Callable[[], float]) -> float | None:
    """Seconds or an HTTP date, within reason; None when there is none or it cannot be understood."""
    if not header:
        return None
    try:
        return float(min(max(0, int(header)), LONGEST_QUIET))
    except ValueError:
        pass
    try:
        return min(max(0.0, parsedate_to_datetime(header).timestamp() - wall()), LONGEST_QUIET)
    except (ValueError, TypeError, OverflowError):
        return None


def watch_event(line: bytes, *, what: str) -> WatchEvent:
    """One line of a watch. An ERROR event is raised as the exception it carries; garbage is BadEvent."""
    event = _object(line)
    kind, obj = (event.get("type"), event.get("object")) if event is not None else (None, None)
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise BadEvent(f"{what}: this is no watch event: {_shown(line, what)}")
    if kind == "ERROR":
        error = from_status(_code_of(obj), obj, what=what)
        raise BadEvent(str(error), status=error.status, reason=error.reason) if type(error) is Unavailable else error
    meta = obj.get("metadata")
    version = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if not isinstance(version, str) or not version:
        raise BadEvent(f"{what}: an event without a resourceVersion: {_shown(line, what)}")
    return WatchEvent(kind, obj)


def _code_of(status: Mapping[str, Any]) -> int:
    """A Status without a usable code is a server that is unwell."""
    code = status.get("code")
    return code if isinstance(code, int) and code >= 400 else 500


def _object(raw: bytes) -> Json | None:
    """None for what is no JSON object, or one nested deeper than Python can follow."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _shown(raw: bytes, what: str) -> str:
    """Half an answer about a Secret is half a secret."""
    return "not shown here, for it may be secret" if f" {SECRETS} " in f"{what} " else _quoted(raw)


def _quoted(raw: bytes) -> str:
    text = " ".join(raw[: 10 * _LONGEST_QUOTE].decode(errors="replace").split())
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + " …"
