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


class SidecarError(Exception):
    """An expected failure. Its text says what happened, to which object, and what to do."""


class Fatal(SidecarError):
    """The process cannot go on. Its text goes to the log and to the termination log, and the exit code is 1."""
