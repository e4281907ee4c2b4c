"""What drain tests are about: a node n1 with pods and volumes, and the nodes around it. Each builder takes what a test wants different."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sidecar.drain.assess import Assessment, assess
from sidecar.drain.marks import Marks, NodePolicy, read
from sidecar.drain.snapshot import Own, Snapshot
from sidecar.drain.words import Status
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent, Taint
from sidecar.model.objects import CapacityRecord, Claim, ClaimRef, Class, Notes, Owner, Volume
from sidecar.model.topology import Requirement, Term

DRIVER, NODE, NAMESPACE, CLASS = "local.example.com", "n1", "apps", "local"
KEY = "topology.local.example.com/node"
NOW = 1_700_000_000.0
GIB = 2**30


def stamp(ago: float = 0.0) -> str:
    """So many seconds before NOW, as the API server writes it."""
    return datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def notes(policy: str | None = None, *, ack: str | None = None) -> Notes:
    pairs = {names.DRAIN_POLICY: policy, names.ACKNOWLEDGED: ack}
    return tuple(sorted((key, value) for key, value in pairs.items() if value is not None))


def node(name: str = NODE, **changes: Any) -> Node:
    base = Node(
        name=name,
        uid=f"uid-{name}",
        labels={KEY: name, "kubernetes.io/hostname": name},
        taints=(),
        unschedulable=False,
        ready="True",
        ready_since=stamp(86_400),
        deleting=False,
        annotations={},
    )
    return replace(base, **changes)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return Taint(key, value, effect)


def owner(kind: str = "StatefulSet", name: str = "db") -> Owner:
    group = "v1" if kind == "Pod" else "apps/v1"
    return Owner(group, kind, name, f"uid-{name}", controller=True)


def pod(name: str = "db-0", *claims: str, **changes: Any) -> Pod:
    """A StatefulSet's pod that mounts these claims of its namespace."""
    namespace = changes.get("namespace", NAMESPACE)
    base = Pod(
        uid=f"uid-{namespace}-{name}",
        namespace=namespace,
        name=name,
        node=NODE,
        phase="Running",
        deleting_since="",
        ready=True,
        labels={"app": "db"},
        owner=owner(),
        claims=claims,
        inline=(),
        local=(),
        tolerations=(),
        node_selector={},
        affinity=None,
        static=False,
    )
    return replace(base, **changes)


def volume(
    name: str = "pv-0", claim: str = "data-0", *, namespace: str = NAMESPACE, gib: float = 10, policy: str | None = None, **changes: Any
) -> Volume:
    """A PersistentVolume on n1, bound to this claim; an empty `claim` for none."""
    base = Volume(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        driver=DRIVER,
        handle=f"handle-{name}",
        phase="Bound",
        reclaim_policy="Delete",
        class_name=CLASS,
        deleting=False,
        finalizers=(),
        claim=ClaimRef(f"uid-{namespace}-{claim}", namespace, claim) if claim else None,
        provisioned_by=DRIVER,
        affinity=(Term((Requirement(KEY, "In", (NODE,)),)),),
        deletion_secret=None,
        identity="",
        size=int(gib * GIB),
        notes=notes(policy),
    )
    return replace(base, **changes)


def claim(name: str = "data-0", *, namespace: str = NAMESPACE, gib: float = 10, policy: str | None = None, **changes: Any) -> Claim:
    base = Claim(
        uid=f"uid-{namespace}-{name}",
        namespace=namespace,
        name=name,
        resource_version="1",
        provisioner=DRIVER,
        class_name=CLASS,
        selected_node=NODE,
        volume_name="",
        deleting=False,
        requested=int(gib * GIB),
        volume_mode="Filesystem",
        access_modes=("ReadWriteOnce",),
        has_selector=False,
        source=None,
        attributes_class="",
        notes=notes(policy),
    )
    return replace(base, **changes)


def class_(name: str = CLASS, *, policy: str | None = None, **changes: Any) -> Class:
    base = Class(
        name=name,
        uid=f"uid-{name}",
        provisioner=DRIVER,
        parameters={},
        reclaim_policy="Delete",
        binding_mode="WaitForFirstConsumer",
        mount_options=(),
        allowed=(),
        notes=notes(policy),
    )
    return replace(base, **changes)


def record(on: str, gib: float | None = 100, *, of: str = CLASS, pool: str | None = None, **changes: Any) -> CapacityRecord:
    """What the driver publishes for a class on a node."""
    base = CapacityRecord(
        namespace="kube-system",
        name=f"csisc-{on}-{of}",
        uid=f"uid-csisc-{on}-{of}",
        resource_version="1",
        labels={},
        owners=(),
        class_name=of,
        node_topology={KEY: on},
        capacity=None if gib is None else int(gib * GIB),
        maximum=None,
        annotations={} if pool is None else {names.POOL: pool},
    )
    return replace(base, **changes)


def budget(name: str = "db", allowed: int = 1, **changes: Any) -> Budget:
    """One that selects the pods of `pod()`."""
    base = Budget(
        namespace=NAMESPACE,
        name=name,
        labels={"app": "db"},
        expressions=(),
        selects=True,
        allowed=allowed,
        observed=True,
        frees_unready=False,
    )
    return replace(base, **changes)


def content(name: str = "snap-0", *, gib: float = 1, ack: str | None = None, **changes: Any) -> SnapshotContent:
    base = SnapshotContent(
        name=name,
        uid=f"uid-{name}",
        driver=DRIVER,
        source_handle="handle-pv-0",
        managed_by=NODE,
        size=int(gib * GIB),
        notes=notes(ack=ack),
    )
    return replace(base, **changes)


def snapshot(*, claims: Iterable[Claim] = (), classes: Iterable[Class] | None = None, own: Own | None = None, **changes: Any) -> Snapshot:
    """Of n1, where nothing is. Claims and classes are given as they are and found by name."""
    base = Snapshot(
        now=NOW,
        driver=DRIVER,
        node_name=NODE,
        node=node(),
        own=own or Own(),
        claims={item.full_name: item for item in claims},
        classes={item.name: item for item in ((class_(),) if classes is None else classes)},
    )
    return replace(base, **changes)


def used(gib: float = 10, **changes: Any) -> Snapshot:
    """db-0 on n1 with its claim data-0 and the volume pv-0."""
    return snapshot(**{"volumes": (volume(gib=gib),), "claims": (claim(gib=gib),), "pods": (pod("db-0", "data-0"),)} | changes)


def idle(**changes: Any) -> Snapshot:
    """The same after the StatefulSet was scaled to nothing."""
    return used(**{"pods": ()} | changes)


def judged(found: Snapshot | None = None, *, uid: str = "uid-n1", **verdicts: Status) -> Assessment:
    """`drain` and `retire`: another status than the snapshot gives."""
    made = replace(assess(found or used()), node_uid=uid)
    return replace(made, **{key: replace(getattr(made, key), status=status) for key, status in verdicts.items()})


def marks(
    *taints: Taint,
    cordoned: bool = False,
    annotations: dict[str, str] | None = None,
    policy: NodePolicy = NodePolicy.NO_SCHEDULE,
    now: float = NOW,
    before: Marks | None = None,
    **changes: Any,
) -> Marks:
    """Of n1 with these marks."""
    found = node(taints=taints, unschedulable=cordoned, annotations=annotations or {}, **changes)
    return read(found, DRIVER, now=now, policy=policy, before=before)
