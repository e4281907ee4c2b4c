"""Which events of claims this room leaves unread: by their bytes they are of claims that its cache would not keep."""

import json

from sidecar.kube.api import CLAIMS, Change
from sidecar.kube.event_prefix import EventPrefix
from sidecar.model import names
from sidecar.model.objects import Claim, Json
from tests.harness import samples
from tests.harness.provisioning.bench import Bench

PREFIX = EventPrefix("data", "uid-1", "7")


def test_a_claim_that_has_its_volume_is_not_read_again() -> None:
    for is_bound, is_kept, concerns, finalizer, skipped in [
        (False, False, False, "", False),
        (True, False, False, "", True),
        (True, True, False, "", False),
        (True, False, True, "", False),
        (True, False, False, names.CLONE_FINALIZER, False),
    ]:
        bench = Bench()
        watches = bench.watches(concerns=lambda uid, concerns=concerns: concerns)
        claims = next(watch for watch in watches.watches() if watch.resource == CLAIMS)
        obj = stored_claim(is_bound=is_bound, finalizer=finalizer)
        if is_kept:
            bench.caches.claims.apply(Change(PREFIX.uid, None, Claim.of(obj)))
        assert claims.skip is not None and claims.project is not None
        assert claims.skip(PREFIX, json.dumps({"type": "MODIFIED", "object": obj}, separators=(",", ":")).encode()) is skipped
        assert not skipped or claims.project(obj) is None


def stored_claim(*, is_bound: bool, finalizer: str) -> Json:
    obj = samples.claim_json(annotations={names.SELECTED_NODE: samples.NODE}, meta={"uid": PREFIX.uid, "finalizers": [finalizer]})
    volume = {"volumeName": "pvc-1"} if is_bound else {}
    obj["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **volume, "storageClassName": "late"}
    return obj
