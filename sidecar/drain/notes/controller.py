"""Writes the notes on the volumes of this node, beside the looks of the drain room: two hundred writes must not keep a gate waiting.

At rest it writes nothing. What is not urgent has a slow rate, so that a node with thousands of volumes floods nobody when it first starts,
and a start is spread, because all nodes of a cluster may start at once. Which machine has a volume is noted here and not by whoever makes
the volume: where a policy refuses the note, as it does while a token names an earlier Node, the note is missing and not the volume.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.watched import Watched
from sidecar.drain.machine_mark import Machine
from sidecar.drain.notes import rules
from sidecar.drain.notes.rules import Ask, Left, Note, NotesView
from sidecar.drain.wording import first_few
from sidecar.engine.backoff import Backoff, jittered
from sidecar.engine.health import OK, Degraded, Stopped
from sidecar.kube.api import MERGE_PATCH, NODES, VOLUMES, find
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.tools import Tools

log = logging.getLogger(__name__)

_ROOM: Final = "notes"
# Seconds between two writes. The client's own limit holds besides: the urgent ones take as much of it as they get.
_PACE: Final = 0.5
_URGENT_PACE: Final = 0.1
_SPREAD: Final = 1.0
# Seconds that a process leaves all but what is urgent alone at its start, at most.
_START: Final = 30.0
# Seconds that changes are gathered; what is announced for the node is not gathered.
_CALM: Final = 5.0
# Seconds for which it counts what the Node itself has said.
_SURE: Final = 5.0
# Seconds for which a refusal counts, what was learnt of another node, and that a watch will show what was written or is newer.
_REFUSED: Final = 600.0
# Refusals in a row that are no matter of one volume any more, and the seconds that nothing is tried then.
_MANY: Final = 3
_A_WHILE: Final = 60.0
_FAILED: Final = Backoff(5.0, 60.0)
_OFF: Final = (
    "volumes get no note of the machine that has them, so that what this node leaves behind if it is gone is told and never cleared up"
)
_REMEDY: Final = "grant patch on persistentvolumes in the ClusterRole of this program's account, and apply the policies of this version"


class Notes:
    """One per process. `run` works until cancelled; the rest tells it that something has changed."""

    def __init__(
        self,
        tools: Tools,
        *,
        node: str,
        driver: str,
        identity: str,
        watched: Watched,
        signals: Callable[[], Signals | None],
        leaves: Callable[[Node], bool],
        writes: bool = True,
    ) -> None:
        """`leaves`: whether this Node, as it was read just now, is announced to go for good. `writes`: as `NotesView.writes`."""
        self._kube, self._clock, self._rng, self._narrator = tools.kube, tools.clock, tools.rng, tools.narrator
        self._scope = tools.health.scope(_ROOM, gates_ready=False)
        self._node, self._driver, self._identity = node, driver, identity
        self._watched = watched
        self._signals, self._leaves, self._writes = signals, leaves, writes
        self._changed, self._announced = asyncio.Event(), asyncio.Event()
        self._calm_from = tools.clock() + _START * tools.rng()
        self._stopped_until = 0.0
        self._failures = 0
        self._refused: dict[str, float] = {}
        """By uid of a volume whose note was refused: until when it is left alone."""
        self._in_a_row = 0
        self._written: dict[str, tuple[str, float]] = {}
        """By uid: the version of a volume that has been written over, or is not the newest, and until when it is left alone if no watch
        shows another: after a restore from a backup the API server may have that very version again."""
        self._known: dict[str, tuple[float, bool]] = {}
        """By name of another node: until when it counts whether it exists."""
        self._left: frozenset[str] = frozenset()
        self._sure_until = 0.0
        """Until when it counts that the Node itself says it is leaving."""

    def volumes_changed(self) -> None:
        self._changed.set()

    def node_changed(self) -> None:
        self._sure_until = 0.0
        self._changed.set()
        self._announced.set()

    async def run(self) -> None:
        while True:
            view = self._view()
            pause = _A_WHILE if view is None else await self._pass(view)
            await self._wait(pause, before=view)

    async def _wait(self, seconds: float, *, before: NotesView | None) -> None:
        await _first_of(self._changed, seconds)
        self._changed.clear()
        self._announced.clear()
        after = self._view()
        if before is not None and after is not None and after.leaving == before.leaving:
            await _first_of(self._announced, _CALM)

    # --- one pass over all volumes ------------------------------------------------------------------------------------

    async def _pass(self, view: NotesView) -> float:
        """Seconds until the next one at the latest."""
        if (wait := self._stopped_until - self._clock()) > 0:
            return wait
        decided = [(volume, rules.decide(volume, view)) for volume in self._volumes()]
        self._tell(volume.name for volume, decision in decided if isinstance(decision, Left))
        notes = [note for _, note in decided if isinstance(note, Note)]
        due = sorted((note for note in notes if not self._is_settled(note.volume)), key=lambda note: note.turn)
        left_alone = [until for note in notes if (until := self._settled_until(note.volume)) is not None]
        asked = sorted({decision.node for _, decision in decided if isinstance(decision, Ask)})
        try:
            wait = await self._write_all(due, view)
            for name in asked:
                self._known[name] = self._clock() + _REFUSED, await find(self._kube, NODES, name) is not None
        except ApiError as error:
            wait = _FAILED.delay(self._failures)
            self._failures += 1
            self._stopped_until = self._clock() + wait
            log.warning("Notes on volumes could not be written", extra={"fields": {"err": str(error), "again_in": f"{wait:.0f}s"}})
            self._scope.report(Degraded(error.shown))
            return wait
        self._failures = 0
        return min([wait, *(max(0.0, until - self._clock()) for until in left_alone)]) if due or not asked else 0.0

    async def _write_all(self, due: Iterable[Note], view: NotesView) -> float:
        """Seconds until the next pass. It ends where something else is urgent now."""
        wait = _REFUSED
        for note in due:
            now = self._view()
            if now is None or (now.leaving, now.machine) != (view.leaving, view.machine):
                return 0.0
            if not note.urgent and (spread := self._calm_from - self._clock()) > 0:
                return spread
            if note.announces and not await self._is_leaving(now.machine):
                return _CALM
            await self._write(note.volume)
            if (stopped := self._stopped_until - self._clock()) > 0:
                return stopped
            await asyncio.sleep(_URGENT_PACE if note.urgent else jittered(_PACE, self._rng, spread=_SPREAD))
            wait = 0.0
        return wait

    async def _is_leaving(self, machine: Machine) -> bool:
        """By the Node itself: after an outage of the API server, what a watch has shown may have been undone long ago."""
        if self._clock() < self._sure_until:
            return True
        obj = await find(self._kube, NODES, self._node)
        node = Node.of(obj) if obj is not None else None
        sure = node is not None and node.uid == machine.uid and self._leaves(node)
        self._sure_until = self._clock() + _SURE if sure else 0.0
        return sure

    def _volumes(self) -> list[Volume]:
        """Those that lie here or may, and those of other nodes' names that the driver has here."""
        watched = self._watched.volumes.values()
        known = {volume.uid for volume in watched}
        found = [*watched, *(volume for volume in self._watched.listed().volumes if volume.uid not in known)]
        there = {volume.uid: volume.resource_version for volume in found}
        now = self._clock()
        self._written = {uid: item for uid, item in self._written.items() if there.get(uid) == item[0] and item[1] > now}
        self._refused = {uid: until for uid, until in self._refused.items() if uid in there and until > now}
        return found

    def _is_settled(self, volume: Volume) -> bool:
        """It was written in this version, or its note was refused, a while ago."""
        return self._settled_until(volume) is not None

    def _settled_until(self, volume: Volume) -> float | None:
        """By the clock; None: it may be written."""
        version, until = self._written.get(volume.uid, (None, 0.0))
        return until if version == volume.resource_version else self._refused.get(volume.uid)

    def _view(self) -> NotesView | None:
        """None: there is no Node, or nobody has heard of it yet."""
        signals, node, now = self._signals(), self._watched.nodes.get(self._node), self._clock()
        if signals is None or node is None or signals.uid != node.uid:
            return None
        return NotesView(
            machine=Machine(node.name, node.uid),
            since=node.created,
            driver=self._driver,
            identity=self._identity,
            leaving=signals.leaving,
            listed=self._watched.listed(),
            writes=self._writes,
            names_this_node=any(value == node.name for _, value in self._watched.segment.pairs),
            known={name: exists for name, (until, exists) in self._known.items() if until > now},
        )

    # --- one note -----------------------------------------------------------------------------------------------------

    async def _write(self, seen: Volume) -> None:
        """Decided anew on what is known now: other notes were written before it, which takes its time."""
        view, volume = self._view(), self._watched.volumes.get(seen.name) or seen
        if view is None or volume.uid != seen.uid or self._is_settled(volume):
            return
        note = rules.decide(volume, view)
        if not isinstance(note, Note):
            return
        self._narrator.note(_ROOM, volume.uid, volume.name, note)
        try:
            await self._kube.patch(VOLUMES, volume.name, rules.patch(note), content_type=MERGE_PATCH)
        except (Conflict, NotFound):
            self._settle(volume)
        except Forbidden as error:
            self._stop(_REFUSED, str(error))
        except Invalid as error:
            self._refuse(volume, str(error))
        else:
            self._settle(volume)
            self._in_a_row = 0
            self._scope.report(OK())

    def _settle(self, volume: Volume) -> None:
        self._written[volume.uid] = volume.resource_version, self._clock() + _REFUSED

    def _refuse(self, volume: Volume, why: str) -> None:
        """By a policy, which may be about this volume alone."""
        self._refused[volume.uid] = self._clock() + _REFUSED
        self._in_a_row += 1
        if self._in_a_row >= _MANY:
            self._stop(_A_WHILE, why)
        else:
            log.info("A note on a volume was refused", extra={"fields": {"volume": volume.name, "err": why}})

    def _stop(self, seconds: float, why: str) -> None:
        """Told once, for as long as it stays so."""
        self._stopped_until, self._in_a_row = self._clock() + seconds, 0
        state = Stopped(f"{_OFF}; {_REMEDY}")
        if self._scope.state != state:
            log.warning("Notes on volumes may not be written", extra={"fields": {"off": _OFF, "remedy": _REMEDY, "err": why}})
            self._scope.report(state)

    def _tell(self, left: Iterable[str]) -> None:
        found = frozenset(left)
        if found - self._left:
            fields = {"node": self._node, "volumes": first_few(sorted(found))}
            log.warning("Volumes of this node are noted as another machine's, and stay so", extra={"fields": fields})
        self._left = found


async def _first_of(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
