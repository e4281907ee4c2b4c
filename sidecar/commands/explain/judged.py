"""The judgement of one node for one driver as `explain` shows it: made from outside, beside what the node's own sidecar says.

Each may see what the other does not, so the stricter verdict counts, with its reason and whose it is.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sidecar.commands.explain.listing_io import Cluster
from sidecar.commands.explain.question import strictness
from sidecar.commands.text import age
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain import marks as node_marks
from sidecar.drain.assess import Assessment, Verdict, assess
from sidecar.drain.gate import announced, announcing
from sidecar.drain.marks import Marks, NodePolicy
from sidecar.drain.snapshot import LONGEST_WAIT, Own, Snapshot
from sidecar.drain.watch.turn_io import SILENT_AFTER
from sidecar.drain.words import Intent, Policy, Reason, Status, first_few
from sidecar.errors import Fatal
from sidecar.kube.api import KubeApi
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

AS_IN_A_DAEMON_SET: Final = ("--node-deployment", "--drain-report")
"""Flags without which others are refused that the judgement depends on."""
_FROM_OUTSIDE: Final = (
    "not visible from outside the node: creations that only its own sidecar knows of, and volumes that its driver has without a "
    "PersistentVolume"
)
_KEYS: Final = {Intent.REBOOT: ("drain", names.DRAIN_READY), Intent.RETIRE: ("retire", names.RETIRE_READY)}
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Said:
    """One verdict as it is stored."""

    status: Status
    reason: str
    message: str
    since: float | None


@dataclass(frozen=True, slots=True)
class OwnWord:
    """What the node's own sidecar has written: in its report, or else in its conditions."""

    said: Mapping[Intent, Said]
    seen_at: float | None
    """When it wrote that last."""
    is_stale: bool
    """It has not said it again in time, so it counts as Unknown."""
    lines: tuple[str, ...] = ()
    """What it says beside its verdicts: who holds a drain, how far the evacuation is, what passes by itself."""
    held: Json | None = None
    """The same for programs, as it stands in the report."""
    deadline: float | None = None

    def status(self, intent: Intent) -> Status:
        return Status.UNKNOWN if self.is_stale else self.said[intent].status


@dataclass(frozen=True, slots=True)
class Judged:
    """Both views of a node."""

    assessment: Assessment
    """From outside, but for verdicts in which its own sidecar is stricter: these are the sidecar's."""
    word: OwnWord | None
    """None: its own sidecar says nothing."""
    marks: Marks | None
    """What stands on the Node; None: there is no such Node."""
    ends: tuple[tuple[str, float], ...] = ()
    """What goes on, and until when at the latest. Only what has a fixed end: nothing is estimated."""
    own: frozenset[Intent] = frozenset()
    """In which its own sidecar is the stricter."""

    @property
    def unannounced(self) -> str:
        """Where somebody drains the node, and nobody says what for; empty: that is not so."""
        marks = self.marks
        if marks is None or not marks.draining or marks.planned or announced(marks) is not None:
            return ""
        return f"nobody announced what the drain of this node is for: run {announcing(marks.node)}"


async def listed(config: Config, node: str = "") -> Cluster:
    """The whole cluster now, for one node or for all. Raises NotFound where that one does not exist."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        cluster = await look(doors.kube, node)
    finally:
        await doors.close()
    if not cluster.nodes:
        raise Fatal(f"the nodes could not be listed: {first_few(cluster.ignorance, 1)}; check --kubeconfig and your rights")
    return cluster


async def look(kube: KubeApi, node: str = "") -> Cluster:
    return await Cluster(kube, now=time.time()).look(node)


def own_of(config: Config) -> Own:
    """What the sidecar's flags say, as far as they are given here too."""
    return Own(default_policy=Policy(config.drain_default_policy) if config.drain_default_policy else None)


def judge(cluster: Cluster, node: str, driver: str, own: Own) -> tuple[Judged, ...]:
    """Without a driver's name: for all drivers that have something on the node, or could have. Raises Fatal where these are not known."""
    drivers = cluster.drivers(node)
    if not driver and not drivers and cluster.ignorance:
        why = first_few(cluster.ignorance, 1)
        raise Fatal(f"the drivers of node {node} could not be listed, so name one with --driver: {why}")
    return tuple(_judged(cluster, node, each, own) for each in ((driver,) if driver else drivers))


def _judged(cluster: Cluster, node: str, driver: str, own: Own) -> Judged:
    snapshot = cluster.snapshot(node, driver, own)
    drivers = cluster.drivers(node)
    if driver not in drivers and not cluster.knows(driver):
        nobody = f"driver {driver} is not known on this node; check the name: the drivers of the node are {', '.join(drivers) or 'none'}"
        snapshot = replace(snapshot, ignorance=(*snapshot.ignorance, nobody))
    marks = None
    if snapshot.node is not None:
        # Which policy the sidecar has by its flag is not known here. With this one nothing is inferred, and nothing called wrong.
        marks = node_marks.read(snapshot.node, driver, now=cluster.at, policy=NodePolicy.NO_SCHEDULE)
    one = assess(snapshot)
    word = own_word(cluster, driver, one)
    unread = (cluster.unread_reports,) if cluster.unread_reports else ()
    one = replace(one, notes=(*one.notes, *(marks.notes if marks else ()), *unread, _FROM_OUTSIDE))
    stricter = {
        intent: _of_sidecar(word, intent, one)
        for intent in Intent
        if word and strictness(word.status(intent)) > strictness(one.verdict(intent).status)
    }
    counted = replace(one, drain=stricter.get(Intent.REBOOT, one.drain), retire=stricter.get(Intent.RETIRE, one.retire))
    return Judged(counted, word, marks, tuple(_ends(word, snapshot)), frozenset(stricter))


def _of_sidecar(word: OwnWord, intent: Intent, one: Assessment) -> Verdict:
    said, outside = word.said[intent], f"from outside it is {one.verdict(intent).status}"
    if word.is_stale:
        why = f"its own sidecar says {said.status}, and has not said it again in time; {outside}"
        return Verdict(Status.UNKNOWN, Reason.AGENT_UNAVAILABLE, why)
    reason = Reason(said.reason) if said.reason in list(Reason) else Reason.NOT_KNOWN
    return Verdict(said.status, reason, f"its own sidecar says: {said.message or said.reason}; {outside}")


def _ends(word: OwnWord | None, snapshot: Snapshot) -> Iterable[tuple[str, float]]:
    """Those that are still to come, the first one first. From outside nothing is known to have begun, so a creation counts for a while."""
    found = [(word.deadline, "evacuation: deadline")] if word and word.deadline is not None else []
    for flight in snapshot.in_flight:
        made = timestamps.to_seconds(flight.claim.created)
        what = f"{flight.claim.full_name}: {Reason.PROVISIONING_IN_FLIGHT}, if nothing has begun"
        found += [(made + LONGEST_WAIT, what)] if made is not None else []
    return ((what, at) for at, what in sorted(found) if at > snapshot.now)


# --- what its own sidecar says ----------------------------------------------------------------------------------------


def own_word(cluster: Cluster, driver: str, one: Assessment) -> OwnWord | None:
    """None: the sidecar says nothing, or spoke of a former node. Anybody may have edited it."""
    report = cluster.reports.get(names.drain_report(one.node, driver), {})
    report = report if one.node_uid and report.get("nodeUID") == one.node_uid else {}
    conditions = cluster.conditions.get(one.node, {})
    said: dict[Intent, Said] = {}
    for intent, (key, kind) in _KEYS.items():
        stored = _mapping(_mapping(report, "verdicts"), key) or conditions.get(names.condition(driver, kind), {})
        if stored.get("status") not in list(Status):
            return None
        since = timestamps.to_seconds(_text(stored, "lastTransitionTime"))
        said[intent] = Said(Status(stored["status"]), _text(stored, "reason"), _text(stored, "message"), since)
    if report:
        times = [_text(report, "observedAt")]
    else:
        times = [_text(conditions[names.condition(driver, kind)], "lastHeartbeatTime") for _, kind in _KEYS.values()]
    seen = min((at for text in times if (at := timestamps.to_seconds(text)) is not None), default=None)
    if seen is None or cluster.at - seen > SILENT_AFTER:
        return OwnWord(said, seen, is_stale=True)
    deadline = timestamps.to_seconds(_text(_mapping(report, "evacuation"), "deadline"))
    return OwnWord(said, seen, False, tuple(_lines(report, one)), _held(report), deadline)


def _lines(report: Json, one: Assessment) -> Iterable[str]:
    gate, course = _mapping(report, "gate"), _mapping(report, "evacuation")
    if gate:
        why = f": {_text(gate, 'why')}" if gate.get("why") else ""
        yield f"the gate is {'shut' if gate.get('held') else 'open'}{why}"
    purpose, because, held = _text(report, "drainFor"), _text(report, "heldBecause"), _texts(report, "held")
    if because or purpose:
        yield because or f"a drain is let go ({purpose})"
    if held:
        yield f"must not be evicted: {first_few(held, _SHOWN)}"
    if told := [f"{said}{_text(course, key)}" for key, said in (("slot", "its slot: "), ("next", "")) if course.get(key)]:
        yield f"evacuation: {'; '.join(told)}"
    for of in report.get("maintenance") or ():
        here = "; ".join(f"{pod.get('pod')}: {pod.get('why')}" for pod in (of.get("pods") or ())[:_SHOWN])
        done = f", {of['finished']} of {of.get('entries')} steps done" if "finished" in of else ""
        yield f"{names.MAINTENANCE_KIND} {of.get('name')}: {of.get('stage')}{done}{f'; {here}' if here else ''}"
    yield from (note for note in _texts(report, "notes") if note not in one.notes)


def _held(report: Json) -> Json | None:
    texts = {key: _text(report, key) for key in ("drainFor", "heldBecause")}
    found = {"gate": _mapping(report, "gate"), **texts, "pods": _texts(report, "held"), "notes": _texts(report, "notes")}
    return {key: value for key, value in found.items() if value} or None


def as_since(said: Said, now: float) -> str:
    return f"{said.status} for {age(now - said.since)}" if said.since is not None else str(said.status)


def _mapping(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = obj.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(obj: Mapping[str, Any], key: str) -> str:
    return str(obj.get(key) or "")


def _texts(obj: Mapping[str, Any], key: str) -> list[str]:
    found = obj.get(key)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []
