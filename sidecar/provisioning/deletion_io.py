"""Has the driver delete a volume: the only file that calls DeleteVolume. Whether it may be deleted: `deletion.rules`.

It asks the API server for what the rule needs, and returns the rule's word if that is to keep the volume.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, assert_never

from sidecar.csi.api import Driver
from sidecar.deletion.rules import Delete, DeletionView, Fact, Found, Keep, Need, Released, may_delete
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi, find, records
from sidecar.kube.errors import ApiError
from sidecar.local.here import Here
from sidecar.local.volume_location import heard_volumes, lies_elsewhere, was_made_here
from sidecar.model.objects import Claim, Json, Volume
from sidecar.provisioning.needs import text
from sidecar.provisioning.progress import mark

# No driver is asked to create and to delete more volumes than this at the same time.
_MOST_ENDED: Final = 1000
# After so many seconds a PersistentVolume is read once more before its volume is deleted.
_A_MOMENT: Final = 1.0

Secrets = Callable[[], Awaitable[Mapping[str, str]]]


class Deletion:
    """`judge` and `delete` raise ApiError when a fact cannot be had, `delete` also DriverError. Then nothing is known to be deleted."""

    def __init__(
        self,
        *,
        here: Callable[[], Here],
        kube: KubeApi,
        driver: Driver,
        clock: Callable[[], float] = lambda: 0.0,
        held: Callable[[str], Iterable[Volume]] = lambda handle: (),
    ) -> None:
        """`held` are the volumes with a handle that the cache shows, whatever their labels are."""
        self._here = here
        self._kube = kube
        self._driver = driver
        self._clock = clock
        self._held = held
        self._users = HandleUsers(here=here, kube=kube)
        self._users_heard = HandleUsers(here=here, kube=kube, selectors=_heard_first_without_label)
        self._ended: dict[bytes, float] = {}
        """When the latest deletions ended."""

    async def judge(self, view: DeletionView, *, name: str, claim: tuple[str, str]) -> Delete | Keep | Need:
        """`name` is the PersistentVolume's, `claim` the claim's namespace and name. A need that is left is for the handle, which only
        the driver can tell."""
        while isinstance(verdict := may_delete(view), Need) and verdict.fact is not Fact.HANDLE:
            match verdict.fact:
                case Fact.VOLUME:
                    view = replace(view, volume=await self._volume(name))
                case Fact.CLAIM:
                    found = await find(self._kube, CLAIMS, claim[1], namespace=claim[0])
                    view = replace(view, claim=Claim.of(found) if found else None)
                case Fact.USERS:
                    view = replace(view, users=await self._users_of(view))
                case _:
                    assert_never(verdict.fact)
        return verdict

    async def delete(self, view: DeletionView, *, secrets: Secrets, name: str = "", claim: tuple[str, str] = ("", "")) -> Keep | None:
        """None: the driver has deleted it. `secrets` are read once it is known that they are needed."""
        verdict = await self.judge(view, name=name, claim=claim)
        if not isinstance(verdict, Delete):
            return verdict if isinstance(verdict, Keep) else Keep("the driver's handle of it is not known")
        judged = self._clock()
        given = await secrets()
        if isinstance(view.reason, Released) and self._clock() - judged > _A_MOMENT:
            # To read the Secret has waited, for the rate limit or the server, and somebody may have decided to keep the volume since.
            verdict = may_delete(replace(view, users=(), volume=await self._volume(name)))
            if isinstance(verdict, Keep):
                return verdict
        await self._driver.delete_volume(view.handle, secrets=given)
        self._ended[mark(view.handle)] = self._clock()
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        return None

    def ended_since(self, handle: str, at: float) -> bool:
        """Whether the driver has deleted that volume since then."""
        ended = self._ended.get(mark(handle))
        return ended is not None and ended > at

    async def _users_of(self, view: DeletionView) -> tuple[Found, ...]:
        """Of a released volume the rule leaves aside what lies on another node. To leave that out of the list too makes a deletion cost the
        same in a cluster of any size."""
        if not isinstance(view.reason, Released) or view.any_node or not self._here().with_topology:
            return await self._users.of(view.handle)
        found = await self._users_heard.of(view.handle)
        known = {item.volume.name for item in found}
        others = [await self._volume(held.name) for held in self._held(view.handle) if held.name not in known]
        return found + tuple(other for other in others if other is not None and other.volume.handle == view.handle)

    async def _volume(self, name: str) -> Found | None:
        found = await find(self._kube, VOLUMES, name)
        return _found(self._here(), Volume.of(found)) if found else None


class HandleUsers:
    """Which PersistentVolumes of this driver have a handle, as the API server has them.

    It can be asked for all of them, or for those with a label, but not for those with a handle, and a node may delete hundreds of volumes
    at once. So one list answers everybody who asked before it began. Who asks later waits for the next one: the list may have passed the
    volume in question by then. A list that fails fails them all, for an API server that cannot answer one list must not be sent hundreds.
    """

    def __init__(self, *, here: Callable[[], Here], kube: KubeApi, selectors: Callable[[Here], Sequence[str]] = lambda here: ("",)) -> None:
        """By `selectors` are listed, one after another, those among which a user is looked for."""
        self._here = here
        self._kube = kube
        self._selectors = selectors
        self._turn = asyncio.Lock()
        self._questions = 0
        self._open: dict[int, str] = {}
        """By question: the handle."""
        self._answers: dict[int, tuple[Found, ...] | ApiError] = {}

    async def of(self, handle: str) -> tuple[Found, ...]:
        self._questions += 1
        question = self._questions
        self._open[question] = handle
        try:
            async with self._turn:
                if question not in self._answers:
                    await self._answer_all()
                answer = self._answers[question]
        finally:
            self._open.pop(question, None)
            self._answers.pop(question, None)
        if isinstance(answer, ApiError):
            raise answer.with_traceback(None)  # else each who raises it lengthens its traceback
        return answer

    async def _answer_all(self) -> None:
        asked = dict(self._open)
        found = await self._list(frozenset(asked.values()))
        answers = {question: found if isinstance(found, ApiError) else tuple(found[handle]) for question, handle in asked.items()}
        self._answers |= {question: answer for question, answer in answers.items() if question in self._open}

    async def _list(self, handles: frozenset[str]) -> Mapping[str, list[Found]] | ApiError:
        here = self._here()
        found: dict[str, list[Found]] = {handle: [] for handle in handles}
        try:
            for selector in self._selectors(here):
                wanted = records(
                    self._kube,
                    VOLUMES,
                    lambda obj: Volume.of(obj) if _handle_of(obj, here.driver.name) in found else None,
                    label_selector=selector,
                )
                async for volume in wanted:
                    found[volume.handle].append(_found(here, volume))
        except ApiError as error:
            return error
        return found


def _heard_first_without_label(here: Here) -> tuple[str, ...]:
    """In this order, because a label is put on: what has none in the first list and one in the second would be in neither otherwise."""
    return heard_volumes(here)[::-1]


def _handle_of(obj: Json, driver: str) -> str:
    """Empty for another driver's: of the cluster's volumes most are."""
    return text(obj, "spec", "csi", "volumeHandle") if text(obj, "spec", "csi", "driver") == driver else ""


def _found(here: Here, volume: Volume) -> Found:
    return Found(volume, lies_elsewhere(here, volume) and not was_made_here(here, volume))
