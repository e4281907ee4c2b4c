"""The driver of demo and tests in an image. The sidecar's image has no simulation, so whoever starts the driver adds it first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from hack.lib.failure import Failure

SIMULATION = Path(__file__).resolve().parents[1] / "sim"
COMMAND = ("/opt/csi-node-sidecar/bin/python", "-m", "hack.sim.driver.serve")


def package_in(names: Iterable[str]) -> Path:
    """The folder of the package `sidecar`, relative to the image's root, from the names of the image's files."""
    found = [Path(name).parent for name in names if name.endswith("/site-packages/sidecar/__init__.py")]
    if len(found) != 1:
        raise Failure(f"the image should hold the package `sidecar` once, and holds it {len(found)} times")
    return found[0]


def add_simulation(root: Path, package: Path) -> None:
    # Without bytecode: it would have to be that of the image's Python, and only tests wait for it to be compiled.
    shutil.copytree(SIMULATION, root / package.parent / "hack" / SIMULATION.name, ignore=shutil.ignore_patterns("__pycache__"))
