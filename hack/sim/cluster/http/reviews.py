"""Answers who asks what he, or somebody else, may do: access reviews. Nothing is stored, so they are no kinds of the table."""

import json
from typing import Final

from hack.sim.cluster.http.access import ANONYMOUS, Access, User, Wish
from hack.sim.cluster.refusals import Refused, bad_request, invalid, required
from sidecar.kube.api import ACCESS_REVIEWS, REVIEWS_OF_OTHERS, Resource
from sidecar.kube.wire import path_of
from sidecar.model.objects import Json

_PATHS: Final = {path_of(resource): resource for resource in (ACCESS_REVIEWS, REVIEWS_OF_OTHERS)}


def asked_for(method: str, path: str) -> Resource | None:
    """The kind of review that a request is; None: it is none."""
    return _PATHS.get(path) if method == "POST" else None


def answered(access: Access, user: User, kind: Resource, raw: bytes) -> bytes:
    """Everybody with credentials may ask about himself."""
    if user is ANONYMOUS or kind == REVIEWS_OF_OTHERS:
        access.demand(user, Wish(verb="create", group=kind.group, resource=kind.plural))
    try:
        review = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None
    spec = review.get("spec") if isinstance(review, dict) else None
    asked = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(asked, dict):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid(kind.kind, kind.group, "", [required("spec.resourceAttributes", why)])
    if kind == REVIEWS_OF_OTHERS and isinstance(spec, dict):
        user = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
    return json.dumps({**review, "status": {"allowed": _allows(access, user, asked)}}).encode()


def _allows(access: Access, user: User, asked: Json) -> bool:
    subresource = asked.get("subresource")
    wish = Wish(
        verb=asked.get("verb", ""),
        group=asked.get("group", ""),
        resource=f"{asked.get('resource', '')}{f'/{subresource}' if subresource else ''}",
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
    )
    try:
        access.demand(user, wish)
    except Refused:
        return False
    return True
