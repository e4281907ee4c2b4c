"""Takes off claims what a peer has noted there while this node was missed: its machine is back, and what it has is its own business again.

Only the node of that name does so, for it alone knows that the data is not lost with the machine that the mark names. Until then the mark
does no harm but that such a replica is not made anew on purpose: no claim is deleted for a machine whose name a Node has.
"""

import logging
from collections.abc import Callable, Iterable

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.things import ClaimThere
from sidecar.kube.api import CLAIMS, MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.model import names
from sidecar.model.objects import Claim

log = logging.getLogger(__name__)


class Returned:
    """`claims`: those that concern this node, from the cache."""

    def __init__(self, kube: KubeApi, *, claims: Callable[[], Iterable[Claim]], dry_run: bool) -> None:
        self._kube, self._claims, self._dry_run = kube, claims, dry_run

    async def take_marks_off(self, machine: Machine) -> list[str]:
        """`machine`: this one. Returns what was refused: it must not keep this node from looking for others. Raises ApiError."""
        refused = []
        marked = [claim for claim in self._claims() if names_former(dict(claim.notes).get(names.LOST_WITH, ""), machine)]
        for claim in marked if not self._dry_run else ():
            found = await find(self._kube, CLAIMS, claim.name, namespace=claim.namespace)
            there = ClaimThere.of(found) if found is not None else None
            if there is None or there.deleting or not names_former(there.lost_with, machine):
                continue
            patch = {"metadata": {"uid": there.uid, "resourceVersion": there.resource_version, "annotations": {names.LOST_WITH: None}}}
            try:
                await self._kube.patch(CLAIMS, claim.name, patch, content_type=MERGE_PATCH, namespace=claim.namespace)
            except (Conflict, NotFound):
                continue  # the next look
            except ApiError as error:
                refused.append(f"{names.LOST_WITH} could not be taken off claim {claim.full_name}: {error}")
                continue
            fields = {"claim": claim.full_name, "was": there.lost_with}
            log.info("Taken off a claim that its data was lost: this node is there again", extra={"fields": fields})
        return refused


def names_former(mark: str, machine: Machine) -> bool:
    """It names an earlier machine of this node's name."""
    said = machine_mark.parse(mark)
    return said is not None and said.node == machine.node and said != machine
