"""The two ways in which a command line can be wrong. Both list everything that is wrong, so that one restart is enough."""

from collections.abc import Iterable

from sidecar.errors import SidecarError


class UsageError(SidecarError):
    """It cannot be read: unknown flags and malformed values."""

    exit_code = 2

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("\n".join(self.messages))


class Refused(SidecarError):
    """It can be read, but what it asks for could never work."""

    exit_code = 1

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))
