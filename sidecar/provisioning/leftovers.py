"""Finds the volume of a creation that was begun and has lost its claim, and deletes it.

CreateVolume is idempotent by name, so to ask once more is the one way of finding the volume that every driver has: it answers with
the one that is there, or makes one that is deleted at once. Deleting cannot be taken back; so before each question to the driver
the API server itself is asked whether the volume has found a use after all. Whether it once had one, nobody can be asked: where the
class keeps volumes, and no claim shows that it had none, it is left alone.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.csi.api import Driver
from sidecar.csi.outcome import Done, DriverError, MaybeRunning, NeverSent, NoSpaceHere, Outcome, Refused, of_failure
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi, every, find
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Claim, Volume
from sidecar.provisioning.begun import Begun
from sidecar.provisioning.secrets import SecretRef
from sidecar.provisioning.view import Here
from sidecar.provisioning.volume import is_elsewhere
from sidecar.provisioning.volume_rules import lies_elsewhere

log = logging.getLogger(__name__)

# A driver that says so often, in words that leave a doubt, that there is nothing, is believed.
_MOST_DENIALS: Final = 10

Secrets = Callable[[SecretRef | None], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing is left of it, or it is in use: either way there is no more to do."""

    why: str
    suspected: bool = False
    """Something may be left that this program cannot find."""


@dataclass(frozen=True, slots=True)
class Again:
    """It is not known yet. Asked again with back-off."""

    why: str
    denied: bool = False


class Leftovers:
    def __init__(self, *, here: Callable[[], Here], kube: KubeApi, driver: Driver, secrets: Secrets) -> None:
        self._here = here
        self._kube = kube
        self._driver = driver
        self._secrets = secrets

    async def clear(self, begun: Begun) -> Gone | Again:
        """At most two calls to the driver."""
        try:
            if gone := await self._used(begun):
                return gone
            secrets = await self._secrets(SecretRef(*begun.secret) if begun.secret else None)
            outcome = await self._find(begun, secrets)
            if not isinstance(outcome, Done):
                return _without_volume(begun, outcome, blind=begun.secret is not None and not secrets)
            found = outcome.volume
            if gone := await self._used(begun):
                return gone
            if user := await self.user_of(found.volume_id, elsewhere=is_elsewhere(self._here(), found)):
                return Gone(user)
            await self._driver.delete_volume(outcome.volume.volume_id, secrets=secrets)
        except (ApiError, DriverError) as error:
            return Again(str(error))
        log.info(
            "A volume that had lost its claim was deleted",
            extra={
                "fields": {"claim": begun.full_name, "uid": begun.uid, "volume": begun.request.name, "handle": outcome.volume.volume_id}
            },
        )
        return Gone("its volume was deleted")

    async def user_of(self, handle: str, *, elsewhere: bool = False) -> str:
        """The PersistentVolume of whatever name that leads to this handle; empty when there is none.

        All are looked at, and live: one that was made by hand may have no place, and be in no cache. One on another node counts only
        where the driver said that the volume is `elsewhere`: of many drivers each node has the same handles.
        """
        here = self._here()
        async for obj in every(self._kube, VOLUMES):
            volume = Volume.of(obj)
            reachable = elsewhere or volume.affinity is None or not lies_elsewhere(here, volume)
            if (volume.driver, volume.handle) == (here.driver.name, handle) and reachable:
                return f"PersistentVolume {volume.name} leads to it"
        return ""

    async def _used(self, begun: Begun) -> Gone | None:
        """How the volume is used, may be again, or may have been by somebody who keeps it; None when nobody can have a use for it."""
        here, name = self._here(), begun.request.name
        found = await find(self._kube, VOLUMES, name)
        volume = Volume.of(found) if found else None
        if volume and volume.claim is not None and volume.claim.uid == begun.uid and not lies_elsewhere(here, volume):
            return Gone(f"PersistentVolume {name} is stored")
        found = await find(self._kube, CLAIMS, begun.name, namespace=begun.namespace)
        claim = Claim.of(found) if found else None
        if claim is None or claim.uid != begun.uid:
            kept = begun.inherited and begun.reclaim_policy != "Delete"
            return Gone(f"its class keeps volumes, and PersistentVolume {name} may have come and gone", suspected=True) if kept else None
        if not claim.volume_name and claim.selected_node == here.node:
            return Gone("the claim is this node's again")
        if begun.inherited and claim.volume_name == name and volume is None:
            return Gone(f"the claim is bound to PersistentVolume {name}, which is gone", suspected=True)
        return None

    async def _find(self, begun: Begun, secrets: Mapping[str, str]) -> Outcome:
        try:
            return Done(await self._driver.create_volume(begun.request, secrets=secrets))
        except DriverError as error:
            return of_failure(error, may_reschedule=False)


def _without_volume(begun: Begun, outcome: MaybeRunning | NeverSent | NoSpaceHere | Refused, *, blind: bool) -> Gone | Again:
    """`blind`: the driver was asked without the secret it had been given, so that a refusal may be about that."""
    match outcome:
        case MaybeRunning(why) | NeverSent(why):
            return Again(why)
        case Refused(why, occupied=True) if not blind:
            return Gone(f"something else has its name: {why}", suspected=True)
        case Refused(why, doubtful=doubtful) if (doubtful or blind) and begun.denials + 1 < _MOST_DENIALS:
            return Again(why, denied=True)
        case Refused(why, doubtful=doubtful) if doubtful or blind:
            return Gone(f"the driver has said {_MOST_DENIALS} times that there is nothing: {why}", suspected=True)
        case Refused(why) | NoSpaceHere(why):
            return Gone(f"there is nothing: {why}")
