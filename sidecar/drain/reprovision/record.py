"""How far the making anew of one replica is, as it is stored in the Lease of its workload: written before each step, read with distrust."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sidecar.drain.leases import Lease, Terms, identity
from sidecar.model import names

_LONGEST: Final = 16 * 2**10
MOST_CLAIMS: Final = 32
"""Of one replica: with more of them its record would be no record any more."""


class Stage(StrEnum):
    """What may have been done. Values are stored."""

    TAKEN = "Taken"
    """The claims may have been marked; the pod was not evicted by us."""
    EVICTING = "Evicting"
    """The pod may have been evicted; no claim was deleted by us."""
    DELETING = "Deleting"
    """Claims may have been deleted: from here on there is no way back for one that is gone."""


@dataclass(frozen=True, slots=True)
class ClaimName:
    """One claim, and no later one of its name."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Target:
    """The pod that is to leave, and the claims that are made anew for it."""

    namespace: str
    pod: str
    pod_uid: str
    workload: str
    workload_uid: str
    claims: tuple[ClaimName, ...]

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True)
class Record:
    target: Target
    stage: Stage
    begun_at: float
    """By the wall clock of this node, like the next."""
    at: float
    """When the stage was recorded."""


def annotations(record: Record) -> Mapping[str, str]:
    target = record.target
    said = {
        "stage": str(record.stage),
        "namespace": target.namespace,
        "pod": target.pod,
        "podUID": target.pod_uid,
        "workload": target.workload,
        "workloadUID": target.workload_uid,
        "claims": [{"name": claim.name, "uid": claim.uid} for claim in target.claims],
        "begunAt": record.begun_at,
        "at": record.at,
    }
    return {names.REPROVISION_RECORD: json.dumps(said, separators=(",", ":"))}


def of(lease: Lease, *, driver: str) -> Record | None:
    """None: it has none that makes sense under the name of this lease."""
    text = lease.annotations.get(names.REPROVISION_RECORD)
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        record = _read(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return record if record is not None and names.reprovision(record.target.workload_uid, driver) == lease.name else None


def terms(target: Target, record: Record | None, *, driver: str, namespace: str, node: str, node_uid: str) -> Terms:
    """What the lease says."""
    return Terms(
        names.reprovision(target.workload_uid, driver),
        namespace,
        {names.REPROVISION_FOR: driver},
        node,
        node_uid,
        identity(node_uid, driver),
        {} if record is None else annotations(record),
    )


def selector(driver: str) -> str:
    return f"{names.REPROVISION_FOR}={driver}"


def _read(said: Any) -> Record | None:
    listed = said["claims"]
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CLAIMS:
        return None
    claims = tuple(ClaimName(_text(item["name"]), _text(item["uid"])) for item in listed)
    target = Target(
        namespace=_text(said["namespace"]),
        pod=_text(said["pod"]),
        pod_uid=_text(said["podUID"]),
        workload=_text(said["workload"]),
        workload_uid=_text(said["workloadUID"]),
        claims=claims,
    )
    return Record(target, Stage(said["stage"]), _time(said["begunAt"]), _time(said["at"]))


def _text(said: Any) -> str:
    if not isinstance(said, str) or not said:
        raise TypeError("no text")
    return said


def _time(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        raise TypeError("no time")
    return float(said)
