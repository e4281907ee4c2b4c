"""As `test_rights_matrix`, for drain decisions with gate and slots, beside our provisioning and where a central program provisions.

Each node has one volume, made long ago. Its claim is bound by its owner's wish, so no watch keeps it and it has to be asked for. The node
is tainted to be emptied, and let be again; then the volume goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ApiError, ControlPlane, until
from hack.lib.programs import LATE, Json, OurDriver, Sidecar, storage_class
from sidecar.kube.api import DRAIN_REPORTS
from sidecar.kube.api import LEASES as LEASE
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.e2e.accounts import Rules, account, upstream_rules
from tests.e2e.conftest import CLAIMS, CLASSES, DEPLOYMENTS, NODES, VOLUMES, Cluster, from_hack
from tests.e2e.draining import BUDGETS, COMPONENTS, EVACUATE, LEASES, REPORTS, late, stored_volume
from tests.e2e.lacking import Lacking, Outcome, calm, watch, without
from tests.e2e.rights_stories import (
    BLOCKED,
    CONDITIONS,
    DRAIN_ALL,
    DRAIN_STAGES,
    DRAINS,
    EVACUATION,
    FREE,
    GATE,
    GIVEN_BACK,
    LEASE_OF_GATE,
    MARKS,
    OPENED,
    REPORT,
    REPORTS_ONLY,
    Lack,
)

ARGS = (
    *("--retry-interval-start=500ms", "--drain-report", "--node-drain-policy=Evacuate", "--drain-gate", "--drain-gate-image=pause"),
    "--drain-autoscaler-annotations",
)
CONTENTS = f"/apis/{names.SNAPSHOT_GROUP}/v1/volumesnapshotcontents"
AT_ONCE = 22


@dataclass(frozen=True)
class Story:
    name: str
    lacks: Mapping[Right, Lack]
    roles: tuple[str, ...]
    upstream: bool
    args: tuple[str, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    """Of each claim."""

    def rules(self) -> Rules:
        items = [item for role in self.roles for item in yaml.safe_load_all((COMPONENTS / role / "rbac.yaml").read_text())]
        return [*(upstream_rules() if self.upstream else ()), *(rule for item in items for rule in item.get("rules", ()))]


BESIDE = Story("d", DRAINS, ("drain", "gate"), upstream=True, args=ARGS)
CENTRAL = Story(
    "r",
    REPORTS_ONLY,
    ("report-only", "drain", "gate"),
    upstream=False,
    args=(*ARGS, "--provisioning=false"),
    notes={names.DRAIN_POLICY: "Migrate"},  # which has it looked for other places
)
PLAYED = [(story, right) for story in (BESIDE, CENTRAL) for right in story.lacks]


class Stored:
    """What the API server has, at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.nodes, self.reports, self.budgets, self.deployments, self.leases = (
            {item["metadata"]["name"]: item for item in cluster.items(path)} for path in (NODES, REPORTS, BUDGETS, DEPLOYMENTS, LEASES)
        )


class Draining(Lacking):
    """One node, one volume on it, and the sidecar there."""

    def __init__(self, cluster: Cluster, story: Story, right: Right, name: str, kubeconfig: Path, work: Path) -> None:
        driver, environ = OurDriver(work, node=name, name=f"{name}.example"), {"NAMESPACE": "default"}
        sidecar = Sidecar(work, node=name, address=driver.socket, kubeconfig=kubeconfig, args=story.args, environ=environ)
        super().__init__(cluster, right, name, driver, sidecar, lack=story.lacks[right])
        self.volume, self.claim, self.story = f"pv-{name}", f"data-{name}", story

    def start(self) -> None:
        plane, driver = self.cluster.plane, self.driver
        plane.add_node(self.name, {driver.key: self.name})
        plane.add_csinode(self.name, driver.driver, self.name, [driver.key])
        # Of another provisioner, as of a volume that people made: no watch keeps the class, and it is asked for.
        self.cluster.create(CLASSES, storage_class(late(driver), "by-hand.example", LATE))
        volume, wish = stored_volume(self.volume, self.claim, driver, self.name)
        wish["metadata"]["annotations"] = dict(self.story.notes)
        self.cluster.create(VOLUMES, volume)
        self.cluster.create(CLAIMS, wish)
        self._prepare()
        super().start()

    def _prepare(self) -> None:
        """What is written on only where it is stored already."""
        if self.right == Right("patch", DRAIN_REPORTS):
            body = {"metadata": {"name": names.drain_report(self.name, self.driver.driver)}}
            body |= {"spec": {"nodeName": self.name, "driver": self.driver.driver}}
            self.cluster.create(REPORTS, {"apiVersion": DRAIN_REPORTS.api_version, "kind": DRAIN_REPORTS.kind, **body})
        if self.right.verb == "update" and self.right.resource == LEASE:
            held: Json = {"metadata": {"name": self._guard(Stored(self.cluster))}, "spec": {"holderIdentity": "a-neighbour"}}
            self.cluster.create(LEASES, held)

    def _guard(self, stored: Stored) -> str:
        return names.guard(stored.nodes[self.name]["metadata"]["uid"], self.driver.driver)

    def taint(self, *taints: Json) -> None:
        self.cluster.patch(NODES, self.name, {"spec": {"taints": [*taints] or None}})

    def shown(self, stored: Stored, stage: Sequence[str]) -> set[str]:
        node, driver, guard = stored.nodes[self.name], self.driver.driver, self._guard(stored)
        condition = names.condition(driver, names.RETIRE_READY)
        conditions = [item["status"] for item in node["status"].get("conditions", ()) if item["type"] == condition]
        report = stored.reports.get(names.drain_report(self.name, driver), {}).get("status", {})
        verdicts = {*conditions, report.get("verdicts", {}).get("retire", {}).get("status", "")}
        slots = [item for item in stored.leases.values() if item["metadata"].get("labels", {}).get(names.SLOT_FOR) == driver]
        parts = (guard in stored.budgets, guard in stored.deployments)
        lease = stored.leases.get(guard, {}).get("spec", {}).get("holderIdentity", "")
        state = node["metadata"]["labels"].get(names.of_driver(driver, names.EVACUATION_STATE))
        shown = {
            REPORT: bool(report),
            CONDITIONS: bool(conditions),
            MARKS: names.of_driver(driver, names.DRAIN_SUMMARY) in node["metadata"].get("annotations", {}),
            BLOCKED: "False" in verdicts,
            GATE: all(parts),
            LEASE_OF_GATE: lease.endswith(f"/{driver}"),
            EVACUATION: state == "InProgress" and bool(slots),
            GIVEN_BACK: not state and not slots,
            FREE: "True" in verdicts,
            OPENED: not any(parts),
        }
        return {word for word, is_so in shown.items() if is_so}


def play(cluster: Cluster, played: Sequence[tuple[Story, Right]], work: Path) -> Iterator[tuple[tuple[str, Right], Outcome]]:
    with ExitStack() as stack:
        these: list[Draining] = []
        for story, right in played:
            name = f"{story.name}{[*story.lacks].index(right)}"
            kubeconfig = stack.enter_context(account(cluster, f"without-{name}", without(right, story.rules())))
            one = Draining(cluster, story, right, name, kubeconfig, work)
            stack.callback(one.driver.stop)
            stack.callback(one.sidecar.stop)
            one.start()
            these.append(one)

        def leave(one: Draining) -> None:
            cluster.delete(CLAIMS, one.claim)
            if not one.story.upstream:  # whoever provisions centrally deletes it
                until(lambda: cluster.phase(VOLUMES, one.volume) != "Bound", "it is released")
                cluster.delete(VOLUMES, one.volume)

        changes: tuple[Callable[[Draining], None], ...] = (
            lambda one: None,
            lambda one: one.taint(EVACUATE),
            lambda one: one.taint(),
            leave,
        )
        for change, stage in zip(changes, DRAIN_STAGES, strict=True):
            for one in these:
                change(one)
            watch(these, lambda: Stored(cluster), stage)
        for one, spent in zip(these, calm(these), strict=True):
            yield (one.story.name, one.right), one.outcome(DRAIN_ALL, (one.name,), spent)


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, role: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[tuple[str, Right], Outcome]]:
    cluster, work, found = Cluster(plane, role), tmp_path_factory.mktemp("d"), dict[tuple[str, Right], Outcome]()
    crds = [(COMPONENTS / "drain" / "crd.yaml").read_text(), *(file.read_text() for file in from_hack("parities.crds").manifests())]
    for crd in crds:
        plane.apply(crd)
    until(lambda: plane.serves(REPORTS) and plane.serves(CONTENTS), "reports and snapshots are served", seconds=30)
    try:
        for at in range(0, len(PLAYED), AT_ONCE):
            found |= play(cluster, PLAYED[at : at + AT_ONCE], work)
        yield found
    finally:
        cluster.clean()
        plane.request("DELETE", BUDGETS)
        for item in cluster.items(LEASES):
            if {names.SLOT_FOR, names.GUARDED_FOR} & item["metadata"].get("labels", {}).keys():
                with suppress(ApiError):  # garbage collection may have been there first
                    cluster.delete(LEASES, item["metadata"]["name"])
        for crd in crds:
            plane.kubectl("delete", "--timeout=60s", "-f", "-", input=crd)


@pytest.mark.slow
@pytest.mark.parametrize(("story", "right"), PLAYED, ids=[f"{story.name} {right}" for story, right in PLAYED])
def test_it_lives_stays_calm_and_says_what_is_off(outcomes: Mapping[tuple[str, Right], Outcome], story: Story, right: Right) -> None:
    outcomes[story.name, right].check(story.lacks[right])
