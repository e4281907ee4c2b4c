"""Where a volume can be reached from: segments, as drivers report them, and the terms of node selectors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.model.label_syntax import flaw_of_label


@dataclass(frozen=True, slots=True)
class Segment:
    """Sorted (key, value) pairs, so that two with the same pairs are equal. An empty one means no topology, and matches nothing."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> "Segment":
        return cls(tuple(sorted(labels.items())))

    def labels(self) -> dict[str, str]:
        return dict(self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __lt__(self, other: "Segment") -> bool:
        return self.pairs < other.pairs

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.pairs) or "(none)"

    def flaw(self) -> str:
        """Why the API server takes it into no affinity and no selector; empty: it does."""
        return next((why for key, value in self.pairs if (why := flaw_of_label(key, value))), "")

    def within(self, other: "Segment") -> bool:
        """Every pair of this one is also a pair of the other."""
        return set(self.pairs) <= set(other.pairs)


_NAME: Final = "metadata.name"
"""The only field of a node that a term may ask for."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One match expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _compares(self.operator, value, self.values)
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold. A term without any matches no node; nor can one that asks for node fields match by labels alone."""

    requirements: tuple[Requirement, ...]
    has_fields: bool = False
    fields: tuple[Requirement, ...] = ()
    """The requirements on node fields; empty where they were not kept."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements) and not self.has_fields and all(item.holds(labels) for item in self.requirements)

    def matches(self, node: str, labels: Mapping[str, str]) -> bool:
        """Like `holds`, for a node whose name is known too."""
        if not self.has_fields:
            return self.holds(labels)
        return bool(self.fields) and self._names(node) and all(item.holds(labels) for item in self.requirements)

    def may_hold(self, labels: Mapping[str, str]) -> bool:
        """Nothing in these labels contradicts it. Keys that are not among them may have any value."""
        return all(item.holds(labels) for item in self.requirements if item.key in labels)

    def may_match(self, node: str, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements or self.has_fields) and self._names(node) and self.may_hold(labels)

    def names_values(self, labels: Mapping[str, str]) -> bool:
        """It lists allowed values for one of these keys."""
        return any(item.key in labels and item.operator == "In" for item in self.requirements)

    def _names(self, node: str) -> bool:
        return all(item.holds({_NAME: node}) for item in self.fields)

    def names_only(self, node: str, places: Iterable["Segment"]) -> bool:
        """It matches this node alone by name, or all pairs of one of these segments with no other values."""
        if any(item == Requirement(_NAME, "In", (node,)) for item in self.fields):
            return True
        return any(place and all(Requirement(key, "In", (value,)) in self.requirements for key, value in place.pairs) for place in places)


def terms_of(selector: Mapping[str, Any] | None) -> tuple[Term, ...]:
    """The terms of `nodeAffinity.required`, from plain JSON."""
    return tuple(_term(term) for term in (selector or {}).get("nodeSelectorTerms") or ())


def accessible(terms: Iterable[Term], segment: Segment) -> bool:
    """Terms are alternatives, so one that holds is enough. Without any term nothing is accessible."""
    labels = segment.labels()
    return any(term.holds(labels) for term in terms)


def allows(allowed: Iterable[Mapping[str, tuple[str, ...]]], segment: Segment) -> bool:
    """A class's allowedTopologies: some term allows the segment's value for each of its keys."""
    labels = segment.labels()
    return any(term and all(labels.get(key) in values for key, values in term.items()) for term in allowed)


def _term(term: Mapping[str, Any]) -> Term:
    labels, fields = (tuple(_requirement(item) for item in term.get(key) or ()) for key in ("matchExpressions", "matchFields"))
    return Term(labels, bool(fields), fields)


def _requirement(item: Mapping[str, Any]) -> Requirement:
    return Requirement(str(item.get("key", "")), str(item.get("operator", "")), tuple(item.get("values") or ()))


def _compares(operator: str, value: str | None, bounds: tuple[str, ...]) -> bool:
    try:
        left, right = int(value or ""), int(bounds[0]) if len(bounds) == 1 else None
    except ValueError:
        return False
    if right is None:
        return False
    return left > right if operator == "Gt" else left < right
