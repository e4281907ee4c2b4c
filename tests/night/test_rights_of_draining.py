"""As `test_rights_of_provisioning`, for drain decisions with gate and turns, beside our provisioning and beside a central provisioner.

Each node has one volume, made long ago. Its claim is bound by its owner's wish, so no watch keeps it and it has to be asked for. The node
is tainted to be emptied, and let be again; then the volume goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import LATE, Json, storage_class
from hack.parities import crds
from sidecar.kube.api import DRAIN_REPORTS
from sidecar.kube.api import LEASES as LEASE
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.harness.accounts import Rules, upstream_rules
from tests.harness.cluster import BUDGETS, CLAIMS, CLASSES, DEPLOYMENTS, LEASES, NODES, REPORTS, VOLUMES
from tests.harness.drains import COMPONENTS, EVACUATE, GATE, Ground
from tests.night import rights_table as table
from tests.night.lacking import Played, Row, played, stay_calm, watch
from tests.smoke.test_report_only import stored_volume

CONTENTS = f"/apis/{names.SNAPSHOT_GROUP}/v1/volumesnapshotcontents"
ARGS = ("--retry-interval-start=500ms", "--drain-report", "--node-drain-policy=Evacuate", *GATE, "--drain-autoscaler-annotations")


@dataclass(frozen=True)
class Story:
    rows: tuple[Row, ...]
    roles: tuple[str, ...]
    args: tuple[str, ...]
    notes: Mapping[str, str]
    """Of each claim."""
    central: bool

    def rules(self) -> Rules:
        items = [item for role in self.roles for item in yaml.safe_load_all((COMPONENTS / role / "rbac.yaml").read_text())]
        return [*(() if self.central else upstream_rules()), *(rule for item in items for rule in item.get("rules", ()))]


BESIDE = Story(table.DRAINS, ("drain", "gate"), ARGS, {}, central=False)
CENTRAL = Story(
    table.REPORT_ONLY,
    ("report-only", "drain", "gate"),
    (*ARGS, "--provisioning=false"),
    {names.DRAIN_POLICY: "Migrate"},  # which has it looked for other places
    central=True,
)


class Stored:
    """What the API server has, at one moment."""

    def __init__(self, ground: Ground) -> None:
        self.nodes, self.reports, self.budgets, self.deployments, self.leases = (
            {item["metadata"]["name"]: item for item in ground.items(path)} for path in (NODES, REPORTS, BUDGETS, DEPLOYMENTS, LEASES)
        )


@pytest.fixture(scope="module", autouse=True)
def _snapshots(plane: ControlPlane) -> None:
    for file in crds.manifests():
        plane.apply(file.read_text())
    until(lambda: plane.serves(CONTENTS), "snapshots are served")


@pytest.mark.parametrize(("story", "part"), [(BESIDE, 0), (BESIDE, 1), (CENTRAL, 0)], ids=["beside-1", "beside-2", "central"])
def test_without_each_right(ground: Ground, story: Story, part: int) -> None:
    """With half of the many rows at a time: each has two processes."""
    rows = story.rows[part * 16 : part * 16 + 16]

    def make(row: Row, name: str, kubeconfig: Path) -> Played[Stored]:
        driver = ground.driver(name, name=name)
        # Of another provisioner, as of a volume that people made: no watch keeps the class, and it is asked for.
        ground.create(CLASSES, storage_class(f"late-{driver.driver}", f"by-hand.{ground.driver_name}", LATE))
        ground.node(name, driver, classes=False)
        volume, wish = stored_volume(ground, f"pv-{ground.namespace}-{name}", driver, claim=name, policy="Delete")
        wish["metadata"]["annotations"] = dict(story.notes)
        ground.create(VOLUMES, volume)
        ground.create(CLAIMS, wish)
        uid = ground.get(NODES, name)["metadata"]["uid"]
        guard, report = names.guard(name, uid, driver.driver), names.drain_report(name, driver.driver)
        # What is written on only where it is stored already:
        if row.right == Right("patch", DRAIN_REPORTS):
            body: Json = {"metadata": {"name": report}, "spec": {"nodeName": name, "driver": driver.driver}}
            ground.create(REPORTS, {"apiVersion": DRAIN_REPORTS.api_version, "kind": DRAIN_REPORTS.kind, **body})
        if row.right.verb == "update" and row.right.resource == LEASE:
            ground.create(LEASES, {"metadata": {"name": guard}, "spec": {"holderIdentity": "a-neighbour"}})

        def shown(stored: Stored) -> set[str]:
            node = stored.nodes[name]
            kind = names.condition(driver.driver, names.RETIRE_READY)
            conditions = [item["status"] for item in node["status"].get("conditions", ()) if item["type"] == kind]
            told = stored.reports.get(report, {}).get("status", {})
            verdicts = {*conditions, told.get("verdicts", {}).get("retire", {}).get("status", "")}
            turns = [item for item in stored.leases.values() if item["metadata"].get("labels", {}).get(names.SLOT_FOR) == driver.driver]
            parts = (guard in stored.budgets, guard in stored.deployments)
            holder = stored.leases.get(guard, {}).get("spec", {}).get("holderIdentity") or ""
            state = node["metadata"]["labels"].get(names.of_driver(driver.driver, names.EVACUATION_STATE))
            words = {
                table.REPORT: bool(told),
                table.CONDITIONS: bool(conditions),
                table.MARKS: names.of_driver(driver.driver, names.DRAIN_RECORD) in node["metadata"].get("annotations", {}),
                table.BLOCKED: "False" in verdicts,
                table.GATE: all(parts),
                table.LEASE_OF_GATE: holder.endswith(f"/{driver.driver}"),
                table.EVACUATION: state == "InProgress" and bool(turns),
                table.GIVEN_BACK: not state and not turns,
                table.FREE: "True" in verdicts,
                table.OPENED: not any(parts),
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, ground.sidecar(driver, *story.args, kubeconfig=kubeconfig), shown)

    with played(ground, rows, story.rules(), make, prefix="d") as these:
        watch(these, lambda: Stored(ground), table.STAGES[0])
        for taints, stage in (([EVACUATE], table.STAGES[1]), (None, table.STAGES[2])):
            for one in these:
                ground.patch(NODES, one.name, {"spec": {"taints": taints}})
            watch(these, lambda: Stored(ground), stage)
        for one in these:
            ground.delete(CLAIMS, one.name)
            if story.central:  # whoever provisions centrally deletes it
                volume = f"pv-{ground.namespace}-{one.name}"
                until(lambda volume=volume: ground.phase(VOLUMES, volume) != "Bound", "it is released")  # type: ignore[misc]
                ground.delete(VOLUMES, volume)
        watch(these, lambda: Stored(ground), table.STAGES[3])
        stay_calm(these)
        for one in these:
            one.check(ground, [word for stage in table.STAGES for word in stage], one.name)
