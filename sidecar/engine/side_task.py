"""Runs what the program can do without. A fault in it must not end what creates and deletes volumes: it is logged and counted, health says
so, and the task is begun again after a pause."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sidecar.engine.backoff import Backoff
from sidecar.engine.health import OK, Degraded, Scope

log = logging.getLogger(__name__)

_PAUSE: Final = Backoff(5.0, 300.0)
_GOOD_FOR: Final = 60.0
"""Seconds without a fault after which all is well again."""


async def keep_running(name: str, run: Callable[[], Coroutine[Any, Any, None]], *, scope: Scope, on_fault: Callable[[str], None]) -> None:
    """Until cancelled, or until it returns."""
    failures = 0
    scope.report(OK())
    while True:
        task = asyncio.create_task(run(), name=name)
        try:
            done, _ = await asyncio.wait({task}, timeout=_GOOD_FOR)
            if not done:
                failures = 0
                scope.report(OK())
            await task
            scope.report(OK())
            return
        except Exception as error:
            log.exception("A side task has failed; it is begun again", extra={"fields": {"task": name}})
            on_fault(name)
            scope.report(Degraded(f"{name} failed: {type(error).__name__}"))
            await asyncio.sleep(_PAUSE.delay(failures))
            failures += 1
        finally:
            task.cancel()
