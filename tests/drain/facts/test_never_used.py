"""What counts as never used: only volumes that this process has seen made empty. And what is watched for that."""

from dataclasses import replace

import pytest

from sidecar.drain.watches import DrainWatches
from sidecar.kube import reflector_state as reflector
from sidecar.kube.api import SNAPSHOT_CONTENTS, Change
from sidecar.kube.store import Store
from sidecar.local.caches import Caches
from sidecar.local.here import Here, Options
from sidecar.model import names
from sidecar.model.objects import Claim, ClaimRef, Source, Volume
from tests.harness import samples


def watches(*claims: Claim) -> DrainWatches:
    caches = Caches(claims=Store(), classes=Store(), volumes=Store(), attachments=Store())
    for claim in claims:
        caches.claims.apply(Change(claim.uid, None, claim))
    here = Here("n1", samples.info(), Options(), "me")
    return DrainWatches(here, caches, judges=True, state=lambda resource: reflector.Synced(), clock=lambda: 0.0)


def test_snapshots_are_watched_whatever_the_driver_can_do_today() -> None:
    assert SNAPSHOT_CONTENTS in [item.resource for item in watches().watches()]


CLAIM = replace(samples.claim(), uid="uid-a")
MADE = replace(Volume.of(samples.volume_json()), name="pv-a", identity="me", claim=ClaimRef("uid-a", CLAIM.namespace, CLAIM.name))


@pytest.mark.parametrize(
    ("claims", "known"),
    [
        ([CLAIM], True),
        ([replace(CLAIM, source=Source("VolumeSnapshot", names.SNAPSHOT_GROUP, "s", CLAIM.namespace))], False),
        ([], False),
    ],
    ids=["empty", "restored", "claim gone"],
)
def test_only_what_is_known_to_have_been_made_empty_counts_as_never_used(claims: list[Claim], known: bool) -> None:
    seen = watches(*claims)
    seen.volume_changed(Change("pv-a", None, MADE))
    assert ("pv-a" in seen.never_used.names()) is known


OTHER = ClaimRef("uid-b", "default", "b")


def told(*volumes: Volume, before: tuple[Volume, ...] = ()) -> frozenset[str]:
    """Which count as never used, after `before` and then, if there is none of them yet, MADE, and then `volumes` were seen."""
    seen = watches(CLAIM, replace(CLAIM, uid="uid-b", namespace="default", name="b"))
    known: dict[str, Volume] = {}
    for volume in (*before, *(() if before else (MADE,)), *volumes):
        seen.volume_changed(Change(volume.name, known.get(volume.name), volume))
        known[volume.name] = volume
    return seen.never_used.names()


def test_a_new_volume_counts_as_never_used_for_as_long_as_its_claim_has_it() -> None:
    assert told(replace(MADE, phase="Released", reclaim_policy="Retain")) == {"pv-a"}


@pytest.mark.parametrize("claim", [None, OTHER, replace(OTHER, namespace=CLAIM.namespace, name=CLAIM.name)], ids=["none", "b", "later"])
def test_a_volume_that_another_claim_may_get_may_have_been_used_under_a_name_that_nobody_looks_for(claim: ClaimRef | None) -> None:
    assert told(replace(MADE, claim=claim)) == told(replace(MADE, claim=claim), MADE) == frozenset()


def test_a_copy_of_a_persistent_volume_under_another_name_is_no_new_volume() -> None:
    copy = replace(MADE, name="pv-b", claim=OTHER)
    assert told(copy) == frozenset(), "through the copy pods may have used the first one as well"
    assert told(copy, before=(replace(MADE, identity="an earlier process"),)) == frozenset()


def test_a_name_that_stands_for_another_volume_now_is_no_new_volume() -> None:
    assert told(replace(MADE, handle="another")) == frozenset()
