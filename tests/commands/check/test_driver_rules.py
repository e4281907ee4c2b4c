"""What may be wrong with a driver, its place, its classes and the flags: one line, with its remedy."""

from dataclasses import replace

import pytest

from sidecar.commands.check.findings import DriverObject, Findings, NodeFacts, NoDriver
from sidecar.commands.check.lines import Level
from sidecar.csi.api import TOPOLOGY
from sidecar.model.objects import Class
from sidecar.model.topology import Segment
from tests.commands.check.found import CLASS, DRIVER, INFO, KEY, NODE, OURS, WELL, outside, with_flags, wrong

BAD, DOUBTFUL = Level.FAILED, Level.WARNING
REGISTERED = WELL.nodes[0] if isinstance(WELL.nodes, tuple) else None
assert REGISTERED is not None
SECOND = NodeFacts("n2", True, (KEY,), {KEY: "n2"})
NO_ENTRY = NodeFacts(NODE, False, (), {})
NOT_PUBLISHED = replace(with_flags(without="--enable-capacity"), published=0)
IMMEDIATE = replace(CLASS, binding_mode="Immediate")
HALF = replace(CLASS, parameters={"csi.storage.k8s.io/provisioner-secret-name": "s"})
TOPO, CAPA = "topology", "capabilities"
NO_BIDS = "--node-deployment-immediate-binding=false"
ZONE = Class.of(
    {
        "metadata": {"name": "zoned"},
        "provisioner": DRIVER,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    }
)


def mounted(**more: object) -> Findings:
    return outside(provisioners=(replace(OURS, **more),))


def node(facts: NodeFacts) -> Findings:
    return replace(WELL, nodes=(facts,))


WRONG: dict[str, tuple[Findings, str, Level, str]] = {
    "another driver": (replace(WELL, socket=replace(INFO, name="other.example")), "driver", BAD, "is other.example, not"),
    "a socket for others": (
        replace(WELL, socket=NoDriver("/x cannot be reached (Permission denied)")),
        "socket",
        BAD,
        "run this container as a user that may reach the socket",
    ),
    "nobody at the socket": (replace(WELL, socket=NoDriver("/x does not exist.")), "socket", BAD, "no driver answers: /x does not exist;"),
    "a socket in no volume": (mounted(socket=""), "socket", BAD, "is in no folder that it mounts"),
    "a folder that is read-only": (mounted(read_only=True), "socket", DOUBTFUL, "mounted read-only"),
    "it makes no volumes": (
        replace(WELL, socket=replace(INFO, controller=frozenset())),
        CAPA,
        BAD,
        "has no CREATE_DELETE_VOLUME",
    ),
    "it knows no capacity": (
        replace(WELL, socket=replace(INFO, controller=INFO.controller - {"GET_CAPACITY"})),
        CAPA,
        BAD,
        "--enable-capacity publishes nothing",
    ),
    "it knows no topology": (
        replace(WELL, socket=replace(INFO, plugin=INFO.plugin - {TOPOLOGY})),
        CAPA,
        DOUBTFUL,
        "no node affinity",
    ),
    "it is not registered": (node(NO_ENTRY), TOPO, BAD, f"has no entry of {DRIVER} on node {NODE}"),
    "it is registered nowhere": (outside(nodes=()), TOPO, BAD, "no node has registered"),
    "no key": (outside(nodes=(replace(SECOND, keys=()),)), TOPO, DOUBTFUL, "names no topology key on node n2"),
    "no Node": (outside(nodes=(replace(SECOND, labels=None),)), TOPO, DOUBTFUL, "there is no Node of node n2"),
    "no label": (outside(nodes=(REGISTERED, replace(SECOND, labels={}))), TOPO, BAD, "has no such label on node n2"),
    "one place for two": (outside(nodes=(REGISTERED, replace(SECOND, labels={KEY: NODE}))), TOPO, DOUBTFUL, "have one topology"),
    "another key": (
        replace(WELL, socket=replace(INFO, segment=Segment.of({"x": NODE}))),
        "topology",
        BAD,
        "the driver says x, and",
    ),
    "another value": (replace(WELL, socket=replace(INFO, segment=Segment.of({KEY: "n9"}))), TOPO, BAD, f"is labelled {NODE}"),
    "published, and nobody looks": (
        replace(WELL, drivers={DRIVER: DriverObject(False, False)}),
        "CSIDriver",
        BAD,
        "is false",
    ),
    "looked at, and nothing published": (NOT_PUBLISHED, "CSIDriver", BAD, "storageCapacity is true"),
    "nobody takes its claims": (replace(with_flags(NO_BIDS), classes=(IMMEDIATE,)), "classes", BAD, "nobody takes its claims"),
    "it binds at once": (replace(WELL, classes=(IMMEDIATE,)), "classes", DOUBTFUL, "binds at once"),
    "half a Secret": (replace(WELL, classes=(HALF,)), "classes", BAD, "no claim of it can be provisioned"),
    "for other nodes": (outside(classes=(ZONE,)), "classes", BAD, "allow no node that has the driver"),
    "flags that contradict each other": (with_flags("--drain-autoscaler-annotations"), "flags", BAD, "does not start"),
    "a flag that cannot be read": (with_flags("--worker-threads=many"), "flags", BAD, "--worker-threads"),
    "a flag of another program": (with_flags("--automaxprocs"), "flags", DOUBTFUL, "accepted and ignored"),
    "a flag without effect": (with_flags("--drain-gate-assumes=reboot"), "flags", DOUBTFUL, "because --drain-gate-image is not on"),
    "delays of nobody": (
        with_flags(NO_BIDS, "--node-deployment-max-delay=1m"),
        "flags",
        DOUBTFUL,
        "max-delay: without effect",
    ),
}


@pytest.mark.parametrize(("found", "which", "level", "text"), WRONG.values(), ids=WRONG.keys())
def test_it_is_named_with_its_remedy(found: Findings, which: str, level: Level, text: str) -> None:
    (line,) = [line for line in wrong(found) if line.check == which]
    assert (line.level, line.asked) == (level, True)
    assert text in line.message and line.remedy
