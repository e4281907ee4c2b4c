"""Each right of the sample's role is taken away, under a real authorizer: the sidecar lives, stays calm, and says what it lacks.

The sidecars of many rights run at once, each with a driver, a node, classes, a claim and an account of its own. Rights that these flags do
not use (Leases, snapshots, Nodes, attachments) are taken away together in `test_bad_input`, and the finalizer's are in `test_old_role`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Process, Sidecar, claim, pod, storage_class, within
from sidecar.kube.api import CAPACITIES as CAPACITY
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.kube.api import CSI_NODES, EVENTS
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import VOLUMES as VOLUME
from sidecar.rights.rights import Right
from tests.e2e.accounts import account, upstream_rules
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, PODS, VOLUMES, Cluster

SOON = ("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms", "--retry-interval-start=500ms")
ARGS = (*SOON, "--node-deployment-placement=ranked", "--enable-capacity", "--capacity-ownerref-level=0", "--capacity-poll-interval=2s")
AT_ONCE = 11
WATCHED = 5.0
"""Seconds in which it has to be calm."""
A_SECOND = 4
"""Requests and lines of the log that are calm."""


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
"""It is used in other stories than this one."""
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
    Right("list", CAPACITY): Works(published=False),
    Right("watch", CAPACITY): Works(),
    Right("create", CAPACITY): Works(published=False),
    Right("update", CAPACITY): Works(),
    Right("delete", CAPACITY): ALL_UNTOLD,
}
ENDS = Right("get", POD)
"""Without it nobody knows who should own the published objects, so the program does not start."""
RIGHTS = (*WITHOUT, ENDS)

Spent = tuple[float, float, float]
"""Requests, lines of the log, seconds of CPU."""


@dataclass(frozen=True)
class Outcome:
    """What became of a sidecar without one right."""

    works: Works
    healthy: bool
    spent: Spent
    """While it was watched."""
    told: tuple[str, ...]
    """What it said of the missing right, in its log, in /readyz or in events."""
    seconds_to_end: float
    code: int


def without(right: Right) -> list[Json]:
    """The sample's rules, but for one verb on one kind."""
    found: list[Json] = []
    for rule in upstream_rules():
        for resource in rule["resources"]:
            is_meant = resource == right.resource.plural and right.resource.group in rule["apiGroups"]
            verbs = [verb for verb in rule["verbs"] if not (is_meant and verb == right.verb)]
            found.append({**rule, "resources": [resource], "verbs": verbs})
    return [rule for rule in found if rule["verbs"]]


class Lacking:
    """One sidecar that lacks one right."""

    def __init__(self, cluster: Cluster, right: Right, name: str, kubeconfig: Path, work: Path) -> None:
        """`name` is short: the path of a socket has a hundred characters."""
        self.cluster, self.right, self.name = cluster, right, name
        self.driver = OurDriver(work, node=name, name=f"{name}.example")
        environ = {"NAMESPACE": "default", "POD_NAME": "owner"}
        self.sidecar = Sidecar(work, node=name, address=self.driver.socket, kubeconfig=kubeconfig, args=ARGS, environ=environ)
        self.was_bound = False

    def start(self) -> None:
        self.cluster.plane.add_node(self.name, {self.driver.key: self.name}, managed=False)
        self.cluster.plane.add_csinode(self.name, self.driver.driver, self.name, [self.driver.key])
        for class_, binding in ((self.name, IMMEDIATE), (f"{self.name}-late", LATE)):
            self.cluster.create(CLASSES, storage_class(class_, self.driver.driver, binding))
        Process.start(self.driver)  # nobody waits for it here: the sidecar does
        self.sidecar.start()
        self.cluster.create(CLAIMS, claim(self.name, self.name))

    @property
    def should(self) -> Works:
        return WITHOUT.get(self.right, NOTHING)

    def answers(self) -> bool:
        return self.sidecar.child.poll() is not None or self.sidecar.page("/healthz")[0] == 200

    def is_bound(self) -> bool:
        return self.cluster.phase(CLAIMS, self.name) == "Bound"

    def is_emptied(self) -> bool:
        return not [item for item in self.cluster.items(VOLUMES) if item["spec"]["csi"]["driver"] == self.driver.driver]

    def has_published(self) -> bool:
        return any(item["storageClassName"] == f"{self.name}-late" for item in self.cluster.items(CAPACITIES))

    def spent(self) -> Spent:
        sidecar = self.sidecar
        if sidecar.child.poll() is not None:
            return 0.0, 0.0, 0.0
        return sidecar.metric("csi_node_sidecar_api_requests_total"), float(len(sidecar.records())), sidecar.cpu_seconds()

    def outcome(self, before: Spent, after: Spent) -> Outcome:
        """And it is asked to end."""
        alive = self.sidecar.child.poll() is None
        healthy, told = alive and self.sidecar.page("/healthz")[0] == 200, self._told()
        works = Works(self.was_bound, self.is_emptied(), self.has_published(), bool(told))
        began = time.monotonic()
        if alive:
            self.sidecar.signal(signal.SIGTERM)
        code = self.sidecar.wait(40)
        requests, lines, cpu = (late - early for early, late in zip(before, after, strict=True))
        return Outcome(works, healthy, (requests, lines, cpu), told, time.monotonic() - began, code)

    def _told(self) -> tuple[str, ...]:
        log = [line for line in self.sidecar.records() if '"Decided"' not in line]
        events = [f"{item['reason']} {item['message']}" for item in self.cluster.events(self.name)]
        lines = (*log, *self.sidecar.page("/readyz?verbose")[1].splitlines(), *events)
        named = (
            f"{self.right.verb} on {self.right.resource.plural}",
            f"cannot {self.right.verb} resource",
            f"{self.right.verb} {self.right.resource}",
        )
        return tuple(line for line in lines if self.right.resource.plural in line and any(text in line for text in named))


def play(cluster: Cluster, rights: Sequence[Right], work: Path) -> Iterator[tuple[Right, Outcome]]:
    with ExitStack() as stack:
        these = []
        for right in rights:
            name = f"m{RIGHTS.index(right)}"
            kubeconfig = stack.enter_context(account(cluster, f"without-{name}", without(right)))
            one = Lacking(cluster, right, name, kubeconfig, work)
            stack.callback(one.driver.stop)
            stack.callback(one.sidecar.stop)
            one.start()
            these.append(one)
        within(60, lambda: all(one.answers() for one in these))
        within(30, lambda: all(one.is_bound() for one in these if one.should.bound))
        within(20, lambda: all(one.has_published() for one in these if one.should.published))
        for one in these:
            one.was_bound = one.is_bound()
            cluster.delete(CLAIMS, one.name)
        within(20, lambda: all(one.is_emptied() for one in these if one.should.emptied))
        before = [one.spent() for one in these]
        time.sleep(WATCHED)
        after = [one.spent() for one in these]
        for one, early, late in zip(these, before, after, strict=True):
            yield one.right, one.outcome(early, late)


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, role: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[Right, Outcome]]:
    cluster, work, found = Cluster(plane, role), tmp_path_factory.mktemp("m"), dict[Right, Outcome]()
    plane.add_node("owner-node")
    cluster.create(PODS, pod("owner", nodeName="owner-node"))
    try:
        for at in range(0, len(RIGHTS), AT_ONCE):
            found |= play(cluster, RIGHTS[at : at + AT_ONCE], work)
        yield found
    finally:
        cluster.clean()


@pytest.mark.slow
@pytest.mark.parametrize("right", WITHOUT, ids=str)
def test_it_lives_stays_calm_and_says_what_is_off(outcomes: Mapping[Right, Outcome], right: Right) -> None:
    """Neither a hang nor a loop, a line that names the right, and nothing else off than is said of it."""
    outcome = outcomes[right]
    assert outcome.healthy and outcome.code == 0 and outcome.seconds_to_end < 10, outcome
    requests, lines, cpu = outcome.spent
    assert max(requests, lines) <= A_SECOND * WATCHED and cpu < WATCHED / 5, outcome
    assert outcome.works == WITHOUT[right], outcome.told


@pytest.mark.slow
def test_where_it_cannot_start_it_ends_with_one_line(outcomes: Mapping[Right, Outcome]) -> None:
    outcome = outcomes[ENDS]
    assert (outcome.code, len(outcome.told)) == (1, 1), outcome.told
