"""Decides who makes a claim again once it is deleted: the StatefulSet that templates it, or somebody whom a person vouches for.

A claim that nobody makes again takes the application with it, so whoever deletes claims asks here first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.wording import quoted
from sidecar.model import names

_YES: Final = "true"


@dataclass(frozen=True, slots=True)
class ReplicatedSet:
    """A StatefulSet, with what says which claims it makes."""

    namespace: str
    name: str
    uid: str
    templates: frozenset[str]
    """Names of its claim templates."""
    first: int
    """The lowest ordinal."""
    replicas: int
    deleting: bool

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "ReplicatedSet":
        meta, spec = obj["metadata"], _mapping(obj, "spec")
        templates = spec.get("volumeClaimTemplates")
        found = [_mapping(item, "metadata").get("name") for item in templates if isinstance(item, Mapping)] if templates else []
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            templates=frozenset(name for name in found if isinstance(name, str)),
            first=_count(_mapping(spec, "ordinals").get("start"), absent=0),
            replicas=_count(spec.get("replicas"), absent=1),
            deleting="deletionTimestamp" in meta,
        )

    def template_of(self, claim: str) -> tuple[str, int] | None:
        """The template and the ordinal in the name of a claim; None: it is no name that this set gives."""
        head, _, ordinal = claim.rpartition("-")
        template = head.removesuffix(f"-{self.name}")
        canonical = ordinal.isascii() and ordinal.isdecimal() and str(int(ordinal)) == ordinal if len(ordinal) <= _DIGITS else False
        return (template, int(ordinal)) if canonical and template != head and template in self.templates else None


_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim, as far as it matters here."""

    namespace: str
    name: str
    word: str | None
    """What a person has written as `names.ALLOW_CLAIM_DELETION`; None: nothing."""
    of_pod: bool = False
    """A pod owns it: it is for a generic ephemeral volume."""


@dataclass(frozen=True, slots=True)
class Remade:
    """Once it is deleted, it is made again."""

    by: str


@dataclass(frozen=True, slots=True)
class NotRemade:
    """Nobody is known to make it again."""

    why: str


def who_remakes(claim: LostClaim, sets: Iterable[ReplicatedSet]) -> Remade | NotRemade:
    """`sets`: the StatefulSets of its namespace, as they are now."""
    if claim.of_pod:
        return NotRemade("it belongs to its pod, and goes with that")
    if claim.word == _YES:
        return Remade(f"whoever has annotated it with {names.ALLOW_CLAIM_DELETION}: {_YES}")
    wrong = f"; the annotation {names.ALLOW_CLAIM_DELETION} says {quoted(claim.word)} and not {_YES!r}" if claim.word else ""
    for each in sets:
        if each.namespace != claim.namespace or (found := each.template_of(claim.name)) is None:
            continue
        if each.deleting:
            return NotRemade(f"StatefulSet {each.name} is being deleted{wrong}")
        if not each.first <= found[1] < each.first + each.replicas:
            # A condemned replica's claim is left to the set's own retention policy.
            return NotRemade(f"StatefulSet {each.name} has no replica {found[1]} any more{wrong}")
        return Remade(f"StatefulSet {each.name}, of which it is replica {found[1]}")
    return NotRemade(f"no StatefulSet has a template for it{wrong}")


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _count(value: object, *, absent: int) -> int:
    """What is no number of replicas counts as none of them, so that no claim is among them."""
    if value is None:
        return absent
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
