"""For how long a busy watch is left unread, so that a burst of its events is read together.

Every node receives every claim's events. Waking up for each event of a burst costs a process more than handling it, and it would happen on
all machines of a cluster at the same moment. So what arrives stays in the kernel's buffer for a moment, without waking the process.
A watch that was quiet is read at once: only the second event of a burst waits.
"""

import socket
from typing import Any

SHORTEST = 0.02
_BUSY = 0.05
# More than a watch brings in such a time. If it were filled, the kernel would wake us before it made the sender wait.
_ENOUGH_BYTES = 2**18


class ReadBatching:
    """The delays of one stream. All streams of a process use the same clock, so that their delays end together and wake it once."""

    def __init__(self, longest: float = SHORTEST) -> None:
        self._longest = longest
        self._length = SHORTEST
        self._ready_at = float("-inf")

    def delay(self, lines: int, now: float) -> float:
        """Seconds to leave the stream unread after it has brought so many lines; 0: go on reading."""
        if now - self._ready_at > _BUSY:
            self._length, self._ready_at = SHORTEST, now
            return 0.0
        self._length = min(self._longest, self._length * 2) if lines > 1 else max(SHORTEST, self._length / 2)
        left = self._length - now % self._length
        self._ready_at = now + left
        return left


def delay_wakeups(transport: Any) -> None:
    """From now on the kernel wakes nobody for what arrives. A system without this option wakes the event loop, which costs more."""
    _wake_for(transport, _ENOUGH_BYTES)


def wake_at_once(transport: Any) -> None:
    """Back to normal: whatever has arrived can be read now."""
    _wake_for(transport, 1)


def _wake_for(transport: Any, bytes_: int) -> None:
    wire_socket = transport.get_extra_info("socket") if transport else None
    try:
        if wire_socket is not None:
            wire_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes_)
    except (AttributeError, OSError):
        pass
