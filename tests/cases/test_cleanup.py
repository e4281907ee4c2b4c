"""What protects the source of a clone goes when nothing is cloned from it any more. The sweep of snapshots, K7 to K9, has its own file."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.kube.errors import ApiError, Conflict, Forbidden, Gone, TooManyRequests, Unavailable
from sidecar.model.objects import Volume
from sidecar.provisioning.findings import NOTHING_FOUND
from sidecar.provisioning.progress import NOT_BEGUN
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


@pytest.mark.parametrize(
    "pending",
    [
        pytest.param(waiting(), id="dataSource"),
        pytest.param(waiting(dataSourceRef=FROM_IT), id="dataSourceRef"),
        pytest.param(waiting(dataSourceRef=FROM_IT | {"namespace": "fake-ns"}), id="dataSourceRef-with-its-namespace"),
        pytest.param(waiting(dataSource={"kind": "VolumeSnapshot", "name": "fake-pvc"}, dataSourceRef=FROM_IT), id="either-of-the-two"),
        pytest.param(waiting(status={}), id="no-phase-yet"),
        pytest.param(waiting(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="being-deleted"),
    ],
)
def test_K3_a_pending_clone_that_waits_for_its_consumer_keeps_it(pending: Json) -> None:
    made = bench(source(), served=pending)
    for _ in range(3):
        until = made.claim()
        assert until is not None and MINUTE < until - made.now < 5 * MINUTE
        made.now = until
    assert requests(made) == ["list"] * 3  # what was heard once says nothing about now
    pending["status"] = {"phase": "Bound"}
    assert made.claim() is None
    assert len(made.kube.wrote("replace")) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(waiting(status={"phase": "Bound"}), id="is-bound"),
        pytest.param(waiting(status={"phase": "Lost"}), id="is-lost"),
        pytest.param(waiting(dataSource=FROM_IT | {"name": "another"}), id="of-another-claim"),
        pytest.param(waiting(dataSource=FROM_IT | {"kind": "VolumeSnapshot"}), id="of-a-snapshot-of-that-name"),
        pytest.param(waiting(dataSourceRef=FROM_IT | {"namespace": "elsewhere"}), id="of-a-namesake-elsewhere"),
        pytest.param(waiting(volumeMode="Block"), id="of-nothing"),
        pytest.param(waiting(meta={"namespace": "elsewhere"}), id="K4-in-another-namespace"),
    ],
)
def test_K3_a_claim_that_is_no_pending_clone_does_not_keep_it(other: Json) -> None:
    made = bench(source(), served=other)
    assert made.claim() is None
    assert requests(made) == ["list", "replace"]


@pytest.mark.parametrize(
    "error", [Unavailable("away"), Forbidden("no list"), Gone("too old", status=410), TooManyRequests("slowly", retry_after=1.0)]
)
def test_K3_as_long_as_the_claims_cannot_be_listed_it_is_kept(error: ApiError) -> None:
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


def test_K4_a_clone_in_another_namespace_that_names_it_blocks_as_far_as_it_is_known() -> None:
    made = bench(source(), samples.claim(meta={"uid": "far", "namespace": "far"}, dataSourceRef=FROM_IT | {"namespace": "fake-ns"}))
    assert made.claim() is not None
    assert made.kube.asked == []


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


def across(made: Bench) -> Bench:
    """With the feature gate CrossNamespaceVolumeDataSource."""
    here = made.look_around()
    made.look_around = lambda: replace(here, options=replace(here.options, cross_namespace_sources=True))  # type: ignore[method-assign]
    return made


FAR_CLONE = waiting(meta={"namespace": "far"}, dataSourceRef=FROM_IT | {"namespace": "fake-ns"})


@pytest.mark.parametrize("far", [None, waiting(meta={"namespace": "far"})], ids=["none", "of-its-namesake-there"])
def test_with_sources_across_namespaces_another_node_releases_it_too(far: Json | None) -> None:
    """The node that has the volume may be gone for good."""
    made = across(bystander(source(), served=far))
    made.now = made.claim() or 0.0
    assert made.claim() is None
    assert requests(made) == ["list", "replace"]


@pytest.mark.parametrize("make", [bench, bystander], ids=["here", "elsewhere"])
def test_with_sources_across_namespaces_a_clone_that_waits_in_another_one_keeps_it(make: Callable[..., Bench]) -> None:
    made = across(make(source(), served=FAR_CLONE))
    made.now = made.claim() or made.now
    assert made.claim() is not None
    assert "replace" not in requests(made)


def test_what_the_node_that_has_the_volume_does_meanwhile_is_all_that_happens() -> None:
    made = bystander(source())
    assert made.claim() is not None
    made.forget_claim()
    assert made.claim() is None and made.table.progress("testid") == NOT_BEGUN and made.table.findings("testid") == NOTHING_FOUND
    assert made.kube.asked == []


def test_a_volume_that_asks_for_labels_no_driver_reports_lies_on_no_node() -> None:
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["foo"]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}}
    made = bench(source(), volume=samples.volume(spec=affinity, status={"phase": "Bound"}))
    made.now = made.claim() or 0.0
    assert made.kube.asked == []
    assert made.claim() is None
    assert len(made.kube.wrote("replace")) == 1


def test_the_turns_of_other_nodes_lie_far_apart() -> None:
    turns = []
    for chance in (0.0, 0.5, 1.0):
        made = bystander(source())
        made.room._chance = lambda lot=chance: lot  # type: ignore[misc]
        turns.append((made.claim() or 0.0) - made.now)
    assert turns == [5 * MINUTE, 20 * MINUTE, 35 * MINUTE]


@pytest.mark.parametrize("known", [True, False], ids=["to-the-cache", "to-the-server"])
def test_other_nodes_look_rarely_for_what_is_still_to_be_cloned(known: bool) -> None:
    made = bystander(source(), *([clone("waiting")] if known else []), served=waiting())
    made.now = made.claim() or 0.0
    again = made.claim()
    assert again is not None and again - made.now >= 60 * MINUTE
    made.now = again - 1.0
    assert made.claim() == again
    assert requests(made) == ([] if known else ["list"])


@pytest.mark.parametrize("verb", ["list", "replace"])
@pytest.mark.parametrize("error", [Unavailable("away"), Forbidden("no"), Conflict("changed", status=409)])
def test_another_node_whose_turn_came_to_nothing_waits_for_a_new_one(error: ApiError, verb: str) -> None:
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
