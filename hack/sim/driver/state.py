"""What the local driver knows, as a fold over a journal: a file of JSON lines that survives kill -9 at any moment.

Each line is one fact, written completely before anybody is told of it. It counts once its newline is written: text after the last newline
is a write that was cut off. A complete line that is no JSON cannot come from a crash, so nothing after it can be trusted: `Corrupt`.

The first line is {"op": "begin", "node": …, "serial": …}, where serial is the last number ever given to a volume. Then, one a line:
{"op": "create", "volume": {…}}, {"op": "delete", "id": …}, {"op": "publish", "published": {…}}, {"op": "unpublish", "target": …}.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sidecar.csi.api import Capability

_PLAIN_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Corrupt(ValueError):
    """The file holds something that no crash can have left."""


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Reads every complete line; none if there is no file yet. Safe while somebody writes."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as error:
        raise Corrupt(f"{path}: {error}") from error
    if not all(isinstance(line, dict) for line in found):
        raise Corrupt(f"{path}: a line is no object")
    return found


class Journal:
    """The one writer of such a file. Opening it cuts off a torn tail, so that the next line does not grow onto it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, _PLAIN_APPEND, 0o600)
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):
            os.ftruncate(self._file, text.rfind(b"\n") + 1)

    def append(self, line: Mapping[str, Any]) -> None:
        """On return the line is in the file; on an exception it is not."""
        data, size = _encoded(line), os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes fitted into {self._path}")
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def rewrite(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace the whole file in one step: a reader, or a crash, sees the old one or the new one."""
        draft = self._path.with_name(self._path.name + ".tmp")
        draft.write_bytes(b"".join(_encoded(line) for line in lines))
        draft.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, _PLAIN_APPEND, 0o600)

    def close(self) -> None:
        os.close(self._file)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


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
        match change.get("op"):
            case "begin":
                self.node, self.serial = str(change["node"]), max(self.serial, int(change["serial"]))
            case "create":
                made = change["volume"]
                volume = LocalVolume(**{**made, "capabilities": tuple(_capability(item) for item in made["capabilities"])})
                self.volumes[volume.id] = volume
                self.serial = max(self.serial, volume.serial)
            case "delete":
                del self.volumes[change["id"]]
            case "publish":
                told = change["published"]
                self.published[told["target"]] = Published(**{**told, "capability": _capability(told["capability"])})
            case "unpublish":
                del self.published[change["target"]]
            case other:
                raise ValueError(f"no such change: {other!r}")

    def changes(self) -> Iterator[dict[str, Any]]:
        """The shortest journal that gives this state."""
        yield {"op": "begin", "node": self.node, "serial": self.serial}
        yield from (created(volume) for volume in self.volumes.values())
        yield from (added_target(published) for published in self.published.values())


def created(volume: LocalVolume) -> dict[str, Any]:
    return {"op": "create", "volume": asdict(volume)}


def added_target(published: Published) -> dict[str, Any]:
    return {"op": "publish", "published": asdict(published)}


def read_state(path: Path) -> State:
    """The state from the file alone: works beside a running driver and after it was killed."""
    state = State()
    for number, change in enumerate(read_journal(path), start=1):
        try:
            state.apply(change)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{path}, line {number}: {error!r}") from error
    return state


def _capability(data: Mapping[str, Any]) -> Capability:
    return Capability(**{**data, "mount_flags": tuple(data["mount_flags"])})
