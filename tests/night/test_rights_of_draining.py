"""As `test_rights_of_provisioning`, for drain decisions with gate and slots, beside our provisioning and beside a central provisioner.

Each node has two volumes, made long ago. Their claims are bound by their owner's wish, so no watch keeps them and they have to be asked
for. One is idle, and blocks. The other may be lost, but a pod uses it, so its acknowledgement is void; a budget keeps the pod from being
evicted, so the node keeps its slot. The node is tainted to be emptied, and let be again; then pod and volumes go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import LATE, Json, pod, storage_class
from hack.parities import crds
from sidecar.kube.api import DRAIN_REPORTS, MERGE_PATCH
from sidecar.kube.api import LEASES as LEASE
from sidecar.model import names
from tests.e2e.test_maintenance_types import PLANNED, declared
from tests.harness.accounts import Role, role_of
from tests.harness.cluster import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    LEASES,
    NODES,
    OWN_BUDGETS,
    OWN_DEPLOYMENTS,
    PODS,
    REPORTS,
    ROLE,
    STATEFUL_SETS,
    VOLUMES,
)
from tests.harness.drains import COMPONENTS, EVACUATE, GATE, SWIFT, Ground, budget, component, stateful_set
from tests.night import rights_table as table
from tests.night.lacking import Played, Row, check, played, stay_calm, watch
from tests.smoke.test_report_only import stored_volume

CONTENTS, MAPS = f"/apis/{names.SNAPSHOT_GROUP}/v1/volumesnapshotcontents", "/api/v1/namespaces/{namespace}/configmaps"
JUDGING = ("--retry-interval-start=500ms", "--drain-report", "--node-drain-policy=Evacuate", "--drain-autoscaler-annotations")
ARGS = (*JUDGING, *GATE, "--evacuation-evict")


@dataclass(frozen=True)
class Story:
    rows: tuple[Row, ...]
    roles: tuple[str, ...]
    args: tuple[str, ...]
    central: bool

    def role(self) -> Role:
        components = (COMPONENTS / name / "rbac.yaml" for name in self.roles)
        return role_of(*(() if self.central else (ROLE,)), *components)


BESIDE = Story(table.DRAINS, ("drain", "gate", "emptying"), ARGS, central=False)
# A replica that could be made anew would need a place, which the central provisioner publishes.
ANEW = ("--provisioning=false", "--allow-reprovision")
LOSS = Story(table.LOSS, ("drain", "node-loss"), ("--node-delete-policy=Cleanup", "--node-gone-after=0s"), central=False)
MAINTENANCE = Story(table.MAINTENANCE, ("drain", "maintenance"), ("--maintenance",), central=False)
CENTRAL = Story(table.REPORT_ONLY, ("report-only", "drain", "gate", "emptying", "reprovision"), (*ARGS, *ANEW), central=True)


class Stored:
    """What the API server has, at one moment."""

    def __init__(self, ground: Ground) -> None:
        kinds = (NODES, REPORTS, OWN_BUDGETS, OWN_DEPLOYMENTS, LEASES, VOLUMES, CLAIMS)
        self.nodes, self.reports, self.budgets, self.deployments, self.leases, self.volumes, self.claims = (
            {item["metadata"]["name"]: item for item in ground.items(path)} for path in kinds
        )


@pytest.fixture(scope="module", autouse=True)
def _snapshots(plane: ControlPlane) -> None:
    for file in crds.manifests():
        plane.apply(file.read_text())
    until(lambda: plane.serves(CONTENTS), "snapshots are served")


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("story", [BESIDE, CENTRAL], ids=["beside", "central"])
def test_without_each_right(ground: Ground, story: Story, half: int) -> None:
    """With half of the many rows at a time: each has two processes."""
    rows = story.rows[half::2]
    owner = ground.create(MAPS, {"metadata": {"name": "owner"}})
    ground.create(BUDGETS, budget("stay", {"app": "stays"}, minAvailable=100))

    def make(row: Row, name: str, kubeconfig: Path) -> Played[Stored]:
        driver = ground.driver(name, name=name)
        # Of another provisioner, as of a volume that people made: no watch keeps the class, and it is asked for.
        ground.create(CLASSES, storage_class(f"late-{driver.driver}", f"by-hand.{ground.driver_name}", LATE))
        ground.node(name, driver, classes=False)
        used = f"{name}-used"
        for claim in (name, used):
            volume, wish = stored_volume(ground, f"pv-{ground.namespace}-{claim}", driver, claim=claim, policy="Delete")
            if claim == used:
                volume["metadata"]["annotations"] = {names.ACKNOWLEDGED: "somebody, long ago"}
                wish["metadata"]["annotations"] = {names.DRAIN_POLICY: "Ignore"}
            ground.create(VOLUMES, volume)
            ground.create(CLAIMS, wish)
        user = pod(name, used, nodeName=name)
        controller = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "controller": True}
        user["metadata"] |= {"labels": {"app": "stays"}, "ownerReferences": [controller]}
        ground.create(PODS, user)
        uid = ground.get(NODES, name)["metadata"]["uid"]
        guard, report = names.guard(name, uid, driver.driver), names.drain_report(name, driver.driver)
        # What is written on only where it is stored already:
        if row.right.resource == DRAIN_REPORTS and row.right.verb in ("get", "patch"):
            body: Json = {"metadata": {"name": report}, "spec": {"nodeName": name, "driver": driver.driver}}
            ground.create(REPORTS, {"apiVersion": DRAIN_REPORTS.api_version, "kind": DRAIN_REPORTS.kind, **body})
        if row.right.verb == "update" and row.right.resource == LEASE:
            ground.create(LEASES, {"metadata": {"name": names.evacuation_slot(0, driver.driver)}, "spec": {}})

        def shown(stored: Stored) -> set[str]:
            node, notes = stored.nodes[name], stored.nodes[name]["metadata"].get("annotations", {})
            kind = names.condition(driver.driver, names.RETIRE_READY)
            conditions = [item["status"] for item in node["status"].get("conditions", ()) if item["type"] == kind]
            told = stored.reports.get(report, {}).get("status", {})
            verdicts = {*conditions, told.get("verdicts", {}).get("retire", {}).get("status", "")}
            slots = [item for item in stored.leases.values() if item["metadata"].get("labels", {}).get(names.SLOT_FOR) == driver.driver]
            parts = (guard in stored.budgets, guard in stored.deployments)
            of_used = stored.volumes.get(f"pv-{ground.namespace}-{used}", {}).get("metadata", {}).get("annotations", {})
            state = node["metadata"]["labels"].get(names.of_driver(driver.driver, names.EVACUATION_STATE))
            words = {
                table.REPORT: bool(told),
                table.CONDITIONS: bool(conditions),
                table.KEPT: names.SCALE_DOWN_DISABLED in notes,
                table.RECORD: names.of_driver(driver.driver, names.DRAIN_RECORD) in notes,
                table.BLOCKED: "False" in verdicts,
                table.GATE: all(parts),
                table.VOID: names.ACKNOWLEDGED not in of_used,
                table.EVACUATION: state == "InProgress" and bool(slots),
                table.GIVEN_BACK: not state and not slots,
                table.FREE: "True" in verdicts,
                table.OPENED: not any(parts),
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, ground.sidecar(driver, *story.args, kubeconfig=kubeconfig), shown)

    with played(ground, rows, story.role(), make, prefix="d") as these:
        watch(these, lambda: Stored(ground), table.STAGES[0])
        for taints, stage in (([EVACUATE], table.STAGES[1]), (None, table.STAGES[2])):
            for one in these:
                ground.patch(NODES, one.name, {"spec": {"taints": taints}})
            watch(these, lambda: Stored(ground), stage)
        ground.request("DELETE", PODS)
        ground.request("DELETE", CLAIMS)
        if story.central:  # whoever provisions centrally deletes them
            for volume in ground.names(VOLUMES):
                until(lambda volume=volume: ground.phase(VOLUMES, volume) != "Bound", "it is released")  # type: ignore[misc]
                ground.delete(VOLUMES, volume)
        watch(these, lambda: Stored(ground), table.STAGES[3])
        stay_calm(these)
        check(these, ground, [word for stage in table.STAGES for word in stage])


def test_after_a_node_that_is_gone_without_each_right(ground: Ground) -> None:
    """It was announced to go, and had the volume of a replica that its StatefulSet makes again: claim and volume are cleared away."""

    def make(row: Row, name: str, kubeconfig: Path) -> Played[Stored]:
        driver, lost, volume_name = ground.driver(name, name=name), f"{name}-lost", f"pv-{ground.namespace}-{name}"
        ground.node(name, driver, classes=False)
        volume, wish = stored_volume(ground, volume_name, driver, claim=f"data-db-{name}-0", policy="Delete")
        volume["metadata"] |= {"annotations": {names.LIES_ON: f"{lost}/uid"}, "finalizers": [names.VOLUME_FINALIZER]}
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] = [lost]
        wish["metadata"]["annotations"] = {names.SELECTED_NODE: lost, names.STORAGE_PROVISIONER: driver.driver}
        leaving = {"nodeUID": "uid", "volumes": [ground.create(VOLUMES, volume)["metadata"]["uid"]]}
        claim_uid = ground.create(CLAIMS, wish)["metadata"]["uid"]
        report = names.drain_report(lost, driver.driver)
        head: Json = {"apiVersion": DRAIN_REPORTS.api_version, "kind": DRAIN_REPORTS.kind}
        spec, meta = {"nodeName": lost, "driver": driver.driver}, {"name": report, "labels": {names.NODE_LOSS_FOR: driver.driver}}
        ground.create(REPORTS, {**head, "metadata": meta, "spec": spec})
        ground.patch(REPORTS, f"{report}/status", {"status": {"nodeUID": "uid", "leaving": leaving}})
        until(lambda: ground.phase(CLAIMS, wish["metadata"]["name"]) == "Bound", "its claim is bound")
        ground.create(STATEFUL_SETS, stateful_set(f"db-{name}", driver, 1))

        def shown(stored: Stored) -> set[str]:
            claims = {item["metadata"]["uid"]: item["metadata"].get("annotations", {}) for item in stored.claims.values()}
            cleared, ended = claim_uid not in claims, report not in stored.reports
            words = {
                table.TOLD: ended or "gone" in stored.reports[report].get("status", {}),
                table.MARKED: cleared or names.LOST_WITH in claims[claim_uid],
                table.CLEARED: cleared,
                table.DELETED: volume_name not in stored.volumes,
                table.ENDED: ended,
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, ground.judge(driver, *LOSS.args, kubeconfig=kubeconfig), shown)

    with played(ground, LOSS.rows, LOSS.role(), make, prefix="g") as these:
        watch(these, lambda: Stored(ground), table.LOST)
        stay_calm(these, speed=SWIFT)
        check(these, ground, table.LOST)


def test_a_maintenance_without_each_right(ground: Ground) -> None:
    """One for each node, in its stages; whoever sums them up of another driver finds none that is drained."""
    ground.plane.apply(component("maintenance"))
    until(lambda: ground.plane.serves(PLANNED), "the API server serves maintenances")

    def make(row: Row, name: str, kubeconfig: Path) -> Played[dict[str, list[Json]]]:
        driver, web = ground.driver(name, name=name), f"{name}-web"
        ground.node(name, driver, classes=False)
        ground.create(PODS, pod(web, nodeName=name))
        selects = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": name}}, "intent": "reboot", "stage": "Cordon"}
        ground.request("POST", PLANNED, declared(PLANNED, selects, name))
        seen: list[bool] = []

        def shown(stored: dict[str, list[Json]]) -> set[str]:
            (node,) = (item for item in stored[NODES] if item["metadata"]["name"] == name)
            cordoned = bool(node["spec"].get("unschedulable"))
            noted = names.of_driver(driver.driver, names.MAINTENANCE_RECORD) in node["metadata"].get("annotations", {})
            conditions = [item["type"] for item in node["status"].get("conditions", ()) if item["type"] in names.LIFECYCLE_CONDITIONS]
            planned = [item for item in stored[PLANNED] if item["metadata"]["name"] == name]
            seen.extend([True] if cordoned else [])
            words = {
                table.CORDONED: cordoned and noted,
                table.UNDER_WAY: names.MAINTENANCE_IN_PROGRESS in conditions,
                table.EVICTED: web not in [item["metadata"]["name"] for item in stored[PODS]],
                table.DRAINED: names.DRAINED in conditions,
                table.SUMMED: any(item.get("status", {}).get("progress") == "1/1 drained" for item in planned),
                table.PUT_BACK: bool(seen) and not (planned or cordoned or noted or conditions),
            }
            return {word for word, is_so in words.items() if is_so}

        return Played(row, name, driver, ground.judge(driver, *MAINTENANCE.args, kubeconfig=kubeconfig), shown)

    def stored() -> dict[str, list[Json]]:
        return {path: ground.items(path) for path in (NODES, PODS, PLANNED)}

    try:
        with played(ground, MAINTENANCE.rows, MAINTENANCE.role(), make, prefix="m") as these:
            watch(these, stored, table.MAINTAINED[0])
            for one in these:
                ground.request("PATCH", f"{PLANNED}/{one.name}", {"spec": {"stage": "Drain"}}, content_type=MERGE_PATCH)
            watch(these, stored, table.MAINTAINED[1])
            ground.request("DELETE", PLANNED)
            watch(these, stored, table.MAINTAINED[2])
            stay_calm(these, speed=SWIFT)
            check(these, ground, [word for stage in table.MAINTAINED for word in stage])
    finally:
        ground.request("DELETE", PLANNED)
