"""What a stored report says, read with distrust: anybody may have edited it, and what cannot be read counts as not there."""

from collections.abc import Mapping
from typing import Any

from sidecar.drain import instants
from sidecar.drain.words import Reason
from sidecar.model.objects import Json


def status_of(report: Mapping[str, Any] | None) -> Json:
    """Empty where there is none."""
    return mapping(report or {}, "status")


def mapping(of: Mapping[str, Any], key: str) -> Json:
    value = of.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def entries(of: Mapping[str, Any], key: str) -> tuple[Json, ...]:
    value = of.get(key)
    return tuple(dict(item) for item in value if isinstance(item, Mapping)) if isinstance(value, list | tuple) else ()


def text(of: Mapping[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""


def of_this_node(status: Json, node_uid: str) -> Json:
    """Nothing of a former machine under this name is carried on."""
    return status if text(status, "nodeUID") == node_uid else {}


def seconds(of: Mapping[str, Any], key: str) -> float | None:
    return instants.to_seconds(text(of, key))


def since(report: Json | None, *, node_uid: str, now: float) -> dict[tuple[str, Reason], float]:
    """What `Snapshot.since` wants: since when that which blocks has blocked. What lies ahead of now is not believed."""
    blockers = entries(of_this_node(status_of(report), node_uid), "blockers")
    noted = ((_key(entry), _reason(entry), seconds(entry, "since")) for entry in blockers)
    return {(key, reason): at for key, reason, at in noted if reason is not None and at is not None and at <= now}


def _key(entry: Json) -> str:
    """As `Blocker.key`."""
    return f"{text(entry, 'kind')}/{text(entry, 'uid') or '/'.join((text(entry, 'namespace'), text(entry, 'name')))}"


def _reason(entry: Json) -> Reason | None:
    try:
        return Reason(text(entry, "reason"))
    except ValueError:
        return None
