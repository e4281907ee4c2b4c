"""Which claims a node hears of where an admission policy labels them (deploy/components/scoped-watches), and whether that policy works.

A claim whose label is not what `names.claim_label` says was written while the policy was away, so there may be others that nobody hears
of. Then all claims are heard, until a claim that was made since has the right label and a list of all shows no wrong one.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sidecar.frozen import frozen
from sidecar.model import names
from sidecar.model.objects import Json, claim_provisioner, selected_node

EVERYTHING: Final = ""
UNLABELLED: Final = f"!{names.CLAIM_LABEL}"
WAITING: Final = f"{names.CLAIM_LABEL}={names.WAITING_CLAIM}"

# Seconds without a wrong label before all claims are looked through. Each look that finds one doubles it.
_QUIET: Final = 300.0
_LONGEST_QUIET: Final = 1800.0


def heard_claims(node: str, shards: Iterable[str]) -> tuple[str, ...]:
    """Label selectors: by one, the claims that are this node's and open ones; by the other what has no label, which in health is nothing.

    No claim can be this node's by label if its name can be no node's: then everything is heard.
    """
    own = names.claims_of_node(node)
    return (f"{names.CLAIM_LABEL} in ({','.join((own, *shards))})", UNLABELLED) if own else (EVERYTHING,)


def label_of(obj: Json) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.CLAIM_LABEL) or "")


def right_label(obj: Json) -> str:
    return names.claim_label(
        selected_node=selected_node(obj),
        provisioner=claim_provisioner(obj),
        volume_name=(obj.get("spec") or {}).get("volumeName") or "",
        uid=obj["metadata"]["uid"],
    )


def is_right(obj: Json) -> bool:
    """A claim that was made open has no uid while it is labelled, so until its next write it is in the shard of those."""
    has, right = label_of(obj), right_label(obj)
    return has == right or (has == names.open_claims("") and right == names.open_claims(obj["metadata"]["uid"]))


def why_wrong(obj: Json, *, driver: str, is_ours: Callable[[str], bool]) -> str:
    """What is wrong with the label of a claim of this driver; empty: nothing, or the claim is no business of ours.

    `is_ours` says of a class's name whether it is this driver's: a late claim names no driver before it has a node.
    """
    if is_right(obj):
        return ""
    provisioner, meta = claim_provisioner(obj), obj["metadata"]
    class_name = (meta.get("annotations") or {}).get(names.STORAGE_CLASS_BETA) or (obj.get("spec") or {}).get("storageClassName") or ""
    if provisioner != driver and (provisioner or not is_ours(class_name)):
        return ""
    return f"claim {meta.get('namespace')}/{meta['name']} has {label_of(obj) or 'no label'} where {right_label(obj)} should be"


@frozen
class Trust:
    """What is known of the policy."""

    why: str = ""
    """The last wrong label that was seen. Empty: the policy is believed to work."""
    flawed_at: float = 0.0
    proven: bool = False
    """A claim that was made since then has the right label."""
    looks: int = 0
    """How many looks through all claims have found a wrong one since the policy was last believed to work."""

    @property
    def is_away(self) -> bool:
        return bool(self.why)

    def flawed(self, why: str, now: float) -> "Trust":
        return replace(self, why=why, flawed_at=now, proven=False)

    def seen_right(self) -> "Trust":
        return replace(self, proven=True) if self.is_away and not self.proven else self

    def look_at(self) -> float | None:
        """When to look through all claims; None: not before something shows that the policy works again."""
        if not (self.is_away and self.proven):
            return None
        return self.flawed_at + min(_QUIET * 2.0 ** min(self.looks, 10), _LONGEST_QUIET)

    def looked(self, why: str, now: float) -> "Trust":
        """All claims have been looked through. What was found may be older than the policy, so what has proven it still does."""
        return replace(self, why=why, flawed_at=now, looks=self.looks + 1) if why else Trust()
