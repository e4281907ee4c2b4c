"""Finds the volume of a begun creation whose claim no longer needs it, and deletes the volume. What may be deleted: `deletion.rules`.

CreateVolume is idempotent by name, so calling it again is the one way to find the volume with every driver: the driver returns the
volume that exists, or creates one that is deleted at once. The rules are asked twice: before the driver may create anything, and
again before it deletes anything.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from sidecar.csi.api import Driver
from sidecar.csi.outcome import Done, DriverError, MaybeRunning, NeverSent, NoSpaceHere, NotSent, Outcome, Refused, of_failure
from sidecar.deletion.rules import Delete, DeletionView, Keep, Need, Orphaned
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.local.here import Here
from sidecar.provisioning.creations.confirmation import on_file
from sidecar.provisioning.creations.confirming_io import Confirming
from sidecar.provisioning.creations.creation_record import CreationRecord, OpenCall
from sidecar.provisioning.deletion_io import Secrets as ReadSecrets
from sidecar.provisioning.requests.secrets import SecretRef
from sidecar.provisioning.requests.volume import is_elsewhere

log = logging.getLogger(__name__)

# Some refusals do not prove that there is no volume. After this many of them the driver is believed, so that the retries end; a leak
# is then suspected.
_MOST_DENIALS: Final = 10

Secrets = Callable[[SecretRef | None], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Settled:
    """The creation needs no more work: nothing is left of it, or its volume is in use."""

    why: str
    suspected: bool = False
    """A volume may be left that this program cannot find."""


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The outcome is not known yet. The caller tries again, with back-off."""

    why: str
    denied: bool = False
    open_call: OpenCall | None = None
    """What this answer leaves of `CreationRecord.open_call`; None: it says nothing of that."""
    in_vain: bool = False
    """The driver was asked, or could have been, and the volume can be neither found nor deleted."""
    otherwise: bool = False
    """There is nothing of what the driver was asked for, and it was asked otherwise before."""


class Deletion(Protocol):
    """As `deletion_io.Deletion`; that the deletion of a claim's volume was begun is written down first."""

    async def judge(self, view: DeletionView, *, name: str, claim: tuple[str, str]) -> Delete | Keep | Need: ...

    async def delete(
        self, uid: str, view: DeletionView, *, secrets: ReadSecrets, name: str = "", claim: tuple[str, str] = ("", "")
    ) -> Keep | None: ...


class OrphanCleanup:
    def __init__(
        self,
        *,
        here: Callable[[], Here],
        driver: Driver,
        deletion: Deletion,
        secrets: Secrets,
        confirming: Confirming,
        seeks: Callable[[str], Awaitable[None]],
        shown: Callable[[str], str],
        sent_until: Callable[[str], float],
        clock: Callable[[], float],
    ) -> None:
        """`seeks` writes down, of a claim's uid, that the driver is about to be asked; `shown` says which handle its PersistentVolume has
        had since; `sent_until` until when one that was sent may still arrive."""
        self._seeks = seeks
        self._shown = shown
        self._sent_until = sent_until
        self._clock = clock
        self._here = here
        self._driver = driver
        self._deletion = deletion
        self._secrets = secrets
        self._confirming = confirming

    async def clear(self, record: CreationRecord) -> Settled | AskAgain:
        """Looks for the volume and deletes it if the rules allow that. Calls the driver at most twice: to find, and to delete."""
        found = await self._clear(record)
        if isinstance(found, Settled):
            self._confirming.over(record.uid)
        return found

    async def _clear(self, record: CreationRecord) -> Settled | AskAgain:
        if why := self._confirming.foreign(record):
            return Settled(why, suspected=True)
        name, claim = record.request.name, (record.namespace, record.name)
        try:
            confirmed = await self._confirming.ask(record)
            record = confirmed.record
            view = DeletionView(reason=self._orphaned(record))
            verdict = await self._deletion.judge(view, name=name, claim=claim)
            if isinstance(verdict, Keep):
                return _kept(verdict)
            self._confirming.tell(confirmed)
            secrets = await self._secrets(confirmed.secret)
            await self._seeks(record.uid)
            outcome = await self._find(record, secrets)
            if not isinstance(outcome, Done):
                open_call = record.denied(self._clock(), self._here().options.driver_timeout)
                found = _without_volume(record, outcome, blind=record.secret is not None and not secrets, open_call=open_call)
                return AskAgain(found.why, otherwise=True) if isinstance(found, Settled) and record.earlier else found
            # The call to the driver may have taken long, and a PersistentVolume may have been stored meanwhile. So `delete` judges again,
            # from what is true now.
            made = outcome.volume
            record = replace(record, seeks=True, shown=self._shown(record.uid))
            view = replace(view, reason=self._orphaned(record), handle=made.volume_id, any_node=is_elsewhere(self._here(), made))
            if kept := await self._deletion.delete(record.uid, view, secrets=_known(secrets), name=name, claim=claim):
                return _kept(kept)
        except (ApiError, DriverError) as error:
            return AskAgain(str(error), in_vain=not isinstance(error, NotSent | Unavailable))
        log.info(
            "A volume that had lost its claim was deleted",
            extra={"fields": {"claim": record.full_name, "uid": record.uid, "volume": record.request.name, "handle": made.volume_id}},
        )
        return Settled("its volume was deleted")

    async def _find(self, record: CreationRecord, secrets: Mapping[str, str]) -> Outcome:
        try:
            return Done(await self._driver.create_volume(record.request, secrets=secrets))
        except DriverError as error:
            return of_failure(error, may_reschedule=False)

    def _orphaned(self, record: CreationRecord) -> Orphaned:
        here = self._here()
        return Orphaned(
            here.node,
            record.uid,
            record.request.name,
            record.reclaim_policy,
            inherited=record.inherited,
            on_file=on_file(record),
            unproven=record.unproven,
            renamed=record.is_renamed(here),
            sought=record.seeks,
            shown=record.shown,
            sent=self._clock() < self._sent_until(record.uid),
        )


def _kept(kept: Keep) -> Settled | AskAgain:
    """A claim that has come back may be gone again before any watch shows it here, so its creation is not over."""
    return AskAgain(kept.why) if kept.outdated else Settled(kept.why, kept.suspected)


def _known(secrets: Mapping[str, str]) -> Callable[[], Awaitable[Mapping[str, str]]]:
    async def read() -> Mapping[str, str]:
        return secrets

    return read


def _without_volume(
    record: CreationRecord, outcome: MaybeRunning | NeverSent | NoSpaceHere | Refused, *, blind: bool, open_call: OpenCall | None
) -> Settled | AskAgain:
    """What a creation without a volume in the answer means.

    `blind`: the first call had a secret and this one had none, so the refusal may be about the missing secret and proves nothing.
    `open_call`: what is left of the record's if the driver says that there is no volume.
    """
    match outcome:
        case NeverSent(why):
            return AskAgain(why)
        case MaybeRunning(why):
            return AskAgain(why, open_call=OpenCall(), in_vain=True)
        case Refused(why, occupied=True) if not blind:
            return Settled(f"something else has its name: {why}", suspected=True)
        case Refused(why, doubtful=doubtful) if (doubtful or blind) and record.denials + 1 < _MOST_DENIALS:
            return AskAgain(why, denied=True, open_call=OpenCall() if doubtful else None)
        case Refused(why, doubtful=doubtful) if doubtful or blind:
            return Settled(f"the driver has said {_MOST_DENIALS} times that there is nothing: {why}", suspected=True)
        case Refused(why) | NoSpaceHere(why) if open_call is not None:
            return AskAgain(f"{why}; an earlier call may still make the volume", open_call=open_call)
        case Refused(why) | NoSpaceHere(why):
            return Settled(f"there is nothing: {why}")
