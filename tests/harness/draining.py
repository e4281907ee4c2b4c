"""What drain tests are about: a node n1 with pods and volumes, and the nodes around it. Each builder takes what a test wants different.

`bench` plays the files with effects against a simulated API server: some requests are refused, late, or carried out and never answered.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from hack.sim.cluster import Call, InProcessApi
from sidecar.drain.assess import Assessment, assess
from sidecar.drain.marks import Marks, NodePolicy, read
from sidecar.drain.snapshot import InFlight, Own, Snapshot, Unplaced
from sidecar.drain.words import Policy, Status
from sidecar.kube.api import MERGE_PATCH, NODES, find
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent, Taint
from sidecar.model.objects import CapacityRecord, Claim, ClaimRef, Class, Notes, Owner, Volume
from sidecar.model.topology import Requirement, Term
from tests.harness.cluster_tools import new_cluster

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


# --- drawn by dice ----------------------------------------------------------------------------------------------------

_WORDS = (None, None, None, None, "Reprovision", *Policy, "Foo")


def drawn(dice: Random) -> Snapshot:
    """A node with all kinds of things on it."""
    numbers = range(dice.randint(0, 5))
    lately = frozenset(f"{NAMESPACE}/data-{number}" for number in numbers if dice.random() < 0.1)
    own = Own(
        lately_used=lately,
        lately_ends=7.0 if lately else None,
        untracked=("lv-1", "lv-2")[: dice.randint(0, 2)],
        default_policy=dice.choice([None, None, *Policy]),
        reprovisions=dice.random() < 0.5,
    )
    return snapshot(
        own=own,
        node=dice.choice([None, *(node(ready=ready) for ready in ("True",) * 8 + ("False", "Unknown"))]),
        volumes=tuple(_volume(number, dice) for number in numbers),
        claims=[_claim(number, dice) for number in numbers if dice.random() < 0.9],
        classes=(class_(policy=dice.choice(_WORDS)), class_("slow")),
        pods=tuple(_pod(number, dice) for number in range(dice.randint(0, 5))),
        contents=tuple(content(f"snap-{number}", ack=dice.choice([None, "ann"])) for number in range(dice.choice([0, 0, 0, 2]))),
        in_flight=tuple(InFlight(claim(f"new-{number}")) for number in range(dice.choice([0] * 5 + [2]))),
        namespaces=dice.choice([{}, {}, {}, {NAMESPACE: notes("Ignore")}, {NAMESPACE: notes("Bar")}]),
        claimants=tuple(
            replace(_pod(number, dice), node=dice.choice(["", "n2"]), phase="Pending") for number in range(5, 5 + dice.choice([0, 0, 1, 2]))
        ),
        attached=frozenset(f"pv-{number}" for number in numbers if dice.random() < 0.1),
        unplaced=tuple(Unplaced("pv-9", "nobody knows", notes(ack=dice.choice([None, "ann"]))) for _ in range(dice.choice([0] * 9 + [1]))),
        unread=dice.choice([frozenset(), frozenset(), frozenset({f"namespace {NAMESPACE}"})]),
        ignorance=("the claims could not be listed", "the pods could not be listed")[: dice.choice([0] * 6 + [2])],
    )


def _volume(number: int, dice: Random) -> Volume:
    return volume(
        f"pv-{number}",
        f"data-{number}",
        gib=dice.randint(1, 4) * 10,
        notes=_notes(dice),
        phase=dice.choice(["Bound"] * 7 + ["Released", "Available", "Failed"]),
        reclaim_policy=dice.choice(["Delete", "Retain"]),
        class_name=dice.choice(["local", "slow"]),
        deleting=dice.random() < 0.1,
    )


def _claim(number: int, dice: Random) -> Claim:
    its_pod = dice.choice([None, None, None, replace(owner("Pod", "db-0"), uid=f"uid-{NAMESPACE}-db-0")])
    return claim(f"data-{number}", notes=_notes(dice), owner=its_pod)


def _notes(dice: Random) -> Notes:
    by_intent = {names.DRAIN_POLICY_REBOOT: dice.choice(_WORDS), names.DRAIN_POLICY_RETIRE: dice.choice(_WORDS)}
    said = [(key, word) for key, word in by_intent.items() if word and dice.random() < 0.3]
    return tuple(sorted((*notes(dice.choice(_WORDS), ack=dice.choice([None, None, None, "ann"])), *said)))


def _pod(number: int, dice: Random) -> Pod:
    claims = [f"data-{other}" for other in range(5) if dice.random() < 0.25]
    return pod(
        f"db-{number}",
        *claims,
        ephemeral=tuple(claims[: dice.randint(0, 1)]),
        owner=dice.choice([None, owner(), owner(), owner("DaemonSet", "agent")]),
        phase=dice.choice(["Running", "Running", "Running", "Pending", "Succeeded"]),
        deleting_since=dice.choice(["", "", stamp(1000), stamp(10)]),
        inline=dice.choice([(), (DRIVER,)]),
    )


def permuted(value: Any, dice: Random) -> Any:
    """Of each tuple in the snapshot another order."""
    if isinstance(value, Snapshot | Own):
        return replace(value, **{field.name: permuted(getattr(value, field.name), dice) for field in fields(value)})
    if isinstance(value, tuple):
        items = [permuted(item, dice) for item in value]
        return tuple(dice.sample(items, len(items)))
    return dict(dice.sample(list(value.items()), len(value))) if isinstance(value, dict) else value


# --- the files with effects, against a simulated API server -----------------------------------------------------------


class Bench:
    """A node n1 on a simulated API server, to be used within `virtual`. A sidecar's requests go through `kube`, a person's through `you`.

    `refuse` says what a request is answered with instead of being carried out; `lose`, after which the answer is lost.
    """

    def __init__(self) -> None:
        self.cluster = new_cluster(clock=self.wall)
        self.you = InProcessApi(self.cluster)
        self.kube = InProcessApi(self.cluster, before=self._before, after=self._after)
        self.refuse: Callable[[Call], ApiError | None] = lambda _: None
        self.lose: Callable[[Call], bool] = lambda _: False
        self.calls: list[Call] = []

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return NOW + self.clock()

    async def _before(self, call: Call) -> None:
        self.calls.append(call)
        if error := self.refuse(call):
            raise error

    async def _after(self, call: Call) -> None:
        if self.lose(call):
            raise Unavailable("no answer in time")

    async def node(self, **meta: Any) -> Node:
        """Made, or changed by a person."""
        labels_ = {KEY: NODE, "kubernetes.io/hostname": NODE}
        if await find(self.you, NODES, NODE) is None:
            await self.you.create(NODES, {"metadata": {"name": NODE, "labels": labels_}})
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self.you.patch(NODES, NODE, ready, content_type=MERGE_PATCH, subresource="status")
        if meta:
            await self.you.patch(NODES, NODE, {"metadata": meta}, content_type=MERGE_PATCH)
        return Node.of(await self.you.get(NODES, NODE))

    def asked(self, *verbs: str) -> list[str]:
        """What was asked since the last time, as `verb resource`; without `verbs`, all."""
        found = [f"{call.verb} {getattr(call.resource, 'plural', call.resource)}" for call in self.calls if not verbs or call.verb in verbs]
        self.calls.clear()
        return found


def judged(found: Snapshot | None = None, *, uid: str = "uid-n1", **verdicts: Status) -> Assessment:
    """`drain` and `retire`: another status than the snapshot gives."""
    made = replace(assess(found or used()), node_uid=uid)
    return replace(made, **{key: replace(getattr(made, key), status=status) for key, status in verdicts.items()})
