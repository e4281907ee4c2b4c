"""What a cluster could leave on the machine, looked at with the machine's own means and not with the cluster's."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Traces:
    """Everything of the machine that outlives processes, and could be ours."""

    mounts: frozenset[str]
    loops: frozenset[str]
    addresses: frozenset[str]
    cgroups: frozenset[str]

    def beyond(self, before: Traces) -> dict[str, list[str]]:
        """What has come since, by kind; nothing if nothing has."""
        kinds = ("mounts", "loops", "addresses", "cgroups")
        found = {kind: sorted(getattr(self, kind) - getattr(before, kind)) for kind in kinds}
        return {kind: items for kind, items in found.items() if items}


def traces(cluster: str) -> Traces:
    """Other clusters may come and go meanwhile: their cgroups are told by their names."""
    trees = (CGROUPS, *(tree for tree in CGROUPS.iterdir() if tree.is_dir()))
    cgroups = (folder for tree in trees for folder in tree.iterdir() if folder.is_dir())
    return Traces(
        mounts=frozenset((PROC / "self" / "mountinfo").read_text().splitlines()),
        loops=frozenset(_said("losetup", "--list", "--noheadings", "--output", "NAME,BACK-INO").splitlines()),
        addresses=frozenset(_addresses()),
        cgroups=frozenset(str(folder) for folder in cgroups if f".{cluster}." in folder.name or "csi-node-sidecar." not in folder.name),
    )


def _addresses() -> list[str]:
    links: list[dict[str, Any]] = json.loads(_said("ip", "-json", "address"))
    return [f"{link['ifname']} {address['local']}" for link in links for address in link["addr_info"]] + [link["ifname"] for link in links]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def started(pid: int) -> str:
    """With its number this is one process for ever: numbers are given again, moments are not."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # it has just ended
        return ""


def family(*ancestors: int) -> set[tuple[int, str]]:
    """These processes with all that descend from them, in whatever namespaces they are."""
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended

    def descends(pid: int) -> bool:
        while pid not in (0, *ancestors):
            pid = parents.get(pid, 0)
        return pid in ancestors

    return {(pid, moment) for pid in parents if descends(pid) and (moment := started(pid))}


def survivors(processes: set[tuple[int, str]]) -> list[str]:
    """Those that still run. One that only waits to be noticed has ended, and so has one without arguments: its memory is gone."""
    found = []
    for pid, moment in processes:
        try:
            stat = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            arguments = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if stat[19] == moment and stat[0] != "Z" and arguments:
            found.append(f"{pid} {arguments}")
    return found


def carriers(word: str) -> list[int]:
    """Processes with this among their arguments; ourselves, who look for it, are none."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if word in arguments:
                found.append(int(entry.name))
    return found
