"""`drbdsetup` as its readers know it, over the model in `drbd`: what it prints, and a program of that name over a file.

    install(folder, file, "n1")                 a `drbdsetup` for one node, to be put in front of PATH
    with held(file) as state: state.storage.crash("n1"); state.modes["n2"] = {"status": "hang"}

Modes, by node and command (`events2` the stream, `dump` with --now, `status`, `show`, `secondary`): `hang`, `truncate`, `lie` (it says what
another node would), `die` (half of it, and a signal), `loud` (without end), `absent` (as without the kernel module).
"""

import fcntl
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.sim.drbd import DISKLESS, OUTDATED, UP_TO_DATE, Resource, Storage

ROOT = Path(__file__).resolve().parents[2]


def events(storage: Storage, node: str) -> str:
    """`drbdsetup events2 --now --full`, without --statistics: a write changes nothing that is printed."""
    storage.now()
    lines = [f"exists {line}" for resource in storage.of(node) for line in _lines(storage, resource, node)]
    return "".join(f"{line}\n" for line in (*lines, "exists -"))


def _lines(storage: Storage, resource: Resource, node: str) -> Iterator[str]:
    copy, ids = resource.copies[node], {one: number for number, one in enumerate(sorted(resource.copies))}
    suspended = ",".join(word for word in ("user", "no-data", "fencing", "quorum") if word in copy.suspended) or "no"
    yes, may = {True: "yes", False: "no"}, storage.may_promote(node, resource.name)
    score = (10000 * (copy.disk == UP_TO_DATE) + 101 + len(storage.seen(resource, node))) if may else 0
    yield (
        f"resource name:{resource.name} role:{'Primary' if copy.primary else 'Secondary'} suspended:{suspended} "
        f"force-io-failures:{yes[copy.failing_io]} write-ordering:flush may_promote:{yes[may]} promotion_score:{score}"
    )
    backing = "none" if copy.disk == DISKLESS else f"/dev/vg/{resource.name}_00000"
    yield (
        f"device name:{resource.name} volume:0 minor:{1000 + 10 * resource.number} backing_dev:{backing} "
        f"disk:{copy.disk} client:{yes[copy.client]} open:{yes[copy.open]} quorum:{yes[copy.quorum]}"
    )
    for peer in sorted(set(resource.copies) - {node}):
        of, (state, role, disk) = f"peer-node-id:{ids[peer]} conn-name:{peer}", _link(storage, resource, node, peer)
        up = state == "Connected"
        yield f"connection name:{resource.name} {of} connection:{state} role:{role}"
        yield (
            f"peer-device name:{resource.name} {of} volume:0 replication:{'Established' if up else 'Off'} peer-disk:{disk} "
            f"peer-client:{yes[up and resource.copies[peer].client]} resync-suspended:no"
        )
        here, there = (f"ipv4:10.0.0.{ids[one]}:{7000 + resource.number}" for one in (node, peer))
        yield f"path name:{resource.name} {of} local:{here} peer:{there} established:{yes[up]}"


def _link(storage: Storage, resource: Resource, node: str, peer: str) -> tuple[str, str, str]:
    """State, role and disk of the peer, as the node prints them."""
    if (node, peer) in resource.stand_alone or not storage.sees(resource, node, peer):
        state = "StandAlone" if (node, peer) in resource.stand_alone else "Connecting"
        return state, "Unknown", OUTDATED if peer in resource.copies[node].left else "DUnknown"
    view = resource.views[node, peer]
    return "Connected", "Primary" if view.primary else "Secondary", view.disk


def status(storage: Storage, node: str) -> str:
    """`drbdsetup status --json`."""
    storage.now()
    return json.dumps([_status(storage, resource, node) for resource in storage.of(node)], indent=2) + "\n"


def _status(storage: Storage, resource: Resource, node: str) -> dict[str, Any]:
    fields: dict[str, list[dict[str, str]]] = {}
    for line in _lines(storage, resource, node):
        kind, *words = line.split()
        fields.setdefault(kind, []).append(dict(word.split(":", 1) for word in words))
    (head,) = fields["resource"]
    reasons = {word: word in head["suspended"].split(",") for word in ("user", "no-data", "fencing", "quorum")}
    ids = {one: number for number, one in enumerate(sorted(resource.copies))}
    return {
        "name": resource.name,
        "node-id": ids[node],
        "role": head["role"],
        "suspended": any(reasons.values()),
        **{f"suspended-{word}": value for word, value in reasons.items()},
        "force-io-failures": head["force-io-failures"] == "yes",
        "write-ordering": "flush",
        "devices": [
            {"volume": int(one["volume"]), "minor": int(one["minor"]), "disk-state": one["disk"]}
            | {word: one[word] == "yes" for word in ("client", "open", "quorum")}
            for one in fields["device"]
        ],
        "connections": [
            {"peer-node-id": int(one["peer-node-id"]), "name": one["conn-name"], "connection-state": one["connection"]}
            | {"peer-role": one["role"], "congested": False}
            | {"peer_devices": [_of_peer(each) for each in fields["peer-device"] if each["conn-name"] == one["conn-name"]]}
            for one in fields.get("connection", ())
        ],
    }


def show(storage: Storage, node: str) -> str:
    """`drbdsetup show --json`: what is the default is not printed."""
    said = []
    for resource in storage.of(node):
        options = {"on-no-data-accessible": "suspend-io"} | ({"quorum": resource.quorum} if resource.quorum != "off" else {})
        said.append({"resource": resource.name, "options": options, "_this_host": {"node-id": sorted(resource.copies).index(node)}})
    return json.dumps(said, indent=4) + "\n"


def _of_peer(one: dict[str, str]) -> dict[str, Any]:
    said = {"volume": int(one["volume"]), "replication-state": one["replication"], "peer-disk-state": one["peer-disk"]}
    return said | {"peer-client": one["peer-client"] == "yes", "resync-suspended": "no", "out-of-sync": 0, "percent-in-sync": 100}


def changes(before: str, after: str) -> list[str]:
    """The lines that a running `drbdsetup events2 --full` prints between two dumps."""
    old = {_object(line): line for line in before.splitlines()}
    new = {_object(line): line for line in after.splitlines()}
    gone = [f"destroy {' '.join(key)}" for key in old if key not in new]
    return gone + [line.replace("exists", "change" if key in old else "create", 1) for key, line in new.items() if old.get(key) != line]


def _object(line: str) -> tuple[str, ...]:
    named = ("name:", "peer-node-id:", "conn-name:", "volume:")
    return (*line.split()[1:2], *(word for word in line.split()[2:] if word.startswith(named)))


# --- the program --------------------------------------------------------------------------------------------------------------


@dataclass
class State:
    """What stands in the file, for all nodes."""

    storage: Storage
    modes: dict[str, dict[str, str]] = field(default_factory=dict)
    calls: list[tuple[str, ...]] = field(default_factory=list)  # what was asked to change something: node, and words


def create(file: Path, storage: Storage) -> None:
    file.write_bytes(pickle.dumps(State(storage)))


@contextmanager
def held(file: Path) -> Iterator[State]:
    """The state, which nobody else changes meanwhile, and which is written at the end. Its clock is that of the machine."""
    with file.open("r+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        state: State = pickle.load(handle)
        state.storage.clock = time.monotonic
        yield state
        handle.seek(0)
        handle.write(pickle.dumps(state))
        handle.truncate()


def install(folder: Path, file: Path, node: str) -> Path:
    program = folder / "drbdsetup"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -S -m hack.sim.drbdsetup {file} {node} "$@"\n')
    program.chmod(0o755)
    return program


def main(file: Path, node: str, *words: str) -> int:
    parent = os.getppid()
    command = "dump" if words[0] == "events2" and "--now" in words else words[0]
    with held(file) as state:
        mode = state.modes.get(node, {}).get(command, "")
        others = [one for one in sorted({name for each in state.storage.resources.values() for name in each.copies}) if one != node]
        shown = others[0] if mode == "lie" and others else node
        said = ""
        if command in ("dump", "events2"):
            said = events(state.storage, shown)
        elif command == "status":
            said = status(state.storage, shown)
        elif command == "show":
            said = show(state.storage, shown)
        elif command == "secondary":
            state.calls.append((node, *words))
            if not mode and words[-1] in state.storage.resources:
                state.storage.force_secondary(node, words[-1])
    if mode == "absent":
        print("Could not connect to 'drbd' generic netlink family", file=sys.stderr)
        return 0 if command == "secondary" else 20
    if mode in ("truncate", "die", "hang"):
        said = said[: len(said) // 2]
    print(said, end="", flush=True)
    while mode == "loud" and os.getppid() == parent:
        print(said, end="")
    if mode == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in a call of the kernel that does not return
        while os.getppid() == parent:
            time.sleep(0.2)
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return _follow(file, node, said) if command == "events2" else 0


def _follow(file: Path, node: str, before: str) -> int:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.1)
        with held(file) as state:
            now = events(state.storage, node)
        for line in changes(before, now):
            print(line, flush=True)
        before = now
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
