"""Tells the statuses that gRPC itself makes in place of a lost answer from the driver's own.

gRPC gives both the same codes and marks neither. An answer over the size limit is RESOURCE_EXHAUSTED, which from the driver means that
there is no room, and that no volume was made. So the texts decide, which are gRPC's own: the tests make gRPC say each of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sidecar.csi.outcome import Code, DriverError, Unheard

STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Stream removed (": "the stream or the connection ended before the driver's status came, or gRPC ended it: an answer or headers "
        "too large, an unknown compression, RST_STREAM, GOAWAY, a closed socket",
        "CLIENT: Received message larger than max": "the answer is too large",
        "Decompressed message larger than max": "the answer is too large once it is decompressed",
        "Decompression failed": "the answer cannot be decompressed",
        "Compression bit set but no encoding configured": "the answer is compressed, and nothing says how",
        "Received http2 header with status: ": "an HTTP server answered, or a proxy, in place of the driver",
        "Deadline Exceeded": "no answer came in time",
        "SERVER: Sent message larger than max": "the driver's gRPC did not send its answer, which is too large",
        "grpc: trying to send message larger than max": "the same, from gRPC for Go",
        "trying to send message larger than max": "the same, from later versions of it",
    }
)
"""By the beginning of the text: what has happened."""


def failure(code: Code, text: str) -> DriverError:
    """The error for a call that ended with this status."""
    if text.startswith(tuple(STATUSES)):
        return Unheard(code, f"the driver's answer could not be received: {text}")
    return DriverError(code, text)
