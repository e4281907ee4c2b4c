"""Starts the room: queues for claims and volumes, what wakes them, and the tasks beside them. `wiring` holds one of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from sidecar.csi.api import CREATE_DELETE_SNAPSHOT, CapacityAnswer
from sidecar.engine.loop import Loop
from sidecar.kube.api import ATTACHMENTS, CLAIMS, Resource
from sidecar.local.caches import Caches
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.here import Here
from sidecar.local.watch import Watch
from sidecar.model.objects import Volume
from sidecar.model.standing import Standing
from sidecar.ownership.controller import Contenders
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.provisioning.controller import Provisioner
from sidecar.provisioning.creations.journal import Journal
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.sweep import SnapshotSweep
from sidecar.provisioning.watches import ProvisioningWatches, attachments_known
from sidecar.rights.rights import FinalizerWrites
from sidecar.tools import MakeLoop, Tools

_TAKE_OVER_SECONDS: Final = 60.0


class ProvisioningPart:
    """`background` runs from the start, `run` once the caches are complete and `take_over` is done."""

    def __init__(
        self,
        tools: Tools,
        *,
        here: Callable[[], Here],
        caches: Caches,
        space: ReservedSpace,
        contenders: Contenders | None,
        hearing: ClaimHearing | None,
        journal: Journal,
        standing: Callable[[], Standing],
        has_synced: Callable[[Resource], bool],
        hears: Callable[[Resource], bool],
        watched: Callable[[Resource], str],
        threads: int,
        sweep_interval: float,
        make_loop: MakeLoop,
        finalizers: Callable[[], FinalizerWrites],
        on_forbidden: Callable[[], None],
    ) -> None:
        self._tools, self._here = tools, here
        self._contenders = contenders
        self._table = ProgressTable()
        self._sweep = _make_sweep(tools, here, sweep_interval)
        self.room = Provisioner(
            tools,
            here=here,
            caches=caches,
            space=space,
            attachments_known=lambda: attachments_known(tools.driver.info, synced=has_synced(ATTACHMENTS)),
            table=self._table,
            contenders=contenders,
            hearing=lambda: hears(CLAIMS),
            watched=lambda: watched(CLAIMS) if hears(CLAIMS) else "",
            journal=journal,
            standing=standing,
            finalizers=finalizers,
            on_forbidden=on_forbidden,
            snapshot_protected=self._sweep.protected if self._sweep else lambda: None,
        )
        room = self.room
        self.claims = make_loop(
            "claims",
            room.handle_claim,
            workers=threads,
            attempts=room.claim_attempts,
            glance=room.glance_at_claim,
            party_of=room.namespace_of,
        )
        removal = room.removal
        self.volumes = make_loop(
            "volumes",
            removal.handle,
            workers=threads,
            attempts=removal.attempts,
            glance=removal.glance,
            party_of=removal.namespace_of,
        )
        self._watches = ProvisioningWatches(
            here=here,
            caches=caches,
            concerns=room.concerns,
            volume_gone=room.volume_gone,
            volume_seen=self._table.seen,
            volumes_listed=room.volumes_listed,
            volume_not_kept=room.removal.unowned.noticed,
            promise_changed=space.promise_changed,
            claim_seen=hearing.seen if hearing else lambda _: None,
            claim_selectors=hearing.selectors() if hearing else (),
            may_have_begun=self._table.may_have_begun,
            wake_claim=self.claims.add,
            wake_volume=self.volumes.add,
            wake_volume_at=self.volumes.add,
        )
        tools.metrics.watch_claims_in_progress(self._table.in_progress)
        tools.metrics.watch_unsaved_volumes(self._table.unsaved)

    @property
    def loops(self) -> list[Loop[str]]:
        return [self.claims, self.volumes]

    def watches(self) -> list[Watch[Any]]:
        return self._watches.watches()

    def background(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Tasks by name that need no caches."""
        found = {"snapshots": self._sweep, "contenders": self._contenders}
        return {name: self._tools.keep_running("provisioning", name, task.run) for name, task in found.items() if task is not None}

    async def take_over(self) -> None:
        """Before any claim is looked at: a process before this one may have begun what a look would not see."""
        self._look_at(await self.room.take_over())

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tools.keep_running("provisioning", "journal", self.look_for_what_no_event_tells), name="journal")
            group.create_task(self.claims.run(), name="claims")
            group.create_task(self.volumes.run(), name="volumes")

    async def look_for_what_no_event_tells(self) -> None:
        """With maxSurge an older process runs beside this one for a while, and may leave creations behind when it ends. And what was stored
        may have gone before any watch showed it."""
        while True:
            await asyncio.sleep(_TAKE_OVER_SECONDS)
            await self.take_over()
            self._look_at(self.room.doubtful())

    def lost_volumes(self) -> Callable[[Volume, Callable[[], Awaitable[bool]]], Awaitable[str | None]]:
        """What has the driver delete a volume whose maker is gone. Imports inside, as few processes have a use for it."""
        from sidecar.provisioning.lost_volumes_io import LostVolumes

        return LostVolumes(self._tools, here=self._here).delete

    # --- what wakes claims, beside changes of objects -------------------------------------------------------------------

    def under_way(self) -> list[str]:
        """Claims for which something is under way here, of whatever kind."""
        return self._table.under_way()

    def wake_all(self) -> None:
        """The driver is back, so what waited for it is tried again at once and not only after its pause."""
        self._watches.wake_claims(self._table.under_way())
        self._watches.wake_volumes()

    def standing_changed(self) -> None:
        """Claims that wait are decided again."""
        self._watches.wake_claims()

    def finalizers_changed(self) -> None:
        """They can be written now where they could not be, or the other way round."""
        self._watches.wake_volumes()

    def space_grew(self, classes: frozenset[str], answer: CapacityAnswer, promised: int) -> None:
        """Claims that found no space are looked at now, not at the end of their delay."""
        for uid, at in self.room.room_grew(classes, answer, promised):
            self.claims.add(uid, at)

    def order_known(self) -> None:
        """Claims that came before the contenders were known need not wait for the end of a delay drawn by chance."""
        self._look_at(self.room.blind_races())

    def _look_at(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.claims.add(uid)


def _make_sweep(tools: Tools, here: Callable[[], Here], interval: float) -> SnapshotSweep | None:
    if interval <= 0 or tools.dry_run:
        return None
    driver = tools.driver.info.name
    return SnapshotSweep(tools, driver=driver, interval=interval, able=lambda: CREATE_DELETE_SNAPSHOT in here().driver.controller)
