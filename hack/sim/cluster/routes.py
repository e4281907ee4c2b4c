"""What a request means, from its path, method and query, without a socket; and what the server says about itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from hack.sim.cluster.access import Wish
from hack.sim.cluster.cluster import VERSION
from hack.sim.cluster.kinds import Kind
from hack.sim.cluster.reading import Query
from hack.sim.cluster.refusals import bad_request, no_such_method, no_such_resource
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

_COLLECTION_VERBS: Final = {"GET": "list", "POST": "create"}
_OBJECT_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_STATUS_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
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


def target(method: str, path: str, query: Mapping[str, str], kinds: Iterable[Kind]) -> Target:
    match [unquote(part) for part in path.rstrip("/").split("/")[1:]]:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_resource()
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    asked = (group, version, plural)
    kind = next((kind for kind in kinds if (kind.resource.group, kind.resource.version, kind.resource.plural) == asked), None)
    if kind is None or len(rest) > 3 or "/" in name or (bool(namespace or name) and kind.resource.namespaced is not bool(namespace)):
        raise no_such_resource()
    if name in (".", ".."):
        raise bad_request(f"Name parameter invalid: \"{name}\": may not be '{name}'")
    if subresource and not (subresource == "status" and kind.status) and subresource not in kind.subresources:
        raise no_such_resource()
    if subresource:
        verbs = _STATUS_VERBS if subresource == "status" else {"POST": "create"}
    else:
        verbs = _OBJECT_VERBS if name else _COLLECTION_VERBS
    if method not in verbs:
        raise no_such_method()
    verb = verbs[method]
    return Target(kind.resource, "watch" if verb == "list" and flag(query, "watch") else verb, namespace, name, subresource)


def proxied(path: str) -> tuple[Wish, str] | None:
    """What somebody must be allowed who asks for a page of a pod, and that page: NAMESPACE/POD:PORT/PATH. None: it is no such request."""
    match [unquote(part) for part in path.split("/")[1:]]:
        case ["api", "v1", "namespaces", namespace, "pods", name, "proxy", *page]:
            wish = Wish(verb="get", group="", resource="pods/proxy", namespace=namespace, name=name.partition(":")[0])
            return wish, "/".join((namespace, name, *page))
        case _:
            return None


def query_of(target: Target, given: Mapping[str, str]) -> Query:
    return Query(
        namespace=target.namespace,
        labels=given.get("labelSelector", ""),
        fields=given.get("fieldSelector", ""),
        limit=int(given.get("limit") or 0),
        token=given.get("continue", ""),
        version=given.get("resourceVersion", ""),
    )


def flag(given: Mapping[str, str], key: str) -> bool:
    """Reads a bool as the real server does: everything but these words is true."""
    return key in given and given[key].lower() not in ("false", "0")


def document(path: str, kinds: Iterable[Kind]) -> Json | None:
    """The answer to a GET of this path; None if it is not about the server itself."""
    known = sorted({kind.resource.api_version for kind in kinds})
    match path.rstrip("/").split("/")[1:]:
        case ["version"]:
            major, minor, _ = VERSION.removeprefix("v").split(".")
            return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "simulation"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            entries = {version: {"groupVersion": version, "version": version.rpartition("/")[2]} for version in known if "/" in version}
            groups = [{"name": key.partition("/")[0], "versions": [entry], "preferredVersion": entry} for key, entry in entries.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api" | "apis", *version] if "/".join(version) in known:
            return _resources("/".join(version), kinds)
    return None


def _resources(api_version: str, kinds: Iterable[Kind]) -> Json:
    entries: list[Json] = []
    for kind in (kind for kind in kinds if kind.resource.api_version == api_version):
        resource = kind.resource
        common: Json = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
        own = {"name": resource.plural, "singularName": resource.kind.lower(), "verbs": list(_VERBS)}
        entries.append(common | own)
        if kind.status:
            entries.append(common | {"name": f"{resource.plural}/status", "verbs": ["get", "patch", "update"]})
        for name, taken in kind.subresources.items():
            entries.append(common | {"name": f"{resource.plural}/{name}", "kind": taken, "verbs": ["create"]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}
