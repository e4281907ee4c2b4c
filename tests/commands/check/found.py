"""Findings in which nothing is wrong, to be changed one by one."""

from dataclasses import replace
from typing import Any

from sidecar.commands.check.findings import (
    ClaimPolicy,
    DriverObject,
    Findings,
    Flags,
    NodeFacts,
    NotAsked,
    Provisioner,
    Server,
)
from sidecar.commands.check.judging import judge
from sidecar.commands.check.lines import Level, Line
from sidecar.csi.api import CONTROLLER_SERVICE, CREATE_DELETE_VOLUME, GET_CAPACITY, TOPOLOGY, DriverInfo
from sidecar.model.objects import Class
from sidecar.model.topology import Segment
from sidecar.rights.rights import Rights
from sidecar.rights.table import TABLE

DRIVER, KEY, NODE = "local.example", "topology.local.example/node", "n1"
WORDS = ("--csi-address=/csi/csi.sock", "--node-deployment", "--enable-capacity", "--capacity-ownerref-level=0")
ENVIRON = {"NODE_NAME": NODE, "NAMESPACE": "storage", "POD_NAME": "sidecar-x"}
INFO = DriverInfo(
    DRIVER,
    "1.2",
    frozenset({CONTROLLER_SERVICE, TOPOLOGY}),
    frozenset({CREATE_DELETE_VOLUME, GET_CAPACITY}),
    NODE,
    Segment.of({KEY: NODE}),
)
CLASS = Class.of(
    {"metadata": {"name": "late"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete"}
)
OURS = Provisioner(
    "DaemonSet",
    "storage",
    "sidecars",
    "csi-provisioner",
    "csi-node-sidecar:1",
    True,
    WORDS,
    ENVIRON,
    "sidecar",
    "/plugins/local.example/csi.sock",
    False,
    (),
    frozenset({DRIVER}),
    (NODE,),
)
WELL = Findings(
    on_node=True,
    driver=DRIVER,
    node=NODE,
    program="0.1.0",
    flags=Flags("the running process", WORDS, ENVIRON),
    server=Server("v1.36.3", 0.1, 0.5),
    policy=ClaimPolicy(("v1",), True, True),
    socket=INFO,
    drivers={DRIVER: DriverObject(attaches=False, storage_capacity=True)},
    nodes=(NodeFacts(NODE, True, (KEY,), {KEY: NODE}),),
    classes=(CLASS,),
    rights=Rights(allowed=frozenset(row.right for row in TABLE)),
    asker="this account",
    provisioners=(OURS,),
    elections=(),
    published=1,
)


def with_flags(*more: str, without: str = "") -> Findings:
    words = tuple(word for word in (*WORDS, *more) if not without or not word.startswith(without))
    return replace(WELL, flags=Flags("the running process", words, ENVIRON))


def wrong(found: Findings) -> list[Line]:
    return [line for line in judge(found) if line.level is not Level.OK]


def outside(**more: Any) -> Findings:
    return replace(WELL, on_node=False, node="", socket=NotAsked("from outside"), **more)
