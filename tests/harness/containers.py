"""How much the program's objects hold: the number of entries in every container of every object, by class and attribute."""

import gc
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

_CONTAINERS = (dict, set, list, deque)


def entries() -> Counter[str]:
    """Of all objects of the program that live in this process now, those of simulations left out."""
    gc.collect()
    found: Counter[str] = Counter()
    for obj in gc.get_objects():
        module = type(obj).__module__
        if module.startswith("sidecar.") and not module.startswith("hack.sim") and not isinstance(obj, type):
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
