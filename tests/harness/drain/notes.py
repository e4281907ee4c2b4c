"""Notes on volumes, as processes write them against a simulated API server."""

from collections.abc import Awaitable, Callable
from typing import Final

from hack.sim.cluster import Call
from sidecar.drain.machine_mark import parse
from sidecar.kube.api import VOLUMES
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.simulated import Bench, all_of, node_of, with_pod

ARGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule")
Marks = dict[str, tuple[str, str]]


class Writes:
    """Every patch of a volume by a sidecar."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, call: Call) -> None:
        if call.resource == VOLUMES and call.verb == "patch":
            self.calls.append(call.name)


def play(story: Callable[[Bench], Awaitable[None]], seen: Writes) -> None:
    simulated.play(story, args=ARGS, refuse=seen)


async def marks(bench: Bench) -> Marks:
    """By claim: the nodes that its volume lies on and leaves with, both of which have to be machines of today."""
    found = {}
    for volume in await all_of(bench, VOLUMES):
        notes = volume["metadata"].get("annotations") or {}
        found[volume["spec"]["claimRef"]["name"]] = (
            await of_today(bench, notes.get(names.LIES_ON)),
            await of_today(bench, notes.get(names.LEAVING)),
        )
    return found


async def of_today(bench: Bench, note: str | None) -> str:
    if note is None:
        return ""
    machine = parse(note)
    assert machine is not None, note
    return machine.node if (await node_of(bench, machine.node))["metadata"]["uid"] == machine.uid else f"former {machine.node}"


async def apps(bench: Bench, *wanted: str) -> None:
    for number, node in enumerate(wanted):
        await with_pod(bench, f"app-{number}", node=node)
