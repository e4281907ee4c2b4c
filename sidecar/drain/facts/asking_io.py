"""Asks the API server and keeps each answer for a while, refusals among them: a look comes at every change, most concern something else.

Where no answer comes the last good one counts for some minutes, unless the look wants everything anew: else each pause of the API server
would turn the verdicts of all nodes to Unknown and back, with all their writes, just when it has come back.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from sidecar.drain.facts.watched import TRUSTED
from sidecar.kube.errors import ApiError, Forbidden, NotFound

R = TypeVar("R")

LAST_GOOD: Final = 180.0
"""Seconds after it was asked for that an answer counts while nothing newer is to be had."""
_AGAIN: Final = 5.0
"""Seconds until what was not answered is asked for again."""


@dataclass(frozen=True, slots=True)
class _Known:
    at: float
    trusted: float
    until: float
    """It is not asked for again before. Later than `at + trusted` where nothing newer was to be had."""
    answer: Any
    """None: there is no such object."""
    error: str
    forbidden: bool = False

    @property
    def failed(self) -> bool:
        """Nobody answered. To be forbidden is an answer."""
        return bool(self.error) and not self.forbidden

    def counts(self, now: float, trusted: float) -> bool:
        return not self.error and trusted > 0.0 and now < self.at + LAST_GOOD


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
        known = ((what, known) for what, known in self._known.items() if now < max(known.until, known.at + LAST_GOOD))
        self._known = {what: known for what, known in known if not (anew and known.trusted <= TRUSTED)}
        self.ignorance, self.unread, self.forbidden, self._asked = [], set(), {}, 0

    def knows(self, what: str) -> bool:
        known = self._known.get(what)
        return known is not None and self._clock() < known.until

    def age(self, what: str) -> float:
        """Seconds since it was asked."""
        known = self._known.get(what)
        return float("inf") if known is None else self._clock() - known.at

    async def ask(
        self, what: str, question: Callable[[], Awaitable[R]], *, trusted: float = TRUSTED, not_before: float = float("-inf")
    ) -> R | None:
        """None: there is no such object, or it is not known. An answer from before `not_before` is not good enough."""
        known = self._known.get(what)
        if known is None or known.at < not_before or self._clock() >= known.until:
            self._asked += 1
            before, known = known, await self._answer(question, trusted)
            if known.failed and before is not None and before.at >= not_before and before.counts(known.at, trusted):
                known = replace(before, until=known.until)
            self._known[what] = known
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
            return _Known(at, trusted, at + trusted, await question(), "")
        except NotFound:
            return _Known(at, trusted, at + trusted, None, "")
        except Forbidden as error:
            return _Known(at, trusted, at + min(trusted, TRUSTED), None, str(error), forbidden=True)
        except ApiError as error:
            return _Known(at, trusted, at + min(trusted, _AGAIN), None, str(error))
