"""Takes off volumes that their machine was announced to go, while the driver has not said its name: an undo must not wait for a driver.

Without that a node whose driver is dead, and whose sidecar has started since, would keep the announcement on its volumes after people have
taken it back, and others would delete what it has if it is lost then. Only this is written here: what volumes lie on a machine, and that
it is leaving, is noted once the driver answers (`controller`).

A list of all PersistentVolumes is dear, and a driver that starts beside this process answers within seconds. So they are listed after a
while, and again only where the Node has been announced meanwhile, or after a long time, because a cache may have been old.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sidecar.drain.facts import node_marks
from sidecar.drain.facts.driver_list import NOTHING_LISTED
from sidecar.drain.machine_mark import Machine
from sidecar.drain.notes import rules
from sidecar.drain.notes.rules import Note, NotesView
from sidecar.drain.settings import Settings
from sidecar.engine.backoff import jittered
from sidecar.kube.api import MERGE_PATCH, NODES, VOLUMES, KubeApi, find, records
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from sidecar.model.nodes import Node
from sidecar.model.objects import Json, Volume

log = logging.getLogger(__name__)

EVERY: Final = 30.0
"""Seconds between two looks at the Node."""
LISTED_EVERY: Final = 600.0
"""Seconds between two lists of volumes of which none bore an announcement that had to be taken off."""
_SPREAD: Final = 0.5
# Seconds between two writes.
_PACE: Final = 0.1


class EarlyUndo:
    """For the driver of `settings`, which was served last. `run` as a task; `look` once where the process ends before that has begun."""

    def __init__(
        self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float], rng: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._clock, self._wall = clock, wall
        self._rng = rng
        self._over = settings.dry_run or not settings.provisions
        self._clear_until = float("-inf")
        """Until when it counts that no volume bears an announcement of this node: nobody else writes one."""
        self._failure = ""

    async def run(self) -> None:
        """Until cancelled: somebody may undo at any time what was announced."""
        while not self._over:
            await asyncio.sleep(jittered(EVERY, self._rng, spread=_SPREAD))
            await self.look()

    async def look(self) -> None:
        """It raises nothing."""
        if self._over:
            return
        try:
            failure = await self._look()
        except ApiError as error:
            failure = str(error)
        if failure and not self._failure:
            log.warning("That this node was announced to go could not be taken off its volumes yet", extra={"fields": {"err": failure}})
        self._failure = failure

    async def _look(self) -> str:
        """What failed."""
        found = await find(self._kube, NODES, self._settings.node)
        node = Node.of(found) if found is not None else None
        if node is None:
            return ""
        if self._leaves(node):
            self._clear_until = float("-inf")
            return ""
        return "" if self._clock() < self._clear_until else await self._take_off(node)

    def _leaves(self, node: Node) -> bool:
        settings = self._settings
        return settings.judges and node_marks.read(node, settings.driver, now=self._wall(), default_policy=settings.policy).leaving

    async def _take_off(self, node: Node) -> str:
        view = NotesView(
            machine=Machine(node.name, node.uid),
            since="",
            driver=self._settings.driver,
            identity="",
            leaving=False,
            listed=NOTHING_LISTED,
            names_this_node=False,
            writes=False,
        )

        def due(obj: Json) -> Note | None:
            decision = rules.decide(Volume.of(obj), view)
            return decision if isinstance(decision, Note) else None

        notes = [note async for note in records(self._kube, VOLUMES, due, cached=True)]
        failure = ""
        for note in notes:
            try:
                await self._kube.patch(VOLUMES, note.volume.name, rules.patch(note), content_type=MERGE_PATCH)
            except NotFound:
                continue
            except (Conflict, Forbidden, Invalid) as error:
                failure = f"PersistentVolume {note.volume.name}: {error}"  # the others have their turn all the same
            await asyncio.sleep(_PACE)
        if notes:
            fields = {"node": node.name, "volumes": len(notes)}
            log.info("Taken off volumes that this node goes, before its driver answers: nobody says so any more", extra={"fields": fields})
        if not failure:
            self._clear_until = self._clock() + LISTED_EVERY
        return failure
