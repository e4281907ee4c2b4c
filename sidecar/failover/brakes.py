"""What keeps fail-over from doing too much at once: a debounce, an order among those who could act, limits in the Lease, and a freeze.

The record in the Lease counts for all sidecars of the driver, so it is in wall time; a time in the future counts as now. All else is by
this process's own clock, and begins anew with it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from zlib import crc32

from sidecar.failover.evidence import Fact
from sidecar.model.names import FAILOVER_RECORD
from sidecar.model.nodes import TRUE, Node

DEBOUNCE: Final = 5.0  # seconds that a proof has to hold without a break
STAGGER: Final = 2.0  # seconds between those who could act
VICTIMS: Final = 3  # nodes at a time
VICTIM_FOR: Final = 600.0  # seconds that a node counts as one after the last write for it
PODS: Final = 60  # in a minute, of all nodes
HOLD: Final = 60.0  # seconds after a claim's pod was replaced, until it may be once more
SAME: Final = 10.0  # seconds: a pod that uses the claim beside the first one goes with it
TWICE: Final = 2  # times a claim may be failed over
WITHIN: Final = 1800.0  # seconds
_MOST: Final = 250  # claims in the record
_BESIDE: Final = 4  # pods of each
_LONGEST: Final = 100_000  # characters of it


def rank(volume: str, victim: str, me: str, holders: Iterable[str]) -> int:
    """The place of this node among those with a copy: each volume and victim has another order."""
    ordered = sorted({me, *holders} - {victim}, key=lambda name: (crc32(f"{volume}/{victim}/{name}".encode()), name))
    return ordered.index(me)


def share(victim: str, me: str) -> float:
    """Of this node, between 0 and 1: another one for each victim."""
    return crc32(f"{victim}/{me}".encode()) / 2**32


class Debounce:
    """Since when each proof has held, by resource and peer. Whatever else than True it becomes, it begins anew."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def see(self, key: tuple[str, str], fact: Fact, now: float) -> float | None:
        """Since when it has held; None: it does not."""
        if not fact.holds:
            self._since.pop(key, None)
            return None
        return self._since.setdefault(key, now)

    def keep(self, seen: set[tuple[str, str]]) -> None:
        """What is not seen any more is forgotten."""
        self._since = {key: since for key, since in self._since.items() if key in seen}

    def forget(self, peer: str) -> None:
        """It is another machine, or another boot: nothing is proven of that."""
        self._since = {key: since for key, since in self._since.items() if key[1] != peer}

    def held_for(self, key: tuple[str, str], now: float) -> float:
        return now - self._since[key] if key in self._since else 0.0


class Freeze:
    """Where most nodes seem lost it is more likely that the control plane, or the network, is in trouble than that they are."""

    AFTER_STORM: Final = 60.0
    AFTER_OUTAGE: Final = 100.0  # twice the time after which a silent node is not Ready any more
    SHARE: Final = 0.55
    LEAST: Final = 3

    def __init__(self) -> None:
        self._until, self._why = float("-inf"), ""

    def see(self, nodes: Iterable[Node], now: float) -> None:
        """All nodes of the driver."""
        ready = [node.ready == TRUE for node in nodes]
        lost = ready.count(False)
        if lost >= self.LEAST and lost >= self.SHARE * len(ready):
            self._freeze(now + self.AFTER_STORM, f"{lost} of {len(ready)} nodes of the driver are not Ready")

    def api_away(self, now: float) -> None:
        self._freeze(now + self.AFTER_OUTAGE, "the API server was away a moment ago")

    def _freeze(self, until: float, why: str) -> None:
        if until >= self._until:
            self._until, self._why = until, why

    def is_on(self, now: float) -> bool:
        return now < self._until

    def fact(self, now: float) -> Fact:
        return Fact(False, f"nothing is done: {self._why}", "brakes") if self.is_on(now) else Fact(True, "no storm, no outage", "brakes")


@dataclass(frozen=True, slots=True)
class Record:
    """What was done, as it stands in the Lease."""

    victims: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # by node: the last write for it
    pods: tuple[float, ...] = ()  # of the last minute
    claims: Mapping[str, tuple[tuple[float, str], ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By uid, of the last half hour: when, and the pod's uid."""
    readable: bool = True

    @classmethod
    def of(cls, text: str) -> "Record":
        """What somebody else has written there makes it unreadable, and then nothing is done."""
        if not text:
            return cls()
        try:
            said = json.loads(text[:_LONGEST])
            victims = {str(name): float(at) for name, at in said["victims"].items()}
            claims = {str(uid): tuple((float(at), str(pod)) for at, pod in times) for uid, times in said["claims"].items()}
            return cls(victims, tuple(map(float, said["pods"])), claims)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return cls(readable=False)

    def as_text(self) -> str:
        said = {"victims": dict(self.victims), "pods": self.pods, "claims": dict(self.claims)}
        return json.dumps(said, separators=(",", ":"), default=list)

    def as_of(self, now: float) -> "Record":
        """Without what counts no more."""
        victims = {name: min(at, now) for name, at in self.victims.items() if now - at < VICTIM_FOR}
        pods = tuple(min(at, now) for at in self.pods if now - at < 60.0)[-2 * PODS :]
        recent = {
            uid: tuple((min(at, now), pod) for at, pod in times if now - at < WITHIN)[-_BESIDE:] for uid, times in self.claims.items()
        }
        newest = sorted((item for item in recent.items() if item[1]), key=lambda item: item[1][-1])[-_MOST:]
        return replace(self, victims=victims, pods=pods, claims=dict(newest))

    def allows(self, victim: str, claim: str, pod: str, now: float, made_at: float | None = None) -> Fact:
        """Whether one more write may be done for this node, and for this pod of this claim (their uids; empty: there is no pod)."""

        def no(says: str) -> Fact:
            return Fact(False, says, "brakes")

        if not self.readable:
            return Fact(None, f"the record in the Lease cannot be read; delete its annotation {FAILOVER_RECORD}", "brakes")
        left = self.as_of(now)
        if victim not in left.victims and len(left.victims) >= VICTIMS:
            return no(f"{VICTIMS} nodes have been failed over in the last {VICTIM_FOR / 60:.0f} minutes: {', '.join(sorted(left.victims))}")
        held = left.claims.get(claim, ()) if pod else ()
        if not pod or pod in {uid for _, uid in held}:
            return Fact(True, "what was begun goes on", "brakes")
        if len(left.pods) >= PODS:
            return no(f"{PODS} pods were replaced in the last minute")
        times = sorted({at for at, _ in held})
        if _goes_with(self.claims.get(claim, ()), now, made_at) is not None:
            return Fact(True, "it goes with another pod of its claim", "brakes")
        if len(times) >= TWICE:
            return no(f"it was failed over {len(times)} times in half an hour: a person decides")
        if times and now - times[-1] < HOLD:
            return no(f"it was failed over {now - times[-1]:.0f} s ago")
        return Fact(True, "within all limits", "brakes")

    def after(self, victim: str, claim: str, pod: str, now: float, made_at: float | None = None) -> "Record":
        """With one more write; a pod for which more than one is done counts once."""
        left = self.as_of(now)
        left = replace(left, victims={**left.victims, victim: now})
        times = left.claims.get(claim, ())
        if not pod or pod in {uid for _, uid in times}:
            return left
        first = _goes_with(self.claims.get(claim, ()), now, made_at)
        entry = (now if first is None else first, pod)
        return replace(left, pods=(*left.pods, now), claims={**left.claims, claim: (*times, entry)})


def _goes_with(times: Sequence[tuple[float, str]], now: float, made_at: float | None) -> float | None:
    """When the pod was replaced beside which this one has used the same claim; None: beside none. It is older than that by more than clocks
    differ, so it was not made in the other one's place."""
    beside = bool(times) and made_at is not None and made_at <= times[-1][0] - HOLD and 0.0 <= now - times[-1][0] <= SAME
    return times[-1][0] if beside else None
