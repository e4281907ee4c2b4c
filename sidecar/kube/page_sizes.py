"""How many objects to ask for at once: many small ones or few large ones. Tenants decide how large objects are, up to 1.5 MiB each."""

from typing import Final

MOST_OBJECTS: Final = 500
AIM: Final = 2 * 2**20
"""Bytes of a page, as JSON. 500 claims of usual size have a little more than half of that."""
MOST_BYTES: Final = 8 * 2**20
"""Bytes of a page that is still read to its end. Objects differ, so a page may become larger than aimed at."""


def next_limit(limit: int, *, count: int, size: int) -> int:
    """The limit for the next page, after one that was asked for with `limit` and had `count` objects in `size` bytes.

    It grows slowly: a few small objects do not say that the next ones are small.
    """
    if not count:
        return limit
    return max(1, min(MOST_OBJECTS, 2 * limit, count * AIM // max(1, size)))


def smaller(limit: int) -> int:
    """The limit with which a page is asked for again that was too large."""
    return max(1, limit // 8)


def is_too_large(limit: int, *, count: int, size: int) -> bool:
    """Whether to give up this page and ask for fewer objects. Not if there are more than were asked for: then the server ignores limits,
    as it does where a list may come from its cache."""
    return limit > 1 and count <= limit and size > MOST_BYTES
