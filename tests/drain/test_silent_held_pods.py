"""Which pods a silent sidecar holds: the list stays while a drain is held, and goes on a person's word, or once nobody drains the node."""

from typing import Any, Final

import pytest

from hack.sim.world.node import DRIVER
from sidecar.kube.api import DRAIN_REPORTS, LEASES
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Story, change, play, report_of, running, wait

GATED: Final = (*JUDGING, "--drain-gate-image=pause")
LETS_GO: Final = {
    "a person's word": {"annotations": {names.FORCE_DRAIN: "the disk is dead"}},
    "an uncordon": {"spec": {"unschedulable": None}},
}


async def held(bench: Story) -> list[str]:
    status = await report_of(bench)
    found = list(status.get("held") or ())  # the API server stores no empty list here
    assert bool(found) == bool(status["heldBecause"]) == bool(status["heldCount"])
    return found


@pytest.mark.parametrize("word", LETS_GO.values(), ids=LETS_GO.keys())
def test_the_pods_of_a_silent_sidecar_are_let_go_when_nothing_holds_them_any_more(word: dict[str, Any]) -> None:
    async def story(bench: Story) -> None:
        await running(bench, "data")
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 60)
        assert await held(bench) == ["default/data"]
        bench.nodes["n0"].lay_down()
        await wait(bench, 3600)
        lease = await bench.you.get(LEASES, names.watch(DRIVER), namespace="default")
        assert lease["metadata"]["ownerReferences"][0]["name"] == "n1"
        assert await held(bench) == ["default/data"], "nobody has said anything"
        before = await bench.you.get(DRAIN_REPORTS, names.drain_report("n0", DRIVER))
        await change(bench, "n0", word.get("spec"), annotations=word.get("annotations"))
        await wait(bench, 700)
        assert await held(bench) == []
        after = await bench.you.get(DRAIN_REPORTS, names.drain_report("n0", DRIVER))
        changed = {key for key in before["status"] if before["status"][key] != after["status"].get(key)}
        assert (
            changed <= {"held", "heldBecause", "heldCount", "drainFor"}
            and before["metadata"]["ownerReferences"] == after["metadata"]["ownerReferences"]
        )

    play(story, args=GATED)
