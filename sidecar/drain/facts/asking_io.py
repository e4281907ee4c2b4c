"""Asks the API server and keeps each answer for a while, refusals among them: a look comes at every change, most concern something else."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sidecar.drain.facts.watched import TRUSTED
from sidecar.frozen import frozen
from sidecar.kube.errors import ApiError, Forbidden, NotFound

R = TypeVar("R")


@frozen
class _Known:
    at: float
    until: float
    answer: Any
    """None: there is no such object."""
    error: str
    forbidden: bool = False


class Asking:
    """One per process. `begin` starts a look; `ignorance` and `unread` are what that look could not learn."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._asked = 0
        self.ignorance: list[str] = []
        self.unread: set[str] = set()
        """What was asked for and refused or not answered, as `Snapshot.unread` wants it."""
        self.forbidden: dict[str, str] = {}
        """What this look may not read, and what the API server says of that. Unlike an answer that is late, it does not come by itself."""

    @property
    def asked(self) -> int:
        """How many questions this look has really asked."""
        return self._asked

    def begin(self, *, anew: bool = False) -> None:
        """`anew`: what may be another in a minute is asked again, however young the answer is."""
        now = self._clock()
        known = ((what, known) for what, known in self._known.items() if now < known.until)
        self._known = {what: known for what, known in known if not (anew and known.until - known.at <= TRUSTED)}
        self.ignorance, self.unread, self.forbidden, self._asked = [], set(), {}, 0

    def knows(self, what: str) -> bool:
        return what in self._known

    def age(self, what: str) -> float:
        """Seconds since it was asked."""
        known = self._known.get(what)
        return float("inf") if known is None else self._clock() - known.at

    async def ask(
        self, what: str, question: Callable[[], Awaitable[R]], *, trusted: float = TRUSTED, not_before: float = float("-inf")
    ) -> R | None:
        """None: there is no such object, or it is not known. An answer from before `not_before` is not good enough."""
        known = self._known.get(what)
        if known is None or known.at < not_before:
            self._asked += 1
            known = self._known[what] = await self._answer(question, trusted)
        if known.error:
            self.ignorance.append(f"{what}: {known.error}")
            self.unread.add(what)
        if known.forbidden:
            self.forbidden[what] = known.error
        answer: R | None = known.answer
        return answer

    async def _answer(self, question: Callable[[], Awaitable[R]], trusted: float) -> _Known:
        at = self._clock()
        try:
            return _Known(at, at + trusted, await question(), "")
        except NotFound:
            return _Known(at, at + trusted, None, "")
        except ApiError as error:
            return _Known(at, at + min(trusted, TRUSTED), None, str(error), isinstance(error, Forbidden))
