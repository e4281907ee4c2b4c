"""For how long a Lease has been seen unchanged, by this process's own clock: the date in it was written by another node's."""

from collections.abc import Iterable

from sidecar.drain.leases import DURATION, Lease


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

    def has_run_out(self, lease: Lease, *, now: float) -> bool:
        """Its holder has not been heard of for so long that another one may have what it stands for."""
        version, since = self._seen.get(lease.name, ("", now))
        return version == lease.resource_version and now - since >= DURATION
