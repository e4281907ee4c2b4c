"""Holds the stores that several rooms read, one for each kind of object. `watching` keeps them up to date."""

from dataclasses import dataclass

from sidecar.kube.api import Change
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.objects import Attachment, Claim, Class, Json, Volume


@dataclass(frozen=True, slots=True)
class Caches:
    """One store per kind of object. Each index is there because some room looks objects up by it."""

    claims: Store[Claim]
    classes: Store[Class]
    volumes: Store[Volume]
    attachments: Store[Attachment]

    def write_through(self, before: Claim, written: Json) -> None:
        """Puts the API server's answer to a write into the cache, so that no rule decides on the claim as it was before the write. If the
        watch was faster, the cache no longer holds `before` and stays as it is."""
        held = self.claims.get(before.uid)
        if written and held is not None and held.resource_version == before.resource_version:
            self.claims.apply(Change(before.uid, held, Claim.of(written, keep_whole=True)))

    @classmethod
    def empty(cls) -> "Caches":
        return cls(
            claims=Store({"class": lambda claim: (claim.class_name,), "node": lambda claim: (claim.selected_node,), "source": cloned_from}),
            classes=Store(),
            volumes=Store(
                {"claim": lambda volume: (volume.claim.full_name,) if volume.claim else (), "handle": lambda volume: (volume.handle,)}
            ),
            attachments=Store({"volume": lambda attachment: (attachment.volume,)}),
        )


def cloned_from(claim: Claim) -> tuple[str, ...]:
    """The keys of a claim in the index `source`: the full name of the claim that this one is to be cloned from."""
    source = claim.source
    return (f"{source.namespace}/{source.name}",) if source is not None and source.kind == names.CLAIM else ()
