"""Until when a stored verdict counts. Who judges renews it in time; what nobody renews any more counts as Unknown.

Whoever reads a stored verdict asks here, be it from a report, from the Node's conditions or from its summary.
"""

import json
from collections.abc import Iterable
from typing import Final

from sidecar.drain.publish.stored import mapping, seconds, text
from sidecar.drain.vocabulary import MEANING, Reason, Status
from sidecar.model import names
from sidecar.model.objects import Json

VALID_FOR: Final = 900.0
"""Seconds: three heartbeats, and as long as the Lease of a gate, so that a neighbour that holds that finds no verdict that still counts."""
RENEWED_AT: Final = VALID_FOR / 2
"""Seconds before its end at which the summary is renewed: each renewal is a write to the Node, which many watch."""

UNKNOWN: Final = str(Status.UNKNOWN)


def until(at: float) -> float:
    """For a judgement of that time."""
    return at + VALID_FOR


def counts(valid_until: float | None, *, now: float) -> bool:
    """Whether a verdict still does. A time that no clock can have written, too far ahead, is not believed."""
    return valid_until is not None and now < valid_until <= now + 2 * VALID_FOR


def as_it_counts(verdict: Json, *, valid_until: float | None, now: float) -> Json:
    """The verdict, or that it is not known any more."""
    if counts(valid_until, now=now) or text(verdict, "status") == UNKNOWN:
        return verdict
    return {**verdict, "status": UNKNOWN, "reason": str(Reason.AGENT_UNAVAILABLE), "message": MEANING[Reason.AGENT_UNAVAILABLE].says}


def of_report(status: Json) -> float | None:
    """Until when a stored report counts; one of an earlier release says only when it was made."""
    noted, made = seconds(status, "validUntil"), seconds(status, "observedAt")
    return noted if noted is not None else None if made is None else until(made)


def of_condition(condition: Json) -> float | None:
    """Until when a condition of a Node counts: its heartbeat says when it was written."""
    heartbeat = seconds(condition, "lastHeartbeatTime")
    return None if heartbeat is None else until(heartbeat)


def of_summary(annotation: str | None) -> float | None:
    """Until when the Node's summary counts."""
    try:
        said = json.loads(annotation or "")
    except (ValueError, RecursionError):
        return None
    return seconds(said, "validUntil") if isinstance(said, dict) else None


def verdicts(status: Json, *, now: float) -> Json:
    """Those of a stored report, `drain` and `retire`, as they count now."""
    stored, valid = mapping(status, "verdicts"), of_report(status)
    return {key: as_it_counts(mapping(stored, key), valid_until=valid, now=now) for key in ("drain", "retire")}


def ours(conditions: Iterable[Json], driver: str) -> list[Json]:
    """This driver's conditions among those of a Node."""
    types = {names.condition(driver, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY)}
    return [condition for condition in conditions if text(condition, "type") in types]


def overdue(conditions: Iterable[Json], driver: str, *, now: float) -> bool:
    """Whether a condition of the driver says more than Unknown, and its time is over."""
    said = [condition for condition in ours(conditions, driver) if text(condition, "status") != UNKNOWN]
    return any(not counts(of_condition(condition), now=now) for condition in said)
