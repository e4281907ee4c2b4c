"""Takes the marks off the claims that a Lease of this node names, where this process makes no replica anew."""

from sidecar.drain.leases import Lease
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision import effects_io, record
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.settings import Settings
from sidecar.kube.api import KubeApi
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model.nodes import Node


async def unmark(kube: KubeApi, settings: Settings, lease: Lease, node: Node) -> None:
    """Where the right to do it went with the flag they stay: the mark of a machine that makes nothing anew stands for nothing."""
    found = record.of(lease, driver=settings.driver)
    if found is None:
        return
    reading = Reading(kube, settings.node, settings.driver)
    for wanted in found.target.claims:
        try:
            claim = await reading.claim(found.target.namespace, wanted.name)
            if claim is None or claim.claim.uid != wanted.uid or claim.claim.deleting:
                continue
            if claim.words.marked_by == Machine(node.name, node.uid):
                await effects_io.unmark(kube, claim)
        except (Forbidden, NotFound):
            continue
