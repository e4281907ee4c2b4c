"""The errors of the API server: Status objects with the real server's text, word for word where clients read it."""

import json
from collections.abc import Sequence

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


def required(field: str, detail: str = "") -> str:
    return f"{field}: Required value" + (f": {detail}" if detail else "")


def wrong(field: str, value: object, detail: str) -> str:
    shown = f'"{value}"' if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"{field}: Invalid value: {shown}: {detail}"


def not_allowed(field: str, detail: str) -> str:
    return f"{field}: Forbidden: {detail}"


def invalid(what: str, group: str, name: str, causes: Sequence[str]) -> Refused:
    """`what` is the kind in most refusals, and the plural in some; `causes` are the broken rules, each with its field."""
    told = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    details = _details(name, what, group) | {"causes": [{"message": cause} for cause in causes]}  # which kubectl prints instead
    return Refused(422, "Invalid", f'{_qualified(what, group)} "{name}" is invalid: {told}', details=details)


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def about(resource: Resource, name: str, code: int, reason: str, text: str) -> Refused:
    """That one object is not there, or is there already."""
    return Refused(code, reason, f'{resource} "{name}" {text}', details=_details(name, resource.plural, resource.group))


def not_found(resource: Resource, name: str) -> Refused:
    return about(resource, name, 404, "NotFound", "not found")


def no_such_resource() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource", details={})


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
