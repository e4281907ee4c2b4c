"""Spans that wait to be sent: bounded by number and by bytes. What finds no place is counted and lost, and nobody waits."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    spans: int = 2048
    size: int = 4 * 2**20
    """Bytes of all spans, those that are being sent among them."""
    batch: int = 512
    batch_size: int = 512 * 2**10


class WaitingSpans:
    """Each span is kept as the bytes to be sent, so that what it takes is known."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._spans: deque[bytes] = deque()
        self._size = 0
        self._taken, self._taken_size = 0, 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return self._size + self._taken_size

    @property
    def has_batch(self) -> bool:
        return len(self._spans) >= self._bounds.batch or self._size >= self._bounds.batch_size

    def put(self, span: bytes) -> None:
        """What came first stays: of a trace, the beginning explains more than an end without it."""
        if len(self._spans) + self._taken >= self._bounds.spans or self.size + len(span) > self._bounds.size:
            self.dropped += 1
            return
        self._spans.append(span)
        self._size += len(span)

    def take(self) -> list[bytes]:
        """The next batch, in the order in which its spans came. It takes room here until `settled`."""
        batch: list[bytes] = []
        size = 0
        while self._spans and len(batch) < self._bounds.batch and (not batch or size + len(self._spans[0]) <= self._bounds.batch_size):
            span = self._spans.popleft()
            batch.append(span)
            size += len(span)
        self._size -= size
        self._taken, self._taken_size = self._taken + len(batch), self._taken_size + size
        return batch

    def settled(self) -> None:
        """The batch that was taken is sent, or given up."""
        self._taken = self._taken_size = 0
