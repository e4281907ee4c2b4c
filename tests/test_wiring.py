"""Which objects are kept, and which change wakes which key. What the rooms then do is theirs."""

import asyncio
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.csi import link
from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_VOLUME, PUBLISH_UNPUBLISH_VOLUME
from sidecar.doors import Instruments, health_of_link
from sidecar.engine.health import OK, Degraded, Stopped
from sidecar.kube import reflector_state as reflector
from sidecar.model.names import CLONE_FINALIZER
from sidecar.ownership import user_notice
from sidecar.watching import health_of_reflector
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.loops import until
from tests.harness.sidecar import Json, ListedKube, running, sidecar_on


def test_foreign_objects_are_dropped() -> None:
    selected = "volume.kubernetes.io/selected-node"
    claims = [
        samples.claim_json(meta={"uid": "open"}),
        samples.claim_json(meta={"uid": "ours"}, annotations={selected: "foo"}),
        samples.claim_json(meta={"uid": "theirs"}, annotations={selected: "bar"}),
        samples.claim_json(meta={"uid": "bound"}, volumeName="pv"),
        samples.claim_json(meta={"uid": "foreign"}, annotations={"volume.kubernetes.io/storage-provisioner": "other"}),
    ]
    volumes = [
        samples.volume_json(meta={"name": "here"}, status={"phase": "Bound"}),
        samples.volume_json(meta={"name": "there"}, spec={"nodeAffinity": samples.placed("bar")}),
        samples.volume_json(meta={"name": "nowhere"}, spec={"nodeAffinity": None}),
        samples.volume_json(meta={"name": "foreign"}, spec={"csi": {"driver": "other", "volumeHandle": "h"}}),
        samples.volume_json(meta={"name": "not-csi"}, spec={"csi": None, "hostPath": {"path": "/x"}}),
    ]
    classes = [samples.class_json(), samples.class_json(metadata={"name": "foreign"}, provisioner="other")]
    kube = ListedKube(persistentvolumeclaims=claims, persistentvolumes=volumes, storageclasses=classes)

    async def then(program: Sidecar) -> None:
        await until(lambda: len(kube.lists) == 3 and "fake-class" in program.caches.classes)
        assert program.caches.claims.keys() == ["open", "ours"]
        assert program.caches.volumes.keys() == ["here"]
        assert program.caches.classes.keys() == ["fake-class"]

    running(lambda: sidecar_on(kube), then)


def test_N_a_claim_that_another_node_won_is_seen_as_lost_and_then_dropped() -> None:
    kube = ListedKube(persistentvolumeclaims=[samples.claim_json()], storageclasses=[samples.class_json(volumeBindingMode="Immediate")])

    async def then(program: Sidecar) -> None:
        await until(lambda: program.provisioning.room.concerns("testid"))
        lost = samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "bar"})
        kube.tell("persistentvolumeclaims", "MODIFIED", lost)
        await until(lambda: not program.provisioning.room.concerns("testid"))
        kube.tell("persistentvolumeclaims", "MODIFIED", {**lost, "spec": {**lost["spec"], "volumeName": "pv"}})
        await until(lambda: len(program.caches.claims) == 0)

    running(lambda: sidecar_on(kube), then)


def test_a_class_that_comes_back_wakes_its_claims() -> None:
    kube = ListedKube(persistentvolumeclaims=[samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "foo"})])
    driver = ScriptedDriver()

    async def then(program: Sidecar) -> None:
        await until(lambda: program.provisioning.claims.attempts.count("testid") == 1)
        assert driver.count("create") == 0
        kube.tell("storageclasses", "ADDED", samples.class_json(metadata={"name": "fake-class", "resourceVersion": "9"}))
        await until(lambda: driver.count("create") == 1)

    running(lambda: sidecar_on(kube, "--retry-interval-start=100s", driver=driver), then)


def test_a_claim_that_comes_before_the_contenders_are_known_does_not_wait_for_a_delay_drawn_by_chance() -> None:
    nodes = [{"metadata": {"name": samples.NODE}, "spec": {"drivers": [{"name": samples.DRIVER}]}}]
    kube = ListedKube(
        persistentvolumeclaims=[samples.claim_json()],
        storageclasses=[samples.class_json(volumeBindingMode="Immediate")],
        csinodes=nodes,
    )
    slow_start = Instruments(rng=lambda: 0.1)  # the list comes after half a second; by chance the claim would wait for 18

    async def then(program: Sidecar) -> None:
        await until(lambda: program.provisioning.room.blind_races() == ["testid"])
        assert not kube.wrote("replace")
        await until(lambda: kube.wrote("replace"))

    running(lambda: sidecar_on(kube, "--node-deployment-placement=ranked", instruments=slow_start), then)


CLONING = samples.info(controller=(CREATE_DELETE_VOLUME, CLONE_VOLUME))
FORTY = [samples.NODE, *(f"n{number}" for number in range(39))]
SILENT = next(uid for uid in map(str, range(99)) if user_notice.turn(samples.NODE, uid, len(FORTY)) is None)
"""A claim of which others tell that nobody takes it."""


def source_volume(version: str = "50", **spec: Any) -> Json:
    claim = {"uid": "uid-source", "namespace": "fake-ns", "name": "source"}
    return samples.volume_json(
        meta={"name": "pv-source", "resourceVersion": version}, spec={"claimRef": claim, **spec}, status={"phase": "Bound"}
    )


def cloning_on(kube: ListedKube, *args: str) -> Sidecar:
    """In virtual time."""
    tools = Instruments(clock=asyncio.get_running_loop().time, rng=lambda: 0.0)
    return sidecar_on(kube, *args, driver=ScriptedDriver(CLONING), instruments=tools)


@pytest.mark.parametrize(("type_", "silence"), [("ADDED", 1.0), ("MODIFIED", 300.0)])
@pytest.mark.parametrize("placement", ["random", "ranked"])
def test_a_clone_that_came_before_its_source_s_volume_is_bid_for_when_that_comes(placement: str, type_: str, silence: float) -> None:
    clone = samples.claim_json(meta={"name": "clone", "uid": SILENT}, dataSource={"kind": "PersistentVolumeClaim", "name": "source"})
    free = [source_volume(claimRef=None)] if type_ == "MODIFIED" else []
    nodes = [{"metadata": {"name": name}, "spec": {"drivers": [{"name": samples.DRIVER}]}} for name in FORTY]
    immediate = samples.class_json(volumeBindingMode="Immediate")
    kube = ListedKube(persistentvolumes=free, csinodes=nodes, storageclasses=[immediate])
    kube.objects["persistentvolumeclaims", "clone"] = clone

    async def then(program: Sidecar) -> None:
        await asyncio.sleep(1.0)
        kube.tell("persistentvolumeclaims", "ADDED", clone)
        await asyncio.sleep(silence)
        assert SILENT in program.caches.claims
        assert len(program.provisioning.claims.snapshot()) == 1 and program.provisioning.room.concerns(SILENT)
        assert not kube.wrote("replace")
        kube.tell("persistentvolumes", type_, source_volume("51"))
        async with asyncio.timeout(25.0):  # the longest first delay has 20, and nobody tells before 30
            await until(lambda: kube.wrote("replace"))
        assert b'"volume.kubernetes.io/selected-node":"foo"' in kube.wrote("replace")[0]

    running(lambda: cloning_on(kube, f"--node-deployment-placement={placement}"), then, play=run_virtual, limit=1000.0)


def leaving_source(**annotations: str | None) -> Json:
    leaving = {"name": "source", "uid": "uid-source", "finalizers": [CLONE_FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return samples.claim_json(meta=leaving, annotations=annotations, volumeName="pv-source")


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_source_that_leaves_is_let_go_when_its_volume_comes_after_it(by_hand: bool) -> None:
    """One that somebody bound by hand names no provisioner."""
    notes = {"volume.beta.kubernetes.io/storage-provisioner": None} if by_hand else {}
    kube = ListedKube(persistentvolumeclaims=[leaving_source(**notes)])

    async def then(program: Sidecar) -> None:
        await asyncio.sleep(1.0)
        assert "uid-source" in program.caches.claims and not kube.wrote("replace")
        kube.tell("persistentvolumes", "ADDED", source_volume())
        await until(lambda: kube.wrote("replace"))
        assert CLONE_FINALIZER.encode() not in kube.wrote("replace")[0]

    running(lambda: cloning_on(kube), then, play=run_virtual)


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="it-is-gone"),
        pytest.param([source_volume(nodeAffinity=samples.placed("bar"))], id="its-node-is-dead"),
        pytest.param([source_volume(nodeAffinity=None)], id="no-node-made-it"),
    ],
)
def test_a_source_whose_volume_no_living_node_has_is_released_in_the_end(volumes: list[Json]) -> None:
    elsewhere = leaving_source(**{"volume.kubernetes.io/selected-node": "bar"})
    kube = ListedKube(persistentvolumeclaims=[elsewhere], persistentvolumes=volumes)

    async def then(program: Sidecar) -> None:
        await asyncio.sleep(299.0)
        assert len(kube.lists) == 3 and not kube.wrote("replace")
        await asyncio.sleep(1802.0)
        assert len(kube.lists) == 4 and len(kube.wrote("replace")) == 1
        kube.tell("persistentvolumeclaims", "DELETED", elsewhere)
        await until(lambda: not program.caches.claims.keys() and not program.provisioning.claims.snapshot())

    running(lambda: cloning_on(kube), then, play=run_virtual, limit=10_000.0)


def test_attachments_are_watched_only_for_a_driver_that_attaches() -> None:
    kube = ListedKube()

    async def then(program: Sidecar) -> None:
        await until(lambda: len(kube.lists) == 4)
        assert sorted(plural for plural, _, _ in kube.lists) == [
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses",
            "volumeattachments",
        ]

    attaching = ScriptedDriver(samples.info(controller=(CREATE_DELETE_VOLUME, PUBLISH_UNPUBLISH_VOLUME)))
    running(lambda: sidecar_on(kube, driver=attaching), then)


def test_an_attachment_that_goes_wakes_its_volume() -> None:
    attachment = {
        "metadata": {"name": "a", "resourceVersion": "3"},
        "spec": {"nodeName": "foo", "source": {"persistentVolumeName": "test-testi"}},
    }
    kube = ListedKube(persistentvolumes=[samples.volume_json()], volumeattachments=[attachment])
    kube.objects["persistentvolumes", "test-testi"] = samples.volume_json()
    driver = ScriptedDriver(samples.info(controller=(CREATE_DELETE_VOLUME, PUBLISH_UNPUBLISH_VOLUME)))

    async def then(program: Sidecar) -> None:
        await until(lambda: program.provisioning.volumes.attempts.count("test-testi") == 1)
        assert driver.count("delete") == 0
        kube.tell("volumeattachments", "DELETED", attachment)
        await until(lambda: driver.count("delete") == 1)

    running(lambda: sidecar_on(kube, "--retry-interval-start=100s", driver=driver), then)


def test_C27_capacity_is_listed_in_its_namespace_by_our_labels() -> None:
    kube = ListedKube(storageclasses=[samples.class_json()])
    environ = {"NAMESPACE": "ns"}

    async def then(program: Sidecar) -> None:
        await until(lambda: kube.wrote("create"))
        selector = f"csi.storage.k8s.io/drivername={samples.DRIVER},csi.storage.k8s.io/managed-by=external-provisioner-foo"
        assert ("csistoragecapacities", "ns", selector) in kube.lists

    running(lambda: sidecar_on(kube, "--enable-capacity", "--capacity-ownerref-level=-1", environ=environ), then)


def test_S10_the_identity_ends_with_driver_and_node_and_is_new_at_every_start() -> None:
    identities = {sidecar_on(ListedKube()).here().identity for _ in range(50)}
    assert len(identities) > 1
    assert all(identity.split("-", 2)[2] == f"{samples.DRIVER}-foo" for identity in identities)


def test_states_of_the_doors_as_health() -> None:
    assert health_of_link(link.Ready(samples.info())) == OK()
    assert health_of_link(link.Lost("why")) == Degraded("why")
    assert health_of_link(link.Waiting("why"), since=1_767_225_600.0) == Degraded("why (since 2026-01-01T00:00:00Z)")
    assert health_of_link(link.Lost("Probe failed: the pool's key", "Probe failed")) == Degraded("Probe failed")
    assert "pool" not in str(health_of_link(link.GaveUp("the pool's key")))
    assert health_of_reflector(reflector.Synced()) == OK()
    assert health_of_reflector(reflector.Denied("why")) == Degraded("why")
    assert health_of_reflector(reflector.Off("why")) == Stopped("off: why")
