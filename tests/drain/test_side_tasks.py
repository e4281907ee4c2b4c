"""What is done on the side may fail by a fault of the program, and volumes are made all the same."""

import pytest

from hack.sim.world.story import Story
from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.drain.driver_list_io import DriverList
from sidecar.drain.watch.turn_io import Looker
from sidecar.drain.watches import DrainPart
from sidecar.engine.health import OK, Degraded
from sidecar.kube.api import PODS
from sidecar.ownership.controller import Contenders
from sidecar.provisioning.part import ProvisioningPart
from sidecar.provisioning.sweep import SnapshotSweep
from tests.harness.drain.simulated import ARGS, play, wait, with_pod
from tests.harness.replicas_anew import metric

TASKS = {
    "drain: volumes of the driver": (DriverList, "run"),
    "drain: held pods": (DrainPart, "_write_held"),
    "drain: silent sidecars and gone nodes": (Looker, "run"),
    "drain: what was said before": (DrainPart, "take_back"),
    "capacity: capacity of nodes that are gone": (GoneNodes, "look_for_ever"),
    "provisioning: journal": (ProvisioningPart, "look_for_what_no_event_tells"),
    "provisioning: snapshots": (SnapshotSweep, "run"),
    "provisioning: contenders": (Contenders, "run"),
}


@pytest.mark.parametrize("path", TASKS)
def test_a_fault_in_a_side_task_is_told_counted_and_tried_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, name = 0, path.partition(": ")[2]
    well = getattr(*TASKS[path])

    async def run(task: object) -> None:
        nonlocal runs
        runs += 1
        if runs <= 4:  # two nodes, twice each
            raise KeyError("an object that nobody has thought of")
        await well(task)

    monkeypatch.setattr(*TASKS[path], run)

    async def story(bench: Story) -> None:
        tools = bench.nodes["n0"].tools
        assert tools is not None
        await with_pod(bench, "db-0")
        await bench.until_phase(PODS, "db-0", "Running")

        def state() -> object:
            return next(row.state for row in tools.health.rows() if row.path == path)

        assert state() == Degraded(f"{name} failed: KeyError")
        assert f'csi_node_sidecar_faults_total{{task="{name}"}}' in metric(bench)
        await wait(bench, 120)
        assert runs == 6
        assert state() == OK()

    play(story, args=(*ARGS, "--node-delete-policy=Orphan", "--node-deployment-placement=ranked", "--enable-capacity"))
