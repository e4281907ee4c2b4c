"""Decides which volumes may have been on a node that is gone: those whose machine has no CSINode. Whether it is gone: `evidence`.

The names and uids of Nodes are those of the CSINodes, which have the Node as their owner and are a tenth of its size.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.evidence import is_announced
from sidecar.drain.node_loss.things import LostVolume, lies_on, volume_of
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

MOST_AT_ONCE: Final = 20
"""Suspects that are asked about in one look: what must not happen, that all seem to be gone, is to show before much is done."""

Living = Mapping[str, str]
"""By name of a node: its uid; empty where its CSINode does not say."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A machine that may be gone; without a uid it is only the name that the maker of volumes had."""

    node: str
    uid: str

    @property
    def machine(self) -> Machine | None:
        return Machine(self.node, self.uid) if self.uid else None


def living(csi_node: Json) -> tuple[str, str]:
    """Name and uid of the Node that a CSINode belongs to."""
    meta = csi_node["metadata"]
    uids = [ref.get("uid") for ref in meta.get("ownerReferences") or () if (ref.get("kind"), ref.get("name")) == (names.NODE, meta["name"])]
    return meta["name"], str(uids[0] or "") if uids else ""


def vanished(before: Living, now: Living) -> bool:
    """Whether a machine that was there is not among them any more."""
    return any(name not in now or (uid and now[name] and now[name] != uid) for name, uid in before.items())


def perhaps_lost(obj: Json, driver: str, there: Living) -> LostVolume | None:
    """The record of a PersistentVolume whose machine, or else whose maker, is not among those that are there. Of nearly all others, which
    are many, no record is made."""
    said = lies_on(obj)
    if said is not None and there.get(said.node) in ("", said.uid):
        return None
    lost = volume_of(obj, driver)
    return lost if lost is not None and lost.node and (said is not None or lost.node not in there) else None


def suspect_of(lost: LostVolume) -> Suspect:
    return Suspect(lost.node, lost.lies_on.uid if lost.lies_on else "")


def unreached(volumes: Iterable[LostVolume], nodes: Iterable[Node]) -> list[LostVolume]:
    """Of those that do not say where they are: which no node reaches by its labels. A node that has another name now reaches its own."""
    nodes = tuple(nodes)
    return [
        lost for lost in volumes if not any(term.matches(node.name, node.labels) for term in lost.volume.affinity or () for node in nodes)
    ]


def one_of_each_name(
    found: Mapping[Suspect, Sequence[LostVolume]], stored: Iterable[Suspect], *, acknowledged: Collection[Suspect] = ()
) -> list[Suspect]:
    """There is one report for a name. Where volumes name several machines of it, or some none, it is about one of them: that of which
    something may be cleared away, or else that which has its report, or the one that left more. What the others have left is told with it
    (`beside`). They have their turn once nothing of this one is left but what is kept, or waits for a person."""
    stored = frozenset(stored)

    def turn(suspect: Suspect) -> tuple[bool, bool, bool, bool, int, str]:
        left = found.get(suspect, ())
        proven = suspect in acknowledged or _is_announced(suspect, left)
        may_go = proven and not all(is_kept(lost) for lost in left)
        return len(left) > 0, bool(suspect.uid), may_go, suspect in stored, len(left), suspect.uid

    best: dict[str, Suspect] = {}
    for suspect in sorted({*found, *stored}, key=turn):
        best[suspect.node] = suspect
    return list(best.values())


def is_kept(lost: LostVolume) -> bool:
    """Nothing is left of it but the data that somebody wants to keep."""
    return lost.volume.phase == "Released" and lost.volume.reclaim_policy != "Delete"


def _is_announced(suspect: Suspect, left: Iterable[LostVolume]) -> bool:
    return suspect.machine is not None and is_announced(suspect.machine, [lost.leaving for lost in left])


def beside(suspect: Suspect, found: Mapping[Suspect, Sequence[LostVolume]]) -> dict[Suspect, Sequence[LostVolume]]:
    """What others of its name have left."""
    return {other: volumes for other, volumes in found.items() if other.node == suspect.node and other != suspect}


def chosen(suspects: Iterable[Suspect], asked: Mapping[Suspect, float]) -> tuple[Suspect, ...]:
    """Those to ask about in this look: first those that nobody has asked about, then those whose turn is the longest ago."""
    return tuple(sorted(suspects, key=lambda item: (asked.get(item, float("-inf")), item.node, item.uid))[:MOST_AT_ONCE])
