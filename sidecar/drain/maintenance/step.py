"""What this node does next for the maintenances that select it, and what it notes before. Pure.

The record stands in one annotation of the Node. It is written before the first eviction, and in one write with the cordon, so whoever goes
on after a kill knows how the node was, since when it is drained, and how far it is. No object but the Node is needed to put the node back.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.drain.maintenance.objects import Behavior, Key, Maintenance, Stage
from sidecar.drain.maintenance.plan import Draining, Treatment, due, finished, target
from sidecar.drain.words import Intent, Status
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

_LONGEST: Final = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one maintenance on this node."""

    name: str
    finished: int = 0
    started_at: float | None = None  # of the drain
    deadline_at: float | None = None  # it is only ever made earlier
    overrides: bool = False  # what was declared when it was read last, for a process that cannot read it


@dataclass(frozen=True, slots=True)
class Record:
    prior: bool | None = None  # whether the node was cordoned before us; None: its cordon is not ours
    reached: Key | None = None  # the entry that this node has reached, of all plans
    of: Mapping[str, Progress] = field(default_factory=dict)  # by uid of the maintenance
    intent: Intent | None = None  # what the drain is for
    forced: str = ""  # why what blocks is overridden

    def as_text(self, uid: str) -> str | None:
        """None: nothing is to be noted."""
        if self == Record():
            return None
        said: dict[str, object] = {"uid": uid}
        said |= {"prior": self.prior} if self.prior is not None else {}
        said |= {"reached": self.reached} if self.reached else {}
        said |= {key: text for key, text in (("intent", self.intent), ("forced", self.forced)) if text}
        said |= {"of": {key: _as_json(one) for key, one in sorted(self.of.items())}} if self.of else {}
        return json.dumps(said, separators=(",", ":"))


def _as_json(one: Progress) -> Json:
    times = (("startedAt", one.started_at), ("deadlineAt", one.deadline_at))
    over = {"override": True} if one.overrides else {}
    return {"name": one.name, "finished": one.finished} | over | {key: timestamps.to_text(at) for key, at in times if at is not None}


def record_of(node: Node, driver: str) -> Record:
    """What makes no sense is not there: anybody may have edited it, and a former Node of the name may have left it."""
    text = node.annotations.get(names.of_driver(driver, names.MAINTENANCE_RECORD), "")
    try:
        said = json.loads(text) if text and len(text) <= _LONGEST else {}
        if said.get("uid") != node.uid:
            return Record()
        prior, reached = said.get("prior"), said.get("reached")
        of = {
            str(key): Progress(
                str(one["name"]),
                max(0, int(one["finished"])),
                timestamps.to_seconds(str(one.get("startedAt") or "")),
                timestamps.to_seconds(str(one.get("deadlineAt") or "")),
                one.get("override") is True,
            )
            for key, one in (said.get("of") or {}).items()
        }
        intent = Intent(said["intent"]) if said.get("intent") else None
        one, two, three = reached if reached else (0, 0, 0)
        key = (int(one), int(two), int(three)) if reached else None
        return Record(prior if isinstance(prior, bool) else None, key, of, intent, str(said.get("forced") or "")[:256])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Record()


def is_of_maintenance(condition: Mapping[str, object]) -> bool:
    """Whether this condition of a Node is ours to take off: whoever else writes one of these types keeps it."""
    return condition.get("type") in names.LIFECYCLE_CONDITIONS and condition.get("reason") == names.MAINTENANCE_KIND


# --- the rule ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """All that the rule looks at, as it was read in this pass."""

    node: Node
    now: float  # of the wall clock
    record: Record
    active: tuple[Maintenance, ...]  # those that select this node, by age
    drains: tuple[Draining, ...]  # of those in stage Drain; what they drain and wait for
    wanted_by_others: bool  # an evacuation wants the node cordoned
    retire: Status | None  # the verdict; None: this process has only just begun, and does not know it yet
    held: frozenset[str] = frozenset()  # pods whose volumes block what the drain is for, or
    judged: bool = True  # if not, all that have any: it is not known yet which of them block
    heard: frozenset[str] = frozenset()  # uids of virtual machines' pods that somebody else has been asked to move
    refused: Mapping[str, str] = field(default_factory=dict)  # by uid of a pod: why its last eviction was not done


@dataclass(frozen=True, slots=True)
class Decision:
    record: Record
    cordon: bool | None  # what `spec.unschedulable` is to be; None: as it is
    evict: tuple[Treatment, ...] = ()
    waits: tuple[Treatment, ...] = ()  # that are not evicted, and have to end or to be let go
    events: tuple[tuple[str, str], ...] = ()  # reason and message, each once
    conditions: Mapping[str, str] = field(default_factory=dict)  # the Node's that are True, with their message
    status: tuple[Json, ...] = ()  # for the report, one of each maintenance


def late(record: Record, active: Iterable[Maintenance] | None, now: float) -> Record:
    """The record with what the clock alone decides. It needs no answer of anybody, so no error puts it off. `active`: None where nobody
    knows what is declared now: what was noted counts."""
    of = dict(record.of)
    for one in active or ():
        if one.stage is not Stage.DRAIN:
            continue
        before = of.get(one.uid, Progress(one.name))
        began = before.started_at if before.started_at is not None and before.started_at <= now else now
        ends = [at for at in (before.deadline_at, began + one.deadline if one.deadline is not None else None) if at is not None]
        of[one.uid] = replace(before, started_at=began, deadline_at=min(ends, default=None), overrides=one.overrides)
    counting = of.values() if active is None else [of[one.uid] for one in active if one.uid in of]
    over = (f"the deadline of PlannedMaintenance {one.name} is over" for one in counting if one.overrides and _is_over(one, now))
    return replace(record, of=of, forced=next(over, "")[:256])


def _is_over(one: Progress, now: float) -> bool:
    return one.deadline_at is not None and now >= one.deadline_at


def strictest(draining: Iterable[Maintenance]) -> Intent | None:
    """What the node is drained for."""
    intents = {one.intent for one in draining}
    return Intent.RETIRE if Intent.RETIRE in intents else next(iter(intents), None)


def decide(view: View) -> Decision:
    cordoning = [one for one in view.active if one.stage.cordons]
    draining = [one for one in view.active if one.stage is Stage.DRAIN]
    record, until = late(view.record, view.active, view.now), target(view.drains, view.record.reached)
    of = {one.uid: record.of[one.uid] for one in draining}
    # The cordon is noted first, and only what is noted is done: until then a pod may be put here that was not listed.
    ready = view.record.prior is not None and view.node.unschedulable and not (of.keys() - view.record.of.keys())
    for each in view.drains if ready else ():
        uid = each.maintenance.uid
        of[uid] = replace(of[uid], finished=finished(each, until))
    prior, cordon = record.prior, None
    if cordoning:
        prior = view.node.unschedulable if prior is None else prior
        cordon = True if not view.node.unschedulable else None
    elif prior is not None and not (view.wanted_by_others and view.node.unschedulable):
        # Whoever has uncordoned it meanwhile has taken it over: then there is nothing to put back.
        cordon, prior = (False if view.node.unschedulable and not prior else None), None
    record = Record(prior, until if view.drains else None, of, strictest(draining), record.forced if draining else "")
    chosen = due(view.drains, until) if ready and draining else []
    evict = tuple(each for each in chosen if _may_go(each, view, record))
    waits = tuple(each for each in chosen if each not in evict)
    status = tuple(_status(view, one, of.get(one.uid), chosen) for one in view.active)
    return Decision(record, cordon, evict, waits, tuple(_events(view)), _conditions(view, of), status)


def _may_go(each: Treatment, view: View, record: Record) -> bool:
    held, pod = each.full_name in view.held and not record.forced, each.runner.pod
    return each.behavior is Behavior.DRAIN and not pod.deleting_since and pod.uid not in view.heard and not held


def is_drained(view: View, one: Maintenance, progress: Progress | None) -> bool:
    done = one.stage is Stage.DRAIN and progress is not None and progress.finished >= len(one.plan)
    return done and (one.intent is Intent.REBOOT or view.retire is Status.TRUE)


def is_late(view: View, one: Maintenance, progress: Progress, now: float) -> bool:
    is_known = view.retire is not None or progress.finished < len(one.plan)
    return is_known and _is_over(progress, now) and not is_drained(view, one, progress)


# --- what is told -----------------------------------------------------------------------------------------------------


def _events(view: View) -> Iterable[tuple[str, str]]:
    for one in (each.maintenance for each in view.drains):
        if one.uid not in view.record.of and view.record.reached is not None and one.plan[0].key < view.record.reached:
            yield names.MAINTENANCE_FAST_FORWARDED, f"{one.name} begins where this node is already: no plan goes back"


def _conditions(view: View, of: Mapping[str, Progress]) -> dict[str, str]:
    planned = [one for one in view.active if one.stage is Stage.IDLE]
    under_way = [one for one in view.active if one.stage.cordons]
    drains = [one for one in under_way if one.stage is Stage.DRAIN]
    drained = bool(drains) and all(is_drained(view, one, of.get(one.uid)) for one in drains)
    found = {
        names.MAINTENANCE_PLANNED: planned,
        names.DRAIN_IN_PROGRESS: [] if drained else drains,
        names.DRAINED: drains if drained else [],
        names.MAINTENANCE_IN_PROGRESS: under_way,
    }
    return {kind: "; ".join(one.announcement() for one in those)[:512] for kind, those in found.items() if those}


def _status(view: View, one: Maintenance, progress: Progress | None, chosen: list[Treatment]) -> Json:
    said: Json = {"name": one.name, "uid": one.uid, "stage": str(one.stage), "entries": len(one.plan)}
    if progress is None:
        return said
    said |= {"finished": progress.finished, "drained": is_drained(view, one, progress)}
    if progress.deadline_at is not None:
        said |= {"deadline": timestamps.to_text(progress.deadline_at), "late": is_late(view, one, progress, view.now)}
    mine = next((each for each in view.drains if each.maintenance.uid == one.uid), None)
    if mine is None:
        return said
    limits = min(view.drains, key=lambda each: each.key)
    if limits is not mine and limits.key < mine.key:
        said["limitedBy"] = limits.maintenance.name
    if waits := mine.waits_for():
        said["waitingFor"] = [{"node": peer.node, "seen": peer.seen or "never"} for peer in waits[:10]]
    said["left"] = sum(each.is_waited_for for each in mine.treatments)
    left = [each for each in chosen if any(each.runner.pod.uid == own.runner.pod.uid for own in mine.treatments)]
    said["undrainable"] = [each.full_name for each in mine.treatments if each.why.startswith("Undrainable")][:20]
    said["pods"] = [{"pod": each.full_name, "why": why_here(each, view)} for each in left[:20]]
    return said


def why_here(each: Treatment, view: View) -> str:
    """Why a pod that is to be drained is here yet."""
    if each.runner.pod.deleting_since:
        return "it is ending"
    if each.behavior is not Behavior.DRAIN:
        return f"it has to end by itself ({each.why})"
    if each.runner.pod.uid in view.heard:
        return "WaitingForVM: whoever moves virtual machines has heard of it"
    if each.full_name in view.held:
        what = f"its volumes block {view.record.intent or 'the drain'}"
        return what if view.judged else f"it is not known yet whether {what}"
    return f"it is evicted ({each.why})" + (f", which is refused: {why}" if (why := view.refused.get(each.runner.pod.uid)) else "")
