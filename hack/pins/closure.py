"""What a requirement needs in turn, on every machine that the image is for. Pure: what packages require is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hack.pins.pin import Pin, simple


@dataclass(frozen=True, slots=True)
class Target:
    """Linux with glibc. Bases of the image may be any of TARGETS."""

    python: str
    machine: str

    @property
    def markers(self) -> dict[str, str]:
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": self.machine,
        }


PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")  # linux/amd64 and linux/arm64
TARGETS = tuple(Target(python, machine) for python in PYTHONS for machine in MACHINES)


def needed(roots: Iterable[str], requires: Mapping[str, Sequence[str]], targets: Sequence[Target] = TARGETS) -> dict[str, SpecifierSet]:
    """All that the roots need on any of the targets, by what each package requires; one that is not told of requires nothing.

    The versions of each are those that suit everyone who asks for it.
    """
    found: dict[str, SpecifierSet] = {}
    for target in targets:
        ahead = [requirement for root in roots if _applies(requirement := Requirement(root), "", target)]
        seen: set[tuple[str, frozenset[str], str]] = set()
        while ahead:
            requirement = ahead.pop()
            name, extras = simple(requirement.name), frozenset(requirement.extras)
            key = name, extras, str(requirement.specifier)
            if key in seen:
                continue
            seen.add(key)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
            for text in requires.get(name, ()):
                asked = Requirement(text)
                if any(_applies(asked, extra, target) for extra in ("", *extras)):
                    ahead.append(asked)
    return found


def _applies(requirement: Requirement, extra: str, target: Target) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**target.markers, "extra": extra})


def unmet(roots: Iterable[str], pins: Mapping[str, Pin]) -> list[str]:
    """Those of the requirements that no pin meets."""
    found = []
    for root in roots:
        requirement = Requirement(root)
        pin = pins.get(simple(requirement.name))
        if pin is None or not requirement.specifier.contains(pin.version, prereleases=True):
            found.append(f"{root} ({f'pinned: {pin.version}' if pin else 'not pinned'})")
    return found
