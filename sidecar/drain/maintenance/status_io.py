"""Derives what PlannedMaintenances show (`kubectl get pm`) from the reports of their nodes, as the elected looker. Nothing waits."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sidecar.drain.maintenance.objects import Maintenance, Stage
from sidecar.drain.report import differs, status_patch
from sidecar.drain.settings import Settings
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MAINTENANCES, NODES, records
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

SILENT_AFTER: Final = 600.0  # seconds after which a node whose sidecar says nothing is named
_EVERY: Final = 60.0
_MOST: Final = 20

Reports = Mapping[str, Mapping[str, Any]]  # status of the report of each node, by its name


def summary(one: Maintenance, nodes: Iterable[Node], reports: Reports, *, now: float) -> Json:
    """Pure. What is asked for, how many nodes it selects and how far they are, and what each of the others waits for."""
    if one.stage is Stage.COMPLETE and one.status:  # its nodes say nothing more of it: how far it came stays
        return {**one.status, "observedStage": str(one.stage), "blocked": 0, "message": ""}
    mine = [node for node in nodes if one.selects(node.name, node.labels)]
    said = {node.name: said_of(one, node, reports.get(node.name, {})) for node in mine}
    drained = [name for name, found in said.items() if found is not None and found.get("drained")]
    waiting = [text for node in mine if (text := _waits(one, node, said[node.name], reports.get(node.name, {}), now))]
    is_drained = bool(mine) and len(drained) == len(mine)
    missing = [f"{name}: there is no such Node" for name in sorted(one.nodes - {node.name for node in mine})]
    message = "; ".join((*waiting[:_MOST], *missing[:_MOST]))
    before = {item.get("type"): item for item in (one.status or {}).get("conditions") or ()}.get(names.DRAINED) or {}
    condition = {
        "type": names.DRAINED,
        "status": str(is_drained),
        "reason": "AllNodesDrained" if is_drained else "NotDrained",
        "message": message[:1024],
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == str(is_drained) else timestamps.to_text(now),
    }
    return {
        "observedStage": str(one.stage),
        "nodes": len(mine),
        "drainedNodes": len(drained),
        "progress": f"{len(drained)}/{len(mine)} drained",
        "blocked": len(waiting) if one.stage is Stage.DRAIN else 0,
        "message": message[:4096],
        "conditions": [condition],
    }


def said_of(one: Maintenance, node: Node, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What this very machine has published of it."""
    found = status.get("maintenance") if status.get("nodeUID") == node.uid else None
    return next((item for item in found or () if isinstance(item, Mapping) and item.get("uid") == one.uid), None)


def _waits(one: Maintenance, node: Node, said: Mapping[str, Any] | None, status: Mapping[str, Any], now: float) -> str:
    if one.stage is not Stage.DRAIN or (said is not None and said.get("drained")):
        return ""
    seen = timestamps.to_seconds(str(status.get("observedAt") or ""))
    if seen is None or now - seen > SILENT_AFTER:
        since = f"silent since {status['observedAt']}" if seen is not None else "has no sidecar that carries it out"
        hint = f" ({names.IGNORED_BY_MAINTENANCE} on its Node lets the others go on)"
        return f"{node.name}: {since}{'' if names.IGNORED_BY_MAINTENANCE in node.annotations else hint}"
    if said is None:
        return f"{node.name}: it has not begun"
    why = [f"{pod.get('pod')}: {pod.get('why')}" for pod in said.get("pods") or () if isinstance(pod, Mapping)]
    why += [f"waits for node {peer.get('node')}" for peer in said.get("waitingFor") or () if isinstance(peer, Mapping)]
    why += [f"limited by {said['limitedBy']}"] if said.get("limitedBy") else []
    why += ["its deadline is over"] if said.get("late") else []
    nothing = "may not be retired yet" if said.get("finished") == len(one.plan) else "goes on with its next step"
    return f"{node.name}: {', '.join(why[:3]) or nothing}"


class MaintenanceStatus:
    """One per process."""

    def __init__(self, tools: Tools, settings: Settings) -> None:
        self._kube, self._wall, self._settings = tools.kube, tools.wall, settings
        self.refused: list[str] = []

    async def look(self) -> float:
        """Seconds until the next. Raises ApiError."""
        self.refused = []
        try:
            found = [one async for one in records(self._kube, MAINTENANCES, Maintenance.of)]
        except NotFound:
            return _EVERY
        if not found:
            return _EVERY
        nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True)]
        reports = await reports_of(self._kube, self._settings.driver)
        for one in (each for each in found if each.status or each.stage is not Stage.COMPLETE):
            said = summary(one, nodes, reports, now=self._wall())
            if not differs({"status": one.status}, said):
                continue
            try:
                patch = status_patch(said, version=one.version)
                await self._kube.patch(MAINTENANCES, one.name, patch, content_type=JSON_PATCH, subresource="status")
            except (Conflict, NotFound):
                continue  # somebody has changed it, and the next look sees that
            except ApiError as error:
                self.refused.append(f"PlannedMaintenance {one.name}: {error}")
        return _EVERY


async def reports_of(kube: Any, driver: str) -> Reports:
    """Of this driver's sidecars, by node."""

    def status(obj: Json) -> tuple[str, Mapping[str, Any]] | None:
        spec = obj.get("spec") or {}
        return (str(spec.get("nodeName")), obj.get("status") or {}) if spec.get("driver") == driver else None

    return dict([pair async for pair in records(kube, DRAIN_REPORTS, status, cached=True)])
