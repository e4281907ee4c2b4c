"""The look for what nodes that are gone have left, which all nodes together make about once an hour: it may fall into the time of rest."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES, KubeApi
from sidecar.model import names

Asked = Counter[tuple[str, str]]
"""By node and text."""

_MOST: Final = {f"get {NODES}": 2, f"get {CSI_NODES}": 1}
"""In one look, about one node that is not there. Each object that it has left is deleted once."""


async def left_behind(api: KubeApi, nodes: Collection[str]) -> Mapping[str, str]:
    """The capacity objects of this driver whose mark names a node without a sidecar, with that name. `nodes`: the others."""
    listed = (await api.list_page(CAPACITIES, namespace=NAMESPACE, label_selector=f"{names.CAPACITY_DRIVER_LABEL}={DRIVER}")).items
    marked = {
        str(item["metadata"]["name"]): names.manager_node(item["metadata"]["labels"].get(names.CAPACITY_MANAGER_LABEL, ""))
        for item in listed
    }
    return {name: node for name, node in marked.items() if node and node not in nodes}


def without_one_look(asked: Asked, left: Mapping[str, str]) -> Asked:
    """Takes one look of one node out of what was asked: of the one that asked most. `left`: what there was to look for."""
    looks: dict[str, Asked] = {}
    for (node, what), count in asked.items():
        if most := _most(what, left):
            looks.setdefault(node, Counter())[node, what] = min(count, most)
    longest = max(looks.values(), key=Counter.total, default=Counter())
    return asked - longest


def _most(what: str, left: Mapping[str, str]) -> int:
    about, _, name = what.rpartition(" ")
    if about == f"delete {CAPACITIES}":
        return int(name in left)
    return _MOST.get(about, 0) if name in left.values() else 0
