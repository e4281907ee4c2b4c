"""Chooses of which claims this node hears with `--watch-scope=labelled`, and looks whether the labels can be trusted.

Every claim that is seen is compared with the rule of its label. What no watch of ours would show is listed now and then: claims that wait
for nobody, every ten minutes, or less often where very many do; all claims, every half hour, and less often in large clusters: one whose
label names another node, which does not hear of it either, is in no other list. After a wrong label all claims are heard, as with
`--watch-scope=all`, until the policy has proven itself. A claim without a label may be there when this process begins, and be older than
the policy: then all claims are listed once, and what they show decides.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sidecar.engine.health import OK, Stopped
from sidecar.kube.api import CLAIMS, records
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.errors import ApiError
from sidecar.kube.events.recorder import ObjectRef
from sidecar.kube.whole_lists import WholeList
from sidecar.local.claim_labels import EVERYTHING, REMEDY, WAITING, Flaw, Trust, heard_claims, is_right, not_trusted, why_wrong, written
from sidecar.local.few_of_many import FewOfMany
from sidecar.local.left_claims_io import LeftClaims, look_for_ever
from sidecar.model import names
from sidecar.model.objects import Claim, Json, is_source_that_leaves, selected_node
from sidecar.model.timestamps import to_text
from sidecar.ownership.roster import draw
from sidecar.tools import Tools

log = logging.getLogger(__name__)

_WAITING_EVERY: Final = 600.0
# So many claims may be shown to all nodes together in that time. Where more wait they are listed less often, but as often as this at least.
_MOST_SHOWN: Final = 50_000
_WAITING_AT_LEAST_EVERY: Final = 3600.0
_SPREAD: Final = 0.2
# After a list that failed.
_AGAIN: Final = 30.0
# A policy that goes is noticed by all nodes at once, and then each lists all claims. What has no label is heard meanwhile.
_WIDENS_WITHIN: Final = 8.0
_SECONDS_A_NODE: Final = 0.05
_LONGEST: Final = 45.0
# Where no claim that was made since has proven the policy for so long, this node's clock may be ahead of the server's.
_CLOCK_BELIEVED_FOR: Final = 1800.0
# What a list has found, so much at a time, and others next time.
_MOST_FOUND: Final = 100
_MOST_TELLERS: Final = 8


@dataclass(frozen=True, slots=True)
class _Found:
    """A claim of which something was wrong."""

    flaw: Flaw
    ref: ObjectRef

    def latest(self, other: "_Found | None") -> "_Found":
        """One that counts if either does."""
        if other is None:
            return self
        ref = self.ref if self.flaw.written.version >= other.flaw.written.version else other.ref
        return _Found(self.flaw.latest(other.flaw), ref)


class _Flaws:
    """Of the claims of a list: the latest that has no label, and the latest that has a wrong one. A list comes in no order of time."""

    def __init__(self) -> None:
        self.missing: _Found | None = None
        self.wrong: _Found | None = None

    def note(self, found: _Found) -> None:
        if found.flaw.is_missing:
            self.missing = found.latest(self.missing)
        else:
            self.wrong = found.latest(self.wrong)

    def which_counts(self, trust: Trust) -> _Found | None:
        return next((found for found in (self.wrong, self.missing) if found is not None and trust.counts(found.flaw)), None)


class ClaimHearing:
    """`selectors` are those to begin with; `seen` is to be told of every claim that is read; `run` is a task."""

    def __init__(
        self,
        tools: Tools,
        *,
        node: str,
        driver: str,
        is_ours: Callable[[str], bool],
        shards: Callable[[], tuple[str, ...]],
        contenders: Callable[[], int | None],
        bids: bool = True,
        may_be_left: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_ours`: whether a class of that name is this driver's. `shards`: the open claims that this node hears of at once. If it
        `bids`, it looks now and then for others that nobody takes, while such claims `may_be_left`. `contenders`: how many nodes there
        are, if it is known."""
        self._kube = tools.kube
        self._recorder = tools.recorder
        self._metrics = tools.metrics
        self._clock = tools.clock
        self._wall = tools.wall
        self._rng = tools.rng
        self._dry_run = tools.dry_run
        self._node = node
        self._driver = driver
        self._is_ours = is_ours
        self._shards = shards
        self._contenders = contenders
        self._bids = bids
        self._may_be_left = may_be_left
        self._left = LeftClaims(tools, driver=driver, contenders=contenders)
        self._trust = Trust()
        self._at_first: _Flaws | None = _Flaws()
        """Of the first lists; None when they are complete, and every claim that is seen is judged at once."""
        self._wrong: ObjectRef | None = None
        self._wrong_since = ""
        """By this node's clock. What was made later, by the server's, was made since."""
        self._latest_made = ""
        """Of all claims that were seen."""
        self._has_seen_old = False
        """There are wrong labels that do not count. The claims that have them are heard of by lists alone."""
        self._waiting = 0
        """How many claims waited for nobody, as last listed."""
        self._is_wide = False
        self._stirred = asyncio.Event()
        self._claims: ChangingReflector[Claim] | None = None
        self._scope = tools.health.scope("claim labels", gates_ready=False)
        self._scope.report(OK())
        tools.metrics.watch_claims_by_label(lambda: not self._is_wide)

    def selectors(self) -> tuple[str, ...]:
        return (EVERYTHING,) if self._is_wide else heard_claims(self._node, sorted({*self._shards(), *self._left.heard}))

    def seen(self, obj: Json) -> None:
        """Called for each claim that is parsed, before anything is decided about it."""
        found = self._found(obj)
        if found is None:
            return
        if self._at_first is not None:
            self._at_first.note(found)
        elif self._trust.counts(found.flaw):
            self._flawed(found)

    def _found(self, obj: Json) -> _Found | None:
        """What is wrong with it. That nothing is wrong with it is noted, whose claim it may be."""
        self._latest_made = max(self._latest_made, written(obj).created)
        if is_right(obj):
            was_proven, one = self._trust.proven, written(obj)
            self._trust = self._trust.seen_right(one, made_since=one.created > self._wrong_since)
            if self._trust.proven and not was_proven:
                self._stirred.set()
            return None
        why = why_wrong(obj, driver=self._driver, is_ours=self._is_ours)
        return _Found(Flaw.of(why, obj), _ref(obj)) if why else None

    def shards_changed(self) -> None:
        if self._claims is not None and not self._is_wide:
            self._claims.select(self.selectors())

    def _others(self) -> list[str]:
        """The shards of which this node hears only if something is left in them."""
        if not self._may_be_left():
            return []
        heard = set(names.SHARDS if self._is_wide else self._shards())
        return [shard for shard in names.SHARDS if shard not in heard]

    async def run(self, claims: ChangingReflector[Claim]) -> None:
        """Until cancelled."""
        self._claims = claims
        if self.selectors() == (EVERYTHING,):
            log.warning("All claims are watched: the name of this node can be in no label", extra={"fields": {"node": self._node}})
            self._is_wide = True
            return
        await claims.wait_synced()
        log.info("Claims are watched by their label", extra={"fields": {"node": self._node, "shards": len(self._shards())}})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._trust_labels(claims))
            if self._bids:
                group.create_task(look_for_ever(self._left, others=self._others, changed=self.shards_changed))

    async def _trust_labels(self, claims: ChangingReflector[Claim]) -> None:
        has_waited = await self._judge_what_was_there(claims)
        while True:
            await self._hear_by_label(claims)
            if not has_waited:
                await asyncio.sleep(self._within() * self._rng())
            has_waited = False
            self._widen(claims)
            await self._hear_all()
            self._narrow(claims)

    async def _judge_what_was_there(self, claims: ChangingReflector[Claim]) -> bool:
        """What has no label is heard anyway, so before all is heard for it there is time to see whether it is merely old. Returns whether
        it is not, and this node has waited for its turn already."""
        found, self._at_first = self._at_first or _Flaws(), None
        worst = found.which_counts(self._trust)
        if worst is not None and worst.flaw.is_missing:
            await asyncio.sleep(self._within() * self._rng())
            await self._tried(self._look_at_others(claims))
            worst = found.which_counts(self._trust)
            if worst is not None:
                self._flawed(worst)
            return self._trust.is_away
        if worst is not None:
            self._flawed(worst)
        return False

    async def _hear_by_label(self, claims: ChangingReflector[Claim]) -> None:
        """Until a label is wrong."""
        waiting_at, whole = self._clock(), WholeList(self._clock(), self._rng())
        again_at = self._clock() + _AGAIN * whole.share if self._has_seen_old else math.inf
        while True:
            await self._until(min(waiting_at, whole.due(self._contenders()), again_at))
            if self._trust.is_away:
                return
            if waiting_at <= self._clock():
                done = await self._tried(self._look_at_waiting(claims))
                waiting_at = self._clock() + self._every(self._waiting_lists_apart() if done else _AGAIN)
            elif min(whole.due(self._contenders()), again_at) <= self._clock():
                done = await self._tried(self._look_at_others(claims))
                whole = WholeList(self._clock(), self._every(1.0))
                again_at = math.inf if done else self._clock() + _AGAIN * whole.share

    def _waiting_lists_apart(self) -> float:
        """Anybody may make many claims that wait for ever."""
        shown = self._waiting * (self._contenders() or 1)
        return min(_WAITING_EVERY * max(1.0, shown / _MOST_SHOWN), _WAITING_AT_LEAST_EVERY)

    async def _hear_all(self) -> None:
        """Until the policy works again and no label is wrong that counts."""
        while self._trust.is_away:
            due, believed_until = self._trust.look_at(), self._trust.flawed_at + _CLOCK_BELIEVED_FOR
            if due is None and believed_until <= self._clock():
                self._wrong_since = min(self._wrong_since, self._latest_made)  # all that was there has been seen by now
            elif due is None:
                due = believed_until
            await self._until(due)
            due = self._trust.look_at()
            if due is not None and due <= self._clock() and not await self._tried(self._look_at_all()):
                await asyncio.sleep(self._every(_AGAIN))

    async def _until(self, at: float | None) -> None:
        """That time, or until something has been seen."""
        self._stirred.clear()
        try:
            async with asyncio.timeout(None if at is None else max(0.0, at - self._clock())):
                await self._stirred.wait()
        except TimeoutError:
            pass

    def _every(self, seconds: float) -> float:
        return seconds * (1.0 - _SPREAD + 2.0 * _SPREAD * self._rng())

    # --- wider and narrower -----------------------------------------------------------------------------------------

    def _flawed(self, found: _Found) -> None:
        if not self._trust.is_away:
            self._wrong = found.ref
        self._trust = self._trust.flawed(found.flaw.why, self._clock())
        self._wrong_since = to_text(self._wall())
        self._stirred.set()

    def _within(self) -> float:
        """Seconds over which the nodes spread a list of all claims that they all need at once."""
        contenders = self._contenders()
        return _WIDENS_WITHIN if contenders is None else min(max(3.0, contenders * _SECONDS_A_NODE), _LONGEST)

    def _widen(self, claims: ChangingReflector[Claim]) -> None:
        self._is_wide = True
        claims.select(self.selectors())
        self._tell(self._contenders())

    def _tell(self, contenders: int | None) -> None:
        told = f"{not_trusted(self._trust.why)}; {REMEDY}"
        log.warning("All claims are watched, for a label is wrong", extra={"fields": {"why": self._trust.why, "remedy": REMEDY}})
        self._metrics.claim_policy_away()
        self._scope.report(Stopped(f"{not_trusted('the log names one that is wrong')}; {REMEDY}"))
        ref = self._wrong
        # Of a thousand nodes a few are enough to tell it.
        if ref is None or self._dry_run or draw(f"wrong {ref.uid}", self._node) * (contenders or 1) > _MOST_TELLERS:
            return
        once = names.shared_event(ref.name, ref.uid, "label")
        self._recorder.record(ref, names.WARNING, names.CLAIM_LABEL_WRONG, told, once=once)

    def _narrow(self, claims: ChangingReflector[Claim]) -> None:
        self._is_wide, self._wrong = False, None
        claims.select(self.selectors())
        log.info("Claims are watched by their label again: the policy works")
        self._scope.report(OK())

    # --- lists ------------------------------------------------------------------------------------------------------

    async def _tried(self, look: Awaitable[None]) -> bool:
        try:
            await look
        except ApiError as error:
            log.info("Claims could not be looked through for wrong labels", extra={"fields": {"err": str(error)}})
            return False
        return True

    async def _look_at_waiting(self, claims: ChangingReflector[Claim]) -> None:
        """What waits for nobody although it should be heard by somebody."""
        self._waiting = await self._look_through(claims, label_selector=WAITING)

    async def _look_at_others(self, claims: ChangingReflector[Claim]) -> None:
        """Claims of all: one from which others were cloned may be kept by our finalizer although its node is gone."""
        await self._look_through(claims, cached=True)

    async def _look_through(self, claims: ChangingReflector[Claim], *, label_selector: str = "", cached: bool = False) -> int:
        """Wrong labels are many where there is one. Each node looks at what may be its own. Returns how many claims were listed."""
        flaws, listed = _Flaws(), 0
        ours = FewOfMany[ObjectRef](_MOST_FOUND, self._rng)

        def note(obj: Json) -> ObjectRef | None:
            nonlocal listed
            listed += 1
            found = self._found(obj)
            if found is not None:
                flaws.note(found)
            waits_here = selected_node(obj) in ("", self._node) and not (obj.get("spec") or {}).get("volumeName")
            hidden = found is not None and not found.flaw.is_missing and waits_here
            return _ref(obj) if hidden or is_source_that_leaves(obj) else None

        async for ref in records(self._kube, CLAIMS, note, cached=cached, label_selector=label_selector):
            ours.note(ref.namespace, ref)
        for ref in ours.chosen():
            await claims.look(ref.namespace, ref.name)
        if (worst := flaws.which_counts(self._trust)) is not None:
            self._flawed(worst)
        return listed

    async def _look_at_all(self) -> None:
        flaws = _Flaws()

        def note(obj: Json) -> None:
            if (found := self._found(obj)) is not None:
                flaws.note(found)

        async for _ in records(self._kube, CLAIMS, note, cached=True):
            pass
        worst = flaws.which_counts(self._trust)
        self._has_seen_old = flaws.wrong is not None
        if worst is not None:
            self._wrong_since = to_text(self._wall())
        self._trust = self._trust.looked(worst.flaw.why if worst is not None else "", self._clock())


def _ref(obj: Json) -> ObjectRef:
    meta = obj["metadata"]
    return ObjectRef("v1", names.CLAIM, meta.get("namespace") or "", meta["name"], meta["uid"], meta.get("resourceVersion") or "")
