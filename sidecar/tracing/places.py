"""Who gets a place among the open spans: a namespace holds no more than half of what the others leave.

So there is a place for whoever comes next, however many claims those have who came before. What is open is not thrown out for others: of a
trace, the beginning explains more than an end without it.
"""

from collections import Counter


class Places:
    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[tuple[str, str], str] = {}
        """Namespaces, by what they are held for."""
        self._by_namespace: Counter[str] = Counter()

    def take(self, key: tuple[str, str], namespace: str) -> bool:
        """Whether there is one."""
        own = self._by_namespace[namespace]
        others_leave = self._most - (len(self._held) - own)
        if own >= (others_leave + 1) // 2:
            return False
        self._held[key] = namespace
        self._by_namespace[namespace] = own + 1
        return True

    def give_back(self, key: tuple[str, str]) -> None:
        namespace = self._held.pop(key, None)
        if namespace is None:
            return
        self._by_namespace[namespace] -= 1
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]
