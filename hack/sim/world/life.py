"""One life of one sidecar process: after its death no effect of it reaches the world.

Every effect crosses the boundary between process and world twice: on its way out, and when its answer comes back. The process can die
at any crossing, so both "decided but not sent" and "done but not answered" are played. After its death every further crossing raises
`Killed`, also in clean-up code.
"""

from collections.abc import Callable


class Killed(BaseException):
    """kill -9. It is a BaseException, so that no ordinary handler catches it, as none can catch the real one."""


class Life:
    """Counts crossings. It ends at the crossing that was chosen, or when it is killed."""

    def __init__(self, number: int, *, on_death: Callable[[str], None] = lambda _: None) -> None:
        self.number = number
        self.crossings = 0
        self.alive = True
        self._dies_at = 0
        self._on_death = on_death

    def doom(self, crossings: int) -> None:
        """Chooses the crossing at which it dies, counted from now; 1 is the next one."""
        self._dies_at = self.crossings + crossings

    def pardon(self) -> None:
        self._dies_at = 0

    def cross(self, what: str) -> None:
        """Called when an effect is about to happen, and when its answer is about to arrive."""
        self.check()
        self.crossings += 1
        if self.crossings == self._dies_at:
            self.kill(what)
            raise Killed

    def check(self) -> None:
        """Raises `Killed` if the process has died; to be called wherever time has passed."""
        if not self.alive:
            raise Killed

    def kill(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self._on_death(why)

    def end(self) -> None:
        """The process has ended by itself, so nothing of it can act any more."""
        self.alive = False
