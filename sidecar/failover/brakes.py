"""What keeps fail-over from doing too much at once: a debounce, an order among those who could act, limits in the Lease, and a freeze.

The record in the Lease counts for all sidecars of the driver, so it is in wall time; a time in the future counts as now. All else is by
this process's own clock, and begins anew with it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar
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
SAME: Final = 10.0  # seconds: a pod that has used the claim beside that one goes with it
TWICE: Final = 2  # times a claim may be failed over
WITHIN: Final = 1800.0  # seconds
STORM: Final = 3  # nodes that are not Ready at once, and so many of all
STORM_SHARE: Final = 0.55
AFTER_STORM: Final = 60.0  # seconds
AFTER_OUTAGE: Final = 100.0  # twice the time after which a silent node is not Ready any more
_MOST: Final = 250  # claims in the record
_BESIDE: Final = 4  # pods of each
_LONGEST: Final = 100_000  # characters of it

K = TypeVar("K")


def rank(volume: str, victim: str, me: str, holders: Iterable[str]) -> int:
    """The place of this node among those with a copy: each volume and victim has another order."""
    ordered = sorted({me, *holders} - {victim}, key=lambda name: (crc32(f"{volume}/{victim}/{name}".encode()), name))
    return ordered.index(me)


def share(victim: str, me: str) -> float:
    """Of this node, between 0 and 1: another one for each victim."""
    return crc32(f"{victim}/{me}".encode()) / 2**32


def held_since(before: Mapping[K, float], facts: Mapping[K, Fact], now: float) -> dict[K, float]:
    """Since when each proof has held without a break: whatever else than True it becomes, or if it is not seen any more, it begins anew."""
    return {key: before.get(key, now) for key, fact in facts.items() if fact.holds}


def is_storm(nodes: Iterable[Node]) -> bool:
    """Where most nodes of the driver seem lost it is likelier that the control plane, or the network, is in trouble than that they are."""
    ready = [node.ready == TRUE for node in nodes]
    return ready.count(False) >= max(STORM, STORM_SHARE * len(ready))


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
        recent = {uid: tuple((min(at, now), pod) for at, pod in times if now - at < WITHIN) for uid, times in self.claims.items()}
        # The first one stays: pods beside the last one do not make it forgotten that there was a time before.
        few = {uid: (*held[:1], *held[1:][1 - _BESIDE :]) for uid, held in recent.items() if held}
        newest = sorted(few.items(), key=lambda item: item[1][-1])[-_MOST:]
        return replace(self, victims=victims, pods=pods, claims=dict(newest))

    def after(self, victim: str, claim: str, pod: str, now: float, made_at: float | None = None) -> tuple["Record", str]:
        """With one more write for this node, and for this pod of this claim (their uids; empty: there is no pod); and why that may not be
        done, or nothing."""
        left = self.as_of(now)
        after, held = replace(left, victims={**left.victims, victim: now}), left.claims.get(claim, ())
        if not self.readable:
            return after, f"the record in the Lease cannot be read; delete its annotation {FAILOVER_RECORD}"
        if victim not in left.victims and len(left.victims) >= VICTIMS:
            nodes = ", ".join(sorted(left.victims))
            return after, f"{VICTIMS} nodes have been failed over in the last {VICTIM_FOR / 60:.0f} minutes: {nodes}"
        if not pod or pod in {uid for _, uid in held}:
            return after, ""  # what was begun goes on
        after = replace(after, pods=(*left.pods, now))
        if len(left.pods) >= PODS:
            return after, f"{PODS} pods were replaced in the last minute"
        if held and now - held[-1][0] <= SAME and made_at is not None and made_at <= held[-1][0] - HOLD:
            # It has used the claim beside the pod that was replaced, and goes with it: it is older than that by more than clocks differ, so
            # it was not made in the other one's place.
            return replace(after, claims={**left.claims, claim: (*held, (held[-1][0], pod))}), ""
        if (times := len({at for at, _ in held})) >= TWICE:
            return after, f"it was failed over {times} times in half an hour: a person decides"
        if held and now - held[-1][0] < HOLD:
            return after, f"it was failed over {now - held[-1][0]:.0f} s ago"
        return replace(after, claims={**left.claims, claim: (*held, (now, pod))}), ""
