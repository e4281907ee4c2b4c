"""Whether a record is one that this program writes: names as Kubernetes allows them, numbers and texts that a driver can be sent.

What is read from a file may hold anything. A text that is no text or a number out of bounds would fail at each attempt to send it, for
ever; a name with odd bytes would ask the API server for another object, or the driver for another volume.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from sidecar.csi.api import CreateRequest
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.requests.request import ACCESS_MODES
from sidecar.provisioning.requests.secrets import is_label, is_subdomain

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_POLICIES: Final = ("", "Delete", "Retain", "Recycle")
# CSI allows 128 bytes, and some drivers take more.
_LONGEST_HANDLE: Final = 4096
_LONGEST_NODE: Final = 253
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def oddity(record: CreationRecord) -> str:
    """What no record of ours has; empty: nothing. The record's own words are not repeated, for they may be anything."""
    return next(_oddities(record), "")


def _oddities(record: CreationRecord) -> Iterator[str]:
    sent = [(record.request, record.secret), *record.earlier]
    if not _UID.fullmatch(record.uid):
        yield "a uid that cannot be one"
    if not is_label(record.namespace) or not is_subdomain(record.name) or not is_subdomain(record.class_name):
        yield "a claim or class that cannot be called so"
    if not all(is_label(secret[0]) and is_subdomain(secret[1]) for _, secret in sent if secret is not None):
        yield "a Secret that cannot be called so"
    numbers = (record.denials, record.losses)
    sizes = (request.required_bytes for request, _ in sent)
    if record.reclaim_policy not in _POLICIES or not all(0 <= it < 2**63 for it in sizes) or not all(0 <= it < 2**31 for it in numbers):
        yield "a policy or number that cannot be"
    if any(item.access_mode not in ACCESS_MODES for request, _ in sent for item in request.capabilities):
        yield "an access mode that there is not"
    deletion = record.deletion
    handles = [record.shown, deletion.handle if deletion else ""]
    handles += [handle for request, _ in sent for handle in (request.name, request.source_snapshot, request.source_volume)]
    if (
        any(_CONTROL.search(handle) or len(handle) > _LONGEST_HANDLE for handle in handles)
        or not record.request.name
        or any(request.name != record.request.name for request, _ in sent)
        or (deletion and not deletion.handle)
    ):
        yield "a volume or handle with odd bytes, or of odd length"
    if not 0.0 <= record.timeout < math.inf:
        yield "a timeout that cannot be"
    if len(record.node) > _LONGEST_NODE or _CONTROL.search(record.node):
        yield "a node that cannot be called so"
    if not _is_text([*handles, record.node, *(text for request, _ in sent for text in _texts(request))]):
        yield "what is no text"


def _texts(request: CreateRequest) -> Iterator[str]:
    for mapping in (
        request.parameters,
        request.mutable_parameters,
        *(segment.labels() for segment in (*request.requisite, *request.preferred)),
    ):
        for key, value in mapping.items():
            yield key
            yield value
    for item in request.capabilities:
        yield from (item.fs_type, *item.mount_flags)


def _is_text(words: Iterable[str]) -> bool:
    """JSON can hold halves of characters, which cannot be sent."""
    try:
        return all(word.encode() is not None for word in words)
    except UnicodeEncodeError:
        return False
