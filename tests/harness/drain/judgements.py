"""Assessments made by hand, for the tests of what they are rendered to."""

from dataclasses import replace
from typing import Any

from sidecar.drain.judgement.assessment import Assessment, Blocker, ExhaustedBudget, HeldVolume, Place, PodFate, Verdict
from sidecar.drain.vocabulary import MEANING, Fate, Intent, Policy, Reason, Status, VolumeClass

NOW = 1_700_000_000.0
NODE, UID, DRIVER = "n1", "node-uid", "local.example.com"
GIB = 2**30
BOTH = (Intent.REBOOT, Intent.RETIRE)


def blocker(name: str = "data-0", **changes: Any) -> Blocker:
    """An idle claim that keeps the node from being retired."""
    reason = changes.get("reason", Reason.LAST_COPY)
    base = Blocker(
        kind="PersistentVolumeClaim",
        namespace="shop",
        name=name,
        uid=f"uid-{name}",
        volume=f"pv-{name}",
        bytes=10 * GIB,
        class_=VolumeClass.IDLE,
        reason=reason,
        policy=Policy.BLOCK,
        policy_source="default",
        blocks=(Intent.RETIRE,),
        message="",
        remedy=MEANING[reason].remedy,
    )
    return replace(base, **changes)


def held(name: str = "data-0", **changes: Any) -> HeldVolume:
    base = HeldVolume(f"pv-{name}", f"shop/{name}", VolumeClass.IDLE, 10 * GIB, Policy.BLOCK, "default", ())
    return replace(base, **changes)


def verdict(status: Status, reason: Reason = Reason.NOTHING_BLOCKS, message: str = "nothing blocks") -> Verdict:
    return Verdict(status, reason, message)


def ready(**changes: Any) -> Assessment:
    """A node on which nothing is."""
    nothing = verdict(Status.TRUE, Reason.NOTHING_HERE, "no volume is here")
    base = Assessment(
        node=NODE,
        node_uid=UID,
        driver=DRIVER,
        at=NOW,
        drain=nothing,
        retire=nothing,
        blockers=(),
        volumes=(),
        pods=(),
        places=(),
        budgets=(),
        notes=(),
    )
    return replace(base, **changes)


def blocked(*blockers: Blocker, **changes: Any) -> Assessment:
    """One that may be drained and not retired; without `blockers`, for a single idle claim."""
    found = blockers or (blocker(),)
    status = Status.FALSE if any(Intent.REBOOT in each.blocks for each in found) else Status.TRUE
    base = ready(
        drain=verdict(status, found[0].reason if status is Status.FALSE else Reason.NOTHING_BLOCKS, "about draining"),
        retire=verdict(Status.FALSE, found[0].reason, f"PersistentVolumeClaim shop/{found[0].name}: {found[0].reason}"),
        blockers=found,
        volumes=tuple(held(each.name) for each in found),
    )
    return replace(base, **changes)


def everything() -> Assessment:
    """With something in each field."""
    in_use = blocker(
        "db-0", blocks=BOTH, reason=Reason.VOLUME_IN_USE, class_=VolumeClass.IN_USE, message="shop/db-0 has it", bytes=GIB // 2
    )
    pod = PodFate("shop", "db-0", "uid-pod", Fate.RETURNS, Fate.STRANDED, ("pv-db-0",), ("shop/db",), "its volume stays here")
    return blocked(
        in_use,
        blocker(),
        volumes=(held("db-0", bytes=GIB // 2, pods=("shop/db-0",)), held(), held("snap", claim="", class_=VolumeClass.SNAPSHOT, bytes=GIB)),
        pods=(pod,),
        places=(Place(("pv-db-0",), "n2", 0, ()), Place(("pv-data-0",), "", 5 * GIB, (("n3", "cordoned"),))),
        budgets=(ExhaustedBudget("shop/db", 1, 1, ("shop/db-0",)),),
        notes=("budgets were looked at",),
    )


def later(assessment: Assessment) -> Assessment:
    return replace(assessment, at=NOW + 1000)
