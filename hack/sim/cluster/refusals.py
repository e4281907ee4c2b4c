"""The errors of the API server: Status objects with the real server's text, word for word where clients read it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.kube.api import Resource
from sidecar.model.objects import Json


class Refused(Exception):
    """The answer to a request that is not granted. `status` is the object that goes over the wire."""

    def __init__(self, code: int, reason: str, message: str, *, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after: int | None = (details or {}).get("retryAfterSeconds")
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        if reason:
            status["reason"] = reason
        if details is not None:
            status["details"] = details
        self.status = status | {"code": code}


@dataclass(frozen=True, slots=True)
class Cause:
    """One broken rule: the field, the kind of rule, and the text."""

    field: str
    reason: str
    message: str


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def wrong(field: str, value: object, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def unsupported(field: str, value: object, supported: Sequence[str]) -> Cause:
    words = ", ".join(f'"{word}"' for word in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {words}")


def not_allowed(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def immutable(field: str, value: object) -> Cause:
    return wrong(field, value, "field is immutable")


def invalid(what: str, group: str, name: str, causes: Iterable[Cause]) -> Refused:
    """`what` is the kind in most refusals, and the plural in some."""
    found = list(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in found]
    message = f'{_qualified(what, group)} "{name}" is invalid: {texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"}'
    told = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in found]
    return Refused(422, "Invalid", message, details=_details(name, what, group) | {"causes": told})


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def about(resource: Resource, name: str, code: int, reason: str, text: str) -> Refused:
    """That one object is not there, or is there already."""
    return Refused(code, reason, f'{resource} "{name}" {text}', details=_details(name, resource.plural, resource.group))


def not_found(resource: Resource, name: str) -> Refused:
    return about(resource, name, 404, "NotFound", "not found")


def no_such_resource() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource", details={})


def no_such_method() -> Refused:
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={})


def conflict(what: str, group: str, name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {_qualified(what, group)} "{name}": {why}'
    return Refused(409, "Conflict", message, details=_details(name, what, group))


def forbidden(resource: Resource, name: str, why: str, *, causes: Sequence[Json] = ()) -> Refused:
    details = _details(name, resource.plural, resource.group) | ({"causes": list(causes)} if causes else {})
    whom = f'{resource} "{name}"' if name else str(resource)
    return Refused(403, "Forbidden", f"{whom} is forbidden: {why}", details=details)


def namespace_ends(resource: Resource, name: str, namespace: str) -> Refused:
    """Nothing is created in it any more, and an eviction is a creation."""
    message = f"namespace {namespace} is being terminated"
    cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(resource, name, why, causes=[cause])


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


def internal(message: str) -> Refused:
    """An error for which the real server has no better answer than 500."""
    return Refused(500, "", message)


def _details(name: str, kind: str, group: str) -> Json:
    given = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in given.items() if value}


def _qualified(what: str, group: str) -> str:
    return f"{what}.{group}" if group else what


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
