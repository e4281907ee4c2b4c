"""A node is lost after each step of a Reprovision: the others clear up after it, the set is whole elsewhere, and no Lease is left."""

from typing import Any, Final

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.drains.claim_referee import ALLOW
from hack.sim.drains.node_loss_plan import CLEANUP, SET
from hack.sim.drains.node_loss_referee import LossReferee
from hack.sim.drains.node_loss_world import NodeLossWorld, play
from hack.sim.drains.plan import GATED
from hack.sim.drains.sender import SENDER
from hack.sim.world.network import Latency, Weather
from hack.sim.world.node import NAMESPACE
from hack.sim.world.plan import Plan, PlannedEvent
from sidecar.kube.api import CLAIMS, LEASES, MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json
from tests.harness.placing import place

NODES: Final = ("n0", "n1", "n2", "n3")
QUICK: Final = Latency(0.02, 0.05)
LOST: Final = "n0"
"""The first replica is there."""
STEPS: Final = {
    "the slot": "create leases.coordination.k8s.io default/evacuation-slot-0",
    "the Lease of the set": "create leases.coordination.k8s.io default/reprovision-",
    "the mark": "patch persistentvolumeclaims default/data-db-0",
    "the eviction": "create pods/eviction default/db-0",
    "the deletion of the claim": "delete persistentvolumeclaims default/data-db-0",
    "the deletion of the volume": "delete persistentvolumes",
    "the end of the slot": "delete leases.coordination.k8s.io default/evacuation-slot-0",
}
PLAN: Final = Plan(
    1,
    NODES,
    weather=Weather(read=QUICK, write=QUICK),
    events=(
        PlannedEvent(10.0, SET, "db", 3.0, "late"),
        PlannedEvent(100.0, "may be made anew"),
        PlannedEvent(160.0, "evacuate", LOST),
        PlannedEvent(500.0, "nothing"),  # the world comes to rest after its last event
    ),
    args=(*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", ALLOW, CLEANUP, "--node-gone-after=0s"),
    settle=1500.0,
)


@pytest.fixture(autouse=True)
def _one_replica_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, *NODES[:3])


@pytest.fixture(autouse=True)
def _a_sidecar_may_delete_claims_of_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones is judged in worlds of Reprovision."""

    def judged(self: LossReferee, claim: Json, sender: str, *, conditions: bool, real: Any = LossReferee._claim_deleted) -> Any:
        volume = self.volume_of(claim)
        own = volume is not None and self.machine_of(volume) == sender
        return [] if own else real(self, claim, sender, conditions=conditions)

    monkeypatch.setattr(LossReferee, "_claim_deleted", judged)


def lost_after(step: str) -> NodeLossWorld:
    """The world at its end."""
    worlds: list[NodeLossWorld] = []

    def prepare(world: NodeLossWorld) -> None:
        worlds.append(world)
        assert isinstance(world.api, InProcessApi)
        carry_out, after = world._carry_out, world.api.after
        done: list[str] = []

        async def carried_out(item: PlannedEvent) -> None:
            if item.what == "may be made anew":
                for ordinal in range(3):
                    word = {"metadata": {"annotations": {names.DRAIN_POLICY: "Reprovision"}}}
                    await world.api.patch(CLAIMS, f"data-db-{ordinal}", word, namespace=NAMESPACE, content_type=MERGE_PATCH)
            elif item.what != "nothing":
                await carry_out(item)

        async def answered(call: Call) -> None:
            await after(call)
            if SENDER.get() == LOST and str(call).startswith(step) and not call.dry_run and not done:
                done.append(step)
                world.spawn("loss", world._lose(LOST, 0.0, first="Node"))

        world._carry_out = carried_out  # type: ignore[method-assign]
        world.api.after = answered

    report = play(PLAN, before=prepare)
    assert report.ok, str(report)
    return worlds[0]


@pytest.mark.parametrize("step", STEPS)
def test_the_set_is_whole_and_nothing_is_left(step: str) -> None:
    world = lost_after(STEPS[step])
    pods, volumes, leases = (list(world.cluster.store.all_of(kind)) for kind in (PODS, VOLUMES, LEASES))
    assert LOST in world.lost, "the step was never made"
    assert len(pods) == 3 and all(Pod.of(pod).ready for pod in pods)
    assert len(volumes) == 3 and not any(world.losses.machine_of(volume) == LOST for volume in volumes)
    left = {lease["metadata"]["name"].partition("-")[0] for lease in leases}
    assert left == {"drain", "node"}, "only gates of the others, and the Lease of who looks after gone nodes"
