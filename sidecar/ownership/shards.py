"""Decides of which open claims a node hears where claims carry a label that says their shard (`names.open_claims`).

Each shard is heard by the few nodes that are first in its own order, by rendezvous hashing over the contenders, so a node that joins or
leaves moves the shards that it has and no others. Lists that differ a little leave no shard to nobody.
"""

from collections.abc import Collection, Iterable
from typing import Final

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT
from sidecar.model.names import SHARDS
from sidecar.model.objects import IMMEDIATE, Class
from sidecar.ownership.roster import draw

LISTENERS: Final = 8
"""So many nodes hear of each open claim. In a smaller cluster all do."""
# A node that would hear of nearly all shards hears of all: what it would be spared is not worth a subscription that changes.
_NEARLY_ALL: Final = 0.75


def may_be_shared_out(capabilities: Collection[str], classes: Iterable[Class]) -> bool:
    """Of a driver and its classes. Not where one claim can be made by few nodes only, which may be others than those that hear of it."""
    return not {CLONE_VOLUME, CREATE_DELETE_SNAPSHOT} & {*capabilities} and not any(class_.allowed for class_ in classes)


def any_binds_immediately(classes: Iterable[Class]) -> bool:
    """If not, no node takes an open claim: it has lost its class, or that was made anew."""
    return any(class_.binding_mode == IMMEDIATE for class_ in classes)


def is_shared_out(nodes: int, *, listeners: int = LISTENERS) -> bool:
    return nodes * _NEARLY_ALL > listeners


def listeners_of(shard: str, contenders: Collection[str], *, listeners: int = LISTENERS) -> list[str]:
    """Those who hear of the claims of that shard."""
    if not is_shared_out(len(contenders), listeners=listeners):
        return list(contenders)
    return sorted(contenders, key=lambda node: (draw(shard, node), node))[:listeners]


def heard_shards(node: str, contenders: Collection[str], *, listeners: int = LISTENERS) -> tuple[str, ...]:
    """The shards of which this node hears. It counts as a contender although the list may not have it yet."""
    others = [other for other in contenders if other != node]
    if not is_shared_out(len(others) + 1, listeners=listeners):
        return SHARDS
    return tuple(shard for shard in SHARDS if _is_among_the_first(node, shard, others, listeners))


def _is_among_the_first(node: str, shard: str, others: Collection[str], listeners: int) -> bool:
    """Most nodes are far behind in most orders, and find so many before them soon."""
    mine, before = (draw(shard, node), node), 0
    for other in others:
        before += (draw(shard, other), other) < mine
        if before >= listeners:
            return False
    return True
