"""What the local driver knows, as a fold over a journal: a file of JSON lines that survives kill -9 at any moment.

Each line is one fact, written completely before anybody is told of it. It counts once its newline is written: text after the last newline
is a write that was cut off. The first line is {"op": "begin", "node": …}. Then, one a line:
{"op": "create", "volume": {…}}, {"op": "delete", "id": …}, {"op": "publish", "published": {…}}, {"op": "unpublish", "target": …}.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.csi.api import Capability


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Reads every complete line; none if there is no file yet. Safe while somebody writes."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


class Journal:
    """The one writer of such a file. Opening it cuts off a torn tail, so that the next line does not grow onto it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):
            os.ftruncate(self._file, text.rfind(b"\n") + 1)

    def append(self, line: Mapping[str, Any]) -> None:
        """On return the line is in the file; on an exception it is not."""
        data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes fitted into {self._path}")
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class LocalVolume:
    """One volume as it was promised. `serial` orders volumes by age and is never given twice, not even after a deletion."""

    id: str
    name: str
    pool: str
    bytes: int
    serial: int
    capabilities: tuple[Capability, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Published:
    """One folder (or, for a block volume, one file) at which a pod finds the volume."""

    target: str
    volume_id: str
    capability: Capability
    readonly: bool = False


@dataclass(slots=True)
class State:
    """Volumes by id, publications by target path."""

    node: str = ""
    serial: int = 0
    volumes: dict[str, LocalVolume] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)

    def named(self, name: str) -> LocalVolume | None:
        return next((volume for volume in self.volumes.values() if volume.name == name), None)

    def used(self, pool: str) -> int:
        return sum(volume.bytes for volume in self.volumes.values() if volume.pool == pool)

    def targets(self, volume_id: str) -> list[Published]:
        return [published for published in self.published.values() if published.volume_id == volume_id]

    def apply(self, change: Mapping[str, Any]) -> None:
        match change["op"]:
            case "begin":
                self.node = change["node"]
            case "create":
                made = change["volume"]
                volume = LocalVolume(**{**made, "capabilities": tuple(_capability(item) for item in made["capabilities"])})
                self.volumes[volume.id] = volume
                self.serial = volume.serial
            case "delete":
                del self.volumes[change["id"]]
            case "publish":
                told = change["published"]
                self.published[told["target"]] = Published(**{**told, "capability": _capability(told["capability"])})
            case _:  # unpublish
                del self.published[change["target"]]


def read_state(path: Path) -> State:
    """The state from the file alone: works beside a running driver and after it was killed."""
    state = State()
    for change in read_journal(path):
        state.apply(change)
    return state


def _capability(data: Mapping[str, Any]) -> Capability:
    return Capability(**{**data, "mount_flags": tuple(data["mount_flags"])})
