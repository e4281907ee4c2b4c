"""Finds the shards with open claims that nobody takes: whoever hears of them may be full, slow or dead, so other nodes look now and then.

Of all nodes one looks about every second, and less often where nothing new was found: some claims can be taken by nobody. Somebody's many
claims may fill the page of a list, or lie in every shard. So where a page is full fewer shards are asked for next time, and no node hears
of more than a few shards that are not its own.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.kube.api import CLAIMS, Take
from sidecar.kube.errors import ApiError
from sidecar.local.claim_labels import label_of
from sidecar.model import names
from sidecar.model.objects import Json, claim_provisioner
from sidecar.tools import Tools

log = logging.getLogger(__name__)

_EVERY: Final = 10.0
_AT_LEAST_EVERY: Final = 300.0
_OPEN_FOR: Final = 2.0
_MOST_HEARD: Final = 32
# Of one shard alone that has more than a page.
_MOST_PAGES: Final = 10


@dataclass(frozen=True, slots=True)
class _Open:
    """What a list has shown of this driver's open claims. It is whole if there were no more pages."""

    shard_of: dict[str, str]
    """By uid."""
    is_whole: bool


class LeftClaims:
    """`heard` are the shards to be heard of besides one's own. `look` looks once."""

    def __init__(self, tools: Tools, *, driver: str, contenders: Callable[[], int | None]) -> None:
        self.heard: frozenset[str] = frozenset()
        self._kube = tools.kube
        self._rng = tools.rng
        self._driver = driver
        self._contenders = contenders
        self._left: frozenset[str] = frozenset()
        """As last found, of each shard."""
        self._share = len(names.SHARDS)
        """How many shards one list asks for."""
        self._vain = 0
        """Looks in a row that have found nothing new."""

    def pause(self) -> float:
        """Seconds until the next look."""
        usual = max(_EVERY, float(self._contenders() or 1)) * 2.0 ** min(self._vain, 10)
        return min(usual, _AT_LEAST_EVERY) * (0.5 + self._rng())

    def forget(self) -> None:
        """All shards are heard anyway."""
        self.heard = self._left = frozenset()

    async def look(self, others: list[str]) -> None:
        """Through some of these shards, by two lists, for clocks may differ: what is open in both is late."""
        asked = self._chosen(others)
        before = await self._open_in(asked)
        after = before
        if before.shard_of:
            await asyncio.sleep(_OPEN_FOR * (1.0 + self._rng()))
            after = await self._open_in(asked)
        is_whole = before.is_whole and after.is_whole
        found = frozenset(shard for uid, shard in before.shard_of.items() if uid in after.shard_of)
        self._vain = 0 if found - self._left else self._vain + 1
        # Of a shard that a list did not show to its end nothing is known.
        self._left = ((self._left - frozenset(asked)) if is_whole else self._left) | found
        self._left &= frozenset(others)
        self._share = min(2 * self._share, len(names.SHARDS)) if is_whole else max(1, self._share // 2)
        self.heard = frozenset(self._some(self._left, _MOST_HEARD))

    def _chosen(self, others: list[str]) -> list[str]:
        """What was left before is looked at too, or it would be heard for long after somebody has taken it."""
        again = self._some(self._left & frozenset(others), self._share // 2)
        return again + self._some(set(others).difference(again), self._share - len(again))

    def _some(self, shards: Iterable[str], most: int) -> list[str]:
        """Other ones each time, if there are more."""
        ordered = sorted(shards)
        begin = int(self._rng() * len(ordered)) if len(ordered) > most else 0
        return (ordered[begin:] + ordered[:begin])[:most]

    async def _open_in(self, shards: list[str]) -> _Open:
        found: dict[str, str] = {}
        token, pages = "", _MOST_PAGES if len(shards) == 1 else 1
        while pages:
            shown, token = await self._page(shards, token)
            found |= shown
            pages -= 1
            if not token:
                break
        return _Open(found, is_whole=not token)

    async def _page(self, shards: list[str], token: str) -> tuple[dict[str, str], str]:
        found: dict[str, str] = {}

        def take(obj: Json) -> bool:
            if claim_provisioner(obj) == self._driver:
                found[obj["metadata"]["uid"]] = label_of(obj)
            return True

        def begin() -> Take:
            found.clear()
            return take

        selector = f"{names.CLAIM_LABEL} in ({','.join(shards)})"
        page = await self._kube.list_page(CLAIMS, label_selector=selector, continue_token=token, begin=begin)
        for obj in page.items:
            take(obj)
        return found, page.continue_token


async def look_for_ever(left: LeftClaims, *, others: Callable[[], list[str]], changed: Callable[[], None]) -> None:
    """`others` are the shards that are not heard of; `changed` is called before and after each look."""
    while True:
        await asyncio.sleep(left.pause())
        changed()
        shards = others()
        if not shards:
            left.forget()
            continue
        try:
            await left.look(shards)
        except ApiError as error:
            log.debug("Open claims could not be listed", extra={"fields": {"err": str(error)}})
        changed()
