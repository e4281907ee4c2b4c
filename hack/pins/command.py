"""`hack/renew-constraints`: asks the index, tells what changes, and writes the files; or says whether they are what the pins need."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from hack.lib.failure import Failure
from hack.lib.progress import timed
from hack.pins import index
from hack.pins.changes import Change, compared, lines
from hack.pins.closure import TARGETS, needed, unmet
from hack.pins.pin import Pin, backend_pinned, parse, simple, written

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = "pyproject.toml"
FILES = {"tests": "hack/constraints.txt", "image": "hack/constraints-image.txt", "build": "hack/constraints-build.txt"}
ABOUT = {
    "tests": "What the tests install: versions only. Renew: hack/renew-constraints",
    "image": "What the image is made of besides our own wheel: version, and sha256 of each wheel for amd64, arm64 and Python 3.11 to 3.13",
    "build": "What builds our own wheel for the image: version, and sha256 of each wheel. Renew all of them: hack/renew-constraints",
}
DIFFERENT, FAILED = 1, 2


def run(arguments: argparse.Namespace) -> int:
    try:
        return _run(check=arguments.check, keep=arguments.check or arguments.keep_versions)
    except Failure as failure:
        sys.stderr.write(f"renew-constraints: error: {failure}\n")
        return FAILED


def _run(*, check: bool, keep: bool) -> int:
    texts = {name: file.read_text() if (file := ROOT / name).exists() else "" for name in (PYPROJECT, *FILES.values())}
    before = {place: parse(texts[file]) for place, file in FILES.items()}
    asked = roots(texts[PYPROJECT])
    missing = unmet(asked["tests"], before["tests"])
    if check and missing:
        print("not met by the pins:", *missing, sep="\n  ")
        return DIFFERENT
    with timed("asked the index"):
        after = pins(asked, within=list(before["tests"].values()) if keep else ())
    new = {file: written(after[place].values(), about=ABOUT[place]) for place, file in FILES.items()}
    new[PYPROJECT] = backend_pinned(texts[PYPROJECT], after["build"])
    different = [name for name, text in new.items() if text != texts[name]]
    for line in _told(compared(before, after)):
        print(line)
    if check:
        print(f"not what the pins need: {', '.join(different)}" if different else "the files are what the pins need")
        return DIFFERENT if different else 0
    for name in different:
        (ROOT / name).write_text(new[name])
    print(f"written: {', '.join(different)}" if different else "nothing to write")
    return 0


def roots(pyproject: str) -> dict[str, list[str]]:
    """What each file begins with. The backend's version is ours to choose, so that of pyproject.toml does not count."""
    told = tomllib.loads(pyproject)
    extras = told["project"]["optional-dependencies"]
    wheel: list[str] = told["project"]["dependencies"]
    left_out = not_in_the_image(pyproject)
    image = [text for text in wheel if simple(Requirement(text).name) not in left_out]
    build = [text.partition("==")[0] for text in told["build-system"]["requires"]]
    return {"tests": [*wheel, *extras["dev"], *extras["bench"], *build], "image": image, "build": build}


def not_in_the_image(pyproject: str) -> frozenset[str]:
    """Dependencies of the wheel, by simple name, that people's machines need and nodes do not."""
    return frozenset(map(simple, tomllib.loads(pyproject).get("tool", {}).get("csi-node-sidecar", {}).get("not-in-the-image", ())))


def pins(asked: Mapping[str, Sequence[str]], *, within: Sequence[Pin]) -> dict[str, dict[str, Pin]]:
    wanted = list(asked["tests"])
    while True:
        told = index.resolved(wanted, within=within)
        requires = {name: one.requires for name, one in told.items()}
        hashed = {place: needed(asked[place], requires) for place in ("image", "build")}
        # What another Python or architecture than this one needs.
        missing = {f"{name}{versions}" for found in hashed.values() for name, versions in found.items() if name not in told}
        if not missing:
            break
        wanted += sorted(missing)
    tests = {name: Pin(one.name, one.version) for name, one in told.items()}
    digests = index.hashes([tests[name] for name in sorted({*hashed["image"], *hashed["build"]})], TARGETS)
    with_hashes = {
        place: {name: Pin(tests[name].name, tests[name].version, digests[name]) for name in names} for place, names in hashed.items()
    }
    return {"tests": tests, **with_hashes}


def _told(changes: list[Change]) -> list[str]:
    new = [change.after for change in changes if change.after]
    before = {simple(change.name): _licence_here(change.before) for change in changes if change.before}
    unchanged = {simple(pin.name) for pin in new if _licence_here(pin) != UNKNOWN}
    after = {simple(pin.name): _licence_here(pin) for pin in new}
    after |= index.licences({pin.name: pin for pin in new if simple(pin.name) not in unchanged}.values())
    return lines(changes, before, after)


UNKNOWN = "not known"


def _licence_here(pin: Pin) -> str:
    """From what is installed here, where that is the same version."""
    try:
        found = metadata.metadata(pin.name)
    except metadata.PackageNotFoundError:
        return UNKNOWN
    if found["Version"] != pin.version:
        return UNKNOWN
    return index.licence(
        {name: found[name] for name in ("License-Expression", "License") if name in found}, found.get_all("Classifier") or []
    )
