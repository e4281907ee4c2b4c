"""Everything that a sidecar writes on a Node: each key, what it should say, and the patch that makes it so.

    metadata.labels       DRIVER.csi-node-sidecar.io/evacuation-state           how far an evacuation is
    metadata.annotations  DRIVER.csi-node-sidecar.io/evacuation-started-at      when it began or got its slot: the deadline counts from it
                          DRIVER.csi-node-sidecar.io/closed-at                  since when the node takes no volumes
                          DRIVER.csi-node-sidecar.io/node-uid                   for which Node these were written
                          DRIVER.csi-node-sidecar.io/spent-override             the force-drain that has had its time, as a digest
                          DRIVER.csi-node-sidecar.io/reboot-intent              how far an announced reboot is: InEffect, Spent
                          DRIVER.csi-node-sidecar.io/kured-reboot               the same of one that kured announces, with a digest of when
                          DRIVER.csi-node-sidecar.io/drain-summary              both verdicts and the first blockers, as JSON
                          DRIVER.csi-node-sidecar.io/autoscaler-annotations     which of the next two are ours
                          cluster-autoscaler.kubernetes.io/scale-down-disabled  with --drain-autoscaler-annotations, while
                          karpenter.sh/do-not-disrupt                           retiring the node would lose data
    status.conditions     DRIVER/DrainReady, DRIVER/RetireReady                 both verdicts

Taints and cordons are for people and autoscalers to set: a sidecar writes none.

Every write to metadata is a JSON merge patch that names our own keys and nothing else. Its `metadata.uid` is a condition: if another
machine has come under the node's name, the API server takes it for a wish to change the uid and refuses it as Invalid. The autoscalers'
keys are not ours alone, so a patch of those carries `metadata.resourceVersion` as well: otherwise two drivers' sidecars that decide at
the same moment could each leave the protection to the other.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.drain.evacuation import rules
from sidecar.drain.evacuation.closing import noted_at
from sidecar.drain.evacuation.rules import Begin, Proceed, Restart, StandAside, Undo
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.own_notes import digest
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import validity
from sidecar.drain.publish.as_json import as_json, named
from sidecar.drain.publish.stored import dated, seconds, text
from sidecar.drain.vocabulary import Status
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.model.standing import Standing

PROTECTING: Final = (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT)
_PROTECTED: Final = "true"
SUMMARY_BYTES: Final = 2048
_SUMMARY_BLOCKERS: Final = 200

Values = Mapping[str, str | None]
"""By key: what it should say; None: it should not be there."""


def _nothing() -> Values:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Marks:
    """What should be on the node. Keys that are not named stay as they are."""

    annotations: Values = field(default_factory=_nothing)
    labels: Values = field(default_factory=_nothing)

    def __or__(self, other: "Marks") -> "Marks":
        return Marks({**self.annotations, **other.annotations}, {**self.labels, **other.labels})


def patch(node: Node, marks: Marks, *, resource_version: str = "") -> Json | None:
    """The merge patch that makes it so; None: nothing is to be changed."""
    annotations, labels = _difference(node.annotations, marks.annotations), _difference(node.labels, marks.labels)
    if not annotations and not labels:
        return None
    meta: Json = {"uid": node.uid} | ({"resourceVersion": resource_version} if resource_version else {})
    meta |= {"annotations": annotations} if annotations else {}
    meta |= {"labels": labels} if labels else {}
    return {"metadata": meta}


def none(node: Node, driver: str) -> Marks:
    """For an uninstall: nothing of this driver's sidecar is left. What people wrote is theirs and stays."""
    prefix = names.of_driver(driver, "")
    annotations = {key: None for key in node.annotations if key.startswith(prefix)}
    labels = {key: None for key in node.labels if key.startswith(prefix)}
    return protection(node, driver, needed=False) | Marks(annotations, labels)


def _difference(have: Mapping[str, str], want: Values) -> dict[str, str | None]:
    return {key: value for key, value in sorted(want.items()) if have.get(key) != value}


# --- marks of a closing and an evacuation -----------------------------------------------------------------------------


def wanted(signals: Signals, driver: str, *, standing: Standing, decision: rules.Decision) -> Marks:
    """The marks of a closing and of an evacuation as they should be once the decision is carried out."""
    state = rules.state_after(decision, signals.state)
    started_at, closed_at = _start(signals, decision), noted_at(standing)
    spent = digest(signals.force_drain) if _override_is_over(signals, standing, decision) else None
    annotations = {
        names.EVACUATION_STARTED_AT: started_at,
        names.CLOSED_AT: closed_at or None,
        names.MARKED_NODE: signals.uid if started_at or closed_at or signals.reboot or signals.kured.mark else None,
        names.SPENT_OVERRIDE: spent,
        names.REBOOT_INTENT: signals.reboot and signals.reboot.value,
        names.KURED_REBOOT: signals.kured.mark,
    }
    return Marks(
        {names.of_driver(driver, name): value for name, value in annotations.items()},
        {names.of_driver(driver, names.EVACUATION_STATE): state and state.value},
    )


def _start(signals: Signals, decision: rules.Decision) -> str | None:
    match decision:
        case Begin(at) | Restart(at) | Proceed(at) | StandAside(at):
            return timestamps.to_text(at)
        case Undo():
            return None
        case _:
            return None if signals.started_at is None else timestamps.to_text(signals.started_at)


def _override_is_over(signals: Signals, standing: Standing, decision: rules.Decision) -> bool:
    """An override ends with the evacuation it was for. People may forget to remove it, so it is noted that it has had its time."""
    if not signals.force_drain:
        return False
    opened = signals.closed_at is not None and not standing.closed
    return signals.spent or opened or isinstance(decision, Undo)


# --- autoscalers' annotations -----------------------------------------------------------------------------------------


def protection(node: Node, driver: str, *, needed: bool | None) -> Marks:
    """The autoscalers' annotations. Ours are those in our marker; what a user has set is neither changed nor taken away.

    `needed` as `needs_protection` says; None: all stays as it is. A key that another driver's sidecar has set becomes ours too,
    and goes with the last of them.
    """
    if needed is None:
        return Marks()
    own, others = _claimed(node, names.of_driver(driver, names.AUTOSCALER_MARKER)), _claimed_by_others(node, driver)
    marker = names.of_driver(driver, names.AUTOSCALER_MARKER)
    if needed:
        keys = [key for key in PROTECTING if key not in node.annotations or _is_ours(node, key, own | others)]
        return Marks({**dict.fromkeys(keys, _PROTECTED), marker: json.dumps(keys) if keys else None})
    gone = [key for key in PROTECTING if key in own - others and _is_ours(node, key, own)]
    return Marks({**dict.fromkeys(gone), marker: None})


def needs_protection(*, enabled: bool, retire: Status, overridden: bool) -> bool | None:
    """Whether autoscalers are to leave the node alone: as long as retiring it would lose data. None: not known."""
    if not enabled or overridden or retire is Status.TRUE:
        return False
    return True if retire is Status.FALSE else None


def _claimed(node: Node, marker: str) -> set[str]:
    """Only keys of autoscalers: a marker that somebody edited must not make us remove anything else."""
    try:
        keys = json.loads(node.annotations.get(marker, "[]"))
    except (ValueError, RecursionError):
        return set()
    return {key for key in PROTECTING if key in keys} if isinstance(keys, list) else set()


def _claimed_by_others(node: Node, driver: str) -> set[str]:
    own, suffix = names.of_driver(driver, names.AUTOSCALER_MARKER), f".{names.GROUP}/{names.AUTOSCALER_MARKER}"
    return {key for marker in node.annotations if marker.endswith(suffix) and marker != own for key in _claimed(node, marker)}


def _is_ours(node: Node, key: str, claimed: set[str]) -> bool:
    return key in claimed and node.annotations.get(key) == _PROTECTED


# --- the summary ------------------------------------------------------------------------------------------------------


def summary_mark(assessment: Assessment, annotations: Mapping[str, str]) -> Marks:
    """One that says the same stays as it is for some time: only its end would be another."""
    key, fresh = names.of_driver(assessment.driver, names.DRAIN_SUMMARY), summary(assessment)
    stored = annotations.get(key, "")
    return Marks({key: stored if _is_fresh(stored, fresh, now=assessment.at) else fresh})


def _is_fresh(stored: str, fresh: str, *, now: float) -> bool:
    try:
        said = json.loads(stored)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict) or said | {"validUntil": ""} != json.loads(fresh) | {"validUntil": ""}:
        return False
    end = seconds(said, "validUntil")
    return end is not None and now + validity.RENEWED_AT < end <= validity.until(now)


def summary(assessment: Assessment) -> str:
    """For people who look at the Node: both answers, until when they hold, and as many of the blockers as 2 KiB hold."""
    said: Json = {
        "validUntil": timestamps.to_text(validity.until(assessment.at)),
        "drain": {"status": str(assessment.drain.status), "reason": str(assessment.drain.reason)},
        "retire": {"status": str(assessment.retire.status), "reason": str(assessment.retire.reason)},
        "counts": as_json(assessment)["counts"]["reasons"],
    }
    blockers = [f"{named(blocker)}: {blocker.reason}" for blocker in assessment.blockers[:_SUMMARY_BLOCKERS]]
    while True:
        left_out = len(assessment.blockers) - len(blockers)
        whole = {**said, "blockers": blockers, **({"more": left_out} if left_out else {})}
        written = json.dumps(whole, separators=(",", ":"))
        if len(written) <= SUMMARY_BYTES or not blockers:
            return written
        blockers = blockers[: -max(1, len(blockers) // 8)]


# --- the conditions ---------------------------------------------------------------------------------------------------


def conditions(assessment: Assessment, previous: Iterable[Json]) -> list[Json]:
    """The two conditions of this driver, as they should be. `previous` are all that the Node has."""
    before = {text(condition, "type"): condition for condition in previous}
    kinds = ((names.DRAIN_READY, assessment.drain), (names.RETIRE_READY, assessment.retire))
    wanted = []
    for kind, verdict in kinds:
        type_ = names.condition(assessment.driver, kind)
        said = {"status": str(verdict.status), "reason": str(verdict.reason), "message": verdict.message}
        since = dated(said, before.get(type_, {}), at=assessment.at)
        wanted.append({"type": type_, **since, "lastHeartbeatTime": timestamps.to_text(assessment.at)})
    return wanted


def conditions_differ(previous: Iterable[Json], wanted: Iterable[Json]) -> bool:
    """Whether anything but the heartbeat would change."""
    before = {text(condition, "type"): _without_heartbeat(condition) for condition in previous}
    return any(before.get(condition["type"]) != _without_heartbeat(condition) for condition in wanted)


def conditions_patch(wanted: list[Json], *, node_uid: str, resource_version: str = "") -> Json:
    """A strategic merge patch for nodes/status: it merges conditions by type, so others' stay. The uid makes it fail on another machine.

    With a `resource_version` it changes that state of the Node and no later one.
    """
    guard = {"uid": node_uid} | ({"resourceVersion": resource_version} if resource_version else {})
    return {"metadata": guard, "status": {"conditions": wanted}}


def _without_heartbeat(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}
