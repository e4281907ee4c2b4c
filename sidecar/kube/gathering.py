"""For how long a busy stream is left alone, so that what it says is read together.

Every node hears of every claim. To wake up for each event of a burst costs a process more than the event itself, and the machines of
a whole cluster do it in the same moment. So what comes stays in the kernel's buffer, which wakes nobody, until a moment later.
A stream that was quiet is read at once: only the second event of a burst waits.
"""

import socket
from typing import Any

SHORTEST = 0.02
_BUSY = 0.05
# Nothing a watch says in such a time fills it, and if it did, the kernel would wake us before it lets the sender wait.
_ENOUGH_BYTES = 2**18


class Gathering:
    """One stream's. Times are on any clock that all streams of the process share: they then wake it together."""

    def __init__(self, longest: float = SHORTEST) -> None:
        self._longest = longest
        self._length = SHORTEST
        self._ready_at = float("-inf")

    def pause(self, lines: int, now: float) -> float:
        """How long to leave the stream alone, after it has brought so many lines. 0: go on as they come."""
        if now - self._ready_at > _BUSY:
            self._length, self._ready_at = SHORTEST, now
            return 0.0
        self._length = min(self._longest, self._length * 2) if lines > 1 else max(SHORTEST, self._length / 2)
        left = self._length - now % self._length
        self._ready_at = now + left
        return left


def hush(transport: Any) -> None:
    """From here on, the kernel keeps what comes to itself. Where a system cannot, the event loop gathers it, at a higher price."""
    _wake_for(transport, _ENOUGH_BYTES)


def listen(transport: Any) -> None:
    """Back to normal: what has gathered is there to be read now."""
    _wake_for(transport, 1)


def _wake_for(transport: Any, bytes_: int) -> None:
    wire_socket = transport.get_extra_info("socket") if transport else None
    try:
        if wire_socket is not None:
            wire_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes_)
    except (AttributeError, OSError):
        pass
