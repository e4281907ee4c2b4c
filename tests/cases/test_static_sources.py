"""Immediate clones of volumes that people made: no node counts them as its own, and whoever can reach one may clone it."""

from dataclasses import replace
from typing import Any

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_VOLUME, CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.model import names
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import Bench, rpc

CLONES = samples.info(controller=(CREATE_DELETE_VOLUME, CLONE_VOLUME))
SOURCE = {"kind": "PersistentVolumeClaim", "name": "source"}
ELSEWHERE = f"1700000000000-1-{samples.DRIVER}-bar"
Json = dict[str, Any]


def clone(*, source: Json | None = None, affinity: Json | None = None, identity: str = "", **driver: Any) -> Bench:
    """An Immediate clone of a claim that is bound to a volume that somebody made. The cache holds neither."""
    made = Bench(driver=ScriptedDriver(info=CLONES, **driver)).see(
        claim=samples.claim(dataSource=SOURCE), class_=samples.class_(volumeBindingMode="Immediate")
    )
    attributes = {names.PROVISIONER_IDENTITY: identity} if identity else {}
    csi = {"driver": samples.DRIVER, "volumeHandle": "by-hand", "volumeAttributes": attributes}
    spec = {"csi": csi, "claimRef": {"uid": "source-uid", "namespace": "fake-ns", "name": "source"}, "nodeAffinity": affinity}
    volume = samples.volume_json(meta={"name": "static"}, spec=spec, status={"phase": "Bound"})
    bound = samples.claim_json(meta={"name": "source", "uid": "source-uid", "finalizers": [names.CLONE_FINALIZER]}, volumeName="static")
    made.kube.objects |= {
        ("persistentvolumes", "static"): volume,
        ("persistentvolumeclaims", "source"): source or bound | {"status": {"phase": "Bound"}},
    }
    return made


def until_it_writes(made: Bench, seconds: float = 3600.0) -> float:
    """Looks when the room wants to, and returns after how many seconds it bade; infinity: not in that time."""
    began = made.now
    while made.now < began + seconds:
        until = made.claim()
        if made.kube.wrote("replace"):
            return made.now - began
        if until is None:
            break
        assert until > made.now or made.told.events, "it looks again at once, for nothing"
        made.now = max(made.now, until)
    return float("inf")


def selected(made: Bench) -> None:
    """The bid has come back."""
    made.see(claim=samples.claim(selected="foo", dataSource=SOURCE))


def test_a_node_that_can_reach_the_source_takes_the_clone_after_those_that_have_it() -> None:
    for affinity in [None, samples.placed("foo", key=names.HOSTNAME), samples.placed("7", key="rack")]:
        made = clone(affinity=affinity, creates=[CreatedVolume("clone", 100, has_source=True)])
        assert 20.0 <= until_it_writes(made) <= 40.0, "a node that has the source bids within the first 20 s"
        assert b'"volume.kubernetes.io/selected-node":"foo"' in made.kube.wrote("replace")[0]
        assert [verb for verb, *_ in made.kube.asked] == ["get", "get", "replace"]
        assert made.told.reasons() == []
        selected(made)
        made.claim()
        assert [name for name, _ in made.driver.asked] == ["capacity", "create"]
        assert made.driver.asked[1][1].source_volume == "by-hand"


def test_what_is_on_another_node_is_left_to_it_and_seldom_asked_about() -> None:
    for affinity, identity in [(samples.placed("bar"), ""), (samples.placed("bar", key=names.HOSTNAME), ""), (None, ELSEWHERE)]:
        made = clone(affinity=affinity, identity=identity)
        assert until_it_writes(made, 24 * 3600.0) == float("inf")
        assert len(made.kube.asked) <= 2 * 6
        assert made.driver.asked == []
        assert made.told.reasons() == ["NoNodeTakesClaim"]
        assert "not on this node (foo)" in made.told.events[0][3]


def test_a_source_that_is_not_bound_yet_is_waited_for() -> None:
    bound = clone().kube.objects["persistentvolumeclaims", "source"]
    made = clone(source=bound | {"status": {"phase": "Pending"}})
    assert until_it_writes(made, 300.0) == float("inf")
    assert len(made.kube.asked) <= 5
    assert made.told.reasons() == ["NoNodeTakesClaim"]
    assert "not Bound" in made.told.events[0][3]
    made.kube.objects["persistentvolumeclaims", "source"] = bound
    assert until_it_writes(made) < 1800.0


def test_a_node_of_which_the_driver_does_not_know_the_source_leaves_the_clone_to_others() -> None:
    """Only the driver can tell where a volume lies that says nothing of its place."""
    made = clone(creates=[rpc(Code.NOT_FOUND, "no such volume")])
    until_it_writes(made)
    selected(made)
    made.claim()
    assert len(made.kube.wrote("replace")) == 2
    assert b"selected-node" not in made.kube.wrote("replace")[1]
    assert made.told.reasons() == ["Provisioning", "ProvisioningFailed"]
    made.see(claim=samples.claim(dataSource=SOURCE))
    wrote = len(made.kube.wrote("replace"))
    until = made.claim()
    assert until is not None and until >= made.now + 20.0 and len(made.kube.wrote("replace")) == wrote


def test_a_source_in_the_namespace_of_others_is_not_read_without_their_leave() -> None:
    made = clone()
    claim = samples.claim(dataSource=SOURCE)
    assert claim.source is not None
    made.see(claim=replace(claim, source=replace(claim.source, namespace="far", explicit="far")))
    assert until_it_writes(made, 300.0) == float("inf")
    assert made.kube.asked == []
