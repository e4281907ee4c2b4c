"""Which objects this room keeps, and which change wakes which claim or volume. What is then done is decided in the room's rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sidecar.csi.api import CLONE_VOLUME, PUBLISH_UNPUBLISH_VOLUME, DriverInfo
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, VOLUMES, Change
from sidecar.kube.event_prefix import EventPrefix
from sidecar.kube.selected import Selected
from sidecar.kube.store import by_uid
from sidecar.local.caches import Caches
from sidecar.local.claim_labels import UNLABELLED
from sidecar.local.here import Here
from sidecar.local.raw_filter import is_bound_claim, is_foreign_claim, is_foreign_volume
from sidecar.local.volume_location import found_here, heard_volumes
from sidecar.local.watch import Watch
from sidecar.model.objects import (
    Attachment,
    Claim,
    ClaimRef,
    Class,
    Json,
    Volume,
    claim_provisioner,
    is_source_that_leaves,
    selected_node,
)
from sidecar.provisioning.volume_rules import was_merely_bound

Wake = Callable[[str], None]
"""Puts a key into a queue, to be looked at now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningWatches:
    """`concerns` says of a claim's uid whether something is under way for it here; the others are told, of `volumes_listed` when a list
    of all volumes is complete."""

    here: Callable[[], Here]
    caches: Caches
    concerns: Callable[[str], bool]
    volume_gone: Callable[[str], None]
    volume_seen: Callable[[str, Volume | None], None]
    volumes_listed: Callable[[], None]
    volume_not_kept: Callable[[Json], float | None]
    """Of a PersistentVolume that the cache does not keep: when it is to be looked at all the same."""
    promise_changed: Callable[[str], None]
    claim_seen: Callable[[Json], None]
    """Told of each claim that is read."""
    claim_selectors: tuple[str, ...]
    """By which claims are watched at first, if that may change; none: all are watched."""
    may_have_begun: Callable[[str], bool]
    """Of a claim's uid: whether a creation may be running here."""
    wake_claim: Wake
    wake_volume: Wake
    wake_volume_at: Callable[[str, float], None]

    def watches(self) -> list[Watch[Any]]:
        """Attachments only for a driver that attaches: upstream's role grants them to such drivers alone."""
        attaches = PUBLISH_UNPUBLISH_VOLUME in self.here().driver.controller
        return [self._claims(), self._volumes(), self._classes(), *([self._attachments()] if attaches else [])]

    def wake_claims(self, uids: Iterable[str] = ()) -> None:
        """Every claim that is kept, and these."""
        for uid in (*self.caches.claims.keys(), *uids):
            self.wake_claim(uid)

    def wake_volumes(self) -> None:
        for name in self.caches.volumes.keys():  # noqa: SIM118
            self.wake_volume(name)

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claims(self) -> Watch[Claim]:
        here = self.here()

        def skip(prefix: EventPrefix, line: bytes) -> bool:
            held = prefix.uid in self.caches.claims or self.concerns(prefix.uid)
            return not held and (is_foreign_claim(line, here) or is_bound_claim(line))

        return Watch(
            resource=CLAIMS,
            store=self.caches.claims,
            project=lambda obj: self._claim(obj, here),
            wakes=lambda change: self._claim_changed(change, here.node),
            skip=skip,
            key_of=by_uid,
            selected=self._selected(),
            required=True,
        )

    def _selected(self) -> Selected[Claim] | None:
        if not self.claim_selectors:
            return None
        return Selected(
            selectors=self.claim_selectors,
            place_of=lambda claim: (claim.namespace, claim.name),
            version_of=lambda claim: claim.resource_version,
            is_under_way=self.may_have_begun,
            silent=frozenset({UNLABELLED}),
        )

    def _claim(self, obj: Json, here: Here) -> Claim | None:
        """Claims of other drivers, nodes and times are dropped, unless something here is still under way for one."""
        self.claim_seen(obj)
        provisioner, bound = claim_provisioner(obj), bool((obj.get("spec") or {}).get("volumeName"))
        if not provisioner and bound and self._is_to_release(obj):
            return Claim.of(obj, keep_whole=True)  # somebody bound it by hand, and this driver may have cloned it all the same
        if provisioner != here.driver.name:
            return None
        waits = not bound and selected_node(obj) in ("", here.node)
        # Most events are of claims that other nodes have: of those not even the record is made.
        wanted = waits or self.concerns(obj["metadata"]["uid"]) or self._is_to_release(obj)
        return Claim.of(obj, keep_whole=True) if wanted else None

    def _is_to_release(self, obj: Json) -> bool:
        """The driver may have learnt to clone since this process began."""
        return is_source_that_leaves(obj) and CLONE_VOLUME in self.here().driver.controller

    def _claim_changed(self, change: Change[Claim], node: str) -> None:
        self.wake_claim(change.key)
        ours = [claim for claim in (change.old, change.new) if claim is not None and claim.selected_node == node]
        if len(ours) == 1:
            self.promise_changed(ours[0].class_name)

    # --- volumes ------------------------------------------------------------------------------------------------------

    def _volumes(self) -> Watch[Volume]:
        here = self.here()

        def skip(prefix: EventPrefix, line: bytes) -> bool:
            return prefix.name not in self.caches.volumes and is_foreign_volume(line, here)

        return Watch(
            resource=VOLUMES,
            store=self.caches.volumes,
            project=lambda obj: self._volume(obj, here),
            wakes=self._volume_changed,
            skip=skip,
            watch_selectors=heard_volumes(here),
            begins_selected=bool(self.claim_selectors),
            required=True,
            on_list=self.volumes_listed,
        )

    def _volume(self, obj: Json, here: Here) -> Volume | None:
        if (volume := found_here(here, obj)) is not None:
            return volume
        at = self.volume_not_kept(obj)
        if at is not None:
            self.wake_volume_at(obj["metadata"]["name"], at)
        return None

    def _volume_changed(self, change: Change[Volume]) -> None:
        self.volume_seen(change.key, change.new)
        if not was_merely_bound(change.old, change.new):
            self.wake_volume(change.key)
        old, new = (volume.claim if volume else None for volume in (change.old, change.new))
        if change.new is None and old is not None:
            self.volume_gone(old.uid)
            self.wake_claim(old.uid)
        if new is not None and new != old:
            self._wake_clones(new)

    def _wake_clones(self, source: ClaimRef) -> None:
        """That claim has its volume here now: what is to be cloned from it may begin, and what keeps it while it is deleted may go."""
        for claim in self.caches.claims.by_index("source", f"{source.namespace}/{source.name}"):
            self.wake_claim(claim.uid)
        bound = self.caches.claims.get(source.uid)
        if bound is not None and bound.deleting:
            self.wake_claim(bound.uid)

    # --- classes and attachments ----------------------------------------------------------------------------------------

    def _classes(self) -> Watch[Class]:
        driver = self.here().driver.name

        def wakes(change: Change[Class]) -> None:
            for claim in self.caches.claims.by_index("class", change.key):
                self.wake_claim(claim.uid)

        return Watch(
            resource=CLASSES,
            store=self.caches.classes,
            project=lambda obj: Class.of(obj) if obj.get("provisioner") == driver else None,
            wakes=wakes,
            required=True,
        )

    def _attachments(self) -> Watch[Attachment]:
        def wakes(change: Change[Attachment]) -> None:
            for attachment in (change.old, change.new):
                if attachment is not None and attachment.volume in self.caches.volumes:
                    self.wake_volume(attachment.volume)

        return Watch(resource=ATTACHMENTS, store=self.caches.attachments, project=Attachment.of, wakes=wakes, optional=True)


def attachments_known(driver: DriverInfo, *, synced: bool) -> bool:
    """A driver may learn to attach when it is updated under us; then nothing is watched, and nothing is known."""
    return synced or PUBLISH_UNPUBLISH_VOLUME not in driver.controller
