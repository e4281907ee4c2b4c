"""What can go wrong at the API server's door. Only what somebody catches by name has a class."""

from collections.abc import Mapping
from typing import Any

from sidecar.errors import SidecarError

# What a server may ask for by Retry-After. Longer would look like a hang.
LONGEST_QUIET = 60.0


class ApiError(SidecarError):
    """The server answered with something other than 2xx, or did not answer. `status` is 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class BadRequest(ApiError):
    """400: the request itself is wrong."""


class Unauthorized(ApiError):
    """401: the server does not accept our token or certificate."""


class Forbidden(ApiError):
    """403: we are known, but may not do this."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the object changed since we read it, or a precondition failed. Look again."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old. List again."""


class Invalid(ApiError):
    """422: the object breaks a rule of the API, or a `test` of a JSON patch failed."""


class TooManyRequests(ApiError):
    """429, with what the server asks us to wait, within reason."""

    def __init__(self, message: str, *, retry_after: float, status: int = 429, reason: str = "TooManyRequests") -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = min(retry_after, LONGEST_QUIET)


class Withdrawn(ApiError):
    """Not sent: when its turn came it was no longer wanted."""


class Unavailable(ApiError):
    """The server cannot be reached, is starting or stopping, or did not answer in time. Nothing is known of the outcome."""


class VersionTooLarge(Unavailable):
    """504: the server has not come as far as this resourceVersion. After a restore from a backup it may never."""


class BadEvent(Unavailable):
    """A watch was taken up, and then ended by an event: one that tells of an error, or one that cannot be understood."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def from_status(status: int, body: Mapping[str, Any], *, what: str, retry_after: float | None = None) -> ApiError:
    """The exception for an answer. `what` names the request: verb, resource and object."""
    reason = _text(body.get("reason"))
    message = f"{what}: {_text(body.get('message')) or reason or f'HTTP {status}'}"
    if status == 429:
        return TooManyRequests(message, retry_after=1.0 if retry_after is None else retry_after)
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(message, status=status, reason=reason)
    if reason in ("Expired", "Gone"):
        return Gone(message, status=status, reason=reason)
    if "ResourceVersionTooLarge" in causes_of(body):
        return VersionTooLarge(message, status=status, reason=reason)
    if status >= 500:
        return Unavailable(message, status=status, reason=reason)
    return _BY_STATUS.get(status, ApiError)(message, status=status, reason=reason)


def causes_of(body: Mapping[str, Any]) -> frozenset[str]:
    """The reasons among the causes in a Status."""
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return frozenset(_text(cause.get("reason")) for cause in causes if isinstance(cause, dict)) if isinstance(causes, list) else frozenset()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
