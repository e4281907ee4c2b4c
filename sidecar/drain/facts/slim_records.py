"""Makes small what a list brings and nobody models: registrations, reports, and the conditions with verdicts. All of it stays JSON."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sidecar.drain.wording import ABOUT_REPLICAS
from sidecar.model import names
from sidecar.model.objects import Json

_OUR_CONDITIONS: Final = (f"/{names.DRAIN_READY}", f"/{names.RETIRE_READY}")
_LONG: Final = ("pods", "placement", "budgets", "announced", "conditions")
"""Lists in a report that nobody asks for here."""
_OF_BLOCKERS: Final = ("kind", "namespace", "name", "uid", "policy", "reason", "blocks", "message")


def verdict_conditions(node: Json) -> tuple[Json, ...]:
    """Those of a Node in which sidecars say their verdicts, of all drivers."""
    found = (node.get("status") or {}).get("conditions") or ()
    return tuple(one for one in found if str(one.get("type", "")).endswith(_OUR_CONDITIONS))


def registration(obj: Json) -> Json:
    """As much of a CSINode as is needed."""
    return {"metadata": {"name": obj["metadata"]["name"]}, "spec": {"drivers": (obj.get("spec") or {}).get("drivers") or ()}}


def stored(obj: Json) -> tuple[str, Json]:
    """What anybody may have edited is read with distrust later on, and only made shorter here."""
    status = obj.get("status")
    slim = {key: value for key, value in status.items() if key not in _LONG} if isinstance(status, dict) else {}
    if isinstance(blockers := slim.get("blockers"), list):
        entries = (entry for entry in blockers if isinstance(entry, dict))
        slim["blockers"] = [{key: entry[key] for key in _OF_BLOCKERS if key in entry} for entry in entries]
    if isinstance(notes := slim.get("notes"), list):
        slim["notes"] = [note for note in notes if isinstance(note, str) and note.startswith(ABOUT_REPLICAS)]
    return obj["metadata"]["name"], slim


def with_topology(csi_nodes: Iterable[Json | None]) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """By node, its drivers with a topology, and their keys: of one whose volumes every node reaches a drain could strand nothing."""
    found = {}
    for csi_node in filter(None, csi_nodes):
        drivers = (csi_node.get("spec") or {}).get("drivers") or ()
        keys = {item["name"]: tuple(item["topologyKeys"]) for item in drivers if item.get("topologyKeys")}
        found[csi_node["metadata"]["name"]] = MappingProxyType(dict(sorted(keys.items())))
    return MappingProxyType(found)
