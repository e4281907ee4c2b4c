"""Answers who asks what he may do: SelfSubjectAccessReview. Nothing is stored, so it is no kind of the table."""

import json
from typing import Final

from sidecar.kube.api import ACCESS_REVIEWS
from sidecar.kube.wire import path_of
from sidecar.model.objects import Json
from sidecar.simulation.cluster.http.access import ANONYMOUS, Access, User, Wish
from sidecar.simulation.cluster.refusals import Refused, bad_request, invalid, required

RESOURCE: Final = ACCESS_REVIEWS.plural
_PATH: Final = path_of(ACCESS_REVIEWS)


def is_review(method: str, path: str) -> bool:
    return (method, path) == ("POST", _PATH)


def answered(access: Access, user: User, raw: bytes) -> bytes:
    """Everybody with credentials may ask."""
    if user is ANONYMOUS:
        access.demand(user, Wish(verb="create", group=ACCESS_REVIEWS.group, resource=RESOURCE))
    try:
        review = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None
    spec = review.get("spec") if isinstance(review, dict) else None
    asked = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(asked, dict):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid(ACCESS_REVIEWS.kind, ACCESS_REVIEWS.group, "", [required("spec.resourceAttributes", why)])
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
