"""Writes this node into a claim: the bid by which it takes it. When to bid: `ownership.rules`."""

from collections.abc import Callable
from typing import Final

from sidecar.kube.api import CLAIMS
from sidecar.kube.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable, Withdrawn
from sidecar.model import names
from sidecar.model.objects import Claim, Json, selected_node
from sidecar.ownership.controller import Contenders
from sidecar.ownership.local_delay import LocalDelay
from sidecar.ownership.promises import Promise
from sidecar.ownership.rules import after_conflict
from sidecar.provisioning.decisions import Bid
from sidecar.provisioning.effects.claim_writing import ClaimWriter
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.pace import APART
from sidecar.provisioning.progress import NOT_BEGUN, Bidding, Racing, race_of, without_bid
from sidecar.provisioning.view import ClaimView

_NOT_STAYED: Final = (
    f"node {{}} was selected for the claim, but annotation {names.SELECTED_NODE} does not stay on it: something takes it off again;"
    " look for an admission webhook, or a controller that reverts claims, and let it leave this annotation alone"
)


class Bidder:
    """`promise` says what this node owes a claim, `delay` is told how long each write takes, and what the watch has not shown."""

    def __init__(
        self, shared: Shared, *, delay: LocalDelay, promise: Callable[[str], Promise | None], contenders: Contenders | None
    ) -> None:
        self._kube = shared.tools.kube
        self._metrics = shared.tools.metrics
        self._clock = shared.tools.clock
        self._caches = shared.caches
        self._writer = ClaimWriter(shared.tools.kube, shared.caches)
        self._space = shared.space
        self._table = shared.table
        self._reports = shared.reports
        self._standing = shared.standing
        self._delay = delay
        self._promise = promise
        self._contenders = contenders

    async def bid(self, uid: str, view: ClaimView, bid: Bid) -> float | None:
        self._metrics.race_bid()
        # From here on its bytes count as promised: another claim that is measured meanwhile must not be given the same ones.
        self._table.advance(uid, Bidding(bid.claim, race_of(self._table.progress(uid))))
        self._delay.began(uid, self._clock())
        try:
            if bid.out_of_turn and not await self._is_unchanged(bid.claim):
                raise Withdrawn(f"claim {bid.claim.full_name} has changed")
            written = await self._writer.write(bid.claim, bid.edit, is_current=lambda: self._still_wants(bid.claim))
        except Withdrawn:
            self._was_beaten(uid)
            return self._clock()
        except Conflict:
            wait = after_conflict(view.race_view(bid.claim))
            self._reports.note(uid, bid.claim, wait)
            self._table.advance(uid, Racing(wait.race))
            self._was_beaten(uid)
            return wait.until
        except NotFound:
            self._table.forget(uid)
            return None
        except (Unavailable, TooManyRequests) as error:
            if isinstance(error, TooManyRequests):
                # One that is away delays all nodes alike, and what a write waited for it says nothing of how it is when it is back.
                self._delay.refused(uid, self._clock())
            return self._reports.unreachable(uid, bid.claim, error)
        except ApiError as error:
            return self._reports.failed(uid, bid.claim, f"selecting node {view.here.node} for the claim failed: {error}")
        finally:
            self._table.advance(uid, without_bid(self._table.progress(uid)))
            self._delay.ended(uid, self._clock())
            if self._promise(uid) is None:
                self._space.promise_changed(bid.claim.class_name)  # its bytes were promised while the bid was on its way
        if self._has_not_stayed(bid.claim, written):
            return self._reports.failed(uid, bid.claim, _NOT_STAYED.format(view.here.node))
        self._delay.told(_version(written), self._clock())
        self._doubt_order(view, bid.claim)
        self._table.advance(uid, NOT_BEGUN)
        # The cache has it already, so the watch event will change nothing and wake nobody: it is looked at again at once.
        return self._clock()

    def _has_not_stayed(self, before: Claim, written: Json) -> bool:
        """The API server has taken the bid, and its answer, or what the watch has shown since, names no node."""
        held = self._caches.claims.get(before.uid)
        if held is not None and held.resource_version != before.resource_version:
            return not held.selected_node
        return bool(written) and not selected_node(written)

    def _was_beaten(self, uid: str) -> None:
        """By another node, or by an edit: a tenant may edit the claim as often as it likes."""
        now = self._clock()
        self._reports.attempts.paused(uid, now, now + APART)

    async def _is_unchanged(self, claim: Claim) -> bool:
        """Asks the API server, and keeps its answer in the cache. A claim made anew under that name is another claim."""
        fresh = await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace)
        if fresh["metadata"].get("uid") != claim.uid:
            raise NotFound(f"claim {claim.full_name} with uid {claim.uid} is gone", status=404)
        self._caches.write_through(claim, fresh)
        version = _version(fresh)
        if version == claim.resource_version:
            return True
        self._delay.told(version, self._clock())
        return False

    def _still_wants(self, claim: Claim) -> bool:
        """Asked when the write leaves: false if the watch has shown a newer claim, or the node was closed meanwhile."""
        held = self._caches.claims.get(claim.uid)
        return held is not None and held.resource_version == claim.resource_version and not self._standing().closed

    def _doubt_order(self, view: ClaimView, claim: Claim) -> None:
        """Two other nodes should have bid before this one. Either they are gone or the list of them is old, so it is made again."""
        if self._contenders and view.roster and view.roster.rank(view.here.node, claim.uid, claim.requested or 0, exact=2) >= 2:
            self._contenders.doubt()


def _version(obj: Json) -> str:
    return str((obj.get("metadata") or {}).get("resourceVersion") or "")
