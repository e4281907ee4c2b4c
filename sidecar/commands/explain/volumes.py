"""`explain volumes`: each volume with its place, its class, the policy for each intent and who said it, and the pods that use it.

At the end, once, the orphans: volumes that no living node reaches and none made. They are on no node, so no verdict names them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sidecar.commands.explain.answer import Answer
from sidecar.commands.explain.node import default_policy
from sidecar.commands.explain.nodes import listed
from sidecar.commands.explain.question import Question
from sidecar.commands.forms import WIDE, structured
from sidecar.commands.tables import table
from sidecar.config.config import Config
from sidecar.drain.facts.listed_cluster import ListedCluster, NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.judgement.pod_fates import counts_as_gone
from sidecar.drain.judgement.policy import Resolved
from sidecar.drain.judgement.volumes import LocalItem, classify
from sidecar.drain.publish.as_text import size
from sidecar.drain.publish.from_outside import snapshot_of
from sidecar.drain.vocabulary import Intent, Policy
from sidecar.drain.wording import first_few
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
_WIDE_HEADS: Final = (*_HEADS, "DRIVER", "HANDLE", "RECLAIM", "LIES ON", "LEAVING", "NOTE")
# Characters of what is noted of a machine: a name and a uid have no more, and anybody may have written something else.
_LONGEST: Final = 317


@dataclass(frozen=True, slots=True)
class Row:
    """One volume."""

    volume: Volume
    item: LocalItem
    nodes: tuple[str, ...]
    """Where it is; several if several nodes reach it."""
    orphan: bool = False


async def answer(config: Config, question: Question) -> Answer:
    cluster = await listed(config)
    if question.node and question.node not in {node.name for node in cluster.nodes}:
        raise Fatal(f"there is no node {question.node}; check the name")
    return Answer(told(rows(cluster, question, default_policy=default_policy(config)), cluster, question))


def rows(cluster: ListedCluster, question: Question, *, default_policy: Policy | None) -> tuple[Row, ...]:
    """In the order of names, orphans last."""
    picker = NodePicker(cluster)
    nodes = (question.node,) if question.node else picker.names()
    there = _merged(row for name in nodes for row in _of_node(picker.node(name), question.driver, default_policy))
    loose = _of_nowhere(picker, known={row.volume.name for row in there}, question=question, default_policy=default_policy)
    return tuple(sorted((*there, *loose), key=lambda row: (row.orphan, row.volume.name)))


def _of_node(node: ListedNode, driver: str, default_policy: Policy | None) -> Iterable[Row]:
    for its in node.all_drivers():
        if driver in ("", its):
            yield from _rows_of(node, its, default_policy)


def _rows_of(node: ListedNode, driver: str, default_policy: Policy | None) -> Iterable[Row]:
    snapshot = snapshot_of(node, driver, default_policy=default_policy)
    running = [pod for pod in snapshot.pods if not pod.ended and not counts_as_gone(pod, snapshot)]
    named = {volume.name: volume for volume in snapshot.volumes}
    for item in classify(snapshot, running):
        if item.name in named and item.object.kind in (names.VOLUME, names.CLAIM):
            yield Row(named[item.name], item, (node.node_name,))


def _merged(found: Iterable[Row]) -> tuple[Row, ...]:
    """A volume that is on several nodes once."""
    merged: dict[str, Row] = {}
    for row in found:
        before = merged.get(row.volume.name)
        merged[row.volume.name] = row if before is None else replace(before, nodes=(*before.nodes, *row.nodes))
    return tuple(merged.values())


def _of_nowhere(picker: NodePicker, *, known: set[str], question: Question, default_policy: Policy | None) -> Iterable[Row]:
    """What no node has for itself: volumes that several nodes reach, and orphans."""
    with_topology = picker.drivers_with_topology()
    left = [volume for volume in picker.volumes() if volume.name not in known and question.driver in ("", volume.driver)]
    reached = [volume for volume in left if volume.driver in with_topology and picker.map.reached_by(volume)]
    shared = {volume.name for volume in reached if question.node in ("", *picker.map.reached_by(volume))}
    orphans = {volume.name for volume in left if not question.node and picker.map.is_orphan(volume)}
    chosen = [volume for volume in left if volume.name in shared | orphans]
    nowhere = picker.nowhere(chosen)
    for driver in sorted({volume.driver for volume in chosen}):
        for row in _rows_of(nowhere, driver, default_policy):
            yield replace(row, nodes=picker.map.reached_by(row.volume), orphan=row.volume.name in orphans)


# --- telling ----------------------------------------------------------------------------------------------------------


def told(found: Sequence[Row], cluster: ListedCluster, question: Question) -> str:
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


def _lines(placed: Sequence[Row], orphans: Sequence[Row], cluster: ListedCluster, *, wide: bool) -> Iterable[str]:
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
    volume, item = row.volume, row.item
    narrow = (
        volume.name,
        first_few(row.nodes),
        item.claim,
        size(item.bytes),
        str(item.class_),
        item.storage_class,
        *(_policy(item.policy(intent)) for intent in Intent),
        first_few(_users(item)),
    )
    if not wide:
        return narrow
    noted = clipped(volume.lies_on, _LONGEST), clipped(volume.leaving, _LONGEST)
    return *narrow, volume.driver, volume.handle, volume.reclaim_policy, *noted, item.excuse


def _policy(resolved: Resolved | None) -> str:
    if resolved is None:
        return ""
    return f"{resolved.policy} ({resolved.source})" + ("" if resolved.certain else ", not certain")


def _users(item: LocalItem) -> tuple[str, ...]:
    return tuple(pod.full_name for pod in item.use.everybody)


def _as_json(row: Row) -> Json:
    volume, item = row.volume, row.item
    policies = {str(intent): _policy_json(resolved) for intent in Intent if (resolved := item.policy(intent))}
    noted = {"liesOn": volume.lies_on, "leaving": volume.leaving}
    texts = {"claim": item.claim, "storageClass": item.storage_class, **noted, "note": item.excuse}
    return {
        "name": volume.name,
        "driver": volume.driver,
        "handle": volume.handle,
        "nodes": list(row.nodes),
        **{key: text for key, text in texts.items() if text},
        "bytes": item.bytes,
        "class": str(item.class_),
        "reclaimPolicy": volume.reclaim_policy,
        "policies": policies,
        "usedBy": list(_users(item)),
        "orphan": row.orphan,
    }


def _policy_json(resolved: Resolved) -> Json:
    return {"policy": str(resolved.policy), "source": resolved.source, "certain": resolved.certain}
