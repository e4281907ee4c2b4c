"""Leaves out of a list's text, before it is parsed, the objects that need not be parsed.

In a large cluster nearly all of a list is about objects of other nodes, and to parse them is most of what a start costs. Where one object
ends and the next begins is seen by how API servers write them. In a list that is written otherwise nothing is left out.
"""

from typing import Final

from sidecar.kube.event_prefix import Skip, read_item_prefix

# No string holds it, for in a string quotes are escaped. Lists of claims and volumes hold no other lists of what has metadata.
_BETWEEN: Final = b'},{"metadata":{"name":"'
_END: Final = len(b"},")


class ListSieve:
    """`feed` it what arrives, and read what that returns instead, and at the end `rest`.

    The first and the last object always pass, as what is around them does, and so do those of more than `longest` bytes.
    """

    def __init__(self, skip: Skip, *, longest: int) -> None:
        self.left_out = 0
        """Objects."""
        self._skip = skip
        self._longest = longest
        self._held = b""
        self._searched = 0
        """Bytes of it in which no object ends."""
        self._begins = False
        """Whether an object begins where that does which is held."""

    def feed(self, piece: bytes) -> bytes:
        held, passed, begin = self._held + piece, [], 0
        end = held.find(_BETWEEN, self._searched)
        while end >= 0:
            item = held[begin : end + _END]
            if self._begins and self._is_skipped(item):
                self.left_out += 1
            else:
                passed.append(item)
            begin, self._begins = end + _END, True
            end = held.find(_BETWEEN, begin)
        if len(held) - begin > self._longest:
            passed.append(held[begin:])
            begin, self._begins = len(held), False
        self._held = held[begin:]
        self._searched = max(0, len(self._held) - len(_BETWEEN) + 1)
        return b"".join(passed)

    def rest(self) -> bytes:
        return self._held

    def _is_skipped(self, item: bytes) -> bool:
        prefix = read_item_prefix(item)
        return prefix is not None and len(item) <= self._longest and self._skip(prefix, item)
