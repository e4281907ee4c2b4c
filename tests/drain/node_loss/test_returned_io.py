"""A node that is there again takes off what a peer has noted on its claims, and nothing else."""

import asyncio
from typing import Any

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.returned_io import Returned
from sidecar.kube.errors import Conflict
from sidecar.model import names
from sidecar.model.objects import Claim
from tests.harness import samples
from tests.harness.doors import ScriptedKube

Json = dict[str, Any]
NOW = Machine("n0", "uid-2")


def claim(mark: str | None, **meta: Any) -> Json:
    notes = {} if mark is None else {names.LOST_WITH: mark}
    return samples.claim_json(meta={"name": "data", "namespace": "shop", "annotations": notes} | meta)


def patches(cached: Json, stored: Json, *, dry_run: bool = False, failures: list[Exception | None] | None = None) -> list[Any]:
    kube = ScriptedKube({("persistentvolumeclaims", "data"): stored}, failures={"patch": failures or []})
    returned = Returned(kube, claims=lambda: [Claim.of(cached)], dry_run=dry_run)  # type: ignore[arg-type]
    asyncio.run(returned.take_marks_off(NOW))
    return kube.wrote("patch")


def test_the_mark_of_an_earlier_machine_of_this_name_goes() -> None:
    marked = claim("n0/uid-1")
    (patch,) = patches(marked, marked)
    meta = marked["metadata"]
    assert patch == {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "annotations": {names.LOST_WITH: None}}}


def test_what_is_no_earlier_machine_of_this_name_stays() -> None:
    for mark in [None, "n1/uid-1", "n0/uid-2", "n0", "garbage"]:
        assert patches(claim(mark), claim(mark)) == []
        assert patches(claim("n0/uid-1"), claim(mark)) == [], "it is as it is stored now that counts"


def test_a_claim_that_is_being_deleted_stays_as_it_is() -> None:
    assert patches(claim("n0/uid-1"), claim("n0/uid-1", deletionTimestamp="2026-01-01T00:00:00Z")) == []


def test_a_dry_run_writes_nothing_and_a_conflict_is_left_to_the_next_look() -> None:
    assert patches(claim("n0/uid-1"), claim("n0/uid-1"), dry_run=True) == []
    assert len(patches(claim("n0/uid-1"), claim("n0/uid-1"), failures=[Conflict("changed", status=409)])) == 1
