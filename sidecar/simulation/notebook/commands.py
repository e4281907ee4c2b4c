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

from sidecar.flags import UsageError, read_duration
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, EVENTS, PODS, VOLUMES, Resource
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.simulation.faults import parse_fault
from sidecar.simulation.node import EPOCH, NAMESPACE
from sidecar.simulation.notebook import words
from sidecar.simulation.notebook.bench import Bench
from sidecar.simulation.plan import Plan

_PATIENCE: Final = 300.0
_MODES: Final = {"late": LATE, "immediate": IMMEDIATE}
_KINDS: Final[dict[str, Resource]] = {"claim": CLAIMS, "pod": PODS, "volume": VOLUMES, "class": CLASSES}
_LISTS: Final[dict[str, Resource]] = {"claims": CLAIMS, "volumes": VOLUMES, "pods": PODS, "capacity": CAPACITIES, "events": EVENTS}

Options = Mapping[str, str]


class BadCommand(ValueError):
    """Nobody knows what is meant."""


async def do(bench: Bench, line: str) -> None:
    """One line of a notebook."""
    verb, *rest = line.split()
    pairs = [word.partition("=") for word in rest if "=" in word and not word.startswith("-") and verb != "driver"]
    options = {key: value for key, _, value in pairs}
    given = [word for word in rest if verb == "driver" or "=" not in word]
    try:
        await _VERBS[verb](bench, given, options)
    except (KeyError, IndexError, ValueError, UsageError) as error:
        raise BadCommand(f"{line!r}: {error!r}") from error


async def _world(bench: Bench, _: list[str], options: Options) -> None:
    nodes = tuple(f"n{number}" for number in range(int(options.get("nodes", "1"))))
    args = tuple(word for word in options.get("args", "").split(",") if word)
    await bench.begin(Plan(int(options.get("seed", "1")), nodes, pool=options.get("pool", "10Gi"), args=args))


async def _class(bench: Bench, given: list[str], _: Options) -> None:
    await bench.storage_class(given[0], _MODES[given[0]])


async def _claim(bench: Bench, given: list[str], options: Options) -> None:
    requests = {"storage": options.get("size", "1Gi")}
    spec = {"storageClassName": options["class"], "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}
    await bench.you.create(CLAIMS, {"metadata": {"name": given[0]}, "spec": spec}, namespace=NAMESPACE)


async def _pod(bench: Bench, given: list[str], options: Options) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": options["claim"]}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}
    await bench.you.create(PODS, {"metadata": {"name": given[0]}, "spec": spec}, namespace=NAMESPACE)


async def _delete(bench: Bench, given: list[str], _: Options) -> None:
    resource = _KINDS[given[0]]
    await bench.you.delete(resource, bench.diary.unnamed(given[1]), namespace=NAMESPACE if resource.namespaced else "")


async def _kill(bench: Bench, given: list[str], _: Options) -> None:
    bench.nodes[given[0]].kill()


async def _stop(bench: Bench, given: list[str], _: Options) -> None:
    bench.nodes[given[0]].stop()


async def _outage(bench: Bench, given: list[str], _: Options) -> None:
    bench.diary.tell("world", "the API server is away")
    bench.spawn(bench.outage(_seconds(given[0])))


async def _driver(bench: Bench, given: list[str], _: Options) -> None:
    node, what = bench.nodes[given[0]], given[1]
    match what:
        case "away":
            bench.diary.tell(node.name, "its driver goes away")
            node.driver_away()
        case "back":
            bench.diary.tell(node.name, "its driver is back")
            node.driver_back()
        case "well":
            node.reception.faults.set([])
        case _:
            node.reception.faults.set([parse_fault(" ".join(given[1:]))])


async def _fill(bench: Bench, given: list[str], _: Options) -> None:
    bench.fill(given[0], given[1])
    bench.diary.tell(given[0], f"somebody else takes {given[1]} from the pool")


async def _empty(bench: Bench, given: list[str], _: Options) -> None:
    bench.empty(given[0])
    bench.diary.tell(given[0], "somebody else gives back what he took from the pool")


async def _grow(bench: Bench, given: list[str], _: Options) -> None:
    bench.grow(given[0], given[1])
    bench.diary.tell(given[0], f"its pool has {given[1]} now")


async def _run(bench: Bench, given: list[str], _: Options) -> None:
    await bench.until(lambda: False, _seconds(given[0]))


async def _until(bench: Bench, given: list[str], _: Options) -> None:
    condition = _CONDITIONS[given[0]]
    if not await bench.until(lambda: condition(bench, given[1:]), _PATIENCE):
        bench.diary.show([f"not within {_PATIENCE:g} s"])


async def _show(bench: Bench, given: list[str], _: Options) -> None:
    what = given[0]
    if what in _LISTS:
        objects = bench.diary.objects(_LISTS[what])
        bench.diary.show(sorted(words.row(_LISTS[what], obj) for obj in objects))
    else:
        bench.diary.show(_REPORTS[what](bench, given[1]))


def _driver_report(bench: Bench, node: str) -> list[str]:
    """Volumes, then calls."""
    volumes = [f"volume {item.id} named {item.name}, {item.bytes >> 20} Mi" for item in bench.nodes[node].driver.volumes()]
    calls = [
        f"{call.at:10.3f}  {call.method} {call.name}".rstrip() + f": {call.code.value if call.code else 'not answered'}"
        for call in bench.nodes[node].reception.record.calls
    ]
    return [*volumes, *sorted(calls)]


def _decision_report(bench: Bench, name: str) -> list[str]:
    """What every node thought of it, in order."""
    rows = [(row, node) for node in bench.nodes for row in _rows(bench, node, name)]
    ordered = sorted(rows, key=lambda item: (item[0]["since"], item[1]))
    return [f"{row['since'] - EPOCH:10.3f}  {node}  {row['decision']}{_times(row['count'])}: {row['why']}" for row, node in ordered]


def _rows(bench: Bench, node: str, name: str) -> list[Json]:
    decisions = bench.decisions(node)
    return [] if decisions is None else [dict(row) for row in decisions.rows() if str(row["name"]) in (name, f"{NAMESPACE}/{name}")]


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _queue_report(bench: Bench, node: str) -> list[str]:
    sidecar = bench.sidecar(node)
    if sidecar is None:
        return []
    loops = (sidecar.claims, sidecar.volumes)
    return [
        f"{loop.name}: {row.key} {row.state}" + (f", due in {row.due_in:.3f} s" if row.due_in is not None else "")
        for loop in loops
        for row in loop.snapshot()
    ]


def _seconds(text: str) -> float:
    """As flags are written: 500ms, 5s, 2m."""
    return read_duration(text)


def _is_told(bench: Bench, given: list[str]) -> bool:
    reason, name = given
    return any((event["reason"], event["involvedObject"]["name"]) == (reason, name) for event in bench.diary.objects(EVENTS))


def _is_gone(bench: Bench, name: str) -> bool:
    """Both the claim and every volume that was made for it."""
    claims = any(obj["metadata"]["name"] == name for obj in bench.diary.objects(CLAIMS))
    volumes = any((obj["spec"].get("claimRef") or {}).get("name") == name for obj in bench.diary.objects(VOLUMES))
    return not claims and not volumes


def _phase(bench: Bench, resource: Resource, name: str) -> str:
    found = (obj for obj in bench.diary.objects(resource) if obj["metadata"]["name"] == name)
    return next((str((obj.get("status") or {}).get("phase")) for obj in found), "")


_CONDITIONS: Final[dict[str, Callable[[Bench, list[str]], bool]]] = {
    "bound": lambda bench, given: _phase(bench, CLAIMS, given[0]) == "Bound",
    "gone": lambda bench, given: _is_gone(bench, given[0]),
    "running": lambda bench, given: _phase(bench, PODS, given[0]) == "Running",
    "told": _is_told,
}
_REPORTS: Final[dict[str, Callable[[Bench, str], list[str]]]] = {
    "driver": _driver_report,
    "decisions": _decision_report,
    "queues": _queue_report,
}
_VERBS: Final[dict[str, Callable[[Bench, list[str], Options], Awaitable[None]]]] = {
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
