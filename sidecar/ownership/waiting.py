"""Which claims wait for room on this node, by class and size: so growth that is enough for none of them costs no walk over all."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Want:
    """What a claim waits for."""

    class_name: str
    namespace: str
    size: int


class Waiting:
    def __init__(self) -> None:
        self._uids: dict[tuple[str, int], dict[str, None]] = {}
        """By class and size."""
        self._sizes: dict[str, list[int]] = {}
        """By class, the smallest first."""
        self._namespaces: Counter[str] = Counter()

    def change(self, uid: str, before: Want | None, after: Want | None) -> None:
        if before == after:
            return
        if before is not None:
            self._drop(uid, before)
        if after is not None:
            self._put(uid, after)

    def namespaces(self) -> set[str]:
        return set(self._namespaces)

    def fitting(self, classes: Iterable[str], fits: Callable[[int], bool]) -> Iterator[str]:
        """The claims of those classes for which there is room. `fits` is true of each size that is smaller than one of which it is true."""
        for class_name in classes:
            for size in self._sizes.get(class_name, ()):
                if not fits(size):
                    break
                yield from self._uids[class_name, size]

    def _put(self, uid: str, want: Want) -> None:
        where = want.class_name, want.size
        if where not in self._uids:
            self._uids[where] = {}
            insort(self._sizes.setdefault(want.class_name, []), want.size)
        self._uids[where][uid] = None
        self._namespaces[want.namespace] += 1

    def _drop(self, uid: str, want: Want) -> None:
        where = want.class_name, want.size
        del self._uids[where][uid]
        if not self._uids[where]:
            del self._uids[where]
            sizes = self._sizes[want.class_name]
            del sizes[bisect_left(sizes, want.size)]
            if not sizes:
                del self._sizes[want.class_name]
        self._namespaces[want.namespace] -= 1
        if not self._namespaces[want.namespace]:
            del self._namespaces[want.namespace]
