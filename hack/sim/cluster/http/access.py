"""Who is asking, and what they may do: tokens, roles and their bindings as they stand in the cluster, and refusals on demand."""

from collections.abc import Iterable
from typing import Any, Final

from hack.sim.cluster.kinds.table import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from hack.sim.cluster.refusals import Refused, unauthorized
from hack.sim.cluster.storage.store import Store
from sidecar.frozen import frozen
from sidecar.model.objects import Json

MASTERS: Final = "system:masters"
# What everybody may read, also without a token.
_PUBLIC: Final = ("/version", "/healthz", "/livez", "/readyz")
# What every authenticated user may read.
_DISCOVERY: Final = ("/api", "/apis", "/openapi")


@frozen
class User:
    name: str
    groups: tuple[str, ...] = ()


ADMIN: Final = User("admin", (MASTERS, "system:authenticated"))
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def service_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


@frozen(kw_only=True)
class Wish:
    """What a user wants to do: an API verb on a resource, or a method on a path that is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource, as in roles: `pods/eviction`."""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Access:
    """The access rights. A server without tokens takes everybody for the admin."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users: dict[str, User] = {}
        self._forbidden: set[tuple[str, str]] = set()

    def add(self, token: str, user: User) -> None:
        self._users[token] = user

    def revoke(self, token: str) -> None:
        self._users.pop(token, None)

    def forbid(self, verb: str, resource: str) -> None:
        """Forbids something to everybody, admins included, whatever the roles say. `*` stands for every verb or resource."""
        self._forbidden.add((verb, resource))

    def permit(self, verb: str, resource: str) -> None:
        self._forbidden.discard((verb, resource))

    def user(self, authorization: str | None) -> User:
        if not self._users:
            return ADMIN
        if not authorization:
            return ANONYMOUS
        found = self._users.get(authorization.removeprefix("Bearer ").strip())
        if found is None:
            raise unauthorized()
        return found

    def demand(self, user: User, wish: Wish) -> None:
        """Raises 403 with the text of the real server, unless the user may do it."""
        if self._is_forbidden(wish) or not (MASTERS in user.groups or self._may(user, wish)):
            raise _forbidden(user, wish)

    def _is_forbidden(self, wish: Wish) -> bool:
        return any(verb in ("*", wish.verb) and resource in ("*", wish.resource) for verb, resource in self._forbidden)

    def _may(self, user: User, wish: Wish) -> bool:
        if wish.path:
            known = user is not ANONYMOUS and wish.path.startswith(_DISCOVERY)
            return wish.verb == "get" and (known or wish.path in _PUBLIC)
        return any(_allows(rule, wish) for rule in self._rules(user, wish.namespace))

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
    return any(_is(subject, user) for subject in binding.get("subjects") or ())


def _is(subject: Json, user: User) -> bool:
    match subject.get("kind"):
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
        case "Group":
            return subject.get("name") in user.groups
        case _:
            return bool(subject.get("name") == user.name)


def _allows(rule: Json, wish: Wish) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _lists(rule, "verbs", wish.verb)
        and _lists(rule, "apiGroups", wish.group)
        and _lists(rule, "resources", wish.resource)
        and (not names or wish.name in names)
    )


def _lists(rule: Json, key: str, value: Any) -> bool:
    return value in (rule.get(key) or ()) or "*" in (rule.get(key) or ())


def _forbidden(user: User, wish: Wish) -> Refused:
    if wish.path:
        message = f'forbidden: User "{user.name}" cannot {wish.verb} path "{wish.path}"'
        return Refused(403, "Forbidden", message, details={})
    place = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {wish.verb} resource "{wish.resource}" in API group "{wish.group}" {place}'
    whole = f"{wish.resource}.{wish.group}" if wish.group else wish.resource
    whom = f'{whole} "{wish.name}"' if wish.name else whole
    details = {"name": wish.name, "group": wish.group, "kind": wish.resource}
    return Refused(403, "Forbidden", f"{whom} is forbidden: {why}", details={key: value for key, value in details.items() if value})
