"""Who is asking, and what they may do: tokens, roles and their bindings as they stand in the cluster, and access reviews.

Reviews are not stored, so they are no kinds of the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hack.sim.cluster.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from hack.sim.cluster.refusals import Refused, forbidden, invalid, required
from hack.sim.cluster.store import Store
from sidecar.kube.api import REVIEWS_OF_OTHERS, Resource
from sidecar.model.objects import Json

_MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


ADMIN: Final = User("admin", (_MASTERS, "system:authenticated"))


def service_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user wants to do with a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource, as in roles: `pods/eviction`."""
    namespace: str = ""
    name: str = ""


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

    def demand(self, user: User, wish: Wish) -> None:
        """Raises 403 with the text of the real server, unless the user may do it."""
        if self.allows(user, wish):
            return
        place = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        why = f'User "{user.name}" cannot {wish.verb} resource "{wish.resource}" in API group "{wish.group}" {place}'
        raise forbidden(Resource(wish.group, "", wish.resource, "", bool(wish.namespace)), wish.name, why)

    def allows(self, user: User, wish: Wish) -> bool:
        return _MASTERS in user.groups or any(_allows(rule, wish) for rule in self._rules(user, wish.namespace))

    def review(self, user: User, kind: Resource, review: Mapping[str, Any]) -> Json:
        """The answer to who asks what he, or somebody else, may do. Everybody with credentials may ask about himself."""
        if kind == REVIEWS_OF_OTHERS:
            self.demand(user, Wish(verb="create", group=kind.group, resource=kind.plural))
        spec = review.get("spec") or {}
        if not (asked := spec.get("resourceAttributes")):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(kind.kind, kind.group, "", [required("spec.resourceAttributes", why)])
        if kind == REVIEWS_OF_OTHERS:
            user = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
        verb, group, resource, namespace, name = (asked.get(key, "") for key in ("verb", "group", "resource", "namespace", "name"))
        resource += f"/{asked['subresource']}" if asked.get("subresource") else ""
        wish = Wish(verb=verb, group=group, resource=resource, namespace=namespace, name=name)
        return {**review, "status": {"allowed": self.allows(user, wish)}}

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


def _allows(rule: Json, wish: Wish) -> bool:
    names = rule.get("resourceNames") or ()
    wanted = {"verbs": wish.verb, "apiGroups": wish.group, "resources": wish.resource}
    granted = (value in (rule.get(key) or ()) or "*" in (rule.get(key) or ()) for key, value in wanted.items())
    return all(granted) and (not names or wish.name in names)
