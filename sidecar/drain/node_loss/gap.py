"""Decides whether nobody has looked for gone nodes for a while, and of which losses what is stored proves nothing because of that.

An API server that was restored from a backup says what was true then: a node may be missing there that came back since and is at work,
while its volumes say that it was to be retired, or its report that somebody has given its disks up. What tells of it is a Lease that is
renewed all the time (`names.node_loss_watched`): it is as old as the backup. That of the turn would not do, for it goes with its holder's
Node. So whatever is missed around the end of such a gap counts as lost only once a person says so, on a report of after it.
"""

from typing import Final

from sidecar.drain.leases import DURATION, Lease
from sidecar.kube.api import LEASES
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

LONGEST: Final = 2700.0
"""Seconds without a renewal that are no gap: a holder that has died is followed within 1,400 s, its last renewal is up to 300 s older, and
clocks differ by 300 s."""
_AHEAD: Final = 600.0
"""Seconds. Later than that no clock says: a date in the future would hide a restore until then."""
SETTLING: Final = 3600.0
"""Seconds after a gap in which nodes may still come back that are not stored."""
RENEWED_EVERY: Final = 300.0


def ended(stored: Lease | None, *, before: str = "", now: float) -> str:
    """When the latest gap was over, as text; empty: there was none. `before`: the version that this process has seen last."""
    if stored is None:
        # It was there when this process last saw it, so somebody has deleted it, or the whole API server is another one.
        return timestamps.to_text(now) if before else ""
    noted = stored.annotations.get(names.UNWATCHED_UNTIL, "")
    unreadable = bool(noted) and timestamps.to_seconds(noted) is None
    if unreadable or not -_AHEAD <= now - stored.renewed <= LONGEST or _is_older(stored.resource_version, before):
        return timestamps.to_text(now)
    return noted


def doubt(gap: str, *, missed_since: float) -> str:
    """`gap`, as from `ended`, if what is missed since then may be missed because of it; else empty."""
    over = timestamps.to_seconds(gap)
    return gap if over is not None and missed_since <= over + SETTLING else ""


def body(driver: str, *, namespace: str, holder: str, gap: str, now: float, resource_version: str = "") -> Json:
    """It has no owner: it must outlive the Node of whoever wrote it."""
    meta: Json = {"name": names.node_loss_watched(driver), "namespace": namespace}
    meta |= {"annotations": {names.UNWATCHED_UNTIL: gap}} if gap else {}
    meta |= {"resourceVersion": resource_version} if resource_version else {}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": DURATION, "renewTime": timestamps.to_micro_text(now)}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}


def _is_older(version: str, before: str) -> bool:
    return version.isdecimal() and before.isdecimal() and int(version) < int(before)
