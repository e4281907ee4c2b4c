"""What is off without each right of the sample roles. A right that no row has is used by no story.

The first row says: without `list persistentvolumes` no claim is bound and no capacity published, and the program tells what it lacks.
"""

from __future__ import annotations

from sidecar.kube.api import ATTACHMENTS, CSI_NODES, DRAIN_REPORTS, EVENTS, NAMESPACES, REPLICA_SETS, SNAPSHOT_CONTENTS, SNAPSHOTS
from sidecar.kube.api import BUDGETS as BUDGET
from sidecar.kube.api import CAPACITIES as CAPACITY
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.kube.api import DEPLOYMENTS as DEPLOYMENT
from sidecar.kube.api import LEASES as LEASE
from sidecar.kube.api import NODES as NODE
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import VOLUMES as VOLUME
from sidecar.rights.rights import Right
from tests.night.lacking import Row, row


def own(verb: str, resource: object) -> Right:
    """In the program's own namespace."""
    return Right(verb, resource, own_namespace=True)  # type: ignore[arg-type]


# --- volumes from nothing ---------------------------------------------------------------------------------------------

BOUND, EMPTIED, PUBLISHED = "bound", "emptied", "published"
VOLUMES = (
    row(Right("list", VOLUME), BOUND, PUBLISHED),
    row(Right("watch", VOLUME), EMPTIED),
    row(Right("get", VOLUME), EMPTIED),
    row(Right("create", VOLUME), BOUND),
    row(Right("delete", VOLUME), EMPTIED),
    row(Right("patch", VOLUME)),
    row(Right("list", CLAIM), BOUND, PUBLISHED),
    row(Right("watch", CLAIM)),
    row(Right("update", CLAIM), BOUND),
    row(Right("list", CLASS), BOUND, PUBLISHED),
    row(Right("watch", CLASS)),
    row(Right("list", CSI_NODES)),
    row(Right("create", EVENTS)),
    row(own("list", CAPACITY), PUBLISHED),
    row(own("watch", CAPACITY)),
    row(own("create", CAPACITY), PUBLISHED),
    row(own("update", CAPACITY)),
    row(own("get", POD), ends=True),  # nobody knows who should own the published objects
)

# --- snapshots, drivers that attach, owners above the pod, large claims -------------------------------------------------

RESTORED, PROTECTED, SWEPT, LARGE, COUNTED, WITHDRAWN = "restored", "protected", "swept", "large claim", "event counted", "withdrawn"
UNUSED = (
    *(Right("watch", SNAPSHOTS), Right("list", SNAPSHOT_CONTENTS), Right("get", ATTACHMENTS), Right("get", CLASS)),
    *(Right(verb, CSI_NODES) for verb in ("get", "watch")),
    *(Right(verb, NODE) for verb in ("get", "list", "watch")),  # nodes that are gone are looked for a quarter of an hour later
    *(Right(verb, EVENTS) for verb in ("list", "watch", "update")),
    *(own(verb, CAPACITY) for verb in ("get", "patch")),
    *(own(verb, LEASE) for verb in ("get", "list", "watch", "create", "update", "delete")),
)
BESIDE = (
    row(Right("get", SNAPSHOTS), RESTORED, PROTECTED),
    row(Right("list", SNAPSHOTS), SWEPT),
    row(Right("update", SNAPSHOTS), PROTECTED, SWEPT),
    row(Right("get", SNAPSHOT_CONTENTS), RESTORED, PROTECTED, SWEPT),
    row(Right("list", ATTACHMENTS), EMPTIED),
    row(Right("watch", ATTACHMENTS)),
    row(Right("patch", EVENTS), COUNTED),
    row(Right("get", CLAIM), LARGE),
    row(own("delete", CAPACITY), WITHDRAWN),
    row(UNUSED[0], also=UNUSED[1:], told=False),
    row(own("get", REPLICA_SETS), ends=True),
)

# --- drain decisions ---------------------------------------------------------------------------------------------------

REPORT, CONDITIONS, MARKS, BLOCKED, GATE, LEASE_OF_GATE = "report", "conditions", "marks", "blocked", "gate", "lease of the gate"
EVACUATION, GIVEN_BACK, FREE, OPENED = "evacuation", "turn given back", "free", "gate opened"
STAGES = ((REPORT, CONDITIONS, MARKS, BLOCKED, GATE, LEASE_OF_GATE), (EVACUATION,), (GIVEN_BACK,), (FREE, OPENED))
"""What is seen with all rights: in peace, with the taint, without it, and when the volume is gone."""
NOTHING_IS_JUDGED = (REPORT, CONDITIONS, MARKS, BLOCKED, GATE, LEASE_OF_GATE, EVACUATION, FREE)


def late_watch(right: Right) -> Row:
    return row(right, late=frozenset({BLOCKED, EVACUATION, GIVEN_BACK, FREE, OPENED}))


def unused(right: Right) -> Row:
    """In this story."""
    return row(right, told=False)


DRAINS = (
    row(Right("get", NODE), CONDITIONS, MARKS, EVACUATION),
    row(Right("list", NODE), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", NODE)),
    row(Right("patch", NODE), MARKS, EVACUATION),
    row(Right("patch", NODE, "status"), CONDITIONS),
    unused(Right("get", POD)),
    row(Right("list", POD), FREE, OPENED),
    late_watch(Right("watch", POD)),
    row(Right("get", BUDGET), GATE, LEASE_OF_GATE),
    row(Right("list", BUDGET), FREE, OPENED),
    late_watch(Right("watch", BUDGET)),
    row(Right("get", NAMESPACES), BLOCKED),
    unused(Right("get", SNAPSHOT_CONTENTS)),
    row(Right("list", SNAPSHOT_CONTENTS), FREE, OPENED),
    late_watch(Right("watch", SNAPSHOT_CONTENTS)),
    row(Right("get", DRAIN_REPORTS), REPORT),
    unused(Right("list", DRAIN_REPORTS)),
    unused(Right("watch", DRAIN_REPORTS)),
    row(Right("create", DRAIN_REPORTS), REPORT),
    row(Right("patch", DRAIN_REPORTS), REPORT),
    row(Right("patch", DRAIN_REPORTS, "status"), REPORT),
    row(own("create", BUDGET), GATE),
    row(own("delete", BUDGET), OPENED),
    row(own("get", DEPLOYMENT), GATE, LEASE_OF_GATE),
    row(own("create", DEPLOYMENT), GATE),
    row(own("delete", DEPLOYMENT), OPENED),
    row(own("get", LEASE), LEASE_OF_GATE),
    row(own("list", LEASE), EVACUATION),
    unused(own("watch", LEASE)),
    row(own("create", LEASE), LEASE_OF_GATE, EVACUATION),
    row(own("update", LEASE), LEASE_OF_GATE),
    row(own("delete", LEASE), GIVEN_BACK),
)
REPORT_ONLY = (
    row(Right("list", VOLUME), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", VOLUME)),
    row(Right("get", VOLUME), told=None),
    row(Right("list", CLAIM), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", CLAIM)),
    row(Right("get", CLAIM), BLOCKED),
    row(Right("list", CLASS), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", CLASS)),
    row(Right("get", CLASS)),
    row(Right("create", EVENTS)),
    unused(Right("patch", EVENTS)),
    row(own("list", CAPACITY)),
)
"""Beside a central provisioner. Of emptying and making anew: `tests/e2e/test_emptying.py` and `tests/e2e/test_reprovision.py`."""
