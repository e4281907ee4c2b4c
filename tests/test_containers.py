"""Of objects that have come and gone nothing stays: one instance, in virtual time, sees many of everything, made and deleted."""

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from sidecar.kube.api import CLAIMS, VOLUMES
from tests.harness.drain.simulated import all_of
from tests.harness.tenants import LOUD, QUIET, Crowd, Stage, play

_CONTAINERS = (dict, set, list, deque)


def entries() -> Counter[str]:
    """Of all objects of the program that live in this process now, those of simulations left out."""
    gc.collect()
    found: Counter[str] = Counter()
    for obj in gc.get_objects():
        module = type(obj).__module__
        if module.startswith("sidecar.") and not isinstance(obj, type):
            for name, value in _attributes(obj):
                if isinstance(value, _CONTAINERS):
                    found[f"{type(obj).__name__}.{name}"] += _size(value)
    return found


def _attributes(obj: Any) -> list[tuple[str, Any]]:
    slots = [name for kind in type(obj).__mro__ for name in getattr(kind, "__slots__", ())]
    kept = [(name, getattr(obj, name, None)) for name in slots if name != "__dict__"]
    return [*getattr(obj, "__dict__", {}).items(), *kept]


def _size(container: Any) -> int:
    """With the entries of containers within it, which indexes are made of."""
    values = container.values() if isinstance(container, Mapping) else container
    return len(container) + sum(len(value) for value in values if isinstance(value, _CONTAINERS))


# What keeps the latest of something, and the most that it may hold: three memories of events, with the events that are alike; how often
# claims have failed that may come back; and which volumes are gone, for a watch that is behind.
BOUNDED = {
    "_Lru._items": 3 * 4096,
    "_Similar.marks": 10 * 4096,
    "PacedAttempts._left": 1000,
    "PacedAttempts._paces": 1000,
    "PacedAttempts._made": 1000,
    "Deletion._ended": 1000,
    "ProgressTable._failed": 1000,
    "Sightings._gone": 1000,
}

COUNT = 30


async def come_and_go(stage: Stage, first: int) -> None:
    """Claims of all kinds: provisioned, and then deleted with their volume or after it; and such as are never provisioned."""
    you = stage.bench.you
    for number in range(first, first + COUNT):
        await stage.claim(QUIET, f"made-{number}", "1Mi")
        await stage.claim(LOUD, f"never-{number}", "1Pi")
    await asyncio.sleep(60.0 + COUNT)
    volumes = await all_of(stage.bench, VOLUMES)
    assert len(volumes) == COUNT
    for volume in volumes[::2]:  # directly: it goes when its claim is gone
        await you.delete(VOLUMES, volume["metadata"]["name"])
    for claim in await all_of(stage.bench, CLAIMS):
        await you.delete(CLAIMS, claim["metadata"]["name"], namespace=claim["metadata"]["namespace"])
    await asyncio.sleep(120.0 + COUNT)
    assert await all_of(stage.bench, VOLUMES) == await all_of(stage.bench, CLAIMS) == []


def growth() -> tuple[Counter[str], Counter[str]]:
    """The entries that a second round leaves behind, and all there are then."""
    seen: list[Counter[str]] = []

    async def story(stage: Stage) -> None:
        for number in range(2):
            await come_and_go(stage, number * COUNT)
            seen.append(entries())

    play(Crowd(claims=0, qps=1000.0, burst=1000, call_seconds=0.01), story)
    return seen[1] - seen[0], seen[1]


def test_of_what_has_come_and_gone_no_container_holds_anything() -> None:
    more, held = growth()
    assert {where: left for where, left in more.items() if left >= COUNT // 3 and where not in BOUNDED} == {}
    assert {where: held[where] for where, most in BOUNDED.items() if held[where] > most} == {}
