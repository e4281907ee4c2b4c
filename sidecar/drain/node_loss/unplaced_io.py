"""Has the driver of this node delete volumes without node affinity whose maker is gone, as upstream has any instance do.

What the driver has deleted is remembered here alone: after a restart, or by the next one that looks after gone nodes, it is asked again,
and says that again. What it refuses is told on the PersistentVolume and tried again, each with a back-off of its own. A driver that does
not answer is left alone for a while, for all of them: each try takes as long as a call may, and other nodes' losses wait meanwhile.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sidecar.csi.outcome import Code, DriverError
from sidecar.engine.backoff import Attempts
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.tools import Tools

log = logging.getLogger(__name__)

Still = Callable[[], Awaitable[bool]]
DeleteByDriver = Callable[[Volume, Still], Awaitable[str | None]]
"""Asks the driver, once nothing else keeps the volume and `Still` says yes. Why it is kept; empty: the driver says that it is deleted;
None: it is not as it was judged. Raises ApiError and DriverError."""

NEVER: Final = float("inf")
_SILENT: Final = (Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE)
_DRIVER: Final = ""
"""Beside uids: the driver itself."""


class UnplacedVolumes:
    """`delete`: None where another program provisions, so that this one never deletes."""

    def __init__(self, tools: Tools, delete: DeleteByDriver | None) -> None:
        self._delete = delete
        self._recorder, self._metrics, self._retry, self._clock = tools.recorder, tools.metrics, tools.retry, tools.clock
        self._attempts: Attempts[str] = Attempts()
        self._turns: dict[str, float] = {}
        """By uid: when it is tried again."""
        self._why: dict[str, str] = {}
        self._deleted: set[str] = set()

    def deleted(self, volumes: Iterable[Volume]) -> frozenset[str] | None:
        """Uids of those that the driver has deleted; None: it is never asked."""
        return None if self._delete is None else frozenset(volume.uid for volume in volumes if volume.uid in self._deleted)

    def has_deleted(self, uid: str) -> bool:
        return uid in self._deleted

    def waits(self, uid: str) -> bool:
        return self._turn_of(uid) > self._clock()

    def why(self, uid: str) -> str:
        """Why it was not deleted; empty: it was, or nobody has tried."""
        return self._why.get(uid, "")

    def due_in(self, uids: Iterable[str]) -> float:
        """Seconds until the first of these is tried again."""
        return min((max(0.0, self._turn_of(uid) - self._clock()) for uid in uids if uid in self._turns), default=NEVER)

    def forget(self, uid: str) -> None:
        """Its PersistentVolume is gone, or as good as that."""
        self._deleted.discard(uid)
        self._turns.pop(uid, None)
        self._why.pop(uid, None)
        self._attempts.forget(uid)

    async def delete(self, volume: Volume, still: Still) -> bool:
        """Whether the driver says that it is deleted. It raises nothing."""
        if self._delete is None:
            return False
        try:
            why = await self._delete(volume, still)
        except ApiError as error:
            why = str(error)
        except DriverError as error:
            why = str(error)
            if error.code in _SILENT:
                self._later(_DRIVER)
            else:
                self._heard()
        if why is None:
            return False
        if why:
            self._not_deleted(volume, why)
            return False
        self._heard()
        self.forget(volume.uid)
        self._deleted.add(volume.uid)
        return True

    def _turn_of(self, uid: str) -> float:
        return max(self._turns.get(uid, 0.0), self._turns.get(_DRIVER, 0.0))

    def _later(self, key: str) -> None:
        self._turns[key] = self._clock() + self._retry.delay(self._attempts.next(key))

    def _heard(self) -> None:
        """The driver answers."""
        self.forget(_DRIVER)

    def _not_deleted(self, volume: Volume, why: str) -> None:
        self._later(volume.uid)
        self._why[volume.uid] = why
        self._metrics.delete_failed(volume.class_name)
        text = f"The node that made it is gone, and it was not deleted from here: {why}; it is tried again"
        ref = ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid, volume.resource_version)
        self._recorder.record(ref, names.WARNING, names.VOLUME_FAILED_DELETE, text)
        fields = {"volume": volume.name, "handle": volume.handle, "err": why}
        log.warning("Deleting a volume whose maker is gone failed: tried again later", extra={"fields": fields})
