"""The table of what the program lists and watches is complete: an operator may refuse all that is not in it.

It is in deploy/components/own-node/reads.
"""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

from hack.sim.drains.drain_world import play
from hack.sim.drains.plan import GATED
from hack.sim.world import labelled_world
from hack.sim.world.doors import NodeKube
from hack.sim.world.label_events import IN_FORCE
from hack.sim.world.node import DRIVER
from hack.sim.world.plan import Plan, PlannedEvent
from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.drain.reprovision.beyond_io import Beyond
from sidecar.drain.reprovision.workload import Workload
from sidecar.kube import api
from sidecar.kube.api import Page, Resource, WatchEvent
from sidecar.kube.errors import NotFound
from sidecar.model.names import CAPACITY_DRIVER_LABEL, CAPACITY_MANAGER_LABEL, SHARDS, capacity_manager
from tests.deploy.manifests import DEPLOY
from tests.harness.doors import ScriptedKube, tools

PROGRAM = DEPLOY.parent / "sidecar"
OTHERS = ("simulation", "commands", "kube", "watching.py", "drain/facts/cluster_listing.py", "drain/facts/listing_io.py")
"""Not the program on its node; and those that are handed what others ask."""


class Read(NamedTuple):
    kind: str
    where: str
    label: str = ""
    field: str = ""


def table() -> set[Read]:
    text = (DEPLOY / "components" / "own-node" / "reads" / "README.md").read_text()
    found = set()
    for line in re.findall(r"^\| `.*$", text, re.MULTILINE):
        kinds, where, selector, _ = (cell.strip() for cell in line.strip("|").split("|"))
        by, _, said = selector.partition(" ")
        assert by in ("", "label", "field"), line
        found |= {Read(kind, where, **({by: said.strip("`")} if by else {})) for kind in re.findall(r"`(\w+)`", kinds)}
    return found


# --- what is written --------------------------------------------------------------------------------------------------


def sites() -> Iterator[tuple[str, ast.Call]]:
    """Each call that lists or watches, and the file."""
    for file in sorted(PROGRAM.rglob("*.py")):
        name = str(file.relative_to(PROGRAM))
        if name.startswith(OTHERS):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and called(node) in ("records", "every", "list_page", "watch", "Watch") and kinds_of(node):
                yield name, node


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def kinds_of(call: ast.Call) -> list[str]:
    """By the constant's name. In `provisioning.lookups` it is that of the asked thing."""
    given = [*call.args[:2], *(each.value for each in call.keywords if each.arg == "resource")]
    names = [each.id for each in given if isinstance(each, ast.Name)]
    constants = [value.plural for name in names if isinstance(value := getattr(api, name, None), Resource)]
    return constants or (["pods", "persistentvolumeclaims", "referencegrants"] if "resource" in names else [])


def selectors_of(file: str, call: ast.Call) -> set[str]:
    """Which selectors are given, if only by a variable; what `**scope` stands for is written in the same file."""
    found = {each.arg for each in call.keywords if each.arg}
    for each in call.keywords:
        if each.arg is None and isinstance(each.value, ast.Name):
            text = (PROGRAM / file).read_text()
            (said,) = re.findall(rf"{each.value.id} = (\{{.*\}})", text)
            found |= set(re.findall(r'"(\w+)":', said))
    return found


def test_whatever_is_listed_or_watched_is_in_the_table() -> None:
    rows, found = table(), set()
    for file, call in sites():
        given = selectors_of(file, call)
        for kind in kinds_of(call):
            fitting = {
                row
                for row in rows
                if row.kind == kind
                and (row.where != "everywhere") == ("namespace" in given)
                and (bool(row.label) == ("label_selector" in given) or "watch_selectors" in given)
                and (bool(row.field) == ("field_selector" in given) or "field_selector" in given)
            }
            assert fitting, f"{file}:{call.lineno} asks for {kind} with {sorted(given)}, which the table does not have"
            found |= fitting
    assert found == rows, "the table has what nobody asks for"


# --- what is asked ----------------------------------------------------------------------------------------------------

EVENTS = (
    PlannedEvent(5.0, "app", "app-0", 1.0, "late"),
    PlannedEvent(60.0, "scale", "app-0", 0.0),
    PlannedEvent(800.0, "cordon", "n0"),
    PlannedEvent(850.0, "cordon", "n1"),
)
ANEW = ("--evacuation-evict", "--allow-reprovision")
ARGS = (
    "--node-drain-policy=Evacuate",
    "--max-concurrent-evacuations=1",
    "--node-deployment-placement=ranked",
    "--node-delete-policy=Orphan",
    *GATED,
    *ANEW,
)


@pytest.fixture(scope="module")
def asked() -> set[Read]:
    """What two sidecars that judge their nodes list and watch, while a volume lies idle and later both nodes are cordoned."""
    found: set[Read] = set()
    listed, watched = NodeKube.list_page, NodeKube.watch

    def note(kube: NodeKube, resource: Resource, namespace: str = "", label_selector: str = "", field_selector: str = "", **_: Any) -> None:
        where = "everywhere" if not namespace else "a namespace"
        found.add(Read(resource.plural, where, *(named(text, kube._node) for text in (label_selector, field_selector))))

    async def list_page(kube: NodeKube, resource: Resource, **query: Any) -> Page:
        note(kube, resource, **query)
        return await listed(kube, resource, **query)

    def watch(kube: NodeKube, resource: Resource, **query: Any) -> AsyncIterator[WatchEvent]:
        note(kube, resource, **query)
        return watched(kube, resource, **query)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeKube, "list_page", list_page)
        patch.setattr(NodeKube, "watch", watch)
        reports = (
            play(Plan(1, ("n0", "n1"), events=EVENTS, args=ARGS, settle=300.0)),
            labelled_world.play(Plan(1, ("n0", "n1"), events=(PlannedEvent(0.0, IN_FORCE),), by_label=("n0", "n1"), settle=30.0)),
        )
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    asyncio.run(GoneNodes(tools(kube=OneGone(found)), driver=DRIVER, namespace="a namespace", node="n0").look())
    asyncio.run(Beyond(OneGone(found), clock=lambda: 0.0).of(Workload.of(APART), "home"))
    return found


WANTED = {"topologyKey": "host", "labelSelector": {"matchLabels": {"KEY": "VALUE"}}}
TERMS = [WANTED | {"namespaceSelector": {}}, WANTED | {"namespaces": ["a namespace"]}]
APART = {
    "metadata": {"name": "db"},
    "spec": {"template": {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}}}},
}
"""A StatefulSet whose replicas keep away from pods of other namespaces, which no world has."""


class OneGone(ScriptedKube):
    """A cluster in which one node has left its capacity: no world lasts until somebody looks for that."""

    def __init__(self, found: set[Read]) -> None:
        labels = {CAPACITY_DRIVER_LABEL: DRIVER, CAPACITY_MANAGER_LABEL: capacity_manager("GONE")}
        left = {"metadata": {"name": "left", "labels": labels}, "nodeTopology": {"matchLabels": {"KEY": "VALUE"}}}
        super().__init__({(api.CAPACITIES.plural, "left"): left})
        self._found = found

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Any:
        raise NotFound("not found", status=404, reason="NotFound")

    async def list_page(self, resource: Resource, **query: Any) -> Page:
        where = query.get("namespace") or "everywhere"
        self._found.add(Read(resource.plural, where, named(query.get("label_selector", ""), "n0")))
        return await super().list_page(resource, **query)


def named(selector: str, node: str) -> str:
    shards = selector.replace(",".join(SHARDS), f"{SHARDS[0]},…,{SHARDS[-1]}")
    return re.sub(rf"\b{node}(?=$|,several|,open)", "NODE", shards.replace(DRIVER, "DRIVER"))


def asked_for() -> set[Read]:
    """By the table."""
    rows = table()
    named = {row._replace(where="a namespace") for row in rows if row.where != "everywhere"}
    return named | {
        row._replace(where="everywhere") for row in rows if row.where.endswith("everywhere") and (row.where == "everywhere" or row.label)
    }


def test_each_request_of_a_running_sidecar_is_in_the_table(asked: set[Read]) -> None:
    rows = asked_for()
    assert {read for read in asked if not is_probe(read)} <= rows


def test_the_selectors_of_the_table_are_sent(asked: set[Read]) -> None:
    rows = asked_for()
    assert {row for row in rows if row.label or row.field} <= asked


def is_probe(read: Read) -> bool:
    return read.field.endswith("metadata.name=none")
