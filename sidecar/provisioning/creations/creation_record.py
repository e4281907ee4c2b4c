"""The record of a begun creation, and its form as a line of the journal.

It holds what is needed to find the volume again when the process or the claim is gone: the request to the driver, and
the claim that the volume was for. It holds no secret, only the name of the Secret to read, because it is written to disk.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from sidecar.csi.api import Capability, CreateRequest
from sidecar.csi.losses import Call, creation, deletion
from sidecar.local.here import Here
from sidecar.model.topology import Segment
from sidecar.observe.sanitize import clipped, visible


@dataclass(frozen=True, slots=True)
class BegunDeletion:
    """The driver was asked to delete the volume, and has not said for certain how that ended."""

    handle: str
    any_node: bool = False
    """As in `deletion.rules.DeletionView`."""


# Each comes a whole timeout of the driver's calls after the one before. A call that is cut off by that timeout has by then had three times
# as long as it may take, and one that the driver is still at when it is given up has had two more.
_ENOUGH_DENIALS: Final = 3

# In seconds. Nobody waits longer for a call because a line says that it might take longer.
_LONGEST_TIMEOUT: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OpenCall:
    """Of a call for the volume nobody knows how it ended. A driver may still be at it while it says that there is no volume, such as that
    the call has taken all room."""

    denials: int = 0
    """How often the driver has said so since."""
    not_before: float = 0.0
    """Until then the driver would say nothing new, or it is too early to ask."""

    def denied(self, now: float, timeout: float) -> "OpenCall | None":
        """After the driver has said so once more; None: it is believed."""
        if now < self.not_before:
            return self
        denials = self.denials + 1
        return OpenCall(denials, now + timeout) if denials < _ENOUGH_DENIALS else None


SecretName = tuple[str, str]
"""(namespace, name) of a Secret."""


@dataclass(frozen=True, slots=True)
class CreationRecord:
    """One creation. CreateVolume is idempotent by name, so repeating the request finds the volume, however the first ended."""

    uid: str
    """The claim's uid; it tells the claim from a later one of the same name."""
    namespace: str
    name: str
    class_name: str
    request: CreateRequest
    secret: SecretName | None = None
    """The Secret whose content the driver was given."""
    denials: int = 0
    """How often the driver has since refused in a way that does not prove that there is no volume; where a claim waits for this to end,
    also how often it has failed otherwise."""
    losses: int = 0
    """How often the driver was lost while it was asked for the volume."""
    suspect: str = ""
    """Why a volume may be left behind that nobody deletes without a person's word; empty: it is being seen to."""
    reclaim_policy: str = "Delete"
    """The reclaim policy of the class at that time. A line of an older version has none and counts as Delete."""
    unproven: bool = False
    """So much time passed between the last sign of life of the process that began it and the next process that something else may have run
    here, stored its PersistentVolume, and somebody may have kept the data."""
    timeout: float = 0.0
    """Seconds that the driver's calls might take when it was begun; flags may have changed since. 0: an older version began it."""
    node: str = ""
    """The node on which it was begun. Empty: a version began it that did not write that down."""
    deletion: BegunDeletion | None = None
    """The volume that may be deleted at any moment from now on, so nobody may be given it. An older version neither writes nor reads it."""
    seeks: bool = False
    """The driver was asked for the volume though the claim has no use for it, and makes one if there is none. A PersistentVolume that was
    sent long before may arrive then, and be of a volume that was deleted: that it is stored says nothing of what such a call makes."""
    shown: str = ""
    """The handle that a PersistentVolume of its name had since. That volume may be another one, which somebody may have kept. Like `seeks`
    an older version neither writes nor reads it."""
    inherited: bool = False
    """A process that is gone began it, and may have stored its PersistentVolume without recording the end.

    It is not written to the line: whoever reads a line left behind sets it.
    """
    open_call: OpenCall | None = None
    """None: each call for the volume has ended for certain. Not written to the line either: who reads one left behind knows of none how it
    ended."""
    from_file: bool = False
    """It was read from a file, in whose folder others write too. Set as `inherited` is, and for good."""
    earlier: tuple[tuple[CreateRequest, SecretName | None], ...] = ()
    """What the driver was asked for before under the same name, with which Secret, where nobody knows how that ended: the class, or flags,
    have changed since. Whichever was made is found only by the request it was made of."""

    def asked_anew(self, new: "CreationRecord") -> "CreationRecord":
        """The record once the driver is asked otherwise than before."""
        before = ((self.request, self.secret), *self.earlier)
        return replace(
            self,
            request=new.request,
            secret=new.secret,
            timeout=max(self.timeout, new.timeout),
            reclaim_policy=new.reclaim_policy if self.reclaim_policy == "Delete" else self.reclaim_policy,
            earlier=tuple(each for each in before if each[0] != new.request),
        )

    def asked_before(self) -> "CreationRecord | None":
        """What is left of the record once there is nothing of its request; None: nothing."""
        if not self.earlier:
            return None
        (request, secret), *rest = self.earlier
        return replace(self, request=request, secret=secret, earlier=tuple(rest), denials=0, open_call=OpenCall())

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    def denied(self, now: float, timeout: float) -> OpenCall | None:
        """What is left of the open call after the driver has said once more that there is nothing; None: that is believed."""
        return None if self.open_call is None else self.open_call.denied(now, max(timeout, min(self.timeout, _LONGEST_TIMEOUT)))

    @property
    def key(self) -> str:
        """Under which its line is on record. A claim has one creation that is seen to, and may have left volumes of other names."""
        return suspect_key(self.uid, self.request.name) if self.suspect else self.uid

    @property
    def other_key(self) -> str:
        """Under which the same volume is on record if people are to see to it and not this program, or the other way round."""
        return self.uid if self.suspect else suspect_key(self.uid, self.request.name)

    def is_renamed(self, here: Here) -> bool:
        """The flags for names of volumes have changed since, so the claim's volume is another one now."""
        return self.request.name != here.volume_name(self.uid)

    @property
    def leftover(self) -> str:
        """What is said of a suspect wherever it is told: in the event, the log and `leftovers`. The driver, or a file in whose
        folder others write, may have said the reason: it could move a terminal's cursor, or be no text."""
        return visible(clipped(f"volume {self.request.name} may be left behind on this node: {self.suspect}"))

    @property
    def call(self) -> Call:
        """The call of the driver that is to be made for it next."""
        return deletion(self.deletion.handle) if self.deletion else creation(self.request.name)


def deletion_to_end(suspect: CreationRecord | None) -> CreationRecord | None:
    """The record under which the deletion of what was left to people is brought to its end, before its claim is given that volume again."""
    return replace(suspect, suspect="", denials=0) if suspect is not None and suspect.deletion is not None else None


def suspect_key(uid: str, volume_name: str) -> str:
    return f"{uid} {volume_name}"


def to_line(record: CreationRecord) -> bytes:
    """The record as one line of JSON, without the line break."""
    about: dict[str, Any] = {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "class": record.class_name,
        "secret": record.secret,
        "denials": record.denials,
        "losses": record.losses,
        "suspect": record.suspect,
        "unproven": record.unproven,
        "reclaim": record.reclaim_policy,
        "node": record.node,
        "timeout": record.timeout,
        "deletion": [record.deletion.handle, record.deletion.any_node] if record.deletion else None,
        "seeks": record.seeks,
        "shown": record.shown,
        "request": _told(record.request),
        "earlier": [[_told(request), secret] for request, secret in record.earlier],
    }
    return json.dumps(about, separators=(",", ":")).encode()


def _told(request: CreateRequest) -> dict[str, Any]:
    return {
        "name": request.name,
        "bytes": request.required_bytes,
        "capabilities": [[item.access_mode, item.block, item.fs_type, item.mount_flags] for item in request.capabilities],
        "parameters": dict(request.parameters),
        "requisite": [segment.pairs for segment in request.requisite],
        "preferred": [segment.pairs for segment in request.preferred],
        "mutable": dict(request.mutable_parameters),
        "snapshot": request.source_snapshot,
        "volume": request.source_volume,
    }


def from_line(line: bytes) -> CreationRecord:
    """Reads a line of `to_line`. Raises ValueError for a line that this program did not write, or of which only a part was written."""
    try:
        about = json.loads(line)
        deletion = about.get("deletion")
        return CreationRecord(
            uid=str(about["uid"]),
            namespace=str(about["namespace"]),
            name=str(about["name"]),
            class_name=str(about["class"]),
            secret=_secret(about["secret"]),
            denials=int(about["denials"]),
            losses=int(about.get("losses", 0)),
            suspect=str(about.get("suspect", "")),
            unproven=bool(about.get("unproven", False)),
            reclaim_policy=str(about.get("reclaim", "Delete")),
            node=str(about.get("node", "")),
            timeout=float(about.get("timeout", 0.0)),
            deletion=BegunDeletion(str(deletion[0]), bool(deletion[1])) if deletion else None,
            seeks=bool(about.get("seeks", False)),
            shown=str(about.get("shown", "")),
            request=_request(about["request"]),
            earlier=tuple((_request(request), _secret(secret)) for request, secret in about.get("earlier", ())),
        )
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record of a creation: {error!r}") from error


def _request(asked: dict[str, Any]) -> CreateRequest:
    return CreateRequest(
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
    )


def _secret(named: list[str] | None) -> SecretName | None:
    return (str(named[0]), str(named[1])) if named else None


def _strings(about: dict[str, str]) -> dict[str, str]:
    return {str(key): str(value) for key, value in about.items()}


def _segments(rows: list[list[list[str]]]) -> tuple[Segment, ...]:
    return tuple(Segment(tuple((str(key), str(value)) for key, value in row)) for row in rows)
