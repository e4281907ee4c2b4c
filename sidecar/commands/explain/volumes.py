"""`explain volumes`: each volume with its place, its class, the policy for each intent and who said it, and the pods that use it.

At the end, once, the orphans: volumes that no living node reaches and none made. They are on no node, so no verdict names them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.commands.explain.judged import listed, own_of
from sidecar.commands.explain.listing_io import Cluster
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.forms import WIDE, structured
from sidecar.commands.tables import table
from sidecar.commands.text import size
from sidecar.config.config import Config
from sidecar.drain.policy import Resolved
from sidecar.drain.snapshot import Own
from sidecar.drain.things import Thing, classify
from sidecar.drain.words import Intent, first_few
from sidecar.errors import Fatal
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Volume
from sidecar.observe.sanitize import clipped

ORPHAN: Final = "no living node reaches it, and none that lives made it"
ORPHAN_REMEDY: Final = (
    "if a node has lost a label that the volume asks for, restore the label; if its node is gone for good, so is the data: delete the "
    f"claim and the PersistentVolume, and remove the finalizer {names.VOLUME_FINALIZER}, for no sidecar is left to do it"
)
_HEADS: Final = ("VOLUME", "NODE", "CLAIM", "SIZE", "CLASS", "STORAGE CLASS", "POLICY (REBOOT)", "POLICY (RETIRE)", "USED BY")
_WIDE_HEADS: Final = (*_HEADS, "DRIVER", "HANDLE", "RECLAIM", "LIES ON", "NOTE")
# Characters of what is noted of a machine: a name and a uid have no more, and anybody may have written something else.
_LONGEST: Final = 317


@dataclass(frozen=True, slots=True)
class Row:
    """One volume."""

    volume: Volume
    thing: Thing
    nodes: tuple[str, ...]
    """Where it is; several if several nodes reach it."""

    @property
    def orphan(self) -> bool:
        return not self.nodes


async def answer(config: Config, question: Question) -> Answer:
    cluster = await listed(config)
    if question.node and question.node not in cluster.nodes:
        raise Fatal(f"there is no node {question.node}; check the name")
    return Answer(told(rows(cluster, question, own_of(config)), cluster, question))


def rows(cluster: Cluster, question: Question, own: Own) -> tuple[Row, ...]:
    """In the order of names, orphans last. A volume that no node has to reach is nobody's concern here."""
    drivers = {volume.driver for volume in cluster.volumes.values()}
    found = [
        Row(thing.volume, thing, cluster.nodes_of(thing.volume))
        for driver in drivers
        if question.driver in ("", driver)
        for thing in classify(cluster.anywhere(driver, own))
        if thing.volume is not None
    ]
    asked = (row for row in found if question.node in ("", *row.nodes) and (row.nodes or row.volume.affinity is not None))
    return tuple(sorted(asked, key=lambda row: (row.orphan, row.volume.name)))


# --- telling ----------------------------------------------------------------------------------------------------------


def told(found: Sequence[Row], cluster: Cluster, question: Question) -> str:
    orphans = [row for row in found if row.orphan]
    if question.is_structured:
        said: Json = {
            "observedAt": timestamps.to_text(cluster.at),
            "volumes": [_as_json(row) for row in found if not row.orphan],
            "orphans": [{**_as_json(row), "message": ORPHAN, "remedy": ORPHAN_REMEDY} for row in orphans],
            "unknown": list(cluster.ignorance),
        }
        return structured(said, question.form)
    return "\n".join(_lines([row for row in found if not row.orphan], orphans, cluster, wide=question.form == WIDE))


def _lines(placed: Sequence[Row], orphans: Sequence[Row], cluster: Cluster, *, wide: bool) -> Iterable[str]:
    heads = _WIDE_HEADS if wide else _HEADS
    yield from table([_cells(row, wide=wide) for row in placed], heads=heads)
    if not placed:
        yield "no volume of a driver with topology is on any node that was asked about"
    if orphans:
        yield ""
        yield f"Orphans: {ORPHAN}."
        yield from (f"  {line}" for line in table([_cells(row, wide=wide) for row in orphans], heads=heads, indent=2))
        yield f"  {ORPHAN_REMEDY}"
    yield from (f"not known: {sentence}" for sentence in cluster.ignorance)


def _cells(row: Row, *, wide: bool) -> tuple[str, ...]:
    volume, thing = row.volume, row.thing
    narrow = (
        volume.name,
        first_few(row.nodes),
        thing.claim,
        size(thing.bytes),
        str(thing.class_),
        volume.class_name,
        *(_policy(thing.policy(intent)) for intent in Intent),
        first_few(_users(thing)),
    )
    if not wide:
        return narrow
    return *narrow, volume.driver, volume.handle, volume.reclaim_policy, clipped(volume.lies_on, _LONGEST), thing.excuse


def _policy(resolved: Resolved | None) -> str:
    if resolved is None:
        return ""
    return f"{resolved.policy} ({resolved.source})" + ("" if resolved.certain else ", not certain")


def _users(thing: Thing) -> tuple[str, ...]:
    return tuple(pod.full_name for pod in thing.use.everybody)


def _as_json(row: Row) -> Json:
    volume, thing = row.volume, row.thing
    policies = {str(intent): _policy_json(resolved) for intent, resolved in thing.policies.items()}
    texts = {"claim": thing.claim, "storageClass": volume.class_name, "liesOn": volume.lies_on, "note": thing.excuse}
    return {
        "name": volume.name,
        "driver": volume.driver,
        "handle": volume.handle,
        "nodes": list(row.nodes),
        **{key: text for key, text in texts.items() if text},
        "bytes": thing.bytes,
        "class": str(thing.class_),
        "reclaimPolicy": volume.reclaim_policy,
        "policies": policies,
        "usedBy": list(_users(thing)),
        "orphan": row.orphan,
    }


def _policy_json(resolved: Resolved) -> Json:
    return {"policy": str(resolved.policy), "source": resolved.source, "certain": resolved.certain}
