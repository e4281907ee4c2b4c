"""Tries each read and write of a look by itself, and remembers what the API server refused or did not answer."""

from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

from sidecar.kube.errors import ApiError

R = TypeVar("R")

URGENT: Final = 10.0
"""Seconds after which what data depends on is tried again, however long the rest of what was refused waits: a True that has to be taken
back, a gate that should stand."""


class Refusals:
    """Those of one look: `begin` forgets the earlier ones."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}
        self._unread: Mapping[str, str] = {}

    def begin(self) -> None:
        self._errors, self._unread = {}, {}

    async def attempt(self, what: str, effect: Awaitable[R]) -> R | None:
        """The answer; None when it was refused or could not be had."""
        try:
            return await effect
        except ApiError as error:
            self.note(what, str(error))
            return None

    def note(self, what: str, error: str) -> None:
        self._errors[what] = error

    def left_unread(self, errors: Mapping[str, str]) -> None:
        """What this look may not read. Whoever asks for it does so again in its own time, so no look comes sooner or later for it."""
        self._unread = dict(errors)

    def of(self, what: str) -> str:
        """Why it was refused in this look; empty: it was not."""
        return self._errors.get(what, "")

    def __str__(self) -> str:
        """Empty: nothing was refused."""
        refused = (f"{what} could not be written or read: {error}" for what, error in sorted(self._errors.items()))
        unread = (f"{what} could not be read, so that a verdict may be Unknown: {error}" for what, error in sorted(self._unread.items()))
        return "; ".join((*refused, *unread))

    @property
    def shown(self) -> str:
        """The same without the server's words, and without names of tenants' objects: anybody may read it."""
        refused = [f"{what} could not be written or read" for what in sorted(self._errors)]
        unread = ["something could not be read, so that a verdict may be Unknown"] if self._unread else []
        return "; ".join((*refused, *unread, *(("the log says why",) if refused or unread else ())))

    def __bool__(self) -> bool:
        """Whether something is to be tried again."""
        return bool(self._errors)
