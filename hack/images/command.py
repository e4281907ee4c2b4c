"""`hack/image`: which images, and where they go."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from hack.images import report
from hack.images.parts import PARTS, renew
from hack.lib.failure import Failure
from hack.lib.progress import say


def add_to(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("parts", nargs="*", metavar="IMAGE", help=f"{', '.join(PARTS)} or all (default: sidecar)")
    add("--out", type=Path, metavar="DIR", help="put copies there, named after the image")
    add("--renew", action="store_true", help="take the Debian packages of today instead of those that were taken first")
    add("--report", action="store_true", help="tell of each image its size, its files and how fast it starts, and write its SBOM beside it")


def run(arguments: argparse.Namespace) -> int:
    wanted = arguments.parts or ["sidecar"]
    unknown = [name for name in wanted if name not in PARTS and name != "all"]
    try:
        if unknown:
            raise Failure(f"no such image: {', '.join(unknown)}; there are {', '.join(PARTS)} and all")
        names = list(PARTS) if "all" in wanted else list(dict.fromkeys(wanted))
        if arguments.renew:
            renew()
        for name in names:
            archive = PARTS[name]()
            print(_copied(archive, name, arguments.out) if arguments.out else archive)
            if arguments.report:
                print(report.of(archive, sbom_file=_beside(archive, name, arguments.out)))
    except Failure as failure:
        sys.stderr.write(f"image: error: {failure}\n")
        return 1
    return 0


def _copied(archive: Path, name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder.absolute() / f"{name}.tar"
    say(f"copying to {target}")
    shutil.copyfile(archive, target)
    return target


def _beside(archive: Path, name: str, folder: Path | None) -> Path:
    return folder.absolute() / f"{name}.spdx.json" if folder else archive.with_suffix(".spdx.json")
