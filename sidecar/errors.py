"""The root of the exception tree. Each door and room keeps its own branch; this is the whole tree:

    SidecarError
    ├── config.UsageError          an unknown flag or a malformed value                     → exit 2
    ├── config.Refused             a configuration that cannot work, all faults at once     → exit 1
    ├── errors.Fatal               found out later: the process must end, with this text    → exit 1
    ├── csi.outcome.DriverError    the driver's answer to one call was not OK: code and message
    └── kube.errors.ApiError       the API server's answer to one request was not 2xx, or there was none
        ├── NotFound  Conflict  AlreadyExists  Gone  Invalid  Forbidden  Unauthorized  BadRequest
        └── TooManyRequests(retry_after)  Withdrawn  Unavailable (VersionTooLarge  BadEvent)

Only what somebody catches by name gets a class. Bugs are not in this tree: they are ordinary exceptions, which the loop
logs with their traceback.
"""


class SidecarError(Exception):
    """Something went wrong that the program foresaw; its text says what happened, to which object, and what to do."""


class Fatal(SidecarError):
    """The process cannot go on. Its text goes to the log and to the termination log, and the exit code is 1."""
