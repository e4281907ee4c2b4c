"""Each right of the sample's role is taken away, under a real authorizer: the sidecar lives, stays calm, and says what it lacks.

The sidecars of many rights run at once, each with a driver, a node, classes, a claim and an account of its own. Rights that these flags do
not use are in `test_rights_matrix_beside` and `test_rights_matrix_drain`; `tests/deploy/test_rights_stories.py` sees that none is left out.
The finalizer's are in `test_old_role`.
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
from hack.lib.programs import IMMEDIATE, LATE, OurDriver, Sidecar, claim, pod, storage_class, within
from sidecar.rights.rights import Right
from tests.e2e.accounts import account, upstream_rules
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, PODS, VOLUMES, Cluster
from tests.e2e.lacking import WATCHED, Lacking, Spent, without
from tests.e2e.rights_stories import ENDS, NOTHING, WITHOUT, Works

SOON = ("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms", "--retry-interval-start=500ms")
ARGS = (*SOON, "--node-deployment-placement=ranked", "--enable-capacity", "--capacity-ownerref-level=0", "--capacity-poll-interval=2s")
AT_ONCE = 11


RIGHTS = (*WITHOUT, ENDS)


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


class Provisioning(Lacking):
    def __init__(self, cluster: Cluster, right: Right, name: str, kubeconfig: Path, work: Path) -> None:
        """`name` is short: the path of a socket has a hundred characters."""
        driver, environ = OurDriver(work, node=name, name=f"{name}.example"), {"NAMESPACE": "default", "POD_NAME": "owner"}
        sidecar = Sidecar(work, node=name, address=driver.socket, kubeconfig=kubeconfig, args=ARGS, environ=environ)
        super().__init__(cluster, right, name, driver, sidecar)
        self.was_bound = False

    def start(self) -> None:
        self.cluster.plane.add_node(self.name, {self.driver.key: self.name}, managed=False)
        self.cluster.plane.add_csinode(self.name, self.driver.driver, self.name, [self.driver.key])
        for class_, binding in ((self.name, IMMEDIATE), (f"{self.name}-late", LATE)):
            self.cluster.create(CLASSES, storage_class(class_, self.driver.driver, binding))
        super().start()
        self.cluster.create(CLAIMS, claim(self.name, self.name))

    @property
    def should(self) -> Works:
        return WITHOUT.get(self.right, NOTHING)

    def is_bound(self) -> bool:
        return self.cluster.phase(CLAIMS, self.name) == "Bound"

    def is_emptied(self) -> bool:
        return not [item for item in self.cluster.items(VOLUMES) if item["spec"]["csi"]["driver"] == self.driver.driver]

    def has_published(self) -> bool:
        return any(item["storageClassName"] == f"{self.name}-late" for item in self.cluster.items(CAPACITIES))

    def outcome(self, before: Spent, after: Spent) -> Outcome:
        """And it is asked to end."""
        alive = self.lives
        healthy, told = alive and self.sidecar.page("/healthz")[0] == 200, self.told(self.name)
        works = Works(self.was_bound, self.is_emptied(), self.has_published(), bool(told))
        began = time.monotonic()
        if alive:
            self.sidecar.signal(signal.SIGTERM)
        code = self.sidecar.wait()
        return Outcome(works, healthy, after.since(before), told, time.monotonic() - began, code)


def play(cluster: Cluster, rights: Sequence[Right], work: Path) -> Iterator[tuple[Right, Outcome]]:
    with ExitStack() as stack:
        these = list[Provisioning]()
        for right in rights:
            name = f"m{RIGHTS.index(right)}"
            kubeconfig = stack.enter_context(account(cluster, f"without-{name}", without(right, upstream_rules())))
            one = Provisioning(cluster, right, name, kubeconfig, work)
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
    assert outcome.spent.is_calm, outcome
    assert outcome.works == WITHOUT[right], outcome.told


@pytest.mark.slow
def test_where_it_cannot_start_it_ends_with_one_line(outcomes: Mapping[Right, Outcome]) -> None:
    outcome = outcomes[ENDS]
    assert (outcome.code, len(outcome.told)) == (1, 1), outcome.told
