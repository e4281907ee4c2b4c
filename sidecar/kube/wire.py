"""Reads and writes the contents of requests and answers: paths, bodies, Retry-After, one line of a watch. Pure."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from sidecar.kube.api import SECRETS, TOO_LARGE, Resource, WatchEvent
from sidecar.kube.errors import LONGEST_QUIET, ApiError, BadEvent, BadRequest, Unavailable, causes_of, from_status
from sidecar.kube.event_prefix import read_metadata
from sidecar.kube.line_reader import TooLong
from sidecar.model.objects import Json
from sidecar.model.packed import PackedVolume

JSON = "application/json"

# Collections of which the path is kept.
_FEW = 64
# The API server sends UTF-8. `json.loads` would look at each answer and each event for what else it could be.
_JSON_OF = json.JSONDecoder().decode
_TO_JSON = json.JSONEncoder(separators=(",", ":")).encode
# The first words of a proxy's HTML page help in a log; all of it does not.
_LONGEST_QUOTE = 200


def group_path(api_version: str) -> str:
    """`v1` is under /api, everything with a group under /apis."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(resource: Resource, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of an object; without a name that of the collection, and without a namespace that of all namespaces."""
    for part in (namespace, name):
        if part in (".", ".."):
            raise BadRequest(f"{part!r} cannot be an object's name: it would lead to another path")
    parts = [_collection(resource, namespace)]
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


@lru_cache(_FEW)
def _collection(resource: Resource, namespace: str) -> str:
    within = f"/namespaces/{quote(namespace, safe='')}" if resource.namespaced and namespace else ""
    return f"{group_path(resource.api_version)}{within}/{resource.plural}"


def request_text(verb: str, resource: Resource | str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The name of a request in exceptions and logs: `get persistentvolumeclaims ns/name`."""
    what = f"{resource}/{subresource}" if subresource else str(resource)
    whom = f"{namespace}/{name}" if namespace and name else namespace or name
    return f"{verb} {what} {whom}" if whom else f"{verb} {what}"


def query_of(**wanted: str | int) -> dict[str, str]:
    """The query parameters that are set; snake_case becomes the API's camelCase, and `continue_token` is `continue`."""
    return {_camel(name): str(value) for name, value in wanted.items() if value not in ("", 0)}


def _camel(name: str) -> str:
    if name == "continue_token":
        return "continue"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def encode(body: Mapping[str, Any] | list[Any] | bytes) -> bytes:
    """JSON. Bytes are JSON already, and are sent unchanged."""
    if isinstance(body, PackedVolume):
        return body.text
    return body if isinstance(body, bytes) else _TO_JSON(body).encode()


def decode(raw: bytes, *, what: str) -> Json:
    """An answer that is not a JSON object did not come from an API server but from something in between: Unavailable."""
    answer = _object(raw)
    if answer is None:
        raise Unavailable(f"{what}: the answer is not a JSON object: {shown(raw, what)}")
    return answer


def refusal(status: int, raw: bytes, *, what: str, retry_after: float | None) -> ApiError:
    """The exception for an answer that is not 2xx, whether or not it carries a Status."""
    return from_status(status, status_body(raw), what=what, retry_after=retry_after)


def status_body(raw: bytes) -> Json:
    body = _object(raw)
    return body if body is not None else {"message": _quoted(raw)} if raw.strip() else {}


def is_disruption_budget(raw: bytes) -> bool:
    """Whether a 429 is about a PodDisruptionBudget, and so says nothing about how busy the server is."""
    return "DisruptionBudget" in causes_of(status_body(raw))


def retry_after_seconds(header: str | None, *, wall: Callable[[], float]) -> float | None:
    """Seconds from a number or an HTTP date, at most `LONGEST_QUIET`; None if there is none or it cannot be read."""
    if not header:
        return None
    try:
        return float(min(max(0, int(header)), LONGEST_QUIET))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # a date hardly ever stands there

    try:
        return min(max(0.0, parsedate_to_datetime(header).timestamp() - wall()), LONGEST_QUIET)
    except (ValueError, TypeError, OverflowError):
        return None


def watch_event(line: bytes, *, what: str) -> WatchEvent:
    """The event of one line of a watch. An ERROR event is raised as its exception; anything else that cannot be read as BadEvent."""
    event = _object(line)
    kind, obj = (event.get("type"), event.get("object")) if event is not None else (None, None)
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise BadEvent(f"{what}: this is no watch event: {shown(line, what)}")
    if kind == "ERROR":
        error = from_status(_code_of(obj), obj, what=what)
        raise BadEvent(str(error), status=error.status, reason=error.reason) if type(error) is Unavailable else error
    meta = obj.get("metadata")
    version = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if not isinstance(version, str) or not version:
        raise BadEvent(f"{what}: an event without a resourceVersion: {shown(line, what)}")
    return WatchEvent(kind, obj)


def long_event(line: TooLong, *, what: str) -> WatchEvent:
    """The event of a line that was not kept, by its beginning. A deletion needs no more than that."""
    found = read_metadata(line.beginning)
    if found is None:
        raise BadEvent(f"{what}: a line of {line.size} bytes is too long, and does not say of which object: {shown(line.beginning, what)}")
    kind, meta = found
    return WatchEvent(kind if kind == "DELETED" else TOO_LARGE, {"metadata": meta})


def _code_of(status: Mapping[str, Any]) -> int:
    """The code of a Status; 500 if it has none that can be used."""
    code = status.get("code")
    return code if isinstance(code, int) and code >= 400 else 500


def _object(raw: bytes) -> Json | None:
    """The JSON object; None for anything else, and for one nested deeper than Python can read."""
    try:
        value = _JSON_OF(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def shown(raw: bytes, what: str) -> str:
    """The answer for an error's text, but not if it is about Secrets: a part of it may be a part of a secret."""
    return "not shown here, for it may be secret" if f" {SECRETS} " in f"{what} " else _quoted(raw)


def _quoted(raw: bytes) -> str:
    text = " ".join(raw[: 10 * _LONGEST_QUOTE].decode(errors="replace").split())
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + " …"
