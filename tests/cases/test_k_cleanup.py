"""What protects the source of a clone goes when nothing is cloned from it any more. The sweep of snapshots, K7 to K9, has its own file."""

from dataclasses import replace
from typing import Any

from sidecar.model.objects import Volume
from tests import samples
from tests.doors import ScriptedDriver
from tests.provisioning.test_controller import Bench

OURS = "provisioner.storage.kubernetes.io/cloning-protection"
CLONES = samples.info(controller=("CREATE_DELETE_VOLUME", "CLONE_VOLUME"))


def source(**meta: Any) -> Any:
    return samples.claim(
        selected="foo",
        volumeName="test-testi",
        meta={"finalizers": ["kubernetes.io/pvc-protection", OURS], "deletionTimestamp": "2026-01-01T00:00:00Z"} | meta,
    )


def clone(name: str, *, namespace: str = "fake-ns", of: str = "fake-pvc", **spec: Any) -> Any:
    return samples.claim(
        meta={"uid": f"uid-{name}", "name": name, "namespace": namespace},
        dataSource={"kind": "PersistentVolumeClaim", "name": of},
        **spec,
    )


def bench(*claims: Any, volume: Volume | None = None) -> Bench:
    made = Bench(driver=ScriptedDriver(info=CLONES)).see(
        class_=samples.class_(), volume=samples.volume(status={"phase": "Bound"}) if volume is None else volume
    )
    for item in claims:
        made.see(claim=item)
    return made


def test_K2_without_a_pending_clone_our_finalizer_goes_and_others_stay() -> None:
    made = bench(source())
    assert made.claim() is None
    (body,) = made.kube.wrote("replace")
    assert b'"finalizers":["kubernetes.io/pvc-protection"]' in body
    assert made.driver.asked == []


def test_K3_one_pending_clone_among_several_keeps_it() -> None:
    made = bench(source(), clone("done", volumeName="pv-2"), clone("waiting"))
    until = made.claim()
    assert until is not None and until > made.now
    assert made.kube.asked == []
    made.see(claim=clone("waiting", volumeName="pv-3"))
    made.claim()
    assert len(made.kube.wrote("replace")) == 1


def test_K4_a_clone_in_another_namespace_does_not_block() -> None:
    made = bench(source(), clone("waiting", namespace="elsewhere"))
    assert made.claim() is None
    assert len(made.kube.wrote("replace")) == 1


def test_K1_K5_a_claim_that_stays_or_that_nothing_protects_is_not_written() -> None:
    staying = samples.claim(selected="foo", volumeName="test-testi", meta={"finalizers": [OURS]})
    for claim in (staying, source(finalizers=["kubernetes.io/pvc-protection"])):
        made = bench(claim)
        assert made.claim() is None
        assert made.kube.asked == []


def test_only_the_node_that_has_the_volume_releases_it() -> None:
    made = bench(source(), volume=replace(samples.volume(), name="another"))
    assert made.claim() is None
    assert made.kube.asked == []


def test_a_clone_is_bid_for_only_where_its_source_is() -> None:
    made = Bench(driver=ScriptedDriver(info=CLONES)).see(
        claim=samples.claim(dataSource={"kind": "PersistentVolumeClaim", "name": "source"}),
        class_=samples.class_(volumeBindingMode="Immediate"),
    )
    for _ in range(8):
        until = made.claim()
        made.now = max(made.now, until) if until is not None else made.now + 60.0
    assert made.kube.asked == [] and made.driver.asked == []
    assert set(made.told.reasons()) <= {"NoNodeTakesClaim"}
    here = {"claimRef": {"uid": "u", "namespace": "fake-ns", "name": "source"}}
    made.see(volume=samples.volume(meta={"name": "pv-source"}, spec=here, status={"phase": "Bound"}))
    for _ in range(3):
        made.now = max(made.now, made.claim() or 0.0) + 30.0
    assert b'"volume.kubernetes.io/selected-node":"foo"' in made.kube.wrote("replace")[0]
