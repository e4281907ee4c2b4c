"""What this process knows beyond the caches: how far it has come with a claim or a volume. Values only; it is lost with the process."""

import math
from dataclasses import dataclass

from sidecar.model.objects import Claim, Json, Volume
from sidecar.ownership.rules import Race
from sidecar.provisioning.begun import Begun
from sidecar.provisioning.needs import Ref
from sidecar.provisioning.view import Infeasible, Leaving


@dataclass(slots=True)
class Progress:
    """What is known of one claim."""

    race: Race | None = None
    remembered: Claim | None = None
    """As it was when a creation was begun whose end is not known, or whose volume is not stored: it may be deleted meanwhile."""
    unsaved: Json | None = None
    """The PersistentVolume of a volume that exists, until the API server has taken it."""
    refusals: int = 0
    """How often it has said that it will not take it as it is."""
    infeasible: Infeasible | None = None
    protected: bool = False
    """Our finalizer has been put on its source a moment ago."""
    unprotected: bool = False
    """Our finalizer may not be put on its source."""
    source: Ref | None = None
    """What its volume is being filled from, or is about to be. Whoever else is done with that must not take our finalizer off it."""
    stored: bool = False
    returning: str = ""
    """The claim's resourceVersion when it was given back and no answer came: that write may still land while the version holds."""
    kept: str = ""
    """Why the API server refused to have the claim handed back: then it is provisioned here."""
    stands_by: float | None = None
    """When this node may release the claim in place of the one that has its volume."""
    in_hand: bool = False
    """The driver is being asked just now."""
    bidding: Claim | None = None
    """The write that takes it is on its way."""
    hopeless: bool = False
    """The last attempt failed for a reason that asking again will not change: it takes no space until something is changed."""
    began: float | None = None

    @property
    def races(self) -> bool:
        """Whether this node competes for the claim."""
        return self.race is not None and math.isfinite(self.race.bid_at)


class Memory:
    """Progress by the claim's uid, and the steps of volumes that leave."""

    def __init__(self) -> None:
        self._claims: dict[str, Progress] = {}
        self._leaving: dict[str, tuple[str, Leaving]] = {}
        self._doubted: set[str] = set()
        self._begun: dict[str, Begun] = {}

    def of(self, uid: str) -> Progress:
        """To be written to; a new one if there is none."""
        return self._claims.setdefault(uid, Progress())

    def get(self, uid: str) -> Progress | None:
        return self._claims.get(uid)

    def forget(self, uid: str) -> None:
        self._claims.pop(uid, None)
        self._doubted.discard(uid)

    def began(self, begun: Begun) -> None:
        """A volume may exist for it from now on. This is not forgotten with the claim."""
        self._begun[begun.uid] = begun

    def begun(self, uid: str) -> Begun | None:
        return self._begun.get(uid)

    def ended(self, uid: str) -> bool:
        """Nothing is left of it, or its PersistentVolume is stored. Whether it was known at all."""
        return self._begun.pop(uid, None) is not None

    def doubt(self, uid: str) -> None:
        """The claim's volume has gone: either its claim went before it, of which the watch may be late to tell, or it is needed anew."""
        self._doubted.add(uid)

    def doubts(self, uid: str) -> bool:
        return uid in self._doubted

    def settle_doubt(self, uid: str) -> None:
        """The claim is there and unbound: whatever was stored for it is no more."""
        self._doubted.discard(uid)
        self.of(uid).stored = False

    def concerns(self, uid: str) -> bool:
        """Whether something is under way for the claim."""
        progress = self._claims.get(uid)
        if uid in self._begun:
            return True
        if progress is None:
            return False
        return progress.in_hand or any(item is not None for item in (progress.race, progress.remembered, progress.unsaved))

    def pending(self) -> dict[str, Claim]:
        """Claims that will take space whatever the cache says of them: bid for, or perhaps in creation."""
        return {uid: claim for uid, item in self._claims.items() if (claim := item.bidding or item.remembered) is not None}

    def pending_of(self, uid: str) -> Claim | None:
        progress = self._claims.get(uid)
        return (progress.bidding or progress.remembered) if progress else None

    def races(self) -> list[tuple[str, Progress]]:
        """The claims this node competes for and could not take so far, the longest waiting first."""
        hindered = [(uid, item) for uid, item in self._claims.items() if item.races and item.race and item.race.hindered_since is not None]
        return sorted(hindered, key=lambda pair: (pair[1].race.hindered_since if pair[1].race else None) or 0.0)

    def blind_races(self) -> list[str]:
        """The claims whose turn was drawn while the contenders were not known."""
        return [uid for uid, item in self._claims.items() if item.race is not None and item.race.blind]

    def takes_space(self, uid: str) -> bool:
        """Whether what the claim will take is yet to be taken: not once its volume is made, nor while nothing can come of it."""
        progress = self._claims.get(uid)
        return progress is None or not (progress.stored or progress.hopeless or progress.unsaved is not None)

    def fills_from(self, source: Ref) -> bool:
        """Whether a claim's volume is being filled from it, or is about to be."""
        return any(progress.source == source for progress in self._claims.values())

    def under_way(self) -> list[str]:
        """Claims that something may have been begun for, whether or not the cache still has them."""
        return [
            *self._begun,
            *(uid for uid, progress in self._claims.items() if progress.remembered is not None and uid not in self._begun),
        ]

    def in_progress(self) -> int:
        """Claims whose creation may still be running in the driver."""
        return sum(progress.remembered is not None and progress.unsaved is None for progress in self._claims.values())

    def unsaved(self) -> int:
        """Volumes that exist and whose PersistentVolume the API server has not taken yet."""
        return sum(progress.unsaved is not None for progress in self._claims.values())

    def leaving(self, volume: Volume) -> Leaving:
        """A namesake of one that has left begins at the beginning."""
        uid, progress = self._leaving.get(volume.name, ("", Leaving.NOT_YET))
        return progress if volume.uid == uid else Leaving.NOT_YET

    def left(self, volume: Volume, step: Leaving) -> None:
        """That step is done."""
        self._leaving[volume.name] = (volume.uid, step)

    def forget_volume(self, name: str) -> None:
        self._leaving.pop(name, None)
