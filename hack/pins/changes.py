"""What a renewal changes, as a reader of SBOMs wants it: each package that came, went or is another, with its licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hack.pins.pin import Pin, simple

Pins = Mapping[str, Pin]


@dataclass(frozen=True, slots=True)
class Change:
    before: Pin | None
    after: Pin | None
    places: tuple[str, ...]  # the files, by their short names, in which it is another

    @property
    def name(self) -> str:
        pin = self.after or self.before
        assert pin
        return pin.name

    @property
    def kind(self) -> str:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "changed" if self.before.version != self.after.version else "hashes"


def compared(before: Mapping[str, Pins], after: Mapping[str, Pins]) -> list[Change]:
    """Both by place. A package that leaves one place and stays in another is told for the one that it leaves."""
    found: dict[tuple[Pin | None, Pin | None], list[str]] = {}
    for place, new in after.items():
        old = before.get(place, {})
        for name in {*old, *new}:
            one, two = old.get(name), new.get(name)
            if one is None or two is None or (one.version, one.hashes) != (two.version, two.hashes):
                found.setdefault((_bare(one, two), _bare(two, one)), []).append(place)
    changes = [Change(one, two, tuple(places)) for (one, two), places in found.items()]
    return sorted(changes, key=lambda change: (simple(change.name), change.places))


def _bare(pin: Pin | None, other: Pin | None) -> Pin | None:
    """Without hashes where the version tells the difference, so that places with and without hashes share a line."""
    if pin and (other is None or pin.version != other.version):
        return Pin(pin.name, pin.version)
    return pin


def lines(changes: list[Change], licences_before: Mapping[str, str], licences_after: Mapping[str, str]) -> list[str]:
    rows = [("", "package", "before", "after", "licence", "where")]
    for change in changes:
        one, two = change.before, change.after
        told = [told.get(simple(change.name), "not known") for pin, told in ((one, licences_before), (two, licences_after)) if pin]
        licence = " -> ".join(dict.fromkeys(told))
        versions = one.version if one else "-", two.version if two else "-"
        if change.kind == "hashes" and one and two:
            versions = f"{one.version}, {len(one.hashes)} files", f"{len(two.hashes)} files"
        rows.append((change.kind, change.name, *versions, licence, ", ".join(change.places)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows] if changes else []
