"""What drain decisions do on the side may fail by a fault of the program, and volumes are made all the same."""

import pytest

from hack.sim.world.story import Story, do
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.untracked import Untracked
from sidecar.drain.gate.takeover_io import Neighbours
from sidecar.drain.node_loss.controller import NodeLoss
from sidecar.drain.notes.controller import Notes
from sidecar.engine.health import OK, Degraded
from tests.harness.drain.reprovision import metric
from tests.harness.drain.simulated import ARGS, play, wait, with_pod

TASKS = {
    "untracked volumes": Untracked,
    "uses that nobody watched": Absence,
    "notes on volumes": Notes,
    "gates of others": Neighbours,
    "nodes that are gone": NodeLoss,
}


@pytest.mark.parametrize("name", TASKS)
def test_a_fault_in_a_side_task_is_told_counted_and_tried_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    well = TASKS[name].run

    async def run(task: object) -> None:
        nonlocal runs
        runs += 1
        if runs <= 4:  # two nodes, twice each
            raise KeyError("an object that nobody has thought of")
        await well(task)  # type: ignore[arg-type]

    monkeypatch.setattr(TASKS[name], "run", run)

    async def story(bench: Story) -> None:
        tools = bench.nodes["n0"].tools
        assert tools is not None
        await with_pod(bench, "db-0")
        await do(bench, "until running db-0")

        def state() -> object:
            return next(row.state for row in tools.health.rows() if row.path == f"drain: {name}")

        assert state() == Degraded(f"{name} failed: KeyError")
        assert f'csi_node_sidecar_faults_total{{task="{name}"}}' in metric(bench)
        await wait(bench, 120)
        assert runs == 6
        assert state() == OK()

    play(story, args=(*ARGS, "--node-delete-policy=Orphan"))
