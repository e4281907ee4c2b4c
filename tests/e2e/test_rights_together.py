"""The policies of all components beside one another: what one of them leaves to another must not open a way to another node's data.

The token of one node's sidecar tries all pairs of changes of a claim or a volume of a node that is there, and after each the deletion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane
from hack.lib.programs import Json
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DRIVER
from tests.harness.left_objects import CLAIMS, VOLUMES, claim, judged, uid_of, volume
from tests.harness.policies import Request, Secured, allowed, built, delete, in_force, secured

FORMER = "11111111-2222-3333-4444-555555555555"
"""Of a Node that is gone, or was there before the one of the same name."""
ELSEWHERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "example.com/host", "operator": "In", "values": ["n1"]}]}]}}
GONE = {"kind": names.CLAIM, "namespace": "default", "name": "gone", "uid": "uid-of-a-claim-that-is-gone"}


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overlay = built(tmp_path_factory.mktemp("overlay"), "drain", "gate", "emptying", "reprovision", "node-loss", "own-node")
    with secured(plane, overlay) as made:
        made.make(CLAIMS, claim("first"))
        in_force(delete(f"{CLAIMS}/first"), made.nobody, "bound to no pod")
        in_force(judged(made, "first"), made.n1, "with which machine")
        yield made


def noted(**notes: str | None) -> list[Json]:
    """One change for each."""
    return [{"metadata": {"annotations": {key: value}}} for key, value in notes.items()]


def machines(cluster: Secured) -> list[str | None]:
    here = [f"{node}/{uid_of(cluster, node)}" for node in ("n1", "n2")]
    return [None, "", *here, f"n2/{FORMER}", f"n9/{FORMER}", "n9"]


def of_claims(cluster: Secured) -> Iterator[Json]:
    for machine in machines(cluster):
        yield from noted(**{names.LOST_WITH: machine})
        yield from noted(**{names.REPROVISIONED_BY: machine})
    for node in (None, "", "n1", "n9"):
        yield from noted(**{names.SELECTED_NODE: node})
        for mark in (names.LOST_WITH, names.REPROVISIONED_BY):
            yield {"metadata": {"annotations": {names.SELECTED_NODE: node, mark: f"{node}/{FORMER}"}}}
    yield from noted(**{names.STORAGE_PROVISIONER: None})
    yield {"spec": {"volumeName": None}}
    yield {"metadata": {"finalizers": []}}


def of_volumes(cluster: Secured) -> Iterator[Json]:
    for machine in machines(cluster):
        yield from noted(**{names.LIES_ON: machine})
    yield from noted(**{names.PROVISIONED_BY: "another"})
    yield {"metadata": {"finalizers": None}}
    yield {"spec": {"claimRef": None}}
    yield {"spec": {"nodeAffinity": None}}
    yield {"spec": {"nodeAffinity": ELSEWHERE}}
    yield {"spec": {"csi": {"volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-n1"}}}}


def ways_to_delete(cluster: Secured, path: str, changes: list[Json]) -> tuple[list[list[Json]], int]:
    """Those of at most two changes after which n1's token may delete it; and how many changes were let through."""
    admin, found, passed = cluster.plane.request, [], 0
    original = admin("GET", path)
    waiting: list[tuple[list[Json], Json]] = [([], original)]
    seen = {_written(original)}
    while waiting:
        way, state = waiting.pop()
        _put_back(cluster, path, state)
        if judged(cluster, path.rpartition("/")[2], folder=path.rpartition("/")[0]).by(cluster.n1)[0] < 300:
            found.append(way)
        for change in changes if len(way) < 2 else ():
            code, _ = cluster.n1.patch(path, change)
            if code >= 300:
                continue
            passed += 1
            now = admin("GET", path)
            if _written(now) not in seen:
                seen.add(_written(now))
                waiting.append(([*way, change], now))
            _put_back(cluster, path, state)
    return found, passed


def _written(obj: Json) -> str:
    return json.dumps([obj["metadata"].get("annotations"), obj["metadata"].get("finalizers"), obj["spec"]], sort_keys=True)


def _put_back(cluster: Secured, path: str, state: Json) -> None:
    """Whatever version it has by now: controllers write to its status."""
    meta = {key: value for key, value in state["metadata"].items() if key != "resourceVersion"}
    cluster.plane.request("PUT", path, {**state, "metadata": meta})


# Whose mark of a loss is still there, because the machine is back, or because somebody has written it.
MARKS = {"none": "", "of a former Node of that name": f"n2/{FORMER}", "of another machine": f"n9/{FORMER}", "garbage": "n2"}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS.keys())
def test_no_two_changes_open_a_claim_of_another_node(cluster: Secured, mark: str) -> None:
    name = f"of-n2-{list(MARKS.values()).index(mark)}"
    cluster.make(CLAIMS, claim(name, node="n2", lost_with=mark))
    found, passed = ways_to_delete(cluster, f"{CLAIMS}/{name}", list(of_claims(cluster)))
    assert found == []
    assert passed > 0, "nothing was let through, so nothing was tried"


@pytest.mark.parametrize(
    ("unplaced", "noted_there"), [(False, True), (True, True), (False, False)], ids=["usual", "without affinity", "old"]
)
def test_no_two_changes_open_a_volume_of_another_node(cluster: Secured, unplaced: bool, noted_there: bool) -> None:
    name = f"of-n2-{unplaced}-{noted_there}".lower()
    made = volume(name, lies_on=f"n2/{uid_of(cluster, 'n2')}" if noted_there else "", node="n2", claimRef=GONE)
    if unplaced:
        del made["spec"]["nodeAffinity"]
    cluster.make(VOLUMES, made)
    found, _ = ways_to_delete(cluster, f"{VOLUMES}/{name}", list(of_volumes(cluster)))
    assert found == []


def test_what_the_program_sends_is_let_through(cluster: Secured) -> None:
    """A claim of this node with an old mark of a loss is made anew; one of a node that was lost in the middle of that is given up."""
    mine = f"n1/{uid_of(cluster, 'n1')}"
    cluster.make(CLAIMS, claim("own", node="n1", lost_with=f"n1/{FORMER}"))
    allowed(Request("PATCH", f"{CLAIMS}/own", {"metadata": {"annotations": {names.REPROVISIONED_BY: mine}}}, MERGE_PATCH), cluster.n1)
    cluster.plane.request("PATCH", f"{CLAIMS}/own", {"metadata": {"annotations": {names.REPROVISIONED_BY: mine}}}, content_type=MERGE_PATCH)
    allowed(judged(cluster, "own"), cluster.n1)
    lost: Any = claim("lost", lost_with=f"n9/{FORMER}")
    lost["metadata"]["annotations"][names.REPROVISIONED_BY] = f"n9/{FORMER}"
    cluster.make(CLAIMS, lost)
    allowed(judged(cluster, "lost"), cluster.n1)
