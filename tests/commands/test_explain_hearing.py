"""What `explain pvc` says of who hears of a claim, and in which order nodes take an open one."""

from dataclasses import replace

import pytest

from sidecar.cli import main
from sidecar.commands.explain.hearing import Hearing, Others, hearing_of
from sidecar.config.config import Config
from sidecar.config.parse import Parsed, parse
from sidecar.kube.api import CLAIMS, CLASSES, CSI_NODES, MERGE_PATCH
from sidecar.local.claim_labels import REMEDY, not_trusted
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.ownership.roster import Roster
from sidecar.ownership.shards import listeners_of
from tests.harness import samples
from tests.harness.drain.served import Scene

BY_LABEL, BY_ORDER = "--watch-scope=labelled", "--node-deployment-placement=ranked"
UID = "00000000-0000-4000-8000-0000000000a7"
SHARD = "open.a7"
MANY = frozenset(f"n{number}" for number in range(40))
FEW = frozenset({"n1", "n2", "n3"})


def config(*flags: str) -> Config:
    parsed = parse(["--node-deployment", *flags], {"NODE_NAME": "n1"})
    assert isinstance(parsed, Parsed)
    return parsed.config


def claim(label: str | None = SHARD, *, node: str = "", asked: bool = True, **notes: str) -> Json:
    obj = samples.claim_json(meta={"uid": UID, "labels": {} if label is None else {names.CLAIM_LABEL: label}})
    given = {names.STORAGE_PROVISIONER: samples.DRIVER} if asked else {}
    obj["metadata"]["annotations"] = given | ({names.SELECTED_NODE: node} if node else {}) | notes
    return obj


def heard(obj: Json, *flags: str, nodes: frozenset[str] = MANY, classes: tuple[str, ...] = ("fake-class",), ignorance: str = "") -> Hearing:
    others = Others(nodes, classes=tuple(replace(samples.class_(), name=name) for name in classes), ignorance=ignorance)
    return hearing_of(obj, config(*flags), samples.info(), others, asked=True)


def test_an_open_claim_that_is_shared_out_is_taken_in_the_order_of_those_who_hear_of_it() -> None:
    found = heard(claim(), BY_LABEL, BY_ORDER)
    few = listeners_of(SHARD, MANY)
    assert found.order == tuple(Roster.of(few, {}).order(UID, 0)) and len(few) == 8
    assert found.rows()["heard by"] == f"8 of 40 nodes, by its shard {SHARD}; others find what these leave"
    assert found.rows()["order"].startswith(", ".join(found.order))
    assert [node for node in sorted(MANY) if not found.leaves_out(node)] == sorted(few)
    assert not found.leaves_out(""), "the node is not known"


@pytest.mark.parametrize(
    ("flags", "nodes", "says", "contenders"),
    [
        ((BY_ORDER,), MANY, "all nodes, by --watch-scope=all; name it here if that of the sidecars is another", 40),
        ((), MANY, "all nodes, by --watch-scope=all; name it here if that of the sidecars is another", 0),
        ((BY_LABEL,), MANY, "all nodes: with --node-deployment-placement=random open claims are not shared out", 0),
        ((BY_LABEL, BY_ORDER), FEW, "all 3 nodes, too few to share open claims out", 3),
    ],
)
def test_where_open_claims_are_not_shared_out_all_hear_of_them(
    flags: tuple[str, ...], nodes: frozenset[str], says: str, contenders: int
) -> None:
    found = heard(claim(), *flags, nodes=nodes)
    assert (found.heard_by, len(found.order)) == (says, contenders)
    assert not any(found.leaves_out(node) for node in nodes)


@pytest.mark.parametrize(
    ("obj", "says"),
    [
        (claim("node.n7", node="n7"), "node n7 alone"),
        (claim("waiting", asked=False), "no node before one is selected for it"),
    ],
)
def test_claims_that_are_not_open(obj: Json, says: str) -> None:
    assert (heard(obj, BY_LABEL, BY_ORDER).heard_by, heard(obj, BY_LABEL, BY_ORDER).order) == (says, ())


@pytest.mark.parametrize(("label", "has"), [(None, "no label"), ("node.n9", "node.n9")])
def test_a_wrong_label_is_told_in_the_words_of_log_and_event(label: str | None, has: str) -> None:
    found = heard(claim(label), BY_LABEL, BY_ORDER)
    why = f"claim fake-ns/fake-pvc has {has} where {SHARD} should be"
    assert found.heard_by == f"all nodes; {not_trusted(why)}; {REMEDY}"
    assert found.label.endswith(f", and {SHARD} is what the policy would give it")
    assert len(found.order) == 40


@pytest.mark.parametrize("labelled", [False, True])
def test_a_claim_of_a_large_cluster(scene: Scene, labelled: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def prepare() -> str:
        scene.cluster.create(CLASSES, samples.class_json(volumeBindingMode="Immediate"))
        for node in MANY:
            drivers = [{"name": samples.DRIVER, "nodeID": node, "topologyKeys": []}]
            scene.cluster.create(CSI_NODES, {"metadata": {"name": node.replace("n", "m")}, "spec": {"drivers": drivers}})
        meta = {"name": "open", "namespace": "default", "resourceVersion": "", "annotations": {names.STORAGE_PROVISIONER: samples.DRIVER}}
        uid = scene.cluster.create(CLAIMS, samples.claim_json(meta=meta), namespace="default").obj["metadata"]["uid"]
        if labelled:
            label = {"metadata": {"labels": {names.CLAIM_LABEL: names.open_claims(uid)}}}
            scene.cluster.patch(CLAIMS, "open", label, content_type=MERGE_PATCH, namespace="default")
        return names.open_claims(uid)

    shard = scene.act(prepare)
    few = listeners_of(shard, [node.replace("n", "m") for node in MANY])
    left_out = next(f"m{number}" for number in range(40) if f"m{number}" not in few)
    flags = [f"--driver={samples.DRIVER}", f"--kubeconfig={scene.kubeconfig}", f"--node={left_out}", "--csi-address=/nowhere/csi.sock"]
    assert main(["explain", "pvc", "default/open", *flags, BY_LABEL, BY_ORDER]) == 0
    rows = {key: value.strip() for key, value in (line.split("  ", 1) for line in capsys.readouterr().out.splitlines())}
    assert rows["admission policy"].startswith("there is none with the name csi-node-sidecar-claim-label")
    if labelled:
        assert (rows["label"], rows["heard by"].split(",")[0]) == (f"{names.CLAIM_LABEL}={shard}", "8 of 40 nodes")
        assert {*rows["order"].partition(";")[0].split(", ")} == {*few}
        assert rows["race"].endswith(f"; {left_out} does not hear of the claim before others have left it")
    else:
        assert "the labels of claims cannot be trusted" in rows["heard by"] and "and 32 more" in rows["order"]
        assert "does not hear" not in rows["race"]
