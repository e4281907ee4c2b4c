"""The commands of a notebook, one function each.

    world nodes=2 seed=1 pool=10Gi args=--retry-interval-max=1m,--timeout=5s
    class late|immediate                    claim NAME class=late size=1Gi          pod NAME claim=NAME
    delete claim|pod|volume|class NAME      kill|stop NODE                          outage 30s
    driver NODE away|back|well|FAULT …      fill NODE SIZE     empty NODE           grow NODE SIZE
    run 5s                                  until bound|running|gone NAME           until told REASON NAME
    show claims|volumes|pods|capacity|events|driver NODE|decisions NAME|queues NODE

A fault is written as in `faults`. `fill` uses up space behind the sidecar's back. `until` gives up after five minutes.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from hack.sim.driver.faults import parse_fault
from hack.sim.notebook import words
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import EPOCH, NAMESPACE
from hack.sim.world.plan import Plan
from sidecar.config.errors import UsageError
from sidecar.config.kinds import read_duration
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, EVENTS, PODS, VOLUMES, Resource
from sidecar.model.objects import IMMEDIATE, LATE, Json

_PATIENCE: Final = 300.0
_MODES: Final = {"late": LATE, "immediate": IMMEDIATE}
_KINDS: Final[dict[str, Resource]] = {"claim": CLAIMS, "pod": PODS, "volume": VOLUMES, "class": CLASSES}
_LISTS: Final[dict[str, Resource]] = {"claims": CLAIMS, "volumes": VOLUMES, "pods": PODS, "capacity": CAPACITIES, "events": EVENTS}

Options = Mapping[str, str]


class BadCommand(ValueError):
    """The line is no command."""


async def do(world: NotebookWorld, line: str) -> None:
    """Carries out one line of a notebook."""
    verb, *rest = line.split()
    pairs = [word.partition("=") for word in rest if "=" in word and not word.startswith("-") and verb != "driver"]
    options = {key: value for key, _, value in pairs}
    given = [word for word in rest if verb == "driver" or "=" not in word]
    try:
        await _VERBS[verb](world, given, options)
    except (KeyError, IndexError, ValueError, UsageError) as error:
        raise BadCommand(f"{line!r}: {error!r}") from error


async def _world(world: NotebookWorld, _: list[str], options: Options) -> None:
    nodes = tuple(f"n{number}" for number in range(int(options.get("nodes", "1"))))
    args = tuple(word for word in options.get("args", "").split(",") if word)
    await world.begin(Plan(int(options.get("seed", "1")), nodes, pool=options.get("pool", "10Gi"), args=args))


async def _class(world: NotebookWorld, given: list[str], _: Options) -> None:
    await world.storage_class(given[0], _MODES[given[0]])


async def _claim(world: NotebookWorld, given: list[str], options: Options) -> None:
    requests = {"storage": options.get("size", "1Gi")}
    spec = {"storageClassName": options["class"], "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}
    await world.you.create(CLAIMS, {"metadata": {"name": given[0]}, "spec": spec}, namespace=NAMESPACE)


async def _pod(world: NotebookWorld, given: list[str], options: Options) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": options["claim"]}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}
    await world.you.create(PODS, {"metadata": {"name": given[0]}, "spec": spec}, namespace=NAMESPACE)


async def _delete(world: NotebookWorld, given: list[str], _: Options) -> None:
    resource = _KINDS[given[0]]
    await world.you.delete(resource, world.log.unnamed(given[1]), namespace=NAMESPACE if resource.namespaced else "")


async def _kill(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.nodes[given[0]].kill()


async def _stop(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.nodes[given[0]].stop()


async def _outage(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.log.tell("world", "the API server is away")
    world.spawn(world.outage(_seconds(given[0])))


async def _driver(world: NotebookWorld, given: list[str], _: Options) -> None:
    node, what = world.nodes[given[0]], given[1]
    match what:
        case "away":
            world.log.tell(node.name, "its driver goes away")
            node.driver_away()
        case "back":
            world.log.tell(node.name, "its driver is back")
            node.driver_back()
        case "well":
            node.reception.faults.set([])
        case _:
            node.reception.faults.set([parse_fault(" ".join(given[1:]))])


async def _fill(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.fill(given[0], given[1])
    world.log.tell(given[0], f"somebody else takes {given[1]} from the pool")


async def _empty(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.empty(given[0])
    world.log.tell(given[0], "somebody else gives back what he took from the pool")


async def _grow(world: NotebookWorld, given: list[str], _: Options) -> None:
    world.grow(given[0], given[1])
    world.log.tell(given[0], f"its pool has {given[1]} now")


async def _run(world: NotebookWorld, given: list[str], _: Options) -> None:
    await world.until(lambda: False, _seconds(given[0]))


async def _until(world: NotebookWorld, given: list[str], _: Options) -> None:
    condition = _CONDITIONS[given[0]]
    if not await world.until(lambda: condition(world, given[1:]), _PATIENCE):
        world.log.show([f"not within {_PATIENCE:g} s"])


async def _show(world: NotebookWorld, given: list[str], _: Options) -> None:
    what = given[0]
    if what in _LISTS:
        objects = world.log.objects(_LISTS[what])
        world.log.show(sorted(words.row(_LISTS[what], obj) for obj in objects))
    else:
        world.log.show(_REPORTS[what](world, given[1]))


def _driver_report(world: NotebookWorld, node: str) -> list[str]:
    """Volumes, then calls."""
    volumes = [f"volume {item.id} named {item.name}, {item.bytes >> 20} Mi" for item in world.nodes[node].driver.volumes()]
    calls = [
        f"{call.at:10.3f}  {call.method} {call.name}".rstrip() + f": {call.code.value if call.code else 'not answered'}"
        for call in world.nodes[node].reception.record.calls
    ]
    return [*volumes, *sorted(calls)]


def _decision_report(world: NotebookWorld, name: str) -> list[str]:
    """The decisions of every node about the object, in order."""
    rows = [(row, node) for node in world.nodes for row in _rows(world, node, name)]
    ordered = sorted(rows, key=lambda item: (item[0]["since"], item[1]))
    return [f"{row['since'] - EPOCH:10.3f}  {node}  {row['decision']}{_times(row['count'])}: {row['why']}" for row, node in ordered]


def _rows(world: NotebookWorld, node: str, name: str) -> list[Json]:
    decisions = world.decisions(node)
    return [] if decisions is None else [dict(row) for row in decisions.rows() if str(row["name"]) in (name, f"{NAMESPACE}/{name}")]


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _queue_report(world: NotebookWorld, node: str) -> list[str]:
    sidecar = world.sidecar(node)
    if sidecar is None:
        return []
    loops = (sidecar.provisioning.claims, sidecar.provisioning.volumes)
    return [
        f"{loop.name}: {row.key} {row.state}" + (f", due in {row.due_in:.3f} s" if row.due_in is not None else "")
        for loop in loops
        for row in loop.snapshot()
    ]


def _seconds(text: str) -> float:
    """Seconds, written as in flags: 500ms, 5s, 2m."""
    return read_duration(text)


def _is_told(world: NotebookWorld, given: list[str]) -> bool:
    reason, name = given
    return any((event["reason"], event["involvedObject"]["name"]) == (reason, name) for event in world.log.objects(EVENTS))


def _is_gone(world: NotebookWorld, name: str) -> bool:
    """Whether the claim and every volume that was made for it are gone."""
    claims = any(obj["metadata"]["name"] == name for obj in world.log.objects(CLAIMS))
    volumes = any((obj["spec"].get("claimRef") or {}).get("name") == name for obj in world.log.objects(VOLUMES))
    return not claims and not volumes


def _phase(world: NotebookWorld, resource: Resource, name: str) -> str:
    found = (obj for obj in world.log.objects(resource) if obj["metadata"]["name"] == name)
    return next((str((obj.get("status") or {}).get("phase")) for obj in found), "")


_CONDITIONS: Final[dict[str, Callable[[NotebookWorld, list[str]], bool]]] = {
    "bound": lambda world, given: _phase(world, CLAIMS, given[0]) == "Bound",
    "gone": lambda world, given: _is_gone(world, given[0]),
    "running": lambda world, given: _phase(world, PODS, given[0]) == "Running",
    "told": _is_told,
}
_REPORTS: Final[dict[str, Callable[[NotebookWorld, str], list[str]]]] = {
    "driver": _driver_report,
    "decisions": _decision_report,
    "queues": _queue_report,
}
_VERBS: Final[dict[str, Callable[[NotebookWorld, list[str], Options], Awaitable[None]]]] = {
    "world": _world,
    "class": _class,
    "claim": _claim,
    "pod": _pod,
    "delete": _delete,
    "kill": _kill,
    "stop": _stop,
    "outage": _outage,
    "driver": _driver,
    "fill": _fill,
    "empty": _empty,
    "grow": _grow,
    "run": _run,
    "until": _until,
    "show": _show,
}
