"""What is off without each right of the sample roles: what each row claims is played on a real authorizer (`lacking`).

One row, worked through: `row(Right("get", SNAPSHOTS), RESTORED, PROTECTED)`. A program runs under an account that has its role but for `get
volumesnapshots`, beside others that lack another right each. A word is true of a program if the API server has stored something by it:
RESTORED, if its claim of a snapshot is bound. The row claims that all words of the story come true of this program but RESTORED and
PROTECTED, that it stays calm, and that its log, /readyz or an event names the right. A row without words claims that nothing is off, and
the lack is told all the same. Beside that:

    late        these words may come true or not: nobody knows when a refused watch lists anew
    told=False  the story does not need the right, and nothing names it; None: it may be named or not, as with `late`
    also        rights that are taken away together with it
    ends        the program does not start, and says why
"""

from __future__ import annotations

from sidecar.kube.api import (
    ATTACHMENTS,
    CSI_NODES,
    DRAIN_REPORTS,
    DRAIN_RULES,
    EVENTS,
    MAINTENANCES,
    NAMESPACES,
    REPLICA_SETS,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
)
from sidecar.kube.api import BUDGETS as BUDGET
from sidecar.kube.api import CAPACITIES as CAPACITY
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.kube.api import DEPLOYMENTS as DEPLOYMENT
from sidecar.kube.api import LEASES as LEASE
from sidecar.kube.api import NODES as NODE
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import STATEFUL_SETS as SET
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

REPORT, CONDITIONS, KEPT, BLOCKED, GATE = "report", "conditions", "kept by autoscalers", "blocked", "gate"
VOID, RECORD, EVACUATION = "acknowledgement taken off", "record", "evacuation"
GIVEN_BACK, FREE, OPENED = "slot given back", "free", "gate opened"
STAGES = ((REPORT, CONDITIONS, KEPT, BLOCKED, GATE, VOID), (RECORD, EVACUATION), (GIVEN_BACK,), (FREE, OPENED))
"""What is seen with all rights: in peace, with the taint, without it, and when the volumes are gone."""
NOTHING_IS_JUDGED = (REPORT, CONDITIONS, KEPT, BLOCKED, GATE, VOID, RECORD, EVACUATION, FREE)


def late_watch(right: Right) -> Row:
    return row(right, late=frozenset({KEPT, BLOCKED, VOID, RECORD, EVACUATION, GIVEN_BACK, FREE, OPENED}))


def unused(right: Right) -> Row:
    """In this story."""
    return row(right, told=False)


DRAINS = (
    row(Right("get", NODE), CONDITIONS, KEPT),
    row(Right("list", NODE), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", NODE)),
    row(Right("patch", NODE), KEPT, RECORD, EVACUATION),
    row(Right("patch", NODE, "status"), CONDITIONS),
    row(Right("list", POD), VOID, FREE, OPENED),
    late_watch(Right("watch", POD)),
    unused(Right("get", NAMESPACES)),
    row(Right("list", NAMESPACES), BLOCKED, KEPT),
    row(Right("patch", VOLUME), VOID),
    row(Right("list", SNAPSHOT_CONTENTS), FREE, OPENED),
    late_watch(Right("watch", SNAPSHOT_CONTENTS)),
    row(Right("get", DRAIN_REPORTS), REPORT),
    row(Right("create", DRAIN_REPORTS), REPORT),
    row(Right("patch", DRAIN_REPORTS), REPORT),
    row(Right("patch", DRAIN_REPORTS, "status"), REPORT),
    row(own("get", BUDGET), GATE),
    row(own("create", BUDGET), GATE),
    row(own("delete", BUDGET), OPENED),
    row(own("get", DEPLOYMENT), GATE),
    row(own("create", DEPLOYMENT), GATE),
    row(own("delete", DEPLOYMENT), OPENED),
)
"""Of the components `drain` and `gate`, beside our provisioning."""
REPORT_ONLY = (
    row(Right("list", VOLUME), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", VOLUME)),
    row(Right("get", VOLUME), told=None),
    row(Right("list", CLAIM), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", CLAIM)),
    row(Right("get", CLAIM), BLOCKED, KEPT),
    row(Right("list", CLASS), *NOTHING_IS_JUDGED),
    late_watch(Right("watch", CLASS)),
    row(Right("get", CLASS), BLOCKED, KEPT),
    row(Right("create", EVENTS)),
    unused(Right("patch", EVENTS)),
    row(own("list", CAPACITY)),
    row(own("get", LEASE), EVACUATION),
    row(own("list", LEASE), EVACUATION),
    row(own("create", LEASE), EVACUATION),
    row(own("update", LEASE), EVACUATION),
    row(own("delete", LEASE), GIVEN_BACK),
)
"""Of the component `report-only`, beside a central provisioner. Of those that empty a node: `tests/e2e/test_emptying.py`,
`tests/e2e/test_reprovision.py`."""

# --- nodes that are gone ------------------------------------------------------------------------------------------------

LOST = TOLD, MARKED, CLEARED, DELETED, ENDED = "told", "claim marked", "claim deleted", "volume deleted", "report deleted"
LOSS = (
    row(Right("list", DRAIN_REPORTS), *LOST),
    row(Right("delete", DRAIN_REPORTS), ENDED),
    row(Right("get", CSI_NODES), *LOST),
    row(Right("list", CSI_NODES), *LOST),
    unused(Right("list", ATTACHMENTS)),  # by a driver that does not attach
    row(Right("patch", CLAIM), MARKED, CLEARED, DELETED, ENDED),
    row(Right("delete", CLAIM), CLEARED, DELETED, ENDED),
    row(Right("list", SET), *LOST),
)
"""Of the component `node-loss`."""

# --- declared maintenance -----------------------------------------------------------------------------------------------

CORDONED, UNDER_WAY, EVICTED, DRAINED, SUMMED, PUT_BACK = "cordoned", "under way", "evicted", "drained", "summed up", "put back"
MAINTAINED = ((CORDONED, UNDER_WAY), (EVICTED, DRAINED, SUMMED), (PUT_BACK,))
"""What is seen with all rights: in the stages Cordon and Drain, and when the maintenance is deleted."""
NOTHING_IS_DRAINED = (EVICTED, DRAINED, SUMMED)
MAINTENANCE = (
    unused(Right("get", MAINTENANCES)),  # it retires nothing that has to be emptied
    row(Right("list", MAINTENANCES), CORDONED, UNDER_WAY, *NOTHING_IS_DRAINED, PUT_BACK),
    row(Right("watch", MAINTENANCES)),
    row(Right("patch", MAINTENANCES, "status"), SUMMED),
    row(Right("list", DRAIN_RULES), *NOTHING_IS_DRAINED),
    row(Right("list", DRAIN_REPORTS), *NOTHING_IS_DRAINED),
    row(Right("create", POD, "eviction"), *NOTHING_IS_DRAINED),
    row(Right("get", NODE), CORDONED, UNDER_WAY, *NOTHING_IS_DRAINED, PUT_BACK),
    row(Right("patch", NODE), CORDONED, UNDER_WAY, *NOTHING_IS_DRAINED, PUT_BACK),
    row(Right("patch", NODE, "status"), UNDER_WAY, DRAINED),
)
"""Of the components `drain` and `maintenance`, which select the node by a label, so that it asks for the others."""
