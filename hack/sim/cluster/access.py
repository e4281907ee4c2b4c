"""What a request means, from its path, method and query; who is asking, and what they may do, by tokens, roles and bindings; and what the
server says about itself.

Reviews of access are not stored, so they are no kinds of the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from hack.sim.cluster.api_server import VERSION
from hack.sim.cluster.inprocess import Call
from hack.sim.cluster.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Kind
from hack.sim.cluster.reading import Query
from hack.sim.cluster.refusals import Refused, forbidden, invalid, no_such_resource, required
from hack.sim.cluster.store import Store
from sidecar.kube.api import NAMESPACES, PODS, REVIEWS_OF_OTHERS, Resource
from sidecar.model.objects import Json

_MASTERS: Final = "system:masters"
_ASKED: Final = ("verb", "group", "resource", "namespace", "name", "subresource")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


ADMIN: Final = User("admin", (_MASTERS, "system:authenticated"))


def service_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


@dataclass(frozen=True, slots=True)
class Target(Call):
    """Which objects a request is about, and what is to be done with them."""

    resource: Resource

    @property
    def whole(self) -> str:
        """The resource with its subresource, as in roles: `pods/eviction`."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


class Access:
    """The access rights. A server without tokens takes everybody for the admin."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users: dict[str, User] = {}

    def add(self, token: str, user: User) -> None:
        self._users[token] = user

    def user(self, authorization: str | None) -> User:
        if not self._users:
            return ADMIN
        found = self._users.get((authorization or "").removeprefix("Bearer ").strip())
        if found is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return found

    def demand(self, user: User, target: Target) -> None:
        """Raises 403 with the text of the real server, unless the user may do it."""
        if self.allows(user, target):
            return
        place = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = f'User "{user.name}" cannot {target.verb} resource "{target.whole}" in API group "{target.resource.group}" {place}'
        raise forbidden(replace(target.resource, plural=target.whole), target.name, why)

    def allows(self, user: User, target: Target) -> bool:
        return _MASTERS in user.groups or any(_allows(rule, target) for rule in self._rules(user, target.namespace))

    def review(self, user: User, kind: Resource, review: Mapping[str, Any]) -> Json:
        """The answer to who asks what he, or somebody else, may do. Everybody with credentials may ask about himself."""
        spec = review.get("spec") or {}
        if kind == REVIEWS_OF_OTHERS:
            self.demand(user, Target("create", kind))
            user = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
        if not (asked := spec.get("resourceAttributes")):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(kind.kind, kind.group, "", [required("spec.resourceAttributes", why)])
        verb, group, plural, namespace, name, part = (asked.get(key, "") for key in _ASKED)
        target = Target(verb, Resource(group, "", plural, "", bool(namespace)), namespace, name, part)
        return {**review, "status": {"allowed": self.allows(user, target)}}

    def _rules(self, user: User, namespace: str) -> Iterable[Json]:
        for binding in self._store.all_of(CLUSTER_ROLE_BINDINGS):
            if _binds(binding, user):
                yield from self._rules_of(binding["roleRef"], "")
        for binding in self._store.all_of(ROLE_BINDINGS):
            if namespace and binding["metadata"]["namespace"] == namespace and _binds(binding, user):
                yield from self._rules_of(binding["roleRef"], namespace)

    def _rules_of(self, reference: Json, namespace: str) -> list[Json]:
        own = reference["kind"] == "Role"
        role = self._store.find(ROLES if own else CLUSTER_ROLES, reference["name"], namespace if own else "")
        return (role or {}).get("rules") or []


def _binds(binding: Json, user: User) -> bool:
    account = user.name.removeprefix("system:serviceaccount:")
    own = {("User", user.name), ("ServiceAccount", account), *(("Group", group) for group in user.groups)}
    subjects = binding.get("subjects") or ()
    return any((each["kind"], f"{each['namespace']}:{each['name']}" if "namespace" in each else each["name"]) in own for each in subjects)


def _allows(rule: Json, target: Target) -> bool:
    names = rule.get("resourceNames") or ()
    wanted = {"verbs": target.verb, "apiGroups": target.resource.group, "resources": target.whole}
    granted = (value in (rule.get(key) or ()) or "*" in (rule.get(key) or ()) for key, value in wanted.items())
    return all(granted) and (not names or target.name in names)


# --- requests ---------------------------------------------------------------------------------------------------------------

_COLLECTION_VERBS: Final = {"GET": "list", "POST": "create"}
_OBJECT_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_STATUS_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


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
    if subresource:
        verbs = _STATUS_VERBS if subresource == "status" else {"POST": "create"}
    else:
        verbs = _OBJECT_VERBS if name else _COLLECTION_VERBS
    if method not in verbs:
        raise no_such_resource()  # nobody sends what the real server calls not allowed
    verb, namespace = verbs[method], name if kind.resource == NAMESPACES else namespace
    return Target("watch" if verb == "list" and flag(query, "watch") else verb, kind.resource, namespace, name, subresource)


def proxied(path: str) -> tuple[Target, str] | None:
    """What somebody must be allowed who asks for a page of a pod, and that page: NAMESPACE/POD:PORT/PATH. None: it is no such request."""
    match [unquote(part) for part in path.split("/")[1:]]:
        case ["api", "v1", "namespaces", namespace, "pods", name, "proxy", *page]:
            return Target("get", PODS, namespace, name.partition(":")[0], "proxy"), "/".join((namespace, name, *page))
        case _:
            return None


def query_of(target: Target, given: Mapping[str, str]) -> Query:
    return Query(
        namespace=target.namespace,
        label_selector=given.get("labelSelector", ""),
        field_selector=given.get("fieldSelector", ""),
        limit=int(given.get("limit") or 0),
        continue_token=given.get("continue", ""),
        resource_version=given.get("resourceVersion", ""),
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
        names = {"name": resource.plural, "singularName": resource.kind.lower(), "kind": resource.kind}
        entries.append(names | {"namespaced": resource.namespaced, "verbs": list(_VERBS)})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}
