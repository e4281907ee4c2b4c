"""Reads and writes the Node of this process, and writes its report. What it writes on the Node:

    metadata.labels       DRIVER.csi-node-sidecar.io/evacuation-state           how far an evacuation is, to be seen by `get nodes -L`
    metadata.annotations  DRIVER.csi-node-sidecar.io/drain-record               the same with its times, and which words are spent (`marks`)
                          DRIVER.csi-node-sidecar.io/autoscaler-annotations     which of the next two are ours
                          cluster-autoscaler.kubernetes.io/scale-down-disabled  with --drain-autoscaler-annotations, while
                          karpenter.sh/do-not-disrupt                           retiring the node would lose data
    status.conditions     DRIVER/DrainReady, DRIVER/RetireReady                 both verdicts

Taints and cordons are for people and autoscalers to set. Each write names the Node's uid: if another machine has come under the name, the
API server takes that for a wish to change the uid and refuses it. What others write too is compared with what was just read, and written
with that version: two drivers' sidecars share the autoscalers' keys, and a late write must not take back a newer word.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain import report
from sidecar.drain.assess import Assessment, Verdict
from sidecar.drain.course import is_under_way
from sidecar.drain.empty import keeping_off
from sidecar.drain.gate import HeldPods
from sidecar.drain.maintenance.objects import Maintenance, Stage
from sidecar.drain.maintenance.step import record_of as maintenance_of
from sidecar.drain.marks import Marks, Record, read
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.words import Intent, Reason, Status
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MAINTENANCES, MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import AlreadyExists, Conflict, NotFound
from sidecar.kube.store import Store
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

FRESH: Final = 15.0  # seconds for which it counts what the API server has said, from the question on: a process may have been stopped since
HEARTBEAT: Final = 300.0  # seconds between two writes of conditions that stay the same: by this sign of life others see a silent sidecar
PROTECTING: Final = (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT)
_PROTECTED: Final = "true"
_INSTALL: Final = "install the CustomResourceDefinition of deploy/components/drain"
JUST_STARTED: Final = Verdict(
    Status.UNKNOWN, Reason.NOT_KNOWN, "the sidecar has just started: it judges the node when its driver answers and everything is listed"
)
NOT_JUDGED: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the node is not judged any more: --drain-report is switched off")


class OwnNode:
    """One per process, which knows it by a watch and by its own writes. Raises ApiError."""

    def __init__(
        self, kube: KubeApi, store: Store[Node], settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._kube, self._store, self._settings, self._clock, self._wall = kube, store, settings, clock, wall
        self._driver = settings.driver
        self.marks: Marks | None = None  # as they were read last
        self._written: Node | None = None  # as the answer to this process's last write showed it
        self._conditions_at: float | None = None  # when conditions were written last, or found right; None: they have to be read
        self._said: tuple[str, Verdict, Verdict] | None = None  # of which Node, and what
        self.true_is_old = False  # a condition is True that is not any more, and that could not be written

    def known(self) -> Node | None:
        """A watch that lags does not show yet what this process has written: nothing is begun twice."""
        node, last = self._store.get(self._settings.node), self._written
        return last if node is not None and last is not None and node.uid == last.uid and node.version < last.version else node

    def read(self, node: Node) -> Marks:
        self.marks = read(node, self._settings.driver, now=self._wall(), policy=self._settings.policy, before=self.marks)
        return self.marks

    async def write_record(self, node: Node, record: Record) -> Node:
        """The Node as it is then. Nothing is written where it says that already."""
        if self._settings.dry_run:
            return node
        key, label = names.of_driver(self._driver, names.DRAIN_RECORD), names.of_driver(self._driver, names.EVACUATION_STATE)
        annotations = {key: record.as_text(node.uid)}
        return await self._patch(node, annotations, {label: str(record.state) if record.state else None})

    async def protect(self, node: Node, *, needed: bool | None) -> None:
        """As `protection`. By a Node that is read now: other drivers' sidecars write the same keys."""
        for left in (2, 1, 0) if protection(node, self._driver, needed=needed) else ():
            stored = await self._kube.get(NODES, node.name)
            fresh = Node.of(stored)
            try:
                await self._patch(fresh, protection(fresh, self._driver, needed=needed), {}, version=version_of(stored))
                return
            except Conflict:
                if not left:
                    raise

    async def write_conditions(self, assessment: Assessment) -> None:
        """Where they say something else, or at the latest after `HEARTBEAT`. After a failure they are read and written anew."""
        said = assessment.node_uid, assessment.drain, assessment.retire
        due = self._conditions_at is None or self._clock() - self._conditions_at >= HEARTBEAT
        if said == self._said and not due:
            return
        self._said, self._conditions_at = None, None
        for left in (2, 1, 0):
            stored = await self._kube.get(NODES, assessment.node)
            before = conditions_of(stored, self._driver)
            wanted = conditions(self._driver, assessment.drain, assessment.retire, before=before, now=self._wall())
            stands = {item.get("type") for item in before if item.get("status") == Status.TRUE}
            self.true_is_old = any(item["type"] in stands and item["status"] != Status.TRUE for item in wanted)
            try:
                await put_conditions(self._kube, stored, wanted, uid=assessment.node_uid)
                break
            except Conflict:
                if not left:  # the kubelet writes the Node too: what it writes in between is no failure
                    raise
        self._said, self._conditions_at, self.true_is_old = said, self._clock(), False

    async def _patch(
        self, node: Node, annotations: Mapping[str, str | None], labels: Mapping[str, str | None], *, version: str = ""
    ) -> Node:
        changed = {key: value for key, value in annotations.items() if node.annotations.get(key) != value}
        relabelled = {key: value for key, value in labels.items() if node.labels.get(key) != value}
        if not changed and not relabelled:
            return node
        meta: Json = {"uid": node.uid} | ({"resourceVersion": version} if version else {})
        meta |= {"annotations": changed} if changed else {}
        meta |= {"labels": relabelled} if relabelled else {}
        stored = await self._kube.patch(NODES, node.name, {"metadata": meta}, content_type=MERGE_PATCH)
        self._written = Node.of(stored)
        return self._written


# --- one look ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    node: Node
    marks: Marks
    snapshot: Snapshot
    assessment: Assessment

    @property
    def machine(self) -> str:
        """As marks on claims name it."""
        return f"{self.node.name}/{self.node.uid}"


async def why_undone(tools: Tools, settings: Settings, picture: Picture, *, asked_at: float) -> str:
    """Asked before everything that cannot be undone, by the Node itself and not by what a watch has shown; empty: it still wants what it
    wanted. One function reads both, and both have to say the same: whatever has changed, the next look decides anew. Raises ApiError."""
    fresh = Node.of(await tools.kube.get(NODES, picture.node.name))
    if (age := tools.clock() - asked_at) > FRESH:
        return f"the API server is slow: what decides it was asked for {age:.0f} s ago"
    if fresh.uid != picture.node.uid:
        return "there is another Node of this name by now"
    marks = read(fresh, settings.driver, now=tools.wall(), policy=settings.policy, before=picture.marks)
    if marks.wish != picture.marks.wish or not is_under_way(marks.record, marks.wish):
        return "the evacuation was undone, or has ended"
    intents: set[Intent] = set()
    for uid, one in maintenance_of(fresh, settings.driver).of.items() if marks.maintenance else ():
        stored = await find(tools.kube, MAINTENANCES, one.name)
        now = Maintenance.of(stored) if stored is not None else None
        if now is None or now.uid != uid or now.stage is not Stage.DRAIN or not now.selects(fresh.name, fresh.labels):
            return f"PlannedMaintenance {one.name} wants no drain any more"
        intents.add(now.intent)
    if marks.maintenance is Intent.RETIRE and Intent.RETIRE not in intents:
        return "no PlannedMaintenance wants the node to be retired any more"
    return "" if keeping_off(fresh) == keeping_off(picture.node) else "what keeps pods off the node has changed"


# --- conditions -------------------------------------------------------------------------------------------------------


def conditions_of(node: Json, driver: str) -> list[Json]:
    """Those that this driver's sidecar has written."""
    ours = (names.condition(driver, names.DRAIN_READY), names.condition(driver, names.RETIRE_READY))
    return [item for item in (node.get("status") or {}).get("conditions") or () if item.get("type") in ours]


def conditions(driver: str, drain: Verdict, retire: Verdict, *, before: Iterable[Mapping[str, Any]], now: float) -> list[Json]:
    """Both, as they should be. `before` are all that the Node has: what stays the same keeps the time of its last change."""
    had, at = {item.get("type"): item for item in before}, timestamps.to_text(now)
    said = {names.condition(driver, kind): verdict for kind, verdict in ((names.DRAIN_READY, drain), (names.RETIRE_READY, retire))}
    return [{"type": kind, **report.dated(verdict, had.get(kind, {}), at=at), "lastHeartbeatTime": at} for kind, verdict in said.items()]


def conditions_patch(wanted: list[Json], *, uid: str, version: str) -> Json:
    """A strategic merge patch for nodes/status: it merges conditions by type, so others' stay."""
    return {"metadata": {"uid": uid, "resourceVersion": version}, "status": {"conditions": wanted}}


async def unsay(kube: KubeApi, node: Json, driver: str, said: Verdict, *, now: float) -> Json | None:
    """Both conditions of this driver become what `said` says, on condition of the version; None: there are none, or they say it. Raises
    ApiError."""
    before = conditions_of(node, driver)
    if all((item.get("status"), item.get("reason")) == (said.status, said.reason) for item in before):
        return None
    wanted = conditions(driver, said, said, before=before, now=now)
    return await put_conditions(kube, node, wanted, uid=node["metadata"]["uid"])


async def put_conditions(kube: KubeApi, node: Json, wanted: list[Json], *, uid: str) -> Json:
    patch = conditions_patch(wanted, uid=uid, version=version_of(node))
    return await kube.patch(NODES, node["metadata"]["name"], patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")


def version_of(stored: Mapping[str, Any]) -> str:
    return str(stored["metadata"].get("resourceVersion") or "")


# --- autoscalers' annotations -----------------------------------------------------------------------------------------


def protection(node: Node, driver: str, *, needed: bool | None) -> dict[str, str | None]:
    """What of the autoscalers' annotations is to be changed; `needed` None: it is not known, and all stays. Ours are those in our marker;
    what a user has set stays. A key that another driver's sidecar has set becomes ours too, and goes with the last."""
    if needed is None:
        return {}
    marker = names.of_driver(driver, names.AUTOSCALER_MARKER)
    own, suffix = _claimed(node, marker), f".{names.GROUP}/{names.AUTOSCALER_MARKER}"
    others = {key for other in node.annotations if other.endswith(suffix) and other != marker for key in _claimed(node, other)}
    if needed:
        keys = [key for key in PROTECTING if key not in node.annotations or _is_set_by(node, key, own | others)]
        wanted: dict[str, str | None] = {**dict.fromkeys(keys, _PROTECTED), marker: json.dumps(keys) if keys else None}
    else:
        gone = [key for key in PROTECTING if key in own - others and _is_set_by(node, key, own)]
        wanted = {**dict.fromkeys(gone), marker: None}
    return {key: value for key, value in wanted.items() if node.annotations.get(key) != value}


def needs_protection(*, enabled: bool, retire: Status, overridden: bool) -> bool | None:
    """Whether autoscalers are to leave the node alone: as long as retiring it would lose data. None: not known."""
    if not enabled or overridden or retire is Status.TRUE:
        return False
    return True if retire is Status.FALSE else None


def nothing_of_ours(node: Node, driver: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """For an uninstall: annotations and labels of this driver's sidecar that go. What people wrote is theirs and stays."""
    prefix = names.of_driver(driver, "")
    annotations: dict[str, str | None] = {key: None for key in node.annotations if key.startswith(prefix)}
    return protection(node, driver, needed=False) | annotations, {key: None for key in node.labels if key.startswith(prefix)}


def _claimed(node: Node, marker: str) -> set[str]:
    """Only keys of autoscalers: a marker that somebody edited must not make us remove anything else."""
    try:
        keys = json.loads(node.annotations.get(marker, "[]"))
    except (ValueError, RecursionError):
        return set()
    return {key for key in PROTECTING if key in keys} if isinstance(keys, list) else set()


def _is_set_by(node: Node, key: str, claimed: set[str]) -> bool:
    return key in claimed and node.annotations.get(key) == _PROTECTED


# --- the report -------------------------------------------------------------------------------------------------------


class ReportWriter:
    """One per process. What is stored is read at the start, at every heartbeat and after every write that failed: then another one follows,
    on what was read, so that a write which was not answered and arrives late is refused. Raises ApiError."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], held: Callable[[], HeldPods]) -> None:
        """`held`: as it is at any moment, which may be later than a report was made."""
        self._kube, self._settings, self._clock, self._held = kube, settings, clock, held
        self._name = names.drain_report(settings.node, settings.driver)
        self._writing = asyncio.Lock()  # what is held is written at any moment, and must not be overtaken by a report that was made before
        self.stored: Json | None = None  # as this process has read or written it last; None: there is none, or it is not known
        self._read_at: float | None = None
        self._may_arrive = False  # a write was not answered: until another one has been, it may be carried out

    async def recall(self) -> None:
        """Read what an earlier process, or anybody else, has stored, if that is due."""
        if self._read_at is None or self._clock() - self._read_at >= HEARTBEAT:
            async with self._writing:
                self.stored = await find(self._kube, DRAIN_REPORTS, self._name)
                self._read_at = self._clock()

    async def write(self, new: Json) -> None:
        """Where it says something else, or after a heartbeat."""
        async with self._writing:
            stored, status = self.stored, new["status"] | self._held().as_json()
            seen = timestamps.to_seconds(str(((stored or {}).get("status") or {}).get("observedAt") or ""))
            now = timestamps.to_seconds(status["observedAt"])
            fresh = seen is not None and now is not None and 0 <= now - seen < HEARTBEAT and not self._may_arrive
            if stored is not None and fresh and not report.differs(stored, status) and report.head_patch(stored, new) is None:
                return
            self.stored, self._read_at, self._may_arrive = None, None, True
            if stored is None:
                stored = await self._create(new)
            if (patch := report.head_patch(stored, new)) is not None:
                stored = await self._kube.patch(DRAIN_REPORTS, self._name, patch, content_type=MERGE_PATCH)
            await self._write_status(stored, status | self._held().as_json())

    async def write_held(self) -> None:
        """At once: the drainer evicts a moment after its cordon. Where no report is stored the next look does it."""
        async with self._writing:
            stored = self.stored
            if stored is None or self._settings.dry_run:
                return
            status = {**(stored.get("status") or {}), **self._held().as_json()}
            if status != stored.get("status"):
                await self._write_status(stored, status)

    async def _create(self, new: Json) -> Json:
        """The one that is there is as good. Without status: where the type has no status of its own, nobody could take that back."""
        head = {key: value for key, value in new.items() if key != "status"}
        try:
            return await self._kube.create(DRAIN_REPORTS, head)
        except AlreadyExists:
            return await self._kube.get(DRAIN_REPORTS, self._name)
        except NotFound as error:
            raise NotFound(f"NodeDrainReports are not served: {_INSTALL}", status=404) from error

    async def _write_status(self, stored: Json, status: Json) -> None:
        """Until it is answered nothing is known of what is stored; the answer says all of it."""
        self.stored, self._read_at, self._may_arrive = None, None, True
        try:
            self.stored = await put_status(self._kube, stored, status)
        except NotFound as error:
            raise NotFound(f"the report is gone, or NodeDrainReports have no status of their own: {_INSTALL}", status=404) from error
        self._read_at, self._may_arrive = self._clock(), False


async def put_status(kube: KubeApi, stored: Json, status: Json) -> Json:
    """On condition of the version. Raises ApiError."""
    name, patch = stored["metadata"]["name"], report.status_patch(status, version=version_of(stored))
    return await kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")


async def take_back(kube: KubeApi, settings: Settings, *, wall: Callable[[], float]) -> None:
    """At the start, before anything is listed: until this process has judged the node, both verdicts are Unknown. Raises ApiError."""
    said, now = JUST_STARTED if settings.judges else NOT_JUDGED, wall()
    node = await find(kube, NODES, settings.node)
    if node is not None:
        await unsay(kube, node, settings.driver, said, now=now)
    stored = await find(kube, DRAIN_REPORTS, names.drain_report(settings.node, settings.driver))
    status = report.status_of(stored, node["metadata"]["uid"]) if node is not None else {}
    before = status.get("verdicts")
    if stored is not None and before and any((before.get(key) or {}).get("status") != Status.UNKNOWN for key in ("drain", "retire")):
        await put_status(kube, stored, {**status, **report.verdicts(said, said, before={}, at=timestamps.to_text(now))})
