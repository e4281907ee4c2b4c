"""What the demo has to show for itself: each claim's story as a row, and the drivers' own state against what the API server says."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hack.sim.driver.state import State
from sidecar.frozen import frozen
from sidecar.model.objects import Json

_HEAD: Final = ("claim", "size", "node", "to owner", "to bound", "what happened")


@dataclass(slots=True, kw_only=True)
class ClaimHistory:
    """One claim as it was seen from outside. Times are seconds on one clock."""

    name: str
    size: str
    created: float
    uid: str = ""
    node: str = ""
    owned: float | None = None
    bound: float | None = None
    what: str = ""

    def after(self, moment: float | None) -> str:
        return "-" if moment is None else f"{moment - self.created:.1f} s"


@frozen
class Verdict:
    """Names of what should not be."""

    volumes: int
    objects: int
    leaked: tuple[str, ...] = ()
    """Volumes that a driver has and no PersistentVolume tells of."""
    doubled: tuple[str, ...] = ()
    """Names, one per claim, under which there is more than one volume; or claims with more than one PersistentVolume."""
    lost: tuple[str, ...] = ()
    """PersistentVolumes whose volume no driver has."""

    @property
    def ok(self) -> bool:
        return not (self.leaked or self.doubled or self.lost)

    def __str__(self) -> str:
        counts = f"{len(self.leaked)} leaked, {len(self.doubled)} doubled"
        lines = [f"{self.volumes} volumes in the drivers' own state, {self.objects} PersistentVolumes: {counts}"]
        for word, found in (("leaked", self.leaked), ("doubled", self.doubled), ("lost", self.lost)):
            lines += [f"  {word}: {name}" for name in found]
        return "\n".join(lines)


def judge(states: Iterable[State], objects: Iterable[Json]) -> Verdict:
    """`states` are all drivers', `objects` all PersistentVolumes of theirs."""
    volumes = [volume for state in states for volume in state.volumes.values()]
    told = list(objects)
    handles = {obj["spec"]["csi"]["volumeHandle"] for obj in told}
    claims = (f"claim {obj['spec']['claimRef']['name']}" for obj in told)
    return Verdict(
        volumes=len(volumes),
        objects=len(told),
        leaked=tuple(f"{volume.id} ({volume.name})" for volume in volumes if volume.id not in handles),
        doubled=(*_repeated(volume.name for volume in volumes), *_repeated(claims)),
        lost=tuple(sorted(handles - {volume.id for volume in volumes})),
    )


def table(histories: Iterable[ClaimHistory]) -> str:
    """One row a claim, in the order they were made."""
    rows: list[Sequence[str]] = [_HEAD]
    rows += [
        (history.name, history.size, history.node or "-", history.after(history.owned), history.after(history.bound), history.what)
        for history in sorted(histories, key=lambda history: history.created)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join("  ".join(_cell(row, column, widths[column]) for column in range(len(_HEAD))).rstrip() for row in rows)


def _cell(row: Sequence[str], column: int, width: int) -> str:
    """Sizes and times stand on the right."""
    return row[column].rjust(width) if _HEAD[column] in ("size", "to owner", "to bound") else row[column].ljust(width)


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
