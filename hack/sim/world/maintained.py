"""Holds what sidecars do for declared maintenances against what was declared, at the moment it happens. A second reading of the promises.

What was declared until a moment ago excuses a request that was on its way then. Progress that a node has noted or published only grows, so
whoever knows less of it than is true may do less, and not more.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster.selectors import selector_test
from hack.sim.stand_ins import claims_of
from hack.sim.world.maintenance import CAPI_LABEL
from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, DRAIN_RULES, MAINTENANCES, NODES, PODS
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

WRONG_CORDON: Final = "wrong cordon"
UNCORDONED: Final = "uncordoned"
WENT_BACK: Final = "went back"
NOT_PUT_BACK: Final = "not put back"

_RECORD: Final = names.of_driver(DRIVER, names.MAINTENANCE_RECORD)
_STANDARD: Final = (10**9, 2 * 10**9, 2 * 10**9 + 1000, 2**31 - 1)
_END: Final = (2**31, 0)
_NOTHING: Final = (-(2**31), 0)
_PASS: Final = 3.5
"""Seconds for which a pass goes by what it has read: at most two until it asks again, and its requests."""
_READS: Final = 6
"""Requests between the first of them and the first write."""
_BOUNCES: Final = 3
_Key = tuple[int, int]
"""Of an entry: its priority, and 1 if it selects no pods."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """What stands from a moment on."""

    at: float
    maintenances: list[Json]
    rules: list[Json]

    def drains(self, node: str) -> list[Json]:
        return [one for one in self.maintenances if one["spec"]["stage"] == "Drain" and _selects(one["spec"], node)]

    def cordons(self, node: str) -> bool:
        return any(one["spec"]["stage"] in ("Cordon", "Drain") and _selects(one["spec"], node) for one in self.maintenances)


class Maintained:
    def __init__(self, world: "World") -> None:
        self._world, self._store = world, world.cluster.store
        self._late = world.late + _PASS + _READS * world.plan.weather.read.p99
        self._declared = [_Declared(0.0, [], [])]
        self._nodes: dict[str, Json] = {}
        """As they were seen last."""
        self._before: dict[str, bool] = {}
        """By node whose cordon is claimed: whether it was cordoned before."""
        self._wanted: dict[str, bool] = {}
        """By node whose cordon nobody claims: whether it is cordoned, by whoever has the right to say so."""
        self._allowed: dict[str, _Key] = {}
        """By node: the furthest entry that it was ever allowed to work on, of all plans."""
        self._over: dict[str, tuple[float, _Key]] = {}
        """By node: when its last drain ended, and how far it was allowed to go."""
        self._rounds: dict[tuple[str, str], list[tuple[float, int]]] = {}
        """By node and owner of pods: when one was sent away, and how often some had been before that one was put there."""
        self.evictions = 0

    # --- what is declared -------------------------------------------------------------------------------------------------

    def look(self, sender: str) -> None:
        """To be called after every change of one of these objects, before anybody acts on it."""
        now, last = self._world.clock(), self._declared[-1]
        maintenances, rules = (list(self._store.all_of(resource)) for resource in (MAINTENANCES, DRAIN_RULES))
        if (maintenances, rules) != (last.maintenances, last.rules):
            self._declared.append(_Declared(now, maintenances, rules))
        for name in self._world.nodes:
            if (node := self._store.find(NODES, name)) is not None:
                before, self._nodes[name] = self._nodes.get(name, node), node
                for kind, what in self._changed(name, before, node, sender):
                    self._world.found(kind, f"{name}: {what}")
                self._allowed[name] = max(self._allowed.get(name, _NOTHING), self._target(name))

    def _lately(self) -> list[_Declared]:
        """All that whoever acts now may have read."""
        first = max(each.at for each in self._declared if each.at <= max(0.0, self._world.clock() - self._late))
        return [each for each in self._declared if each.at >= first]

    # --- what a sidecar writes on its node ----------------------------------------------------------------------------------

    def _changed(self, name: str, before: Json, node: Json, sender: str) -> Iterator[tuple[str, str]]:
        was, is_ = (bool(each["spec"].get("unschedulable")) for each in (before, node))
        old, new = _record(before), _record(node)
        if not sender:
            if name not in self._before:
                self._wanted[name] = is_
            return
        if before is node or (was, old) == (is_, new):
            return
        if sender != name:
            yield WRONG_CORDON, f"{sender} has changed it"
        wanted = [each.cordons(name) for each in self._lately()]
        ever, always = any(wanted), all(wanted)
        if is_ and not was and not ever:
            yield WRONG_CORDON, "nobody wants it cordoned"
        if "prior" in new and "prior" not in old:
            self._before[name] = was
            if new["prior"] is not was:
                yield WRONG_CORDON, f"it notes that it was {'' if new['prior'] else 'not '}cordoned before"
        if "prior" in old and new.get("prior", old["prior"]) is not old["prior"]:
            yield WENT_BACK, f"how it was before is noted as {new['prior']} now"
        if was and not is_:
            if self._before.get(name) is not False:
                yield UNCORDONED, "its cordon is not ours"
            if always:
                yield UNCORDONED, "a maintenance wants it cordoned"
        if "prior" in old and "prior" not in new:
            if always:
                yield UNCORDONED, "its claim is given up, and a maintenance wants it cordoned"
            if self._before.pop(name, None) is False and is_:
                yield NOT_PUT_BACK, "it was not cordoned before, and is now"
            self._wanted[name] = is_
        if "reached" in old and "reached" not in new:
            self._over[name] = self._world.clock(), self._allowed.pop(name, _NOTHING)
        yield from self._progress(name, old, new)

    def _progress(self, name: str, old: Json, new: Json) -> Iterator[tuple[str, str]]:
        if old.get("reached") and new.get("reached") and new["reached"] < old["reached"]:
            yield WENT_BACK, f"from entry {old['reached']} to {new['reached']}"
        for uid, now in new.get("of", {}).items():
            then = old.get("of", {}).get(uid)
            if then is not None and now["finished"] < then["finished"]:
                yield WENT_BACK, f"{now['name']} has done {now['finished']} entries, after {then['finished']}"
            for key in ("startedAt", "deadlineAt") if then is not None else ():
                if key in then and (now.get(key) or "9") > then[key]:
                    yield WENT_BACK, f"{key} of {now['name']} was {then[key]} and is {now.get(key)}"
            if now["finished"] > (then or {"finished": 0})["finished"]:
                yield from self._left(name, uid, now["finished"])

    def _left(self, name: str, uid: str, count: int) -> Iterator[tuple[str, str]]:
        """Pods of entries that are said to be done."""
        one = next((each for each in self._declared[-1].maintenances if each["metadata"]["uid"] == uid), None)
        if one is None:
            return
        for pod in self._store.all_of(PODS):
            meta = pod["metadata"]
            if pod["spec"].get("nodeName") != name or pod["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            entry = _entry(one["spec"], pod)
            is_new = self._world.clock() - self._world.made_at(PODS, meta["name"]) <= self._late
            bounces = self._round(name, pod) >= _BOUNCES
            left_alone = {"Skip", "WaitCompleted"} if self._is_over(name) else {"Skip"}
            skipped = any(_behavior(pod, each.rules) in left_alone for each in self._lately())
            if entry is not None and entry < count and not is_new and not bounces and not skipped:
                yield "said to be done", f"{count} entries of {one['metadata']['name']}, and {meta['name']} is there"

    # --- who may go how far ---------------------------------------------------------------------------------------------------

    def _target(self, node: str) -> _Key:
        keys = []
        for one in self._declared[-1].drains(node):
            others = [name for name in self._world.nodes if name != node and _selects(one["spec"], name)]
            done = [_record(self._nodes[node]).get("of", {}).get(one["metadata"]["uid"], {}).get("finished", 0)]
            done += [self._published(name, one["metadata"]["uid"]) for name in others if not self._ignored(name)]
            plan = _plan(one["spec"])
            keys.append(plan[min(done)][0] if min(done) < len(plan) else _END)
        return min(keys, default=_NOTHING)

    def _ignored(self, node: str) -> bool:
        found = self._store.find(NODES, node)
        return found is None or names.IGNORED_BY_MAINTENANCE in (found["metadata"].get("annotations") or {})

    def _published(self, node: str, uid: str) -> int:
        report = self._store.find(DRAIN_REPORTS, names.drain_report(node, DRIVER)) or {}
        said = (report.get("status") or {}).get("maintenance") or ()
        return next((each.get("finished", 0) for each in said if each["uid"] == uid), 0)

    def wrong_eviction(self, sender: str, pod: Json) -> Iterator[str]:
        """It is called for each eviction by a sidecar of a pod that has a node, before that is carried out."""
        self.evictions += 1
        ended, former = self._over.get(sender, (0.0, _NOTHING))
        former = former if self._world.clock() - ended <= self._late else _NOTHING
        drains = [each.drains(sender) for each in self._lately()]
        keys = [_plan(one["spec"])[entry][0] for each in drains for one in each if (entry := _entry(one["spec"], pod)) is not None]
        if not any(drains):
            yield "nobody wants its node drained"
        elif not keys:
            yield "no plan names it"
        elif min(keys) > (most := max(self._allowed.get(sender, _NOTHING), former)):
            yield f"it is of entry {min(keys)}, and its node may work on {most} at most"
        if all(_behavior(pod, each.rules) != "Drain" for each in self._lately()):
            yield "a rule or its label says that it is not evicted"
        if "prior" not in _record(self._nodes[sender]) and former is _NOTHING:
            yield "nothing is noted on its node"
        if any(drains) and all(any(one["spec"]["intent"] == "retire" for one in among) for among in drains) and not self._is_over(sender):
            yield from (f"its claim {name} has a volume that blocks" for name in claims_of(pod) if self._has_volume(name))
        self._rounds.setdefault((sender, _owner(pod)), []).append((self._world.clock(), self._round(sender, pod)))

    def _round(self, node: str, pod: Json) -> int:
        """How often pods of its owner had been sent away, and others put there again, when this one was put there."""
        made = self._world.made_at(PODS, pod["metadata"]["name"])
        return max((count + 1 for at, count in self._rounds.get((node, _owner(pod)), ()) if at < made), default=0)

    def _has_volume(self, claim: str) -> bool:
        found = self._store.find(CLAIMS, claim.rpartition("/")[2], claim.partition("/")[0])
        return bool(found and found["spec"].get("volumeName"))

    def _is_over(self, node: str) -> bool:
        """What blocks is overridden there, or was until a moment ago."""
        noted, now = _record(self._nodes[node]).get("of", {}), self._world.wall()
        overriding = [one for each in self._lately() for one in each.drains(node) if one["spec"].get("onDeadline") == "Override"]
        ends = [timestamps.to_seconds(noted.get(one["metadata"]["uid"], {}).get("deadlineAt", "")) for one in overriding]
        return any(end is not None and end <= now for end in ends)

    # --- at rest --------------------------------------------------------------------------------------------------------------

    def not_drained(self) -> Iterator[tuple[str, str]]:
        """All is well and nothing keeps anybody: only a retire, which holds pods with volumes, may be waited for."""
        now = self._declared[-1]
        if any(one["spec"]["intent"] == "retire" and one["spec"]["stage"] == "Drain" for one in now.maintenances):
            return
        for pod in self._store.all_of(PODS):
            node, meta = pod["spec"].get("nodeName", ""), pod["metadata"]
            bounces = self._round(node, pod) >= _BOUNCES
            if now.drains(node) and _behavior(pod, []) == "Drain" and not bounces:
                yield "not drained", f"{meta['name']} is still on {node}, and nothing keeps it there"

    def left(self) -> Iterator[tuple[str, str]]:
        """Nothing is declared any more."""
        for name in self._world.nodes:
            node = self._store.find(NODES, name) or {"metadata": {}, "spec": {}}
            said = [item for item in (node.get("status") or {}).get("conditions") or () if item["type"] in names.LIFECYCLE_CONDITIONS]
            report = self._store.find(DRAIN_REPORTS, names.drain_report(name, DRIVER)) or {}
            yield from ((NOT_PUT_BACK, f"{name} says {item['type']}") for item in said)
            if _RECORD in (node["metadata"].get("annotations") or {}):
                yield NOT_PUT_BACK, f"{name} has a record: {node['metadata']['annotations'][_RECORD]}"
            if bool(node["spec"].get("unschedulable")) is not self._wanted.get(name, False):
                yield NOT_PUT_BACK, f"{name} is {'' if node['spec'].get('unschedulable') else 'not '}cordoned"
            if "maintenance" in (report.get("status") or {}):
                yield NOT_PUT_BACK, f"the report of {name} tells of {report['status']['maintenance']}"


# --- reading --------------------------------------------------------------------------------------------------------------


def _record(node: Json) -> Json:
    text = (node["metadata"].get("annotations") or {}).get(_RECORD)
    return dict(json.loads(text)) if text else {}


def _selects(spec: Json, node: str) -> bool:
    terms = (spec.get("nodeSelector") or {}).get("matchExpressions") or ()
    return node in spec.get("nodes", ()) or any(node in term["values"] for term in terms)


def _plan(spec: Json) -> list[tuple[_Key, Any]]:
    """Entries with whom they select, in their order. Here all are for pods of neither DaemonSets nor files."""
    entries: dict[_Key, Any] = {(priority, 1): None for priority in _STANDARD}
    for item in spec.get("drainPlan") or ():
        entries[item["maxPriority"], int("podSelector" not in item)] = item.get("podSelector")
    return sorted(entries.items(), key=lambda item: item[0])


def _entry(spec: Json, pod: Json) -> int | None:
    """The first that selects it."""
    labels, priority = pod["metadata"].get("labels") or {}, pod["spec"].get("priority") or 0
    fits = (priority <= most and (chosen is None or selector_test(chosen)(labels)) for (most, _), chosen in _plan(spec))
    return next((index for index, is_in in enumerate(fits) if is_in), None)


def _behavior(pod: Json, rules: list[Json]) -> str:
    labels = pod["metadata"].get("labels") or {}
    if CAPI_LABEL in labels:
        return {"skip": "Skip"}[labels[CAPI_LABEL]]
    of_it = sorted((rule for rule in rules if _rules_over(rule, pod, labels)), key=lambda rule: str(rule["metadata"]["name"]))
    return str(of_it[0]["spec"]["behavior"]) if of_it else "Drain"


def _rules_over(rule: Json, pod: Json, labels: Json) -> bool:
    chosen = rule["spec"]["podSelector"]
    return bool(rule["metadata"]["namespace"] == pod["metadata"]["namespace"] and (not chosen or selector_test(chosen)(labels)))


def _owner(pod: Json) -> str:
    owners = pod["metadata"].get("ownerReferences") or ({"uid": pod["metadata"]["uid"]},)
    return str(owners[0]["uid"])
