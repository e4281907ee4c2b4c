"""What happened in a world, as lines for a person: time, place, event."""

from collections.abc import Callable


class Transcript:
    """Lines of text with the virtual time. Equal seeds give equal transcripts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lines: list[str] = []

    def tell(self, where: str, what: str) -> None:
        self.lines.append(f"{self._clock():10.3f}  {where:<10} {what}")

    def voice(self, where: str) -> Callable[[str], None]:
        """`tell` with the place filled in."""
        return lambda what: self.tell(where, what)

    def __str__(self) -> str:
        return "\n".join(self.lines)
