"""Decides whether a machine is gone, and what proves that its disks do not come back.

Gone is what the API server says when it is asked now: no Node and no CSINode of that name, while volumes name that machine themselves.
A node that does not answer, a label that no node has, and time prove nothing. Another machine under the name is another node: what is
still on its disks is for its own driver to say.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.spoken import No, Spoken, Yes


class Evidence(StrEnum):
    """Who says that the disks do not come back."""

    ANNOUNCED = "Announced"
    """Its own sidecar has noted on all of its volumes that it was to be retired, and nobody had taken that back."""
    ACKNOWLEDGED = "Acknowledged"
    """A person has annotated its report."""
    NONE = "None"
    """Nobody: it is gone, and may come back with its disks."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Whether there is such an object could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class LossView:
    """All that the rule looks at. What is asked of the API server is asked past every cache, but for what volumes say: whoever acts on that
    asks for it again."""

    node: str
    machine: Machine | None
    """As its volumes name it; None: they do not say on which machine they are, and only their maker was of that name."""
    node_uid: str | Unread
    """Of the Node of that name; empty: there is none."""
    has_csi_node: bool | Unread
    leaving: Collection[str]
    """What each of its volumes says as `names.LEAVING`; empty for one that says nothing."""
    spoken: Spoken
    """What a person has said on the report on this very machine."""
    missed_since: float
    """Since when it is missed."""
    doubt: str = ""
    """As `gap.doubt`: until when nobody had looked. What volumes say may be older than that; `spoken` is not."""


@dataclass(frozen=True, slots=True)
class NotGone:
    """It is there, or nobody knows that it is not."""

    why: str
    unread: bool = False
    """What it depends on could not be read, so nothing is known at all."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """There is no such node, and nothing tells which machine has the volumes: they are reported, and never touched."""

    why: str
    since: float


@dataclass(frozen=True, slots=True)
class Gone:
    """There is neither a Node nor a CSINode, and the volumes say that they were on this machine."""

    machine: Machine
    evidence: Evidence
    since: float
    why: str
    doubt: str = ""
    """As `LossView.doubt`."""


Verdict = NotGone | Unproven | Gone


def judge(view: LossView) -> Verdict:
    if (there := _there(view)) is not None:
        return there
    return _unproven(view.node, view.missed_since) if view.machine is None else _gone(view, view.machine)


def of_same_name(node: str, machine: Machine | None, *, since: float) -> Gone | Unproven:
    """What is known of another machine of a name that nobody has now, or of volumes of that name that do not say where they are."""
    nothing = f"there is neither a Node nor a CSINode {node}"
    if machine is None:
        return _unproven(node, since)
    return Gone(machine, Evidence.NONE, since, f"{nothing}, and what is said of its disks is said of another machine of that name")


def _unproven(node: str, since: float) -> Unproven:
    why = (
        f"there is no Node {node}, whose sidecar made the volumes, and they do not say on which machine they are: it may have another name"
        " now"
    )
    return Unproven(why, since)


def _there(view: LossView) -> NotGone | None:
    if isinstance(view.node_uid, Unread):
        return NotGone(f"whether there is a Node {view.node} could not be read: {view.node_uid.why}", unread=True)
    if view.machine is not None and view.node_uid == view.machine.uid:
        return NotGone(f"Node {view.node} is there")
    if view.node_uid:
        return NotGone(f"another machine is Node {view.node} now, and its driver says what is on its disks")
    if isinstance(view.has_csi_node, Unread):
        return NotGone(f"whether there is a CSINode {view.node} could not be read: {view.has_csi_node.why}", unread=True)
    return NotGone(f"CSINode {view.node} is there") if view.has_csi_node else None


def _gone(view: LossView, machine: Machine) -> Gone:
    nothing = f"there is neither a Node nor a CSINode {view.node}"
    if isinstance(view.spoken, No):
        return Gone(machine, Evidence.NONE, view.missed_since, f"{nothing}, and {view.spoken.why}", view.doubt)
    if isinstance(view.spoken, Yes):
        return Gone(machine, Evidence.ACKNOWLEDGED, view.missed_since, f"{nothing}, and its report is acknowledged", view.doubt)
    if view.doubt:
        why = (
            f"{nothing}, but nobody had looked until {view.doubt}, as where the API server was restored from a backup: what is stored may"
            " be older than that, and only who acknowledges this report now says that the disks do not come back"
        )
        return Gone(machine, Evidence.NONE, view.missed_since, why, view.doubt)
    if is_announced(machine, view.leaving):
        return Gone(machine, Evidence.ANNOUNCED, view.missed_since, f"{nothing}, and all its volumes say that it was to be retired")
    return Gone(machine, Evidence.NONE, view.missed_since, f"{nothing}, and nobody has said that its disks do not come back")


def is_announced(machine: Machine, leaving: Collection[str]) -> bool:
    """One volume that does not say so may be what an undo had reached when the machine went."""
    return bool(leaving) and all(machine_mark.parse(said) == machine for said in leaving)
