"""`explain volumes`: where each volume is, who said its policy, who uses it; and what is on no node, once, at the end."""

import json
from typing import Any

import pytest
import yaml

from sidecar.commands.explain.question import Question, read_question
from sidecar.commands.explain.volumes import ORPHAN, ORPHAN_REMEDY, Row, rows, told
from sidecar.drain.snapshot import Own
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, Json, Lists, look_at_all, pod, ready, volume


def asked(*words: str) -> Question:
    question = read_question(["volumes", *words])
    assert question
    return question


def world() -> Lists:
    kube = ready()
    kube.objects["pods"] = [pod("db-0", "a", node="n1", phase="Running"), pod("waits", "b")]
    kube.objects["persistentvolumes"].append(volume("pv-lost", "gone", claim="lost"))
    kube.objects["persistentvolumes"][1]["metadata"]["annotations"] = {names.DRAIN_POLICY: "Migrate"}  # no policy any more
    return kube


def found(kube: Lists, *words: str) -> tuple[Row, ...]:
    return rows(look_at_all(kube), asked(*words), Own())


def shown(kube: Lists, *words: str) -> str:
    return told(found(kube, *words), look_at_all(kube), asked(*words))


def test_each_volume_is_there_once_and_orphans_are_last() -> None:
    assert shown(world()).splitlines() == [
        "VOLUME    NODE        CLAIM      SIZE  CLASS     POLICY (REBOOT)             POLICY (RETIRE)             USED BY",
        "pv-1      n1          default/a  1Gi   InUse     Ignore (Namespace default)  Ignore (Namespace default)  default/db-0",
        "pv-2      n2          default/b  1Gi   InUse     Block (PersistentVolume)    Block (PersistentVolume)    default/waits",
        "pv-both   n1, n2                 1Gi   Retained  AllowIdle (default)         Block (default)",
        "pv-other  n1                     1Gi   Retained  AllowIdle (default)         Block (default)",
        "pv-zone   n1, n2, n3  default/c  1Gi   Idle      Ignore (Namespace default)  Ignore (Namespace default)",
        "",
        f"Orphans: {ORPHAN}.",
        "  VOLUME   CLAIM         SIZE  CLASS  POLICY (REBOOT)             POLICY (RETIRE)",
        "  pv-lost  default/lost  1Gi   Idle   Ignore (Namespace default)  Ignore (Namespace default)",
        f"  {ORPHAN_REMEDY}",
    ]


def test_of_one_node_only_what_it_reaches_is_shown() -> None:
    assert [row.volume.name for row in found(world(), "--node=n2")] == ["pv-2", "pv-both", "pv-zone"]


def test_a_volume_that_nobody_placed_is_no_orphan() -> None:
    """Network storage has no affinity at all."""
    kube = world()
    anywhere = volume("pv-net", driver="nfs.example")
    del anywhere["spec"]["nodeAffinity"]
    kube.objects["persistentvolumes"].append(anywhere)
    assert "pv-net" not in [row.volume.name for row in found(kube)]


def test_what_a_living_node_made_is_no_orphan() -> None:
    kube = world()
    made = volume("pv-made", "gone")
    made["spec"]["csi"]["volumeAttributes"] = {names.PROVISIONER_IDENTITY: f"1700000000000-1234-{DRIVER}-n3"}
    kube.objects["persistentvolumes"].append(made)
    (row,) = [row for row in found(kube) if row.volume.name == "pv-made"]
    assert (row.nodes, row.orphan) == (("n3",), False)


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same(form: str, read: Any) -> None:
    said: Json = read(shown(world(), "-o", form))
    assert [item["name"] for item in said["volumes"]] == ["pv-1", "pv-2", "pv-both", "pv-other", "pv-zone"]
    (orphan,) = said["orphans"]
    assert (orphan["name"], orphan["orphan"], orphan["remedy"], orphan["nodes"]) == ("pv-lost", True, ORPHAN_REMEDY, [])
    first = said["volumes"][0]
    assert first["policies"]["retire"] == {"policy": "Ignore", "source": "Namespace default", "certain": True}
    assert (first["usedBy"], first["nodes"], first["class"]) == (["default/db-0"], ["n1"], "InUse")


def test_what_is_noted_of_machines_is_told_as_it_stands() -> None:
    kube = world()
    kube.objects["persistentvolumes"][0]["metadata"]["annotations"] = {names.LIES_ON: "n1/uid-n1"}
    said = json.loads(shown(kube, "-o", "json"))["volumes"]
    assert [(one["name"], one["liesOn"]) for one in said if "liesOn" in one] == [("pv-1", "n1/uid-n1")]
    wide = shown(kube, "-o", "wide").splitlines()
    assert "LIES ON" in wide[0] and "n1/uid-n1" in wide[1]
    assert "n1/uid-n1" not in shown(kube)


def test_a_cluster_without_such_volumes_says_so() -> None:
    kube = world()
    kube.objects["persistentvolumes"] = []
    assert shown(kube) == "no volume of a driver with topology is on any node that was asked about"
