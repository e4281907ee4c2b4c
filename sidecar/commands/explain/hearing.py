"""Which sidecars hear of a claim, and in which order nodes take it while it is open: by the flags on the line, which are to be theirs."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from sidecar.config.config import Config
from sidecar.config.table import LABELLED, RANKED
from sidecar.csi.api import DriverInfo
from sidecar.drain.wording import first_few
from sidecar.local.claim_labels import REMEDY, is_right, label_of, not_trusted, right_label, why_wrong
from sidecar.model import names
from sidecar.model.objects import Claim, Class, Json
from sidecar.ownership.published_space import Published, free_of
from sidecar.ownership.roster import Roster
from sidecar.ownership.shards import is_shared_out, listeners_of, may_be_shared_out
from sidecar.ownership.tries import Tries

UNKNOWN: Final = "not known from here"
_MOST_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Others:
    """What was found out about the nodes that may take open claims."""

    nodes: frozenset[str] = frozenset()
    published: Published = field(default_factory=dict)
    classes: tuple[Class, ...] = ()
    """Of the driver."""
    ignorance: str = ""
    """Why the nodes are not known."""


@dataclass(frozen=True, slots=True)
class Hearing:
    label: str
    """Empty: there is none, and none is needed."""
    heard_by: str
    order: tuple[str, ...] = ()
    """Of the nodes that take an open claim, first to last. Empty: it is not open, or they go by chance or are not known."""
    with_shares: bool = True
    """Whether free space that nodes publish counts in it."""
    is_shared_out: bool = False

    def rows(self) -> dict[str, str]:
        shown = ({"label": self.label} if self.label else {}) | {"heard by": self.heard_by}
        if self.order:
            equal = "" if self.with_shares else "; no free space of theirs was found, in which namespace they publish it NAMESPACE tells"
            shown["order"] = first_few(self.order, _MOST_SHOWN) + equal
        return shown

    def leaves_out(self, node: str) -> bool:
        """That node does not hear of the open claim at first."""
        return self.is_shared_out and bool(node) and node not in self.order


def hearing_of(obj: Json, config: Config, driver: DriverInfo, others: Others, *, asked: bool) -> Hearing:
    """`asked`: whether the driver itself has told what it is capable of."""
    label = _label(obj) if label_of(obj) or config.watch_scope == LABELLED else ""
    is_open = right_label(obj) in names.SHARDS
    ranked = config.node_deployment_placement == RANKED
    if config.watch_scope != LABELLED:
        heard = "all nodes, by --watch-scope=all; name it here if that of the sidecars is another"
        return Hearing(label, heard, *(_order(obj, others, others.nodes) if is_open and ranked else ()))
    if wrong := why_wrong(obj, driver=driver.name, is_ours={class_.name for class_ in others.classes}.__contains__):
        heard = f"all nodes; {not_trusted(wrong)}; {REMEDY}"
        return Hearing(label, heard, *(_order(obj, others, others.nodes) if is_open and ranked else ()))
    if not is_open:
        node = Claim.of(obj).selected_node
        return Hearing(label, f"node {node} alone" if label_of(obj) != names.WAITING_CLAIM else "no node before one is selected for it")
    if not ranked:
        return Hearing(label, "all nodes: with --node-deployment-placement=random open claims are not shared out")
    if others.ignorance:
        return Hearing(label, f"{UNKNOWN}: {others.ignorance}")
    count = len(others.nodes)
    if not may_be_shared_out(driver.controller, others.classes):
        why = "the driver clones or restores snapshots, or a class of it has allowedTopologies, so open claims are not shared out"
        return Hearing(label, f"all {count} nodes: {why}", *_order(obj, others, others.nodes))
    if not is_shared_out(count):
        return Hearing(label, f"all {count} nodes, too few to share open claims out", *_order(obj, others, others.nodes))
    shard = label_of(obj)
    few = listeners_of(shard, others.nodes)
    unless = "" if asked else ", unless the driver clones or restores snapshots, which only it could say"
    heard = f"{len(few)} of {count} nodes, by its shard {shard}{unless}; others find what these leave"
    return Hearing(label, heard, *_order(obj, others, few), is_shared_out=True)


def _label(obj: Json) -> str:
    has = f"{names.CLAIM_LABEL}={label_of(obj)}" if label_of(obj) else "none"
    return has if is_right(obj) else f"{has}, and {right_label(obj)} is what the policy would give it"


def _order(obj: Json, others: Others, nodes: Collection[str]) -> tuple[tuple[str, ...], bool]:
    """As each of these nodes has it, if it has the same list."""
    claim = Claim.of(obj)
    free = free_of(claim.class_name, nodes, others.published, {class_.name: class_ for class_ in others.classes})
    order = Roster.of(nodes, free).order(claim.uid, claim.requested or 0, last=Tries.of(claim.notes).nodes)
    return tuple(order), bool(free)
