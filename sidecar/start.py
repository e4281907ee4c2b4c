"""Chooses what the flags ask for, `wiring` or `report_only`, loads it and makes it; and looks after what was said of the node before the
driver answers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from sidecar import settings
from sidecar.config.config import Config
from sidecar.doors import Instruments, Opened, former_journal_folder, journal_folder
from sidecar.kube.api import KubeApi

if TYPE_CHECKING:
    from sidecar.drain.publish.last_served_io import LastServed
    from sidecar.report_only import ReportOnly
    from sidecar.wiring import Sidecar

# In which what was said before may still be taken back, when the process ends without having met its driver.
_LAST_WORDS_SECONDS: Final = 5.0


def assemble(opened: Opened) -> "Sidecar | ReportOnly":
    """Everything together, once the driver has said who it is."""
    if not opened.config.provisioning:
        from sidecar.provisioning.left_alone_io import JournalFiles
        from sidecar.report_only import ReportOnly

        journals = JournalFiles(journal_folder(opened.config), former=former_journal_folder(opened.config))
        return ReportOnly(opened.config, opened.doors(), opened.tools, recorder=opened.recorder(), journals=journals)
    from sidecar.wiring import Sidecar

    return Sidecar(opened.config, opened.doors(), opened.tools, recorder=opened.recorder(), asks_rights=not opened.config.dry_run)


def load_rooms(config: Config) -> None:
    """Imports what these flags need and others do not, before there is an event loop: it would stand still for as long."""
    if config.kubeconfig:
        from sidecar.kube import kubeconfig  # noqa: F401
    if settings.drains(config):
        from sidecar.drain import watches  # noqa: F401
        from sidecar.drain.notes import early_undo_io  # noqa: F401
        from sidecar.drain.publish import last_served_io, withdrawal_io  # noqa: F401
    if config.provisioning:
        from sidecar import wiring  # noqa: F401
    else:
        from sidecar import report_only  # noqa: F401
        from sidecar.provisioning import left_alone_io  # noqa: F401
    if config.drain_gate:
        from sidecar.drain.gate import takeover_io  # noqa: F401
    if config.node_delete_policy:
        from sidecar.drain.node_loss import controller  # noqa: F401


@asynccontextmanager
async def before_the_driver(
    config: Config, kube: KubeApi, instruments: Instruments, last_served: "Callable[[], LastServed]"
) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """While the driver has not said its name: takes back what was said of this node for the driver that was served last.

    Yields what is to be told the name, before anything is said for that driver. Its own words are then taken back by `Sidecar`.
    """
    if not settings.drains(config):
        yield _nobody_asks
        return
    from sidecar.drain.notes.early_undo_io import EarlyUndo
    from sidecar.drain.publish.withdrawal_io import Withdrawal

    memory = last_served()
    former = await memory.read()
    async with asyncio.TaskGroup() as group:
        drain = settings.drain(config, former)
        withdrawal = Withdrawal(kube, drain, retry=settings.retry(config), wall=instruments.wall)
        task = group.create_task(withdrawal.run(), name="what was said for the driver before") if former else None
        undo = EarlyUndo(kube, drain, clock=instruments.clock, wall=instruments.wall, rng=instruments.rng)
        undoing = group.create_task(undo.run(), name="what was announced for the driver before") if former else None

        met = False

        async def meet(driver: str) -> None:
            nonlocal met
            met = True
            for each in (task, undoing) if driver == former else ():
                if each is not None:
                    each.cancel()
            await memory.write(driver)

        try:
            yield meet
        finally:
            if task is not None and undoing is not None:
                undoing.cancel()
                if not met:
                    # A driver that fails at once ends each process within milliseconds, and no later one would have more time.
                    # Not of the group: that takes no task any more where an error ends this.
                    last = asyncio.create_task(undo.look(), name="what was announced for the driver before, once")
                    await asyncio.wait((task, last), timeout=_LAST_WORDS_SECONDS)
                    last.cancel()
                    await asyncio.gather(last, return_exceptions=True)
                task.cancel()


async def _nobody_asks(driver: str) -> None:
    """No drain decisions, no words that would have to be taken back."""
