"""Says what is kept of claims, volumes and classes where another program provisions: what drain decisions judge by, and nothing to work on.

Nobody is woken here. The drain room names the same stores in its own watches, and is woken by these.
"""

from typing import Any

from sidecar.kube.api import CLAIMS, CLASSES, VOLUMES, Change
from sidecar.kube.event_prefix import EventPrefix
from sidecar.kube.store import by_uid
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.local.raw_filter import is_foreign_claim, is_foreign_volume
from sidecar.local.volume_location import found_here
from sidecar.local.watch import Watch
from sidecar.model.objects import Claim, Class, Json, Volume, claim_provisioner, selected_node


def watches(here: Here, caches: Caches) -> list[Watch[Any]]:
    return [_claims(here, caches), _volumes(here, caches), _classes(here, caches)]


def _claims(here: Here, caches: Caches) -> Watch[Claim]:
    """Those that wait for a volume on this node. Somebody may be making it."""

    def project(obj: Json) -> Claim | None:
        waits = not (obj.get("spec") or {}).get("volumeName") and selected_node(obj) == here.node
        return Claim.of(obj) if waits and claim_provisioner(obj) == here.driver.name else None

    def skip(prefix: EventPrefix, line: bytes) -> bool:
        return prefix.uid not in caches.claims and is_foreign_claim(line, here)

    return Watch(resource=CLAIMS, store=caches.claims, project=project, wakes=_nobody, skip=skip, key_of=by_uid, required=True)


def _volumes(here: Here, caches: Caches) -> Watch[Volume]:
    def skip(prefix: EventPrefix, line: bytes) -> bool:
        return prefix.name not in caches.volumes and is_foreign_volume(line, here)

    return Watch(
        resource=VOLUMES,
        store=caches.volumes,
        project=lambda obj: found_here(here, obj),
        wakes=_nobody,
        skip=skip,
        # Heard whole, whatever label of ours one has: a backup brings labels back that some other node's sidecar once wrote.
        watch_selectors=(),
        required=True,
    )


def _classes(here: Here, caches: Caches) -> Watch[Class]:
    def project(obj: Json) -> Class | None:
        return Class.of(obj) if obj.get("provisioner") == here.driver.name else None

    return Watch(resource=CLASSES, store=caches.classes, project=project, wakes=_nobody, required=True)


def _nobody(_change: Change[Any]) -> None:
    """The drain room hears of it too."""
