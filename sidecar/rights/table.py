"""The rights that this program uses, and what is off without each: what the sample roles in deploy/ grant, and what they leave out.

The running program does not load it: at a start it asks for one right (`asking_io`). It is for whoever reports on all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.kube.api import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    BUDGETS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_NODES,
    DEPLOYMENTS,
    DRAIN_REPORTS,
    DRAIN_RULES,
    EVENTS,
    INSTANCES,
    LEASES,
    MAINTENANCES,
    NAMESPACES,
    NODES,
    PODS,
    REFERENCE_GRANTS,
    REPLICA_SETS,
    SECRETS,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    STATEFUL_SETS,
    VOLUMES,
    Resource,
)
from sidecar.rights.rights import FINALIZER_OFF, PATCH_VOLUMES, UPDATE_VOLUMES, Right, Rights


class Sample(Enum):
    """Which role in deploy/ grants it."""

    BASE = "base"
    DRAIN = "components/drain"
    GATE = "components/gate"
    EMPTYING = "components/emptying"
    MAINTENANCE = "components/maintenance"
    FAILOVER = "components/failover"
    NODE_LOSS = "components/node-loss"
    REPROVISION = "components/reprovision"
    REPORT = "components/report-only"
    NONE = ""
    """Whoever needs it grants it: deploy/README.md (Rights)."""


@dataclass(frozen=True, slots=True)
class Row:
    right: Right
    samples: frozenset[Sample]
    off: str
    """What does not work without it. Empty: nothing; upstream's sample grants it, or another right does as well."""

    @property
    def remedy(self) -> str:
        role = "a Role in this program's namespace" if self.right.own_namespace else "a ClusterRole"
        return f"grant {self.right}, in {role}"


def _rows(resource: Resource, verbs: str, *samples: Sample, off: str = "", part: str = "", own_namespace: bool = False) -> Iterable[Row]:
    for verb in verbs.split():
        yield Row(Right(verb, resource, part, own_namespace), frozenset(samples), off)


_EVERYTHING: Final = "all: the program is not ready, or not for long"
_DRAINS: Final = "drain decisions"
_REPORTS: Final = "drain decisions: reports"
_GATE: Final = "the gate of drain decisions"
_SLOTS: Final = "drain decisions: slots for evacuations, and looking after silent sidecars and gone nodes"
_ANEW: Final = "--allow-reprovision: no replica is made anew"
_LOSS: Final = "--node-delete-policy"
_PLANNED: Final = "--maintenance: no maintenance is carried out"
_FAILS_OVER: Final = "--failover: nothing fails over"
_CAPACITY: Final = "publishing capacity"
_COUNTS: Final = "--evacuation-evict: pods of these workloads are not evicted"
_GONE: Final = "clearing the capacity objects of nodes that are gone"

TABLE: Final[tuple[Row, ...]] = (
    *_rows(VOLUMES, "list watch", Sample.BASE, Sample.REPORT, off=_EVERYTHING),
    *_rows(VOLUMES, "get", Sample.BASE, Sample.REPORT, off="deleting released volumes, and hearing at once of those that go"),
    *_rows(VOLUMES, "create", Sample.BASE, off="creating volumes"),
    *_rows(VOLUMES, "delete", Sample.BASE, off="deleting PersistentVolumes: those whose volume is deleted stay Released"),
    *_rows(
        VOLUMES,
        "patch",
        Sample.BASE,
        Sample.DRAIN,
        off=f"{FINALIZER_OFF}; with --drain-report, acknowledgements of volumes that a pod uses stay",
    ),
    *_rows(VOLUMES, "update", Sample.NONE),  # does what `patch` does for the finalizer
    *_rows(CLAIMS, "list watch", Sample.BASE, Sample.REPORT, off=_EVERYTHING),
    *_rows(CLAIMS, "get", Sample.BASE, Sample.REPORT, off="looking after volumes whose claim is gone, or was taken by another node"),
    *_rows(CLAIMS, "update", Sample.BASE, off="claims with immediate binding, giving late-binding ones back for want of room, and clones"),
    *_rows(CLASSES, "list watch", Sample.BASE, Sample.REPORT, off=_EVERYTHING),
    *_rows(
        CLASSES,
        "get",
        Sample.BASE,
        Sample.REPORT,
        off="looking after volumes whose class is new; and policies of classes in drain decisions",
    ),
    *_rows(
        CSI_NODES,
        "list",
        Sample.BASE,
        Sample.NODE_LOSS,
        Sample.FAILOVER,
        off=f"--node-deployment-placement=ranked: claims are raced for; {_GONE}; {_LOSS}: nothing is looked for; and {_FAILS_OVER}",
    ),
    *_rows(CSI_NODES, "get", Sample.BASE, Sample.NODE_LOSS, off=f"{_GONE}; and {_LOSS}: no node is known to be gone"),
    *_rows(CSI_NODES, "watch", Sample.BASE),
    *_rows(
        ATTACHMENTS, "list", Sample.BASE, Sample.NODE_LOSS, Sample.FAILOVER, off=f"deleting volumes of drivers that attach; {_FAILS_OVER}"
    ),
    *_rows(ATTACHMENTS, "watch", Sample.BASE, off="deleting volumes of drivers that attach"),
    *_rows(ATTACHMENTS, "get", Sample.BASE, Sample.FAILOVER, off=_FAILS_OVER),
    *_rows(ATTACHMENTS, "delete", Sample.FAILOVER, off="--failover=Act: what was attached to a lost node stays so for minutes"),
    *_rows(NODES, "get list", Sample.BASE, Sample.DRAIN, off=f"{_DRAINS}; and {_GONE}"),
    *_rows(NODES, "watch", Sample.BASE, Sample.DRAIN, off=_DRAINS),
    *_rows(NODES, "patch", Sample.DRAIN, off="drain decisions: the marks on the Node"),
    *_rows(NODES, "patch", Sample.DRAIN, part="status", off="drain decisions: the conditions of the Node"),
    *_rows(EVENTS, "create", Sample.BASE, Sample.REPORT, off="Events"),
    *_rows(EVENTS, "patch", Sample.BASE, Sample.REPORT, off="Events: counting those that come again"),
    *_rows(EVENTS, "list watch update", Sample.BASE),
    *_rows(SNAPSHOTS, "get", Sample.BASE, off="restoring snapshots"),
    *_rows(SNAPSHOTS, "list", Sample.BASE, off="the sweep of snapshots whose protection was left behind"),
    *_rows(SNAPSHOTS, "update", Sample.BASE, off="protecting a snapshot while it is restored"),
    *_rows(SNAPSHOTS, "watch", Sample.BASE),
    *_rows(SNAPSHOT_CONTENTS, "get", Sample.BASE, off="restoring snapshots"),
    *_rows(SNAPSHOT_CONTENTS, "list", Sample.BASE, Sample.DRAIN, off="drain decisions: snapshots that lie on the node"),
    *_rows(SNAPSHOT_CONTENTS, "watch", Sample.DRAIN, off="drain decisions: snapshots that lie on the node"),
    *_rows(CAPACITIES, "list", Sample.BASE, Sample.REPORT, own_namespace=True, off=_CAPACITY),
    *_rows(CAPACITIES, "watch create update delete", Sample.BASE, own_namespace=True, off=_CAPACITY),
    *_rows(CAPACITIES, "get patch", Sample.BASE, own_namespace=True),
    *_rows(PODS, "get", Sample.BASE, own_namespace=True, off="--capacity-ownerref-level of 0 and more: the program ends"),
    *_rows(REPLICA_SETS, "get", Sample.BASE, own_namespace=True, off="--capacity-ownerref-level above 1: the program ends"),
    *_rows(LEASES, "get list create update delete", Sample.BASE, Sample.REPORT, own_namespace=True, off=_SLOTS),
    *_rows(LEASES, "watch", Sample.BASE, own_namespace=True),
    *_rows(PODS, "list watch", Sample.DRAIN, off=_DRAINS),
    *_rows(NAMESPACES, "list", Sample.DRAIN, off="drain decisions: policies of namespaces"),
    *_rows(NAMESPACES, "get", Sample.DRAIN, off=_ANEW),
    *_rows(DRAIN_REPORTS, "get create patch", Sample.DRAIN, off=_REPORTS),
    *_rows(DRAIN_REPORTS, "patch", Sample.DRAIN, part="status", off=_REPORTS),
    *_rows(BUDGETS, "get create delete", Sample.GATE, own_namespace=True, off=_GATE),
    *_rows(DEPLOYMENTS, "get create delete", Sample.GATE, own_namespace=True, off=_GATE),
    *_rows(
        PODS,
        "create",
        Sample.EMPTYING,
        Sample.MAINTENANCE,
        Sample.FAILOVER,
        part="eviction",
        off="--evacuation-evict: nodes are not emptied; --maintenance: nor are they drained; --failover=Act: pods of Ready nodes stay",
    ),
    *_rows(PODS, "get", Sample.FAILOVER, off=_FAILS_OVER),
    *_rows(PODS, "delete", Sample.FAILOVER, off="--failover=Act: pods of nodes that are not Ready stay"),
    *_rows(LEASES, "get", Sample.FAILOVER, off="--failover: ForceOnExclusion is not heeded, for no kubelet is known to be silent"),
    *_rows(MAINTENANCES, "get list", Sample.MAINTENANCE, off=_PLANNED),
    *_rows(MAINTENANCES, "watch", Sample.MAINTENANCE, off="--maintenance: a new stage is noticed within a minute only"),
    *_rows(MAINTENANCES, "patch", Sample.MAINTENANCE, part="status", off=f"{_PLANNED}, nor shown how far it is"),
    *_rows(DRAIN_RULES, "list", Sample.MAINTENANCE, off=_PLANNED),
    *_rows(BUDGETS, "list", Sample.EMPTYING, off="--evacuation-evict: no pod is evicted, and no replica made anew"),
    *_rows(DRAIN_REPORTS, "list", Sample.NODE_LOSS, Sample.MAINTENANCE, off=f"{_LOSS}: nothing is looked for; {_PLANNED}"),
    *_rows(DRAIN_REPORTS, "delete", Sample.NODE_LOSS, off=f"{_LOSS}: reports on nodes that are gone stay when nothing is left to tell"),
    *_rows(CLAIMS, "patch delete", Sample.NODE_LOSS, Sample.REPROVISION, off=f"{_LOSS}=Cleanup: claims stay whose data was lost; {_ANEW}"),
    *_rows(STATEFUL_SETS, "list", Sample.NODE_LOSS, off=f"{_LOSS}=Cleanup: nothing is cleared away"),
    *_rows(STATEFUL_SETS, "get", Sample.EMPTYING, Sample.REPROVISION, off=_COUNTS),
    *_rows(REPLICA_SETS, "get", Sample.EMPTYING, off=_COUNTS),
    *_rows(CLAIMS, "reprovision", Sample.REPROVISION, off=_ANEW),
    *_rows(INSTANCES, "list patch delete", Sample.NONE, off="--guest-drain: what runs in virtual machines is not drained"),
    *_rows(SECRETS, "get", Sample.NONE, off="classes with secrets"),
    *_rows(REFERENCE_GRANTS, "list", Sample.NONE, off="sources across namespaces"),
    *_rows(ATTRIBUTES_CLASSES, "get", Sample.NONE, off="claims that name a VolumeAttributesClass"),
)


def missing(rights: Rights) -> list[Row]:
    """The rows whose right is refused and without which something is off, in the order of the table."""
    return [row for row in TABLE if row.right in rights.refused and row.off and not _is_replaced(row, rights)]


def _is_replaced(row: Row, rights: Rights) -> bool:
    """`update` does what is needed of `patch`: it puts the finalizer on, and takes it off."""
    return row.right == PATCH_VOLUMES and rights.may(UPDATE_VOLUMES) is True
