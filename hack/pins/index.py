"""Asks the package index, by pip alone and as this machine's pip is set up: so nothing here knows an address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Any

from hack.lib.failure import Failure
from hack.pins.closure import Target
from hack.pins.pin import Pin, simple

Json = dict[str, Any]

# glibc's minor versions: no base is older than the first, none newer than the second.
OLDEST_GLIBC, NEWEST_GLIBC = 28, 60
LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
NONE_FOUND = "No matching distribution found"


@dataclass(frozen=True, slots=True)
class Told:
    """What the index tells of a package that was chosen."""

    name: str
    version: str
    requires: tuple[str, ...]


def resolved(requirements: Iterable[str], *, within: Iterable[Pin] = ()) -> dict[str, Told]:
    """The newest of all that is needed, by simple name; the versions of `within` are kept."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "kept")
        kept.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in within))
        report = _report("--constraint", str(kept), *requirements)
    found = (item["metadata"] for item in report["install"])
    return {simple(it["name"]): Told(it["name"], it["version"], tuple(it.get("requires_dist", ()))) for it in found}


def hashes(pins: Sequence[Pin], targets: Sequence[Target]) -> dict[str, frozenset[str]]:
    """By simple name, sha256 of every wheel that pip would choose on one of the targets, whatever its glibc."""
    found: dict[str, set[str]] = {simple(pin.name): set() for pin in pins}
    for target in targets:
        chosen = _chosen(pins, target, NEWEST_GLIBC)
        for pin in pins:
            item, ceiling = chosen.get(simple(pin.name)), NEWEST_GLIBC
            while item:
                found[simple(pin.name)].add(_sha256(item))
                ceiling = min(ceiling, glibc(_file(item), target.machine)) - 1
                item = _chosen([pin], target, ceiling, there=False).get(simple(pin.name)) if ceiling >= OLDEST_GLIBC else None
    return {name: frozenset(digests) for name, digests in found.items()}


def glibc(wheel: str, machine: str) -> int:
    """The oldest minor version of glibc that the wheel is for; 0 where it needs none."""
    tags = wheel.removesuffix(".whl").rpartition("-")[2].split(".")
    ours = [tag.removesuffix(f"_{machine}") for tag in tags if tag.endswith(f"_{machine}")]
    versions = [LEGACY[tag] if tag in LEGACY else int(tag.rpartition("_")[2]) for tag in ours if tag.startswith("manylinux")]
    return min(versions, default=0)


def licences(pins: Iterable[Pin]) -> dict[str, str]:
    """By simple name, from the packages' own metadata. Their wheels are fetched for it, and nothing of them is run."""
    wanted = [f"{pin.name}=={pin.version}" for pin in pins]
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, *wanted)
        return dict(_licence_of_wheel(file) for file in Path(folder).glob("*.whl"))


def licence(metadata: Mapping[str, Any], classifiers: Sequence[str]) -> str:
    """The package's own word, an SPDX expression where it has one."""
    expression, words = metadata.get("License-Expression"), (metadata.get("License") or "").strip().splitlines()
    classes = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    return str(expression or (words[0] if len(words) == 1 else "") or ", ".join(classes) or "not told")


def _licence_of_wheel(file: Path) -> tuple[str, str]:
    with zipfile.ZipFile(file) as wheel:
        (entry,) = [name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        metadata = message_from_bytes(wheel.read(entry))
    return simple(metadata["Name"]), licence(dict(metadata.items()), metadata.get_all("Classifier", []))


def _chosen(pins: Sequence[Pin], target: Target, ceiling: int, *, there: bool = True) -> dict[str, Json]:
    """What pip would take on a machine of that glibc, by simple name. Unless it must be there, nothing is an answer as well."""
    tags = [f"manylinux_2_{minor}" for minor in range(ceiling, 4, -1)]
    tags += [name for name, minor in reversed(LEGACY.items()) if minor <= ceiling]
    words = [word for tag in (*tags, "linux") for word in ("--platform", f"{tag}_{target.machine}")]
    words += ["--python-version", target.python, "--implementation", "cp", "--only-binary", ":all:", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = _report(*words, "--target", folder, *(f"{pin.name}=={pin.version}" for pin in pins))
        except Failure as failure:
            if there or NONE_FOUND not in str(failure):
                raise
            return {}
    return {simple(item["metadata"]["name"]): item for item in report["install"]}


def _file(item: Json) -> str:
    return str(item["download_info"]["url"]).partition("#")[0].rpartition("/")[2]


def _sha256(item: Json) -> str:
    digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if not digest:
        raise Failure(f"the index tells no sha256 of {_file(item)}")
    return str(digest)


def _report(*words: str) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")
        _pip("install", "--dry-run", "--ignore-installed", "--report", str(file), *words)
        report: Json = json.loads(file.read_text())
        return report


def _pip(command: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *words],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        last = "\n".join(f"  {line}" for line in done.stderr.strip().splitlines()[-8:])
        raise Failure(f"pip {command} failed:\n{last}")
