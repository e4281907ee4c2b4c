"""One life of one sidecar process, and the boundary that nothing of it passes after its death.

Every effect crosses the boundary twice: on its way out, and when its answer is heard. A death can fall on any crossing, so
"decided but not sent" and "done but not heard" are both played. After it every further crossing, clean-up code included,
meets `Killed`.
"""

from collections.abc import Callable


class Killed(BaseException):
    """kill -9. No ordinary handler may catch it, as none can catch the real one."""


class Life:
    """Counts crossings; dies at the one that was chosen, or when it is told to."""

    def __init__(self, number: int, *, on_death: Callable[[str], None] = lambda _: None) -> None:
        self.number = number
        self.crossings = 0
        self.alive = True
        self._dies_at = 0
        self._on_death = on_death

    def doom(self, crossings: int) -> None:
        """It dies at that crossing from now; 1 is the next one."""
        self._dies_at = self.crossings + crossings

    def pardon(self) -> None:
        self._dies_at = 0

    def cross(self, what: str) -> None:
        """An effect is about to happen, or its answer about to be heard."""
        self.check()
        self.crossings += 1
        if self.crossings == self._dies_at:
            self.kill(what)
            raise Killed

    def check(self) -> None:
        """Where time has passed the process may have died."""
        if not self.alive:
            raise Killed

    def kill(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self._on_death(why)

    def end(self) -> None:
        """The process has ended by itself; nothing of it is left that could do anything."""
        self.alive = False
