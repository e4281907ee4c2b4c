"""What the local driver knows, as a fold over its journal: the same lines always give the same state.

The first line is {"op": "begin", "node": …, "serial": …}, where serial is the last number ever given to a volume. Then, one a line:
{"op": "create", "volume": {…}}, {"op": "delete", "id": …}, {"op": "publish", "published": {…}}, {"op": "unpublish", "target": …}.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hack.sim.driver.state import Corrupt, read_journal
from sidecar.csi.api import Capability
from sidecar.frozen import frozen


@frozen
class LocalVolume:
    """One volume as it was promised. `serial` orders volumes by age and is never given twice, not even after a deletion."""

    id: str
    name: str
    pool: str
    bytes: int
    serial: int
    capabilities: tuple[Capability, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)


@frozen
class Published:
    """One folder (or, for a block volume, one file) that stands in for a mount."""

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
                volume = _volume(change["volume"])
                self.volumes[volume.id] = volume
                self.serial = max(self.serial, volume.serial)
            case "delete":
                del self.volumes[change["id"]]
            case "publish":
                published = _published(change["published"])
                self.published[published.target] = published
            case "unpublish":
                del self.published[change["target"]]
            case other:
                raise ValueError(f"no such change: {other!r}")

    def changes(self) -> Iterator[dict[str, Any]]:
        """The shortest journal that gives this state."""
        yield {"op": "begin", "node": self.node, "serial": self.serial}
        for volume in self.volumes.values():
            yield created(volume)
        for published in self.published.values():
            yield added_target(published)


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


def _volume(data: Mapping[str, Any]) -> LocalVolume:
    return LocalVolume(**{**data, "capabilities": tuple(_capability(item) for item in data["capabilities"])})


def _published(data: Mapping[str, Any]) -> Published:
    return Published(**{**data, "capability": _capability(data["capability"])})


def _capability(data: Mapping[str, Any]) -> Capability:
    return Capability(**{**data, "mount_flags": tuple(data["mount_flags"])})
