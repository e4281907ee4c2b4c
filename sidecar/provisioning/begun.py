"""A creation that was begun: what must be known to find its volume again when the process, the claim or the node is gone.

It names what to ask the driver and whom the volume was for. It holds no secret, only which Secret to read.
"""

import json
from dataclasses import dataclass
from typing import Any

from sidecar.csi.api import Capability, CreateRequest
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Begun:
    """One creation. Creating is idempotent by the request's name, so asking again finds the volume, wherever the first call ended."""

    uid: str
    """The claim's."""
    namespace: str
    name: str
    class_name: str
    request: CreateRequest
    secret: tuple[str, str] | None = None
    """(namespace, name) of the Secret that the driver was given."""
    denials: int = 0
    """How often the driver has said since that there is nothing, in words that leave a doubt."""
    reclaim_policy: str = "Delete"
    """The class's."""
    inherited: bool = False
    """Begun by a process that is gone, which may have stored its PersistentVolume without a word. No line says so: who reads one knows."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def to_line(begun: Begun) -> bytes:
    """One line of JSON, without its end."""
    request = begun.request
    about: dict[str, Any] = {
        "uid": begun.uid,
        "namespace": begun.namespace,
        "name": begun.name,
        "class": begun.class_name,
        "secret": begun.secret,
        "denials": begun.denials,
        "reclaim": begun.reclaim_policy,
        "request": {
            "name": request.name,
            "bytes": request.required_bytes,
            "capabilities": [[item.access_mode, item.block, item.fs_type, item.mount_flags] for item in request.capabilities],
            "parameters": dict(request.parameters),
            "requisite": [segment.pairs for segment in request.requisite],
            "preferred": [segment.pairs for segment in request.preferred],
            "mutable": dict(request.mutable_parameters),
            "snapshot": request.source_snapshot,
            "volume": request.source_volume,
        },
    }
    return json.dumps(about, separators=(",", ":")).encode()


def from_line(line: bytes) -> Begun:
    """Raises ValueError for a line that was not written by this program, or only in part."""
    try:
        about = json.loads(line)
        asked = about["request"]
        secret = about["secret"]
        return Begun(
            uid=str(about["uid"]),
            namespace=str(about["namespace"]),
            name=str(about["name"]),
            class_name=str(about["class"]),
            secret=(str(secret[0]), str(secret[1])) if secret else None,
            denials=int(about["denials"]),
            reclaim_policy=str(about.get("reclaim", "Delete")),
            request=CreateRequest(
                name=str(asked["name"]),
                required_bytes=int(asked["bytes"]),
                capabilities=tuple(
                    Capability(str(mode), bool(block), str(fs), tuple(map(str, flags))) for mode, block, fs, flags in asked["capabilities"]
                ),
                parameters=_strings(asked["parameters"]),
                requisite=_segments(asked["requisite"]),
                preferred=_segments(asked["preferred"]),
                mutable_parameters=_strings(asked["mutable"]),
                source_snapshot=str(asked["snapshot"]),
                source_volume=str(asked["volume"]),
            ),
        )
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record of a creation: {error!r}") from error


def _strings(about: dict[str, str]) -> dict[str, str]:
    return {str(key): str(value) for key, value in about.items()}


def _segments(rows: list[list[list[str]]]) -> tuple[Segment, ...]:
    return tuple(Segment(tuple((str(key), str(value)) for key, value in row)) for row in rows)
