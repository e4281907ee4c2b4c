"""Which other node could take a pod and the volumes that are made for it: by taints, labels, and the free space that nodes publish.

CPU and memory are not looked at, so that a node fits means that the data would, and is no promise of the scheduler.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sidecar.drain.words import first_few
from sidecar.model import names, nodes
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import CapacityRecord, Class
from sidecar.model.topology import Segment, allows

Wanted = Sequence[tuple[str, int]]  # class and bytes of each volume


def node_for(
    pod: Pod,
    wanted: Wanted,
    others: Iterable[Node],
    *,
    capacities: Iterable[CapacityRecord],
    classes: Mapping[str, Class],
    out: Mapping[str, str],
) -> tuple[str, str]:
    """The first node by name that takes all of it, and if none does, why. `out`: by node, why it is out of the question anyhow."""
    published = tuple(record for record in capacities if record.node_topology is not None and record.capacity is not None)
    why: dict[str, str] = {}
    for node in sorted(others, key=lambda node: node.name):
        found = out.get(node.name) or why_unfit(node, pod)
        if not found and node.annotations.get(names.DRAIN_INTENT, "").strip():
            found = f"it is itself being drained (annotation {names.DRAIN_INTENT})"
        found = found or _no_room(node, wanted, published, classes)
        if not found:
            return node.name, ""
        why[node.name] = found
    told = [f"{name}: {said}" for name, said in why.items()]
    return "", first_few(told, 3) or "there is no other node"


def why_unfit(node: Node, pod: Pod) -> str:
    """Why the pod could not run there, whatever its volumes are and people announce; empty: it could."""
    if node.deleting:
        return "it is being deleted"
    if node.ready != nodes.TRUE:
        return f"it is not ready (Ready={node.ready})"
    leaving = sorted(str(taint) for taint in node.taints if taint.key in (names.EVACUATE_TAINT, *names.RETIRING_TAINTS))
    if leaving:
        return f"it is itself being drained (taint {leaving[0]})"
    if node.cordoned:
        return "it is cordoned"
    for taint in sorted(node.taints, key=str):
        if not pod.tolerates([taint]):
            return f"its taint {taint} is not tolerated"
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return "the pod's node selector does not match it"
    if pod.affinity is not None and not any(term.matches(node.name, node.labels) for term in pod.affinity):
        return "the pod's node affinity does not match it"
    return ""


def _no_room(node: Node, wanted: Wanted, published: Sequence[CapacityRecord], classes: Mapping[str, Class]) -> str:
    """What several classes draw on, their records name as one pool: there the sum has to fit."""
    needed: dict[str, int] = defaultdict(int)
    free: dict[str, int] = {}
    for name, size in wanted:
        class_ = classes.get(name)
        if class_ is None:
            return f"StorageClass {name!r} does not exist"
        here = [record for record in published if (record.node_topology or {}).items() <= node.labels.items()]
        records = [record for record in here if record.class_name == name]
        if not records:
            return f"no CSIStorageCapacity is published there for StorageClass {name!r}"
        record = max(records, key=lambda record: record.capacity or 0)
        if class_.allowed and not allows(class_.allowed, Segment.of(record.node_topology or {})):
            return f"allowedTopologies of StorageClass {name!r} do not include it"
        if record.maximum is not None and size > record.maximum:
            return "the volume is larger than the maximumVolumeSize published there"
        pool = record.annotations.get(names.POOL) or f"class {name}"
        needed[pool] += size
        free[pool] = max(free.get(pool, 0), record.capacity or 0)
    missing = sum(max(size - free[pool], 0) for pool, size in needed.items())
    return f"{missing} bytes are missing" if missing else ""
