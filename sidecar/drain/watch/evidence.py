"""Whether a machine is gone, and what proves that its disks do not come back. Pure.

Gone is what the API server says when it is asked now: no Node and no CSINode of that name. A node that does not answer, a label that no
node has, and time prove nothing. Another machine under the name is another node: what is on its disks its own driver says.

Which machine had a volume its PersistentVolume says (`lies-on: node/uid`, written with it), or the report that the node's own sidecar left
when the node was announced to go. Nothing is ever taken of a volume of which neither says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sidecar.drain.where import maker_of
from sidecar.drain.words import quoted
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json, Volume

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """One Node object, and so one machine. Without a uid it is only the name that the maker of volumes had."""

    node: str
    uid: str

    def __str__(self) -> str:
        return f"{self.node}/{self.uid}"


def machine_of(text: str) -> Machine | None:
    """None for what the API server could not have stored as a name and a uid: anybody may have edited it."""
    node, slash, uid = text.partition("/")
    return Machine(node, uid) if slash and _NAME.fullmatch(node) and _UID.fullmatch(uid) else None


class Evidence(StrEnum):
    """Who says that the disks do not come back."""

    ANNOUNCED = "Announced"
    """Its own sidecar: the node was announced to be retired, and nobody had taken that back."""
    ACKNOWLEDGED = "Acknowledged"
    """A person, on its report, by the machine's uid."""
    NONE = "None"
    """Nobody: it is gone, and may come back with its disks."""
    UNPROVEN = "Unproven"
    """Nothing tells which machine has the volumes."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A machine that is gone."""

    machine: Machine
    evidence: Evidence
    why: str

    @property
    def is_proven(self) -> bool:
        return self.evidence in (Evidence.ANNOUNCED, Evidence.ACKNOWLEDGED)


# --- the report that a leaving node leaves ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeftReport:
    """The report on a node that no Node owns: its own sidecar took the owner off when it was announced to go, or a peer has made it."""

    node: str
    uid: str
    acknowledged: str
    leaving: frozenset[str] | None
    """Uids of the volumes that were on it when it was last judged; None: it was not announced, or that was taken back."""
    is_of_gone_node: bool
    """A peer has written there what the node left."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], driver: str) -> "LeftReport | None":
        """None: it is another driver's, or a Node owns it. Read with distrust."""
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        if spec.get("driver") != driver or meta.get("ownerReferences"):
            return None
        uid, said = str(status.get("nodeUID") or ""), status.get("leaving")
        of_it = isinstance(said, Mapping) and said.get("nodeUID") == uid
        volumes = said.get("volumes") if isinstance(said, Mapping) and of_it else None
        leaving = frozenset(str(item) for item in volumes) if isinstance(volumes, list) else None
        acknowledged = str((meta.get("annotations") or {}).get(names.ACKNOWLEDGED) or "").strip()
        return cls(str(spec.get("nodeName") or ""), uid, acknowledged, leaving, bool(status.get("gone")))

    @property
    def machine(self) -> Machine:
        return Machine(self.node, self.uid)


def who_had(volume: Volume, reports: Iterable[LeftReport]) -> Machine:
    """The machine that had this volume; without uid: neither the volume nor a report says which."""
    said = machine_of(volume.lies_on)
    if said is not None:
        return said
    found = [report for report in reports if report.leaving is not None and volume.uid in report.leaving]
    return found[0].machine if len(found) == 1 else Machine(maker_of(volume), "")


# --- the judgement ----------------------------------------------------------------------------------------------------

Living = Mapping[str, str]
"""By name of a node: its uid; empty where its CSINode does not say."""


def living(csi_node: Json) -> tuple[str, str]:
    """Name and uid of the Node that a CSINode belongs to. They are a tenth of the size of Nodes."""
    meta = csi_node["metadata"]
    uids = [ref.get("uid") for ref in meta.get("ownerReferences") or () if (ref.get("kind"), ref.get("name")) == (names.NODE, meta["name"])]
    return meta["name"], str(uids[0] or "") if uids else ""


def may_be_gone(machine: Machine, there: Living) -> bool:
    uid = there.get(machine.node)
    return bool(machine.node) and (uid is None or (bool(uid) and bool(machine.uid) and uid != machine.uid))


def unreached(volumes: Iterable[Volume], nodes: Iterable[Node]) -> list[Volume]:
    """Of those that do not say which machine had them: which no node reaches by its labels. A node that was renamed reaches its own."""
    nodes = tuple(nodes)
    return [
        volume for volume in volumes if not any(term.matches(node.name, node.labels) for term in volume.affinity or () for node in nodes)
    ]


def judge(machine: Machine, *, node_uid: str, has_csi_node: bool, report: LeftReport | None) -> Loss | None:
    """None: it is there. `node_uid`: of the Node of its name as the API server has it now; empty: there is none."""
    if node_uid or has_csi_node:
        return None
    nothing = f"there is neither a Node nor a CSINode {machine.node}"
    if not machine.uid:
        return Loss(
            machine, Evidence.UNPROVEN, f"{nothing}, and its volumes do not say on which machine they are: it may have been renamed"
        )
    ours = report if report is not None and report.machine == machine else None
    if ours is not None and ours.acknowledged == machine.uid:
        return Loss(machine, Evidence.ACKNOWLEDGED, f"{nothing}, and its report is acknowledged")
    if ours is not None and ours.acknowledged:
        said = f"its report is annotated with {quoted(ours.acknowledged)}, which is not the uid {machine.uid}"
        return Loss(machine, Evidence.NONE, f"{nothing}; {said}")
    if ours is not None and ours.leaving is not None:
        return Loss(machine, Evidence.ANNOUNCED, f"{nothing}, and it had been announced to be retired")
    return Loss(machine, Evidence.NONE, f"{nothing}, and nobody has said that its disks do not come back")
