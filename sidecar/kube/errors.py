"""The failures of requests to the API server. A failure has a class of its own only if some code catches it by name."""

from collections.abc import Mapping
from typing import Any

from sidecar.errors import SidecarError, shortened

# The longest Retry-After that is followed. A longer pause would look like a hang.
LONGEST_QUIET = 60.0


class ApiError(SidecarError):
    """The server answered with something other than 2xx, or did not answer. `status` is 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(shortened(message))
        self.status = status
        self.reason = shortened(reason)
        self.causes: Mapping[str, str] = {}
        """What the server says of why, as `causes_of` has it."""
        self.what = ""
        """The request in our words, if the server answered it."""

    @property
    def shown(self) -> str:
        """Without words of others: for a page that anybody may read."""
        said = f"{self.status} {type(self).__name__}" if self.status else "no answer that can be used; the log says more"
        return f"{self.what or 'the API server'}: {said}"


class BadRequest(ApiError):
    """400: the request itself is wrong."""


class Unauthorized(ApiError):
    """401: the server does not accept our token or certificate."""


class Forbidden(ApiError):
    """403: our role does not allow this."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or a precondition failed. Read it again."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old. List again."""


class Invalid(ApiError):
    """422: the object breaks a rule of the API, or a `test` of a JSON patch failed."""


class TooManyRequests(ApiError):
    """429, with the time that the server asks us to wait, at most `LONGEST_QUIET`."""

    def __init__(self, message: str, *, retry_after: float, status: int = 429, reason: str = "TooManyRequests") -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = min(retry_after, LONGEST_QUIET)


class Withdrawn(ApiError):
    """Not sent: when the limiter let it through, it was no longer wanted."""


class Unavailable(ApiError):
    """The server cannot be reached, is starting or stopping, or did not answer in time. Whether it carried the request out is unknown."""


class VersionTooLarge(Unavailable):
    """504: this resourceVersion is newer than the server's. After a restore from a backup that may never change."""


class BadEvent(Unavailable):
    """An open watch was ended by an event that reports an error or cannot be read."""


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
    error = _by_status(status, body, what=what, retry_after=retry_after)
    error.causes = causes_of(body)
    error.what = what
    return error


def _by_status(status: int, body: Mapping[str, Any], *, what: str, retry_after: float | None) -> ApiError:
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


def causes_of(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The causes in a Status: by the reason of each its message."""
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    return {_text(cause.get("reason")): shortened(_text(cause.get("message"))) for cause in found}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
