"""What protects the source of a clone goes when nothing is cloned from it any more. The sweep of snapshots, K7 to K9, has its own file."""

from dataclasses import replace
from typing import Any

from sidecar.kube.errors import Conflict, Forbidden, Gone, TooManyRequests, Unavailable
from sidecar.model.objects import Volume
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import Bench
from tests.harness.provisioning.room import KeepingKube

Json = dict[str, Any]
OURS = "provisioner.storage.kubernetes.io/cloning-protection"
CLONES = samples.info(controller=("CREATE_DELETE_VOLUME", "CLONE_VOLUME"))
FROM_IT = {"kind": "PersistentVolumeClaim", "name": "fake-pvc"}
MINUTE = 60.0


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


def waiting(*, meta: Json | None = None, status: Json | None = None, **spec: Any) -> Json:
    """A clone whose first consumer has not come yet: nobody is asked to provision it, so only the API server knows of it."""
    unasked = {"volume.beta.kubernetes.io/storage-provisioner": None}
    obj = samples.claim_json(meta={"uid": "uid-waiting", "name": "waiting", **(meta or {})}, annotations=unasked)
    return obj | {"spec": obj["spec"] | (spec or {"dataSource": FROM_IT}), "status": {"phase": "Pending"} if status is None else status}


def bench(*claims: Any, volume: Volume | None = None, served: Json | None = None) -> Bench:
    made = Bench(driver=ScriptedDriver(info=CLONES), kube=KeepingKube()).see(
        class_=samples.class_(), volume=samples.volume(status={"phase": "Bound"}) if volume is None else volume
    )
    for item in claims:
        made.see(claim=item)
    if served is not None:
        made.kube.objects["persistentvolumeclaims", served["metadata"]["name"]] = served
    return made


def bystander(*claims: Any, **more: Any) -> Bench:
    """A node that does not have the volume."""
    return bench(*claims, volume=replace(samples.volume(), name="another"), **more)


def requests(made: Bench) -> list[str]:
    return [verb for verb, *_ in made.kube.asked]


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


def test_K3_a_pending_clone_that_waits_for_its_consumer_keeps_it() -> None:
    for pending in [
        waiting(),
        waiting(dataSourceRef=FROM_IT),
        waiting(dataSourceRef=FROM_IT | {"namespace": "fake-ns"}),
        waiting(dataSource={"kind": "VolumeSnapshot", "name": "fake-pvc"}, dataSourceRef=FROM_IT),
        waiting(status={}),
        waiting(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ]:
        made = bench(source(), served=pending)
        for _ in range(3):
            until = made.claim()
            assert until is not None and MINUTE < until - made.now < 5 * MINUTE
            made.now = until
        assert requests(made) == ["list"] * 3  # what was heard once says nothing about now
        pending["status"] = {"phase": "Bound"}
        assert made.claim() is None
        assert len(made.kube.wrote("replace")) == 1


def test_K3_a_claim_that_is_no_pending_clone_does_not_keep_it() -> None:
    for other in [
        waiting(status={"phase": "Bound"}),
        waiting(status={"phase": "Lost"}),
        waiting(dataSource=FROM_IT | {"name": "another"}),
        waiting(dataSource=FROM_IT | {"kind": "VolumeSnapshot"}),
        waiting(dataSourceRef=FROM_IT | {"namespace": "elsewhere"}),
        waiting(volumeMode="Block"),
        waiting(meta={"namespace": "elsewhere"}),
    ]:
        made = bench(source(), served=other)
        assert made.claim() is None
        assert requests(made) == ["list", "replace"]


def test_K3_as_long_as_the_claims_cannot_be_listed_it_is_kept() -> None:
    for error in [Unavailable("away"), Forbidden("no list"), Gone("too old", status=410), TooManyRequests("slowly", retry_after=1.0)]:
        made = bench(source())
        made.kube.failures["list"] = [error, error]
        for _ in range(2):
            until = made.claim()
            assert until is not None and made.now < until < made.now + 5 * MINUTE
            assert made.kube.wrote("replace") == []
            made.now = until
        assert made.claim() is None
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


def test_another_node_than_that_of_the_volume_leaves_it_alone_for_minutes_and_releases_it_then() -> None:
    made = bystander(source())
    turn = made.claim()
    assert turn is not None
    for moment in (200.0, turn - 1.0):
        made.now = moment
        assert made.claim() == turn
    assert made.kube.asked == []
    made.now = turn
    assert made.claim() is None
    assert requests(made) == ["list", "replace"]
    assert b'"resourceVersion":"7"' in made.kube.wrote("replace")[0]


def test_another_node_whose_turn_came_to_nothing_waits_for_a_new_one() -> None:
    for verb in ["list", "replace"]:
        for error in [Unavailable("away"), Forbidden("no"), Conflict("changed", status=409)]:
            made = bystander(source())
            made.now = made.claim() or 0.0
            made.kube.failures[verb] = [error]
            assert made.claim() is not None
            asked = len(made.kube.asked)
            for _ in range(5):
                made.now += 0.99 * MINUTE
                assert made.claim() is not None
            assert len(made.kube.asked) == asked
            made.now += 24 * 60 * MINUTE
            assert made.claim() is None
            assert len(made.kube.wrote("replace")) == (2 if verb == "replace" else 1)


def test_a_clone_is_bid_for_only_where_its_source_is() -> None:
    """Looked at as often as the room asks for, and once when the volume comes: that this happens is tested where the wiring is."""
    made = Bench(driver=ScriptedDriver(info=CLONES)).see(
        claim=samples.claim(dataSource={"kind": "PersistentVolumeClaim", "name": "source"}),
        class_=samples.class_(volumeBindingMode="Immediate"),
    )
    while made.now < 300.0:
        until = made.claim()
        assert until is not None
        made.now = max(made.now, until)
    assert {verb for verb, *_ in made.kube.asked} == {"get"} and made.driver.asked == []
    assert made.told.reasons() == ["NoNodeTakesClaim"]
    here = {"claimRef": {"uid": "u", "namespace": "fake-ns", "name": "source"}}
    made.see(volume=samples.volume(meta={"name": "pv-source"}, spec=here, status={"phase": "Bound"}))
    delayed = made.claim()
    assert delayed is not None
    made.now = max(made.now, delayed)
    made.claim()
    assert b'"volume.kubernetes.io/selected-node":"foo"' in made.kube.wrote("replace")[0]
