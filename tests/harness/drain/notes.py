"""Notes on volumes, as processes write them against a simulated API server."""

from collections.abc import Awaitable, Callable
from typing import Final

from hack.sim.cluster import Call
from sidecar.drain.machine_mark import parse
from sidecar.kube.api import VOLUMES
from sidecar.kube.errors import ApiError
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.simulated import Bench, all_of, node_of, with_pod

ARGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule")
Marks = dict[str, tuple[str, str]]


class Writes:
    """Every patch of a volume by a sidecar, and what `refuse` answers."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None) -> None:
        self.calls: list[str] = []
        self.refuse = refuse

    def __call__(self, call: Call) -> ApiError | None:
        if call.resource != VOLUMES or call.verb != "patch":
            return None
        self.calls.append(call.name)
        return self.refuse(call)


def play(story: Callable[[Bench], Awaitable[None]], seen: Writes, *, args: tuple[str, ...] = ARGS) -> None:
    simulated.play(story, args=args, refuse=seen)


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
