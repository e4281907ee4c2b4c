"""What comes next for a replica that may be made anew, and each of its locks, in sentences for people; from outside as far as it shows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision import candidates, locks
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.lock import Lock, LocksView, Name
from sidecar.drain.reprovision.record import Target
from sidecar.drain.vocabulary import HINDRANCES, Hindrance
from sidecar.drain.wording import LOCK_SHUT, LOCKS_OPEN, MADE_NEXT, NOT_MADE_NOW, first_few

_SEEN_FROM_OUTSIDE: Final = (Name.SURE, Name.POLICY, Name.ON_THIS_NODE, Name.PLACE, Name.KEPT_OFF, Name.SNAPSHOTS, Name.BUDGET)
_MOST: Final = 5
"""Pods that are told of."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The locks of one pod, as they were looked at last."""

    pod: str
    why: str
    locks: tuple[Lock, ...]
    held: Hindrance | None = None
    """Why none was looked at."""

    def in_words(self) -> Iterable[str]:
        if self.held is not None:
            yield f"{NOT_MADE_NOW}{self.pod}: {self.held}: {self.why}. What to do: {HINDRANCES[self.held].remedy}"
            return
        yield f"{MADE_NEXT}{self.pod}: {self.why}"
        if self.locks:
            yield f"{LOCKS_OPEN}{self.pod} that are open: {', '.join(lock.name for lock in self.locks if lock.open) or 'none'}"
        for lock in self.locks:
            if lock.refusal is not None:
                yield f"{LOCK_SHUT}{self.pod}: {lock}. What to do: {HINDRANCES[lock.refusal.hindrance].remedy}"


def from_outside(snapshot: Snapshot, places: Iterable[Place]) -> Iterable[str]:
    """For whoever has only the snapshot: StatefulSets, other replicas and finalizers are for the node's own sidecar to read."""
    if snapshot.node is None:
        return
    found, refused = candidates.find(snapshot)
    by_volume = MappingProxyType({volume: place for place in places for volume in place.volumes})
    for each in found[:_MOST]:
        view = LocksView(
            True, Machine(snapshot.node.name, snapshot.node.uid), snapshot, by_volume, each.target, _facts(each.target, snapshot)
        )
        shut = [str(lock) for lock in locks.look(view) if lock.name in _SEEN_FROM_OUTSIDE and not lock.open]
        yield f"{each.target.full_name}: {'; '.join(shut) or 'no lock that shows from here is shut'}"
    for refusal in refused[:_MOST]:
        yield f"{refusal.pod}: {refusal.hindrance}: {refusal.why}"
    if found:
        others = [str(name) for name in Name if name not in _SEEN_FROM_OUTSIDE]
        yield f"locks that only the node's sidecar sees: {first_few(others, len(others))}"


def _facts(target: Target, snapshot: Snapshot) -> Facts:
    return Facts(
        pods=tuple(pod for pod in (*snapshot.pods, *snapshot.claimants) if pod.namespace == target.namespace),
        claims=_claims(target, snapshot),
        classes=snapshot.classes,
        namespace=snapshot.namespace_policies.get(target.namespace, ()),
        budgets=tuple(budget for budget in snapshot.budgets or () if budget.namespace == target.namespace),
    )


def _claims(target: Target, snapshot: Snapshot) -> Mapping[str, FoundClaim]:
    volumes = {volume.claim.uid: volume for volume in (*snapshot.volumes, *snapshot.foreign) if volume.claim}
    mine = (claim for claim in snapshot.claims.values() if claim.namespace == target.namespace)
    return MappingProxyType({claim.name: FoundClaim(claim, volume=volumes.get(claim.uid)) for claim in mine})
