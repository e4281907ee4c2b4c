"""Decides what a node's sidecar notes on a PersistentVolume: which machine has its bytes, and that this machine has been announced to go.

By these notes another node may delete what a gone machine has left, so a wrong note destroys data and a missing one costs a person's look.
Hence proof is asked for, and ignorance is never a note. A volume may lie here only if its node affinity leaves no other node, or if it has
none and this node has made it: what several nodes reach is shared storage, or may be tomorrow, as where a zone has one node today. Then
one of three must say that the machine is this one and not an earlier one of the same name:

- this process has made the volume;
- the driver lists it on this node and on no other. That counts only where the driver calls its place by this node's name: a driver of a
  zone says the same on each of its nodes;
- the volume is not older than the Node, and a driver that has listed its volumes has it among them.

What pods mount proves nothing: they mount network storage as well. A note of another machine, also of one that had this node's name, is
rewritten on the driver's word alone, and only if that machine's node is no more; else it is left, and told, as is one that is no note at
all. So two nodes never write over each other's notes. A volume whose affinity names a node that is gone has come here with a renamed node,
if the driver says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sidecar.drain.facts.driver_list import DriverList
from sidecar.drain.facts.locations import maker_of
from sidecar.drain.machine_mark import Machine, parse, text
from sidecar.model import names
from sidecar.model.objects import Json, Volume
from sidecar.model.topology import Requirement, Term


@dataclass(frozen=True, slots=True)
class NotesView:
    """All that the rule looks at beside the volume."""

    machine: Machine
    """This one."""
    since: str
    """When its Node was created; empty: not known."""
    driver: str
    identity: str
    """Of this process, as it writes it into volumes."""
    leaving: bool
    """As `Signals.leaving`."""
    listed: DriverList
    names_this_node: bool
    """The driver's topology says the name of this node, so what it lists here alone is on no other machine."""
    writes: bool = True
    """False: this process judges nothing, so what an earlier one has said of the machine's leaving is taken back, and no more is noted."""
    known: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """By name: whether there is such a Node, as far as that was asked."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write these annotations; None takes one away."""

    volume: Volume
    annotations: Mapping[str, str | None]
    why: str

    @property
    def urgent(self) -> bool:
        """It says something of the machine's leaving: the node may be gone in a minute, or may stay after all."""
        return names.LEAVING in self.annotations

    @property
    def announces(self) -> bool:
        """It says that the machine is leaving, by which others may delete what it has once it is gone."""
        return bool(self.annotations.get(names.LEAVING))

    @property
    def turn(self) -> tuple[bool, bool, str]:
        """The order in which notes are written: what a claim waits for comes first."""
        return not self.urgent, self.volume.phase != "Bound", self.volume.name


@dataclass(frozen=True, slots=True)
class Ask:
    """Find out whether there is a Node of this name, then decide again."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """What is noted is not this machine's, and people are told that it stays."""

    why: str


@dataclass(frozen=True, slots=True)
class Fine:
    """Nothing is to be written."""

    why: str


Decision = Note | Ask | Left | Fine


def decide(volume: Volume, view: NotesView) -> Decision:
    if volume.driver != view.driver:
        return Fine("it is another driver's")
    if not view.writes:
        if _names_this_node(volume.leaving, view):
            return Note(volume, {names.LEAVING: None}, "this process does not judge whether the node is to be retired")
        return Fine("this process notes nothing")
    mine = text(view.machine)
    if volume.lies_on == mine:
        return _noted(volume, view)
    decision = _noted_otherwise(volume, view) if volume.lies_on else _not_noted(volume, view)
    if not isinstance(decision, Note) and _names_this_node(volume.leaving, view):
        return Note(volume, {names.LEAVING: None}, "a machine of this name is here, and it is not noted that it has the volume")
    return decision


def patch(note: Note) -> Json:
    """Of exactly the object that was seen: a request that gets no answer may come late, when somebody has undone what was announced."""
    meta = {"uid": note.volume.uid, "resourceVersion": note.volume.resource_version}
    return {"metadata": meta | {"annotations": dict(note.annotations)}}


# --- what is noted already --------------------------------------------------------------------------------------------


def _noted(volume: Volume, view: NotesView) -> Note | Fine:
    wanted = text(view.machine) if view.leaving else ""
    if volume.leaving == wanted:
        return Fine("it is noted")
    return Note(
        volume, {names.LEAVING: wanted or None}, "the node is to be retired" if wanted else "the node is not to be retired any more"
    )


def _noted_otherwise(volume: Volume, view: NotesView) -> Decision:
    noted = parse(volume.lies_on)
    if not _may_lie_here(volume, view, rival=noted.node if noted else ""):
        return Fine("it does not lie here")
    if noted is None:
        return _left(volume, view, "what is noted names no machine")
    if not _is_listed_here_alone(volume, view):
        return _left(volume, view, "another machine is noted, and the driver does not say that the volume is on this node alone")
    if noted.node == view.machine.node:
        return _note(volume, view, "the driver lists it here, and it was noted for an earlier machine of this name")
    return _if_gone(volume, view, noted.node)


def _not_noted(volume: Volume, view: NotesView) -> Decision:
    maker = maker_of(volume)
    if _names_alone(volume, view.machine.node):
        why = _proof(volume, view)
        return _note(volume, view, why) if why else Fine("it is not proven that this machine has it")
    if _may_lie_here(volume, view, rival=maker) and _is_listed_here_alone(volume, view):
        return _if_gone(volume, view, maker)
    return Fine("it does not lie here, or not only here")


def _if_gone(volume: Volume, view: NotesView, rival: str) -> Decision:
    """The driver has it here, and it says the name of another node: the machine has another name now, unless that node is still there."""
    match view.known.get(rival):
        case None:
            return Ask(rival, f"the driver lists it here, and it says that it is on {rival}")
        case True:
            return _left(volume, view, f"it says that it is on node {rival}, which exists, and the driver lists it here")
        case False:
            return _note(volume, view, f"the driver lists it here, and node {rival}, of which it speaks, is gone")


def _left(volume: Volume, view: NotesView, why: str) -> Left | Fine:
    """Volumes of other nodes are their own sidecars' business."""
    return Left(why) if _names_alone(volume, view.machine.node) else Fine(why)


def _note(volume: Volume, view: NotesView, why: str) -> Note:
    mine = text(view.machine)
    wanted: dict[str, str | None] = {names.LIES_ON: mine}
    if view.leaving:
        wanted[names.LEAVING] = mine
    elif volume.leaving:
        wanted[names.LEAVING] = None
    return Note(volume, wanted, why)


# --- where it lies ----------------------------------------------------------------------------------------------------


def _proof(volume: Volume, view: NotesView) -> str:
    """Why it is this machine, of all that have had the node's name; empty: that is not known."""
    if volume.identity == view.identity:
        return "this process has made it"
    if _is_listed_here_alone(volume, view):
        return "the driver lists it here and nowhere else"
    listed = view.listed
    if listed.not_asked or (listed.answered and volume.handle not in listed.handles):
        return ""
    if not view.since or volume.created < view.since:
        return ""
    return "it names this node alone, and is not older than the Node"


def _is_listed_here_alone(volume: Volume, view: NotesView) -> bool:
    return view.names_this_node and view.listed.handles.get(volume.handle) is True


def _names_this_node(leaving: str, view: NotesView) -> bool:
    """Even an earlier machine of the name: if it came back as this one, disks and all, its old word must not count when this one goes."""
    said = parse(leaving)
    return said is not None and said.node == view.machine.node


def _may_lie_here(volume: Volume, view: NotesView, *, rival: str) -> bool:
    """It names this node alone, or, as after the node was renamed, that other one alone."""
    return _names_alone(volume, view.machine.node) or (bool(rival) and _names_alone(volume, rival))


def _names_alone(volume: Volume, node: str) -> bool:
    if volume.affinity is None:
        return maker_of(volume) == node
    return bool(volume.affinity) and all(_term_names_alone(term, node) for term in volume.affinity)


def _term_names_alone(term: Term, node: str) -> bool:
    return any(_allows_only(item, node) for item in (*term.requirements, *term.fields))


def _allows_only(item: Requirement, node: str) -> bool:
    """As the policies of components/own-node have it: of a value that is not the node's name, it is not known that no other node has it."""
    return item.operator == "In" and item.values == (node,)
