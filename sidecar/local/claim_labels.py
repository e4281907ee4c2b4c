"""Which claims a node hears of where an admission policy labels them (deploy/components/scoped-watches), and whether that policy works.

A claim whose label is not what `names.claim_label` says was written while the policy was away, so there may be others that nobody hears
of. Then all claims are heard, until a claim that was made since has the right label and a list of all shows no later wrong one.

What is older says nothing of the policy, and may stay for ever: a claim that nobody may write gets no label. It is worked on all the same.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.model import names
from sidecar.model.objects import Json, claim_provisioner, selected_node

EVERYTHING: Final = ""
REMEDY: Final = "see that deploy/components/scoped-watches is installed; `csi-node-sidecar label` labels claims that are older"
UNLABELLED: Final = f"!{names.CLAIM_LABEL}"
WAITING: Final = f"{names.CLAIM_LABEL}={names.WAITING_CLAIM}"

# Seconds without a wrong label before all claims are looked through. Each look that finds one doubles it.
_QUIET: Final = 300.0
_LONGEST_QUIET: Final = 1800.0
# What is wrong again within this time is wrong often, as where the policy is bound for some namespaces only.
_SOON: Final = 3600.0


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


@dataclass(frozen=True, slots=True)
class Written:
    """When a claim was last written and when it was made, in the API server's own words. Of several claims: the latest of each."""

    version: int = 0
    created: str = ""

    def is_after(self, other: "Written") -> bool:
        """In one of the two: versions go back with a backup that is restored, and who is written last need not be the youngest."""
        return self.version > other.version or self.created > other.created

    def latest(self, other: "Written") -> "Written":
        return Written(max(self.version, other.version), max(self.created, other.created))


def written(obj: Json) -> Written:
    """The version of what is being deleted does not count: to mark it for that is a write that no policy sees."""
    meta = obj["metadata"]
    version = str(meta.get("resourceVersion") or "")
    counts = version.isdecimal() and "deletionTimestamp" not in meta
    return Written(int(version) if counts else 0, str(meta.get("creationTimestamp") or ""))


@dataclass(frozen=True, slots=True)
class Flaw:
    """A wrong label."""

    why: str
    is_missing: bool
    """It is not there at all, so every node hears of the claim."""
    written: Written

    @staticmethod
    def of(why: str, obj: Json) -> "Flaw":
        return Flaw(why, names.CLAIM_LABEL not in (obj["metadata"].get("labels") or {}), written(obj))

    def latest(self, other: "Flaw | None") -> "Flaw":
        """One that counts if either does."""
        if other is None:
            return self
        later = self if self.written.version >= other.written.version else other
        return replace(later, written=self.written.latest(other.written))


def why_wrong(obj: Json, *, driver: str, is_ours: Callable[[str], bool]) -> str:
    """What is wrong with the label of a claim of this driver; empty: nothing, or the claim is no business of ours.

    `is_ours` says of a class's name whether it is this driver's: a late claim names no driver before it has a node.
    """
    if is_right(obj):
        return ""
    provisioner, meta = claim_provisioner(obj), obj["metadata"]
    class_name = (meta.get("annotations") or {}).get(names.STORAGE_CLASS_BETA, (obj.get("spec") or {}).get("storageClassName") or "")
    if provisioner != driver and (provisioner or not is_ours(class_name)):
        return ""
    return f"claim {meta.get('namespace')}/{meta['name']} has {label_of(obj) or 'no label'} where {right_label(obj)} should be"


def not_trusted(why: str) -> str:
    """What follows from a wrong label, as log, event and health say it."""
    return f"the labels of claims cannot be trusted, so this node hears of all claims: {why}"


@dataclass(frozen=True, slots=True)
class Trust:
    """What is known of the policy."""

    why: str = ""
    """The last wrong label that counted. Empty: the policy is believed to work."""
    flawed_at: float = 0.0
    proven: bool = False
    """A claim that was made since then has the right label."""
    looks: int = 0
    """How often in a row all hear all for longer, because something wrong was found or came soon."""
    believed_at: float = -math.inf
    right: Written = Written()
    """The latest of all claims that have the right label."""
    proof: Written = Written()
    """The claims that have proven the policy after something was wrong."""

    @property
    def is_away(self) -> bool:
        return bool(self.why)

    def counts(self, flaw: Flaw) -> bool:
        """Whether it is later than what shows that the policy worked.

        A missing label hides no claim, so for it any claim with the right label will do, although a write while the policy is away may
        leave a label right. Otherwise it is a claim that was made, and labelled, since the policy was away.
        """
        return flaw.written.is_after(self.right if flaw.is_missing else self.proof)

    def flawed(self, why: str, now: float) -> "Trust":
        looks = self.looks
        if not self.is_away:
            looks = looks + 1 if now < self.believed_at + _SOON else 0
        return replace(self, why=why, flawed_at=now, proven=False, looks=looks)

    def seen_right(self, one: Written, *, made_since: bool) -> "Trust":
        """`made_since` the last wrong label."""
        proves = made_since and self.is_away and not self.proven
        proof = self.proof.latest(one) if proves else self.proof
        return replace(self, right=self.right.latest(one), proven=self.proven or proves, proof=proof)

    def look_at(self) -> float | None:
        """When to look through all claims; None: not before something shows that the policy works again."""
        if not (self.is_away and self.proven):
            return None
        return self.flawed_at + min(_QUIET * 2.0 ** min(self.looks, 10), _LONGEST_QUIET)

    def looked(self, why: str, now: float) -> "Trust":
        """All claims have been looked through. `why` is of a wrong label that counts: then it takes another claim to prove the policy."""
        if why:
            return replace(self.flawed(why, now), looks=self.looks + 1)
        return replace(self, why="", proven=False, believed_at=now)
