"""For how long a Lease has been seen unchanged, by this process's own clock: the date in it was written by another node's."""

from collections.abc import Iterable

from sidecar.drain.leases import Lease


class SeenLeases:
    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def see(self, stored: Iterable[Lease], *, now: float) -> None:
        """All that are there."""
        before = self._seen
        self._seen = {}
        for lease in stored:
            version, since = before.get(lease.name, ("", now))
            self._seen[lease.name] = (lease.resource_version, since if version == lease.resource_version else now)

    def unchanged_for(self, lease: Lease, *, now: float) -> float:
        version, since = self._seen.get(lease.name, ("", now))
        return now - since if version == lease.resource_version else 0.0
