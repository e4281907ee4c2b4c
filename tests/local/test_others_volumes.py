"""What is kept where another program provisions, and that nothing that is kept is skipped when it changes."""

import json
from typing import Any

import pytest

from sidecar.kube.api import CLAIMS, CLASSES, VOLUMES, Change
from sidecar.kube.event_prefix import EventPrefix
from sidecar.local import others_volumes
from sidecar.local.caches import Caches
from sidecar.local.watch import Watch
from sidecar.model import names
from tests.harness import samples

HERE = samples.here()
SELECTED = {names.SELECTED_NODE: samples.NODE}
OTHER = {names.STORAGE_PROVISIONER: "other.example"}


def watch_of(resource: Any, caches: Caches | None = None) -> Watch[Any]:
    (found,) = [watch for watch in others_volumes.watches(HERE, caches or Caches.empty()) if watch.resource == resource]
    return found


def volume(node: str) -> dict[str, Any]:
    return samples.volume_json(spec={"nodeAffinity": samples.placed(node)})


KEPT: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "a claim that waits here": (CLAIMS, samples.claim_json(annotations=SELECTED), True),
    "one that waits elsewhere": (CLAIMS, samples.claim_json(annotations={names.SELECTED_NODE: "bar"}), False),
    "an open one": (CLAIMS, samples.claim_json(), False),
    "one that has its volume, which drain keeps itself": (CLAIMS, samples.claim_json(annotations=SELECTED, volumeName="pv"), False),
    "another driver's": (CLAIMS, samples.claim_json(annotations=SELECTED | OTHER), False),
    "a volume here": (VOLUMES, volume(samples.NODE), True),
    "a volume elsewhere": (VOLUMES, volume("bar"), False),
    "a volume of another driver": (VOLUMES, samples.volume_json(spec={"csi": {"driver": "other", "volumeHandle": "h"}}), False),
    "a class": (CLASSES, samples.class_json(), True),
    "a class of another driver": (CLASSES, samples.class_json(provisioner="other.example"), False),
}


def test_what_is_kept_and_that_it_is_read() -> None:
    for what, (resource, obj, kept) in KEPT.items():
        watch = watch_of(resource)
        assert (watch.project(obj) is not None) is kept, what
        line = json.dumps({"type": "ADDED", "object": obj}, separators=(",", ":")).encode()
        assert not (kept and watch.skip is not None and watch.skip(EventPrefix("name", "uid", "1"), line)), what


@pytest.mark.parametrize("resource", [CLAIMS, VOLUMES], ids=str)
def test_what_is_kept_is_read_again_when_it_becomes_another_nodes(resource: Any) -> None:
    caches = Caches.empty()
    here = samples.claim_json(annotations=SELECTED) if resource == CLAIMS else volume(samples.NODE)
    there = samples.claim_json(annotations={names.SELECTED_NODE: "bar"}) if resource == CLAIMS else volume("bar")
    watch = watch_of(resource, caches)
    meta = here["metadata"]
    prefix = EventPrefix(meta["name"], meta["uid"], "2")
    line = json.dumps({"type": "MODIFIED", "object": there}, separators=(",", ":")).encode()
    assert watch.skip is not None and watch.skip(prefix, line), "of no concern as long as it is not kept"
    watch.store.apply(Change(watch.key_of(here), None, watch.project(here)))
    assert not watch.skip(prefix, line)
