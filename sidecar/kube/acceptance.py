"""Whether the API server accepts our credentials, by what it answers.

One 401 is no failure: the token file is read again after it (`credentials`), and may hold a newer token by then. Only when nothing has been
accepted for longer than that takes, somebody has to be told.
"""

from typing import Final

# Longer than credentials that are refused are kept before they are read again, and as long as another absence of the API server may last.
PATIENCE: Final = 30.0
_UNAUTHORIZED: Final = 401
# They come before anybody has looked who asks, or from something in between.
_SAY_NOTHING: Final = frozenset({408, 429})


class Acceptance:
    """One per process. It knows no clock: each answer comes with its time."""

    def __init__(self) -> None:
        self.refused = 0
        """Requests in a row, since the last one that was accepted."""
        self._since = 0.0

    def answered(self, status: int, *, now: float) -> bool | None:
        """Whether the credentials are accepted; None: that is not known, or not for certain yet. Status 0: there was no answer."""
        if status == _UNAUTHORIZED:
            self._since = self._since if self.refused else now
            self.refused += 1
            return False if now - self._since >= PATIENCE else None
        if 200 <= status < 500 and status not in _SAY_NOTHING:
            self.refused = 0
            return True
        return None
