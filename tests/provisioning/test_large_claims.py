"""A claim that is too large to be held is read again before it is written, and is provisioned like any other."""

import json
from typing import Any

from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import LARGEST_WHOLE, Claim, compact
from tests.harness import samples
from tests.harness.provisioning.bench import Bench, immediate, late

Json = dict[str, Any]
WHERE = ("persistentvolumeclaims", "fake-pvc")
NOTE = "x" * LARGEST_WHOLE


def large(*, selected: str = "", **changes: Any) -> Json:
    annotations = {"example.com/note": NOTE, **({SELECTED_NODE: selected} if selected else {})}
    return samples.claim_json(annotations=annotations, **changes)


def seen(bench: Bench, obj: Json) -> Bench:
    bench.kube.objects[WHERE] = obj
    return bench.see(claim=Claim.of(obj, keep_whole=True))


def test_nothing_that_a_record_holds_is_as_long_as_tenants_can_make_it() -> None:
    text = "y" * 200_000
    owner = {"apiVersion": text, "kind": text, "name": text, "uid": text, "controller": True}
    spec = {
        "volumeName": text,
        "volumeAttributesClassName": text,
        "dataSourceRef": dict.fromkeys(("kind", "apiGroup", "name", "namespace"), text),
    }
    notes = {"volume.beta.kubernetes.io/storage-class": text, SELECTED_NODE: text}
    claim = Claim.of(samples.claim_json(meta={"ownerReferences": [owner]}, annotations=notes, **spec), keep_whole=True)
    assert len(repr(claim)) < 10_000
    other = samples.claim_json(annotations={"volume.beta.kubernetes.io/storage-class": text + "z"})
    assert Claim.of(other).class_name != claim.class_name, "what differs stays different"


def test_a_bid_is_written_into_the_claim_as_it_is_now() -> None:
    bench = seen(immediate(), large())
    bench.claim()
    bench.now = 110.0
    bench.claim()
    (body,) = bench.kube.wrote("replace")
    written = json.loads(body)
    assert written["metadata"]["annotations"].pop(SELECTED_NODE) == "foo"
    assert written == json.loads(compact(large()))


def test_a_bid_for_a_claim_that_has_changed_is_lost_without_a_write() -> None:
    for changed in [{"resourceVersion": "8"}, {"resourceVersion": "8", "annotations": {SELECTED_NODE: "bar"}}]:
        bench = seen(immediate(), large())
        bench.kube.objects[WHERE] = large(meta=changed)
        bench.claim()
        bench.now = 110.0
        bench.claim()
        assert bench.kube.wrote("replace") == []
        held = bench.caches.claims.get(samples.claim().uid)
        assert held is not None and held.resource_version == "8", "what was read is known from then on"


def test_a_secret_that_an_annotation_names_is_found_although_the_annotations_are_not_held() -> None:
    secret = {"csi.storage.k8s.io/provisioner-secret-name": "${pvc.annotations['example.com/secret']}"}
    class_ = samples.class_(parameters={**secret, "csi.storage.k8s.io/provisioner-secret-namespace": "ns"})
    obj = large(selected="foo")
    obj["metadata"]["annotations"]["example.com/secret"] = "mine"
    bench = seen(late(), obj).see(class_=class_)
    bench.kube.objects["secrets", "mine"] = {"metadata": {"name": "mine", "namespace": "ns"}, "data": {}}
    bench.claim()
    assert ("get", "secrets", "mine", None) in bench.kube.asked
    assert bench.driver.count("create") == 1


def test_a_claim_of_the_same_name_made_anew_is_not_written() -> None:
    bench = seen(immediate(), large())
    bench.kube.objects[WHERE] = large(meta={"uid": "another"})
    bench.claim()
    bench.now = 110.0
    assert bench.claim() is None
    assert bench.kube.wrote("replace") == []
