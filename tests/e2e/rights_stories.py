"""What happens without each right of a sample role, as the tests `test_rights_matrix*` play it on a real authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.kube.api import ATTACHMENTS, CSI_NODES, DRAIN_REPORTS, EVENTS, NAMESPACES, REPLICA_SETS, SNAPSHOT_CONTENTS, SNAPSHOTS
from sidecar.kube.api import BUDGETS as BUDGET
from sidecar.kube.api import CAPACITIES as CAPACITY
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.kube.api import DEPLOYMENTS as DEPLOYMENT
from sidecar.kube.api import LEASES as LEASE
from sidecar.kube.api import NODES as NODE
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import STATEFUL_SETS as STATEFUL_SET
from sidecar.kube.api import VOLUMES as VOLUME
from sidecar.rights.rights import Right

# --- volumes from nothing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Works:
    """What works without a right. `told`: the lack shows, and is named."""

    bound: bool = True
    emptied: bool = True
    """The PersistentVolume goes when its claim is deleted."""
    published: bool = True
    told: bool = True


NOTHING = Works(bound=False, published=False)
ALL_UNTOLD = Works(told=False)
"""It is used in other stories than this one: `test_rights_matrix_beside`."""
WITHOUT: Mapping[Right, Works] = {
    Right("list", VOLUME): NOTHING,
    Right("watch", VOLUME): Works(emptied=False),
    Right("get", VOLUME): Works(emptied=False),
    Right("create", VOLUME): Works(bound=False),
    Right("delete", VOLUME): Works(emptied=False),
    Right("patch", VOLUME): Works(),
    Right("list", CLAIM): NOTHING,
    Right("watch", CLAIM): Works(),
    Right("get", CLAIM): ALL_UNTOLD,
    Right("update", CLAIM): Works(bound=False),
    Right("list", CLASS): NOTHING,
    Right("watch", CLASS): Works(),
    Right("get", CLASS): ALL_UNTOLD,
    Right("list", CSI_NODES): Works(),
    Right("create", EVENTS): Works(),
    Right("patch", EVENTS): ALL_UNTOLD,
    Right("list", CAPACITY, own_namespace=True): Works(published=False),
    Right("watch", CAPACITY, own_namespace=True): Works(),
    Right("create", CAPACITY, own_namespace=True): Works(published=False),
    Right("update", CAPACITY, own_namespace=True): Works(),
    Right("delete", CAPACITY, own_namespace=True): ALL_UNTOLD,
}
ENDS = Right("get", POD, own_namespace=True)
"""Without it nobody knows who should own the published objects, so the program does not start."""

# --- what other stories are told in ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lack:
    """What is off without a right."""

    off: frozenset[str] = frozenset()
    told: bool | None = True
    """The lack shows, and is named; None: where a watch is late."""
    either: frozenset[str] = frozenset()
    """What works or not, by when the watch that is refused lists anew."""


UNUSED = Lack(told=False)
WHERE_LATE = Lack(told=None)


def off(*words: str) -> Lack:
    return Lack(frozenset(words))


# --- beside volumes from nothing ---------------------------------------------------------------------------------------

RESTORED, PROTECTED, SWEPT, LARGE, COUNTED, PUBLISHED = "restored", "protected", "swept", "large claim", "event counted", "published"
EMPTIED, WITHDRAWN = "emptied", "withdrawn"
BESIDE_STAGES = ((RESTORED, PROTECTED, SWEPT, LARGE, COUNTED, PUBLISHED), (EMPTIED, WITHDRAWN))
"""What is seen with all rights: at first, and when claims and classes are gone."""
BESIDE_ALL = frozenset(word for words in BESIDE_STAGES for word in words)


BESIDE: Mapping[Right, Lack] = {
    Right("get", SNAPSHOTS): off(RESTORED, PROTECTED),
    Right("list", SNAPSHOTS): off(SWEPT),
    Right("update", SNAPSHOTS): off(PROTECTED, SWEPT),
    Right("get", SNAPSHOT_CONTENTS): off(RESTORED, PROTECTED, SWEPT),
    Right("list", ATTACHMENTS): off(EMPTIED),
    Right("watch", ATTACHMENTS): Lack(),
    Right("patch", EVENTS): off(COUNTED),
    Right("get", CLAIM): off(LARGE),
    Right("delete", CAPACITY, own_namespace=True): off(WITHDRAWN),
}
BESIDE_UNUSED = (
    Right("watch", SNAPSHOTS),
    Right("list", SNAPSHOT_CONTENTS),
    Right("get", ATTACHMENTS),
    Right("get", CLASS),
    *(Right(verb, CSI_NODES) for verb in ("get", "watch")),
    *(Right(verb, NODE) for verb in ("get", "list", "watch")),
    *(Right(verb, EVENTS) for verb in ("list", "watch", "update")),
    *(Right(verb, CAPACITY, own_namespace=True) for verb in ("get", "patch")),
    *(Right(verb, LEASE, own_namespace=True) for verb in ("get", "list", "watch", "create", "update", "delete")),
)
"""Taken away together: nothing is off. Nodes that are gone are looked for a quarter of an hour later."""
BESIDE_ENDS = Right("get", REPLICA_SETS, own_namespace=True)
"""Without it nobody knows who should own the published objects, so the program does not start."""

# --- drain decisions ---------------------------------------------------------------------------------------------------

REPORT, CONDITIONS, MARKS, BLOCKED, GATE, LEASE_OF_GATE = "report", "conditions", "marks", "blocked", "gate", "lease of the gate"
EVACUATION, GIVEN_BACK, FREE, OPENED = "evacuation", "slot given back", "free", "gate opened"
DRAIN_STAGES = ((REPORT, CONDITIONS, MARKS, BLOCKED, GATE, LEASE_OF_GATE), (EVACUATION,), (GIVEN_BACK,), (FREE, OPENED))
"""What is seen with all rights: in peace, with the taint, without it, and when the volume is gone."""
DRAIN_ALL = frozenset(word for words in DRAIN_STAGES for word in words)


EVERYTHING = Lack(DRAIN_ALL - {GIVEN_BACK, OPENED})
NOT_FREE = off(FREE, OPENED)
NO_NEWS = Lack(either=frozenset({BLOCKED, EVACUATION, GIVEN_BACK, FREE, OPENED}))
DRAINS: Mapping[Right, Lack] = {
    Right("get", NODE): off(CONDITIONS, MARKS, EVACUATION),
    Right("list", NODE): EVERYTHING,
    Right("watch", NODE): NO_NEWS,
    Right("patch", NODE): off(MARKS, EVACUATION),
    Right("patch", NODE, "status"): off(CONDITIONS),
    Right("get", POD): UNUSED,
    Right("list", POD): NOT_FREE,
    Right("watch", POD): NO_NEWS,
    Right("get", BUDGET): off(GATE, LEASE_OF_GATE),
    Right("list", BUDGET): NOT_FREE,
    Right("watch", BUDGET): NO_NEWS,
    Right("get", NAMESPACES): off(BLOCKED),
    Right("get", SNAPSHOT_CONTENTS): UNUSED,
    Right("list", SNAPSHOT_CONTENTS): NOT_FREE,
    Right("watch", SNAPSHOT_CONTENTS): NO_NEWS,
    Right("get", DRAIN_REPORTS): off(REPORT),
    Right("list", DRAIN_REPORTS): UNUSED,
    Right("watch", DRAIN_REPORTS): UNUSED,
    Right("create", DRAIN_REPORTS): off(REPORT),
    Right("patch", DRAIN_REPORTS): off(REPORT),
    Right("patch", DRAIN_REPORTS, "status"): off(REPORT),
    Right("create", BUDGET, own_namespace=True): off(GATE),
    Right("delete", BUDGET, own_namespace=True): off(OPENED),
    Right("get", DEPLOYMENT, own_namespace=True): off(GATE, LEASE_OF_GATE),
    Right("create", DEPLOYMENT, own_namespace=True): off(GATE),
    Right("delete", DEPLOYMENT, own_namespace=True): off(OPENED),
    Right("get", LEASE, own_namespace=True): off(LEASE_OF_GATE),
    Right("list", LEASE, own_namespace=True): off(EVACUATION),
    Right("watch", LEASE, own_namespace=True): UNUSED,
    Right("create", LEASE, own_namespace=True): off(LEASE_OF_GATE, EVACUATION),
    Right("update", LEASE, own_namespace=True): off(LEASE_OF_GATE),
    Right("delete", LEASE, own_namespace=True): off(GIVEN_BACK),
}
REPORTS_ONLY: Mapping[Right, Lack] = {
    Right("list", VOLUME): EVERYTHING,
    Right("watch", VOLUME): NO_NEWS,
    Right("get", VOLUME): WHERE_LATE,
    Right("list", CLAIM): EVERYTHING,
    Right("watch", CLAIM): NO_NEWS,
    Right("get", CLAIM): off(BLOCKED),
    Right("list", CLASS): EVERYTHING,
    Right("watch", CLASS): NO_NEWS,
    Right("get", CLASS): Lack(),
    Right("create", EVENTS): Lack(),
    Right("patch", EVENTS): UNUSED,
    Right("list", CAPACITY, own_namespace=True): Lack(),
}
EVICTS = Right("create", POD, "eviction")
"""Without it nobody is evicted: `test_emptying`."""

MAKES_ANEW = {Right("patch", CLAIM), Right("delete", CLAIM), Right("get", STATEFUL_SET)}
"""Without one of them no replica is made anew: `test_reprovision`."""
