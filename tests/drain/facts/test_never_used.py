"""What counts as never used: only volumes that this process has seen made empty. And what is watched for that."""

from dataclasses import replace

import pytest

from sidecar.drain.watches import DrainWatches
from sidecar.kube import reflector
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
