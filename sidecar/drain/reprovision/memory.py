"""What this process remembers of replicas that are made anew. A restart loses nothing: whatever counts is read anew."""

from collections.abc import Mapping

from sidecar.drain.reprovision.kept import KeptPods
from sidecar.drain.reprovision.patience import Leavers
from sidecar.drain.reprovision.record import Record


class Memory:
    """For one node. A Lease is known by its name."""

    def __init__(self) -> None:
        self.own: Mapping[str, Record | None] | None = None
        """Leases that this node holds, with their records; None: not known, for an earlier process may have taken one."""
        self.deleted: set[str] = set()
        """Those all of whose claims are known to be gone."""
        self.passed: set[str] = set()
        """Those that keep no others waiting any more: what is in their way has lasted long, or is somebody's refusal."""
        self.late: set[str] = set()
        """Those among them whose replica was told to be late."""
        self.ready_since: dict[str, float] = {}
        """By uid of a replacement: since when it has been seen Ready, by the monotonic clock."""
        self.returned: set[str] = set()
        """Uids of workloads whose replacement came back to this node."""
        self.kept = KeptPods()
        self.leavers = Leavers()

    def see(self, own: Mapping[str, Record | None]) -> None:
        """All that this node holds now."""
        self.own = own
        self.passed &= set(own)
        self.late &= set(own)
        self.deleted &= set(own)

    def note(self, lease: str, record: Record) -> None:
        """It holds this one, with this record."""
        self.own = {**(self.own or {}), lease: record}

    def forget(self, lease: str) -> None:
        """It was given back."""
        self.own = {other: record for other, record in (self.own or {}).items() if other != lease}
        self.passed.discard(lease)
        self.late.discard(lease)
        self.deleted.discard(lease)

    def under_way(self) -> str:
        """What keeps the evacuation from being over; empty: nothing. A replica that is late keeps nobody waiting."""
        if self.own is None:
            return "whether a replica is being made anew is not known yet"
        return next((self._about(name) for name in sorted(self.own) if name not in self.passed), "")

    def _about(self, lease: str) -> str:
        record = self.own.get(lease) if self.own else None
        return f"replica {record.target.full_name} is made anew" if record else f"the record in Lease {lease} cannot be read"
