"""Tells which objects are large, so that people find out who fills the cluster with them. Each is told once, and not more than a page."""

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("sidecar.kube")

LARGE: Final = 2**17
"""Bytes of JSON. Fifty times as much as a usual claim has."""
_MOST_TOLD: Final = 1000


class LargeObjects:
    """`count` is called for each time that the API server sends a large object, with its resource."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._told: set[tuple[str, str]] = set()

    def note(self, resource: str, name: str, size: int) -> None:
        self._count(resource)
        if (resource, name) in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add((resource, name))
        log.warning("An object is large", extra={"fields": {"resource": resource, "key": name[:600], "bytes": size}})
        if len(self._told) == _MOST_TOLD:
            log.warning("Further large objects are only counted", extra={"fields": {"told": _MOST_TOLD}})
