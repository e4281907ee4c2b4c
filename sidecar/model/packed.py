"""A PersistentVolume that takes as much memory as its JSON is long."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


class PackedVolume(Mapping[str, Any]):
    """Read like the object; each look unpacks it anew, but its name and handle are at hand. Sent as it is."""

    __slots__ = ("handle", "name", "text")

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.name: str = obj["metadata"]["name"]
        self.handle: str = obj["spec"]["csi"]["volumeHandle"]
        self.text = json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode()

    def unpacked(self) -> dict[str, Any]:
        obj: dict[str, Any] = json.loads(self.text)
        return obj

    def __getitem__(self, key: str) -> Any:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())
