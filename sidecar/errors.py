"""The root of all expected failures. Each room defines its own; this is the whole tree:

    SidecarError
    ├── config.errors.UsageError   an unknown flag or a malformed value                     → exit 2
    ├── config.errors.Refused      a configuration that cannot work, all faults at once     → exit 1
    ├── errors.Fatal               found later: the process must end with this text         → exit 1
    ├── csi.outcome.DriverError    the driver's answer to one call was not OK: code and message
    └── kube.errors.ApiError       the API server's answer to one request was not 2xx, or there was none
        ├── NotFound  Conflict  AlreadyExists  Gone  Invalid  Forbidden  Unauthorized  BadRequest
        └── TooManyRequests(retry_after)  Withdrawn  Unavailable (VersionTooLarge  BadEvent)

A failure has a class of its own only if some code catches it by name. Bugs are ordinary exceptions outside this tree; the loop logs them
with their traceback.
"""

from typing import Final

LONGEST: Final = 4096
"""Characters of what a driver or a server says. Such texts are kept in many places: with claims that are retried, decisions, health."""


def shortened(text: str, limit: int = LONGEST) -> str:
    """Text of others is cut where it enters, and once. The result says so."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class SidecarError(Exception):
    """An expected failure. Its text says what happened, to which object, and what to do."""


class Fatal(SidecarError):
    """The process cannot go on. Its text goes to the log and to the termination log, and the exit code is 1."""
