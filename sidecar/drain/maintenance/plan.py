"""Which pods of this node a maintenance drains, in which order, and what it waits for. Pure.

An entry of a plan is done on a node when none of its pods, nor of the entries before it, is left there. The node works on the entry that is
least advanced of all maintenances that want it drained, and never goes back to one before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from sidecar.drain.maintenance.objects import CAPI_LABEL, Behavior, Key, Maintenance, PodType, Rule, Runner
from sidecar.eviction.rules import is_ours

END: Final[Key] = (len(PodType), 0, 0)  # after all entries of any plan
OF_LABEL: Final = {"skip": Behavior.SKIP, "wait-completed": Behavior.WAIT_COMPLETED}


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a maintenance does with one pod."""

    runner: Runner
    entry: int | None  # of the maintenance's plan; None: no entry selects it, so it stays
    behavior: Behavior
    order: int
    why: str  # who says so: a rule, a label, or the plan

    @property
    def full_name(self) -> str:
        return self.runner.pod.full_name

    @property
    def is_waited_for(self) -> bool:
        return self.entry is not None and self.behavior is not Behavior.SKIP and not self.runner.pod.ended


def treatments(
    maintenance: Maintenance,
    runners: Iterable[Runner],
    rules: Iterable[Rule],
    namespaces: Mapping[str, Mapping[str, str]],
    *,
    ours: frozenset[str] = frozenset(),
    undrainable: Mapping[str, str] = MappingProxyType({}),
    overridden: bool = False,
) -> list[Treatment]:
    """In the order of eviction. `namespaces`: labels by name. `ours`: pods of this program, which nobody may drain. `undrainable`: full
    names of pods that come back here, and why. `overridden`: nobody is waited for any more that is to end by itself."""
    by_namespace: dict[str, list[Rule]] = {}
    for rule in sorted(rules, key=lambda rule: rule.full_name):
        by_namespace.setdefault(rule.namespace, []).append(rule)
    found = [_treatment(maintenance, runner, by_namespace, namespaces, ours) for runner in runners]
    for index, each in enumerate(found):
        why = f"Undrainable: {undrainable[each.full_name]}" if each.full_name in undrainable else ""
        if why or (overridden and each.behavior is Behavior.WAIT_COMPLETED):
            found[index] = replace(each, behavior=Behavior.SKIP, why=why or f"{each.why}, and the deadline is over")
    return sorted(found, key=lambda one: (len(maintenance.plan) if one.entry is None else one.entry, one.order, one.full_name))


def _treatment(
    maintenance: Maintenance,
    runner: Runner,
    rules: Mapping[str, list[Rule]],
    namespaces: Mapping[str, Mapping[str, str]],
    ours: frozenset[str],
) -> Treatment:
    pod = runner.pod
    if is_ours(pod, ours):
        return Treatment(runner, None, Behavior.SKIP, 0, "it is one of this program's own")
    entry = next((index for index, _ in enumerate(maintenance.plan) if _is_in(maintenance, index, runner, namespaces)), None)
    label = pod.labels.get(CAPI_LABEL, "").lower()
    rule = next((rule for rule in rules.get(pod.namespace, ()) if rule.pods.selects(pod.labels)), None)
    order = rule.order if rule else 0
    if label in OF_LABEL:
        return Treatment(runner, entry, OF_LABEL[label], order, f"its label {CAPI_LABEL}={label}")
    if rule:
        return Treatment(runner, entry, rule.behavior, order, f"DrainRule {rule.full_name}")
    why = (
        f"the plan, entry {entry + 1}: {maintenance.plan[entry]}"
        if entry is not None
        else f"no entry of the plan names {runner.type.name} pods"
    )
    return Treatment(runner, entry, Behavior.DRAIN, 0, why)


def _is_in(maintenance: Maintenance, index: int, runner: Runner, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    entry, pod = maintenance.plan[index], runner.pod
    return (
        entry.type is runner.type
        and runner.priority <= entry.priority
        and (entry.pods is None or entry.pods.selects(pod.labels))
        and (entry.namespaces is None or entry.namespaces.selects(namespaces.get(pod.namespace, {})))
    )


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node of a maintenance, by what it has published."""

    node: str
    finished: int | None  # entries that it has done; None: it has said nothing of this maintenance
    seen: str = ""  # when its sidecar wrote last; empty: it has no sidecar, or never wrote
    ignored: bool = False  # somebody has said that nobody is to wait for it


@dataclass(frozen=True, slots=True)
class Draining:
    """One maintenance that wants this node drained."""

    maintenance: Maintenance
    finished: int  # entries that this node has done, as it has noted
    treatments: tuple[Treatment, ...]
    peers: tuple[Peer, ...] = ()

    @property
    def at(self) -> int:
        """The entry that may be worked on: all nodes have done those before it."""
        return min([self.finished, *(peer.finished or 0 for peer in self.peers if not peer.ignored)])

    @property
    def key(self) -> Key:
        plan = self.maintenance.plan
        return plan[self.at].key if self.at < len(plan) else END

    def waits_for(self) -> list[Peer]:
        """Those that keep this node from its next entry, if there is one."""
        if self.finished >= len(self.maintenance.plan):
            return []
        return [peer for peer in self.peers if not peer.ignored and (peer.finished or 0) < self.finished]


def target(drains: Iterable[Draining], reached: Key | None) -> Key:
    """How far this node may go now: as far as the least advanced allows, and never less far than it was."""
    return max(reached or (0, 0, 0), min((one.key for one in drains), default=END))


def due(drains: Iterable[Draining], until: Key) -> list[Treatment]:
    """Pods that are drained now: of the entries up to `until` the first that has any left, and of that those of the lowest order."""
    by_uid: dict[str, tuple[Key, Treatment]] = {}
    for one in drains:
        for each in one.treatments:
            if each.entry is None or not each.is_waited_for or (key := one.maintenance.plan[each.entry].key) > min(until, one.key):
                continue
            before = by_uid.get(each.runner.pod.uid)
            if before is None or key < before[0]:
                by_uid[each.runner.pod.uid] = key, each
    first = min((key for key, _ in by_uid.values()), default=END)
    left = [each for key, each in by_uid.values() if key == first]
    lowest: dict[str, int] = {}  # of each namespace: a team orders its own pods, and holds nobody else's
    for each in left:
        space = each.runner.pod.namespace
        lowest[space] = min(lowest.get(space, each.order), each.order)
    return sorted((each for each in left if each.order == lowest[each.runner.pod.namespace]), key=lambda each: each.full_name)


def finished(one: Draining, until: Key) -> int:
    """How many entries this node has done by now; never fewer than it has noted."""
    left = min((each.entry for each in one.treatments if each.is_waited_for and each.entry is not None), default=len(one.maintenance.plan))
    return max(one.finished, min(left, sum(entry.key <= until for entry in one.maintenance.plan[: one.at + 1])))
