"""`explain maintenance NAME`, or `-f FILE` before it is created: which nodes, in which order which pods go, who says so, what blocks."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from sidecar.commands.explain.judged import judge, look, own_of
from sidecar.commands.explain.listing_io import Cluster
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.forms import structured
from sidecar.commands.tables import table
from sidecar.config.config import Config
from sidecar.doors import Instruments, Opened, open_doors
from sidecar.drain.maintenance.objects import CAPI_LABEL, Behavior, Maintenance, Rule, Runner, Stage, labels_of
from sidecar.drain.maintenance.plan import OF_LABEL, Treatment, treatments
from sidecar.drain.words import Status
from sidecar.errors import Fatal
from sidecar.kube.api import BUDGETS, DRAIN_RULES, MAINTENANCES, NAMESPACES, PODS, KubeApi, records
from sidecar.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from sidecar.model import names
from sidecar.model.nodes import Budget, Node
from sidecar.model.objects import Json

_HEADS = ("NODE", "POD", "STEP", "ORDER", "WHAT", "WHO SAYS SO")


async def answer(config: Config, question: Question) -> Answer:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        stored = await (_from_file(doors, question.file) if question.file else doors.kube.get(MAINTENANCES, question.name))
        one = Maintenance.of(stored)
        if one is None:
            raise Fatal(f"{names.MAINTENANCE_KIND} {question.name or question.file} says nothing that could be carried out: check its spec")
        cluster = await look(doors.kube)
        nodes = [node for node in cluster.nodes.values() if one.selects(node.name, node.labels)]
        pods = await _pods(doors.kube, one, {node.name for node in nodes})
        budgets = await _budgets(doors.kube, pods)
    finally:
        await doors.close()
    return _told(one, nodes, pods, budgets, cluster, question, config)


async def _from_file(doors: Opened, path: str) -> Json:
    """As the server would store it. Where it has no such type, has one of that name, or does not let us ask, it is taken as it is."""
    try:
        obj = yaml.safe_load(await asyncio.to_thread(Path(path).read_bytes))
        meta = {"name": "", **(obj.get("metadata") or {}), "uid": ""}
        is_one = obj.get("kind") == names.MAINTENANCE_KIND
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise Fatal(f"{path} cannot be read as a {names.MAINTENANCE_KIND}: {error}") from error
    try:
        stored = await doors.kube.create(MAINTENANCES, obj, dry_run=True) if is_one else {"spec": {"stage": "none"}}
    except (BadRequest, Invalid) as error:
        raise Fatal(f"{path} would be refused: {error}") from error
    except (AlreadyExists, Forbidden, NotFound):
        stored = obj
    return {**stored, "metadata": meta}


async def _budgets(kube: KubeApi, pods: Iterable[Treatment]) -> Mapping[str, list[str]] | str:
    """Those that let none of their pods go as they are now, and which of these pods they hold; or why that is not known."""
    leave = [each.runner.pod for each in pods if _what(each) == "is evicted"]
    try:
        found = [each async for each in records(kube, BUDGETS, Budget.of) if each.observed and each.allowed <= 0]
    except (Forbidden, NotFound) as error:
        return str(error)
    return {each.full_name: held for each in found if (held := [pod.full_name for pod in leave if each.covers(pod)])}


async def _pods(kube: KubeApi, one: Maintenance, nodes: set[str]) -> list[Treatment]:
    runners = [each async for each in records(kube, PODS, Runner.of, cached=True) if each.pod.node in nodes and not each.pod.ended]
    try:
        rules = [rule async for rule in records(kube, DRAIN_RULES, Rule.of)]
    except NotFound:
        rules = []
    return treatments(one, runners, rules, {name: of async for name, of in records(kube, NAMESPACES, labels_of)})


def _told(
    one: Maintenance,
    nodes: Sequence[Node],
    pods: Sequence[Treatment],
    budgets: Mapping[str, list[str]] | str,
    cluster: Cluster,
    question: Question,
    config: Config,
) -> Answer:
    drivers = {node.name: [its for its in cluster.drivers(node.name, question.driver) if question.driver in ("", its)] for node in nodes}
    verdicts = [
        (node.name, its, judged.assessment.verdict(one.intent))
        for node in nodes
        for its in drivers[node.name]
        for judged in judge(cluster, node.name, its, own_of(config))
    ]
    statuses = tuple(verdict.status for _, _, verdict in verdicts)
    attended = {node for node, found in drivers.items() if any(names.drain_report(node, its) in cluster.reports for its in found)}
    unattended = [] if cluster.unread_reports else [node.name for node in nodes if node.name not in attended]
    pods = [replace(each, entry=None, why="no sidecar") if each.runner.pod.node in unattended else each for each in pods]
    said: dict[str, Any] = {
        "name": one.name,
        "stage": str(one.stage),
        "intent": str(one.intent),
        "nodes": [node.name for node in nodes],
        "missing": sorted(one.nodes - {node.name for node in nodes}),
        "unattended": unattended,
        "plan": [str(entry) for entry in one.plan],
        "pods": [_as_json(each) for each in pods],
        "blocks": [{"node": node, "driver": its, "message": of.message} for node, its, of in verdicts if of.status is not Status.TRUE],
        "budgets": [] if isinstance(budgets, str) else [{"budget": name, "pods": held} for name, held in budgets.items()],
        "budgetsUnknown": budgets if isinstance(budgets, str) else "",
        "status": dict(one.status or {}),
    }
    if question.is_structured:
        return Answer(structured(said, question.form), statuses)
    return Answer("\n".join(_lines(one, said)), statuses)


def _as_json(each: Treatment) -> Json:
    owner = each.runner.pod.owner
    where = {"node": each.runner.pod.node, "pod": each.full_name, "owner": f"{owner.kind}/{owner.name}" if owner else ""}
    label = each.runner.pod.labels.get(CAPI_LABEL, "")
    unknown = "" if not label or label.lower() in OF_LABEL else f"; its label {CAPI_LABEL}={label} counts for nothing"
    return where | {"step": each.entry, "order": each.order, "what": _what(each), "by": each.why + unknown}


def _what(each: Treatment) -> str:
    if each.entry is None or each.behavior is Behavior.SKIP:
        return "stays"
    return "is evicted" if each.behavior is Behavior.DRAIN else "is waited for"


def _lines(one: Maintenance, said: Mapping[str, Any]) -> Iterable[str]:
    does = "what blocks is overridden, but no budget, and nobody is waited for" if one.overrides else "it is reported, and goes on"
    ends = "" if one.deadline is None else f"; {one.deadline:g} s after a node's drain began {does}"
    yield f"{one.announcement()}; stage {one.stage}{ends}"
    yield f"{len(said['nodes'])} nodes: {', '.join(said['nodes']) or 'none; check nodeSelector or nodes'}"
    yield from (f"there is no Node {name}" for name in said["missing"])
    waits = f"the others wait, unless {names.IGNORED_BY_MAINTENANCE} is on its Node"
    yield from (f"{name} has no sidecar that reports: nobody drains it, and {waits}" for name in said["unattended"])
    yield "In this order, on all nodes together:"
    yield from (f"  {number}  {entry}" for number, entry in enumerate(said["plan"], 1))
    rows = [
        (pod["node"], pod["pod"], "" if pod["step"] is None else str(pod["step"] + 1), str(pod["order"]), pod["what"], pod["by"])
        for pod in said["pods"]
    ]
    yield from table(rows, heads=_HEADS)
    if lone := [pod["pod"] for pod in said["pods"] if not pod["owner"] and pod["what"] == "is evicted"]:
        yield f"nobody makes these anew, for they have no owner: {', '.join(lone)}"
    yield from (f"blocks on {item['node']} ({item['driver']}): {item['message']}" for item in said["blocks"])
    yield from (f"budget {item['budget']} lets none go now: {', '.join(item['pods'])}" for item in said["budgets"])
    if said["budgetsUnknown"]:
        yield f"whether budgets hold pods is not known: {said['budgetsUnknown']}"
    if progress := said["status"].get("progress"):
        yield "; ".join(filter(None, (f"now: {progress}", said["status"].get("message"))))
    following = {Stage.IDLE: Stage.CORDON, Stage.CORDON: Stage.DRAIN, Stage.DRAIN: Stage.COMPLETE}.get(one.stage)
    if following is not None and one.uid:
        patch = f"""'{{"spec":{{"stage":"{following}"}}}}'"""
        when = "when they are drained, and back" if following is Stage.COMPLETE else "next"
        yield f"{when}: kubectl patch pm {one.name} --type=merge -p {patch}"
