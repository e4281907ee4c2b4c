"""Reads what a request means from its path, method, query and headers, without a socket."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from hack.sim.cluster.http.access import Wish
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.refusals import Refused, bad_request, invalid, no_such_method, no_such_resource, unsupported
from hack.sim.cluster.storage.reading import Query
from sidecar.frozen import frozen
from sidecar.kube.api import Resource

JSON_TYPE: Final = "application/json"
_BODY_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_OFFERED: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS: Final = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_COLLECTION_VERBS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_STATUS_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}


class NoPath(Exception):
    """There is nothing at this path, and the real server answers it without a Status."""


@frozen
class Target:
    """Which objects a request is about, and what is to be done with them."""

    resource: Resource
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def wish(self) -> Wish:
        whole = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        namespace = self.namespace if self.resource.namespaced else self.name if self.resource.plural == "namespaces" else ""
        return Wish(verb=self.verb, group=self.resource.group, resource=whole, namespace=namespace, name=self.name)


def target(method: str, raw_path: str, query: Mapping[str, str], kinds: Iterable[Kind]) -> Target:
    parts = [unquote(part) for part in raw_path.rstrip("/").split("/")[1:]]
    group, version, rest = _group(parts, kinds)
    known = {kind.resource.plural: kind for kind in kinds if (kind.resource.group, kind.resource.version) == (group, version)}
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    kind = known.get(plural)
    if kind is None or len(rest) > 3 or "/" in name:
        raise no_such_resource()
    resource = kind.resource
    if resource.namespaced is not bool(namespace) and (namespace or name):
        raise no_such_resource()
    if name in (".", ".."):
        raise bad_request(f"Name parameter invalid: \"{name}\": may not be '{name}'")
    if subresource and not (subresource == "status" and kind.status) and subresource not in kind.subresources:
        raise no_such_resource()
    verb = _verb(method, resource, namespace, name, subresource)
    if verb in ("list", "get") and not subresource and _flag(query, "watch"):
        verb = "watch" if verb == "list" else verb
    return Target(resource, verb, namespace, name, subresource)


def _group(parts: list[str], kinds: Iterable[Kind]) -> tuple[str, str, list[str]]:
    match parts:
        case ["api", version, *rest]:
            return "", version, rest
        case ["apis", group, version, *rest] if any(kind.resource.group == group for kind in kinds):
            return group, version, rest
    raise NoPath


def _verb(method: str, resource: Resource, namespace: str, name: str, subresource: str) -> str:
    if subresource == "status":
        verbs = _STATUS_VERBS
    elif subresource == "finalize":
        verbs = {"PUT": "update"}
    elif subresource:
        verbs = {"POST": "create"}
    elif name:
        verbs = _OBJECT_VERBS
    else:
        verbs = {"GET": "list"} if resource.namespaced and not namespace else _COLLECTION_VERBS
    if method not in verbs:
        raise no_such_method()
    return verbs[method]


def query_of(target: Target, given: Mapping[str, str]) -> Query:
    return Query(
        namespace=target.namespace,
        labels=given.get("labelSelector", ""),
        fields=given.get("fieldSelector", ""),
        limit=number(given, "limit"),
        token=given.get("continue", ""),
        version=given.get("resourceVersion", ""),
        match=given.get("resourceVersionMatch", ""),
        initial_events=_flag(given, "sendInitialEvents"),
    )


def number(given: Mapping[str, str], key: str) -> int:
    text = given.get(key) or "0"
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def bookmarks(given: Mapping[str, str]) -> bool:
    return _flag(given, "allowWatchBookmarks")


def dry_run(given: Mapping[str, str], options: str) -> bool:
    wish = given.get("dryRun", "")
    if wish not in ("", "All"):
        raise invalid(options, "meta.k8s.io", "", [unsupported("dryRun", [wish], ("All",))])
    return bool(wish)


def strict(given: Mapping[str, str]) -> bool:
    return given.get("fieldValidation") == "Strict"


def manager(given: Mapping[str, str], user_agent: str) -> str:
    """The field manager that is recorded: the one in the query, or else the first word of the user agent."""
    return given.get("fieldManager") or user_agent.partition("/")[0] or "unknown"


def media_type(header: str | None) -> str:
    return (header or "").partition(";")[0].strip().lower()


def demand_json_body(content_type: str) -> None:
    if content_type and content_type not in _BODY_TYPES:
        accepted = ", ".join(_BODY_TYPES)
        message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise Refused(415, "UnsupportedMediaType", message)


def wants_table(accept: str) -> bool:
    """Whether the client prefers a Table."""
    first = accept.partition(",")[0].replace(" ", "")
    return first.startswith(JSON_TYPE) and "as=Table" in first and "g=meta.k8s.io" in first and "v=v1;" in first + ";"


def demand_acceptable(accept: str | None, *, discovery: bool = False) -> None:
    """Refuses a client that does not accept JSON."""
    words = [media_type(word) for word in (accept or "*/*").split(",")]
    if any(word in (JSON_TYPE, "application/*", "*/*") for word in words):
        return
    offered = JSON_TYPE if discovery else f"{_OFFERED}, {_STREAMS}"
    raise Refused(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {offered}", details={})


def _flag(given: Mapping[str, str], key: str) -> bool:
    """Reads a bool as the real server does: everything but these words is true."""
    return key in given and given[key].lower() not in ("false", "0")


def demand_object(value: Any, kind: str, raw: bytes) -> dict[str, Any]:
    """Checks a parsed body: null counts as an empty object, and kind and apiVersion must be text."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        found = "array" if isinstance(value, list) else "string" if isinstance(value, str) else "number"
        raise unreadable(kind, f"json: cannot unmarshal {found} into Go value of type struct", raw)
    for key in ("kind", "apiVersion"):
        if not isinstance(value.get(key, ""), str | None):
            raise unreadable(kind, f"json: cannot unmarshal into Go struct field .{key} of type string", raw)
    return value


def unreadable(kind: str, why: str, raw: bytes) -> Refused:
    shown = raw[:30].decode(errors="replace") + (" ..." if len(raw) > 30 else "") if raw else "<empty>"
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
    )
