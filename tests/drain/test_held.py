"""Volumes that people made: the running sidecar judges those that lie here, whatever they ask for, and does nothing else with them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.drain_watches import DrainWatches
from sidecar.kube import reflector
from sidecar.kube.api import SNAPSHOT_CONTENTS, VOLUMES, Change, Resource
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.objects import Claim, ClaimRef, Source, Volume
from sidecar.provisioning.caches import Caches
from sidecar.simulation.node import DRIVER
from sidecar.simulation.node import TOPOLOGY_KEY as KEY
from sidecar.simulation.notebook.bench import Bench
from tests import samples
from tests.drain.test_controller import change, play, report_of, wait

Json = dict[str, Any]


def term(*pairs: tuple[str, str]) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]}


async def premade(bench: Bench, name: str, *terms: Json, policy: str = "Retain", released: bool = True) -> None:
    """A volume that a person made for the driver; its claim is gone."""
    spec: Json = {
        "csi": {"driver": DRIVER, "volumeHandle": f"by-hand-{name}"},
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}},
        "claimRef": {"namespace": "default", "name": "gone", "uid": "uid-gone"},
    }
    await bench.you.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    if released:
        obj = await bench.you.get(VOLUMES, name)
        await bench.you.replace(VOLUMES, {**obj, "status": {"phase": "Released"}}, name=name, subresource="status")


async def told(bench: Bench, node: str) -> tuple[str, str]:
    retire = (await report_of(bench, node))["verdicts"]["retire"]
    return retire["status"], retire["reason"]


BY_HOSTNAME = term((names.HOSTNAME, "n0"))
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}


@pytest.mark.parametrize(
    "asked", [BY_HOSTNAME, BY_NAME, term((KEY, "n0"), ("disk", "fast"))], ids=["hostname", "name", "driver and another"]
)
def test_a_volume_that_only_this_node_reaches_blocks_whatever_label_says_so(asked: Json) -> None:
    async def story(bench: Bench) -> None:
        await change(bench, "n0", labels={"disk": "fast"})
        await premade(bench, "kept", asked)
        await wait(bench, 10)
        assert await told(bench, "n0") == ("False", "ReclaimRetain")
        assert await told(bench, "n1") == ("True", "NoVolumes")

    play(story)


def test_a_volume_that_two_nodes_reach_is_no_ones_last_copy() -> None:
    async def story(bench: Bench) -> None:
        await premade(bench, "shared", term((KEY, "n0")), term((KEY, "n1")))
        await wait(bench, 10)
        for node in ("n0", "n1"):
            assert await told(bench, node) == ("True", "NoVolumes")

    play(story)


def test_a_label_that_comes_and_goes_is_followed() -> None:
    """Without it nobody knows; the node does not count as empty then."""

    async def story(bench: Bench) -> None:
        await premade(bench, "kept", term(("disk", "fast")))
        await wait(bench, 10)
        assert await told(bench, "n0") == ("Unknown", "NotKnown")
        await change(bench, "n0", labels={"disk": "fast"})
        await wait(bench, 70)
        assert await told(bench, "n0") == ("False", "ReclaimRetain")
        await change(bench, "n0", labels={"disk": "slow"})
        await wait(bench, 70)
        assert await told(bench, "n0") == ("True", "NoVolumes")

    play(story, nodes=("n0",))


def test_what_the_driver_cannot_be_shown_to_have_is_never_deleted() -> None:
    async def story(bench: Bench) -> None:
        await premade(bench, "leaving", BY_HOSTNAME, policy="Delete")
        await wait(bench, 60)
        assert await told(bench, "n0") == ("False", "ReleasePending")
        assert (await bench.you.get(VOLUMES, "leaving"))["spec"]["csi"]["volumeHandle"] == "by-hand-leaving"

    play(story, nodes=("n0",))


def test_no_clone_is_made_of_a_volume_that_may_lie_elsewhere() -> None:
    """For drain decisions it is in the cache, which says nothing about where its data is."""

    async def story(bench: Bench) -> None:
        await premade(bench, "source", BY_HOSTNAME, released=False)
        await wait(bench, 3)
        sidecar = bench.sidecar("n0")
        assert sidecar is not None and "source" in sidecar.caches.volumes
        assert sidecar.provisioner._volume_here("source") is None
        clone = replace(samples.claim(), source=Source("PersistentVolumeClaim", "", "gone", "default"))
        assert sidecar.provisioner._source_here(clone) is False

    play(story, nodes=("n0",))


# --- never used ---------------------------------------------------------------------------------------------------------


def watches(*claims: Claim) -> DrainWatches:
    def make(resource: Resource, *_: object, **__: object) -> Any:
        return SimpleNamespace(resource=resource, state=reflector.Synced())

    caches = Caches(claims=Store(), classes=Store(), volumes=Store(), attachments=Store())
    for claim in claims:
        caches.claims.apply(Change(claim.uid, None, claim))
    return DrainWatches(make, node="n1", driver=samples.info(), caches=caches, judges=True, shared=())  # type: ignore[arg-type]


def test_snapshots_are_watched_whatever_the_driver_can_do_today() -> None:
    assert SNAPSHOT_CONTENTS in [item.resource for item in watches().reflectors]


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
    seen.volume_changed(Change("pv-a", None, MADE), identity="me")
    assert ("pv-a" in seen.never_used.names()) is known
