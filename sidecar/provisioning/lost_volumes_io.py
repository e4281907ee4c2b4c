"""Has this node's driver delete a volume that another node has made, which is gone. That it may be deleted is decided in the drain room;
here is asked what keeps any volume from being deleted, and more strictly: its driver has to take it for the very same one on every node."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sidecar.csi.api import LIST_VOLUMES
from sidecar.csi.outcome import Code, DriverError
from sidecar.deletion.rules import DeletionView, Released
from sidecar.kube.api import CLASSES, find
from sidecar.local.here import Here
from sidecar.model.objects import Class, Volume
from sidecar.provisioning.deletion_io import Deletion
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.secrets import SecretRef, deletion_secret
from sidecar.tools import Tools

LONGEST_LIST: Final = 30.0
"""Seconds that a list may take, page after page: other losses wait to be told meanwhile."""
_MAYBE_ANOTHER: Final = "the driver has a volume of that handle on this node and on no other, which may be another volume"


class _NotNowError(Exception):
    """What the deletion depended on is not so any more."""


class _HereError(Exception):
    """The driver has a volume of that handle here."""


class LostVolumes:
    def __init__(self, tools: Tools, *, here: Callable[[], Here]) -> None:
        self._kube, self._driver = tools.kube, tools.driver
        self._here = here
        self._lookup = Lookups(tools.kube)
        self._deletion = Deletion(here=here, kube=tools.kube, driver=tools.driver, clock=tools.clock)

    async def delete(self, volume: Volume, still: Callable[[], Awaitable[bool]]) -> str | None:
        """Why it is kept; empty: the driver says that it is deleted; None: it is not as it was when that was decided. `still` is asked last
        of all. Raises ApiError and DriverError."""
        secret = deletion_secret(volume, await self._class(volume.class_name))
        if isinstance(secret, Unfit):
            return secret.why

        async def begin(ref: SecretRef | None = secret) -> Mapping[str, str]:
            found = await self._lookup.secret_if_any(ref, about=volume.name)
            # Each time anew: what was made here a moment ago has no PersistentVolume yet that would show it.
            if await self._is_here_alone(volume.handle):
                raise _HereError
            if not await still():
                raise _NotNowError
            return found

        # Any PersistentVolume with this handle uses it, wherever that is.
        view = DeletionView(reason=Released(volume), handle=volume.handle, any_node=True)
        try:
            kept = await self._deletion.delete(view, secrets=begin, name=volume.name)
        except _NotNowError:
            return None
        except _HereError:
            return _MAYBE_ANOTHER
        if kept is not None and kept.outdated:
            return None
        return kept.why if kept is not None else ""

    async def _is_here_alone(self, handle: str) -> bool:
        if LIST_VOLUMES not in self._here().driver.controller:
            return False
        try:
            async with asyncio.timeout(LONGEST_LIST):
                return (await self._driver.list_volumes()).get(handle) is True
        except TimeoutError:
            why = f"ListVolumes was not answered to its end within {LONGEST_LIST:.0f} s"
            raise DriverError(Code.DEADLINE_EXCEEDED, why) from None

    async def _class(self, name: str) -> Class | None:
        found = await find(self._kube, CLASSES, name) if name else None
        return Class.of(found) if found is not None else None
