"""What comes next for a replica that may be made anew, and each of its locks, in sentences for people."""

from collections.abc import Iterable

from sidecar.drain.reprovision.locks import Lock
from sidecar.frozen import frozen


@frozen
class Looked:
    """The locks of one pod, as they were looked at last."""

    pod: str
    why: str
    locks: tuple[Lock, ...]

    def in_words(self) -> Iterable[str]:
        yield f"made anew next: {self.pod}: {self.why}"
        shut = tuple(lock for lock in self.locks if not lock.open)
        if self.locks:
            yield f"locks of {self.pod} that are open: {', '.join(lock.name for lock in self.locks if lock.open) or 'none'}"
        for lock in shut:
            yield f"lock of {self.pod}: {lock}"
