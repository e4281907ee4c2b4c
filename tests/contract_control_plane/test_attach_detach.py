"""VolumeAttachments, as the attach-detach controller makes and removes them."""

import hashlib
from contextlib import suppress

from sidecar.kube.api import ATTACHMENTS, MERGE_PATCH, PODS
from sidecar.kube.errors import NotFound
from tests.contract_control_plane.land import Land, bound


async def attached(land: Land, nodes: set[str]) -> bool:
    """The driver's external-attacher is played here: whatever is wanted is attached at once."""
    found = await land.attachments()
    for name in found:
        with suppress(NotFound):  # it has been detached since
            await land.api.patch(ATTACHMENTS, name, {"status": {"attached": True}}, content_type=MERGE_PATCH, subresource="status")
    return set(found.values()) == {land.own(node) for node in nodes}


async def test_a_volume_is_attached_where_its_pod_is_and_detached_after_it(land: Land) -> None:
    await land.begin("n1", attach=True)
    _, volume = await bound(land, finalizer="test/keep")
    await land.pod("app", "data", nodeName=land.own("n1"))
    await land.until(lambda: attached(land, {"n1"}), "the volume is attached")
    (name,) = await land.attachments()
    digest = hashlib.sha256(f"{volume}{land.driver}{land.own('n1')}".encode()).hexdigest()
    assert name == f"csi-{digest}"
    spec = (await land.api.get(ATTACHMENTS, name))["spec"]
    assert spec == {"attacher": land.driver, "nodeName": land.own("n1"), "source": {"persistentVolumeName": volume}}
    await land.api.delete(PODS, "app", namespace=land.namespace)
    await land.until(lambda: attached(land, set()), "the volume is detached")


async def test_a_volume_of_one_node_is_attached_to_the_next_when_the_last_has_let_it_go(land: Land) -> None:
    await land.begin("n1", "n2", attach=True)
    await bound(land)
    await land.pod("here", "data", nodeName=land.own("n1"))
    await land.until(lambda: attached(land, {"n1"}), "the volume is attached")
    await land.pod("there", "data", nodeName=land.own("n2"))
    await land.always(lambda: attached(land, {"n1"}), "only there")
    await land.api.delete(PODS, "here", namespace=land.namespace)
    await land.until(lambda: attached(land, {"n2"}), "the volume is attached to the next")


async def test_a_driver_that_does_not_attach_gets_no_attachment(land: Land) -> None:
    await land.begin("n1", attach=False)
    await bound(land)
    await land.pod("app", "data", nodeName=land.own("n1"))
    await land.always(lambda: attached(land, set()), "nothing is attached")
