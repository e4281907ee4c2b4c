"""The volume binder and the protection of claims and volumes in use."""

from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from tests.contract_control_plane.land import IMMEDIATE, LATE, Land, bound, is_bound


async def is_going(land: Land, name: str) -> bool:
    return "deletionTimestamp" in (await land.get_claim(name))["metadata"]


async def gone(land: Land, resource: object, name: str) -> bool:
    return not await land.exists(resource, name)  # type: ignore[arg-type]


async def test_an_immediate_claim_is_given_to_its_provisioner_by_both_annotations(land: Land) -> None:
    await land.begin()
    await land.storage_class("now", IMMEDIATE)
    await land.claim("data", "now")

    async def asked() -> bool:
        notes = await land.notes("data")
        return [notes.get(key) for key in (names.STORAGE_PROVISIONER, names.STORAGE_PROVISIONER_BETA)] == [land.driver] * 2

    await land.until(asked, "both annotations name the driver")
    assert await land.phase(CLAIMS, "data") == "Pending"


async def test_a_late_binding_claim_is_given_to_its_provisioner_only_when_a_node_is_selected(land: Land) -> None:
    await land.begin()
    await land.storage_class("late", LATE)
    await land.claim("data", "late")

    async def asked() -> bool:
        return names.STORAGE_PROVISIONER in await land.notes("data")

    async def not_asked() -> bool:
        return not await asked()

    await land.always(not_asked, "nobody was asked yet")
    await land.select("data", "n1")
    await land.until(asked, "the driver is asked")


async def test_a_claim_older_than_its_class_is_given_to_the_provisioner_when_the_class_comes(land: Land) -> None:
    await land.begin()
    await land.claim("data", "now")

    async def asked() -> bool:
        return names.STORAGE_PROVISIONER in await land.notes("data")

    async def not_asked() -> bool:
        return not await asked()

    await land.always(not_asked, "nobody knows whom to ask", seconds=0.5)
    await land.storage_class("now", IMMEDIATE)

    await land.until(asked, "the driver is asked")


async def test_a_volume_made_for_a_claim_is_bound_to_it(land: Land) -> None:
    await land.begin()
    _, volume = await bound(land)
    claim, made = await land.get_claim("data"), await land.api.get(VOLUMES, volume)
    assert claim["spec"]["volumeName"] == volume
    notes = claim["metadata"]["annotations"]
    assert {key: notes.get(f"pv.kubernetes.io/{key}") for key in ("bind-completed", "bound-by-controller")} == {
        "bind-completed": "yes",
        "bound-by-controller": "yes",
    }
    assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert made["status"]["phase"] == "Bound"


async def test_a_second_volume_that_was_made_for_a_claim_is_released(land: Land) -> None:
    await land.begin()
    claim, first = await bound(land)
    second = await land.volume(claim, prefix="second")

    async def released() -> bool:
        return await land.phase(VOLUMES, second) == "Released"

    await land.until(released, "the second volume is released")
    assert await land.phase(VOLUMES, first) == "Bound" and (await land.get_claim("data"))["spec"]["volumeName"] == first


async def test_a_deleted_claim_stays_while_a_scheduled_pod_uses_it(land: Land) -> None:
    await land.begin("n1")
    _, volume = await bound(land, finalizer="test/keep")
    await land.pod("app", "data", nodeName=land.own("n1"))
    await land.until(lambda: running(land, "app"), "the pod runs")
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.always(lambda: is_going(land, "data"), "the claim stays")
    assert await land.phase(VOLUMES, volume) == "Bound"
    await land.api.delete(PODS, "app", namespace=land.namespace)
    await land.until(lambda: gone(land, CLAIMS, "data"), "the claim goes with the pod")


async def running(land: Land, name: str) -> bool:
    return await land.phase(PODS, name) == "Running"


async def test_a_deleted_claim_goes_at_once_if_its_pod_is_not_scheduled(land: Land) -> None:
    await land.begin()
    await land.storage_class("late", LATE)
    await land.claim("data", "late")
    await land.pod("app", "data")
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.until(lambda: gone(land, CLAIMS, "data"), "the claim goes")
    assert await land.exists(PODS, "app")


async def test_a_volume_is_released_when_its_claim_is_gone(land: Land) -> None:
    await land.begin()
    claim, volume = await bound(land, finalizer="test/keep")
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.until(lambda: has_phase(land, volume, "Released"), "the volume is released")
    made = await land.api.get(VOLUMES, volume)
    assert made["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert "deletionTimestamp" not in made["metadata"]


async def has_phase(land: Land, volume: str, phase: str) -> bool:
    return await land.phase(VOLUMES, volume) == phase


async def test_a_volume_is_released_even_if_a_namesake_of_its_claim_is_there(land: Land) -> None:
    await land.begin()
    claim, _ = await bound(land)
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.until(lambda: gone(land, CLAIMS, "data"), "the claim goes")
    other = await land.claim("data", "now")
    claim["metadata"] |= {"uid": claim["metadata"]["uid"][::-1]}
    volume = await land.volume(claim)
    await land.until(lambda: has_phase(land, volume, "Released"), "a volume for a claim that never was is released")
    assert (await land.get_claim("data"))["metadata"]["uid"] == other["metadata"]["uid"]
    assert not await is_bound(land, "data")


async def test_a_volume_made_for_a_claim_that_is_gone_is_released(land: Land) -> None:
    await land.begin()
    await land.storage_class("now", IMMEDIATE)
    claim = await land.claim("data", "now")
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.until(lambda: gone(land, CLAIMS, "data"), "the claim goes")
    volume = await land.volume(claim)
    await land.until(lambda: has_phase(land, volume, "Released"), "the volume is released")


async def test_a_bound_volume_that_is_deleted_stays_until_its_claim_is_gone(land: Land) -> None:
    await land.begin()
    _, volume = await bound(land)
    await land.api.delete(VOLUMES, volume)
    await land.always(lambda: has_phase(land, volume, "Bound"), "the volume stays")
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.until(lambda: gone(land, VOLUMES, volume), "the volume goes with its claim")


async def test_a_claim_whose_volume_is_gone_is_lost(land: Land) -> None:
    await land.begin()
    _, volume = await bound(land)
    await land.api.delete(VOLUMES, volume)
    free = {"metadata": {"finalizers": None}}
    await land.api.patch(VOLUMES, volume, free, content_type=MERGE_PATCH)

    async def lost() -> bool:
        return await land.phase(CLAIMS, "data") == "Lost"

    await land.until(lost, "the claim is lost")


async def test_a_volume_for_nobody_is_available(land: Land) -> None:
    await land.begin()
    name = land.own("spare")
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": land.driver, "volumeHandle": "spare"},
    }
    await land.api.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await land.until(lambda: has_phase(land, name, "Available"), "the volume is available")
