"""What a gRPC status means for whoever asked: that of CreateVolume as a table, that of GetCapacity as a value."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.csi.api import CapacityAnswer, CapacityQuery, CreatedVolume, Driver
from sidecar.errors import SidecarError


class Code(Enum):
    """The gRPC status codes. The values are the names Go prints, which appear in events and metric labels."""

    OK = "OK"
    CANCELLED = "Canceled"
    UNKNOWN = "Unknown"
    INVALID_ARGUMENT = "InvalidArgument"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_FOUND = "NotFound"
    ALREADY_EXISTS = "AlreadyExists"
    PERMISSION_DENIED = "PermissionDenied"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    FAILED_PRECONDITION = "FailedPrecondition"
    ABORTED = "Aborted"
    OUT_OF_RANGE = "OutOfRange"
    UNIMPLEMENTED = "Unimplemented"
    INTERNAL = "Internal"
    UNAVAILABLE = "Unavailable"
    DATA_LOSS = "DataLoss"
    UNAUTHENTICATED = "Unauthenticated"


class DriverError(SidecarError):
    """The driver did not answer OK. The text is what upstream writes into events for the same status."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"rpc error: code = {code.value} desc = {message}")
        self.code = code
        self.message = message


class BadAnswer(DriverError):
    """The driver answered OK, with something that cannot be used. Nobody knows what it did, so this is never a final verdict."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message)


class NotSent(DriverError):
    """The driver was away, so it has not heard of the call at all."""


@dataclass(frozen=True, slots=True)
class Done:
    """The volume exists."""

    volume: CreatedVolume


@dataclass(frozen=True, slots=True)
class MaybeRunning:
    """The driver may still be working on it, or may have finished without our hearing of it."""

    why: str


@dataclass(frozen=True, slots=True)
class NeverSent:
    """The driver has not heard of this attempt; what an earlier one may have begun is as unknown as before."""

    why: str


@dataclass(frozen=True, slots=True)
class NoSpaceHere:
    """Nothing was created because this node has no room; another node may have."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The verdict is final for this attempt: nothing was created and nothing is running."""

    why: str
    infeasible: bool = False
    """Asking again with the same arguments is pointless for a long while."""
    doubtful: bool = False
    """It names no reason why there could be nothing: drivers have said so of volumes that were there all the same."""
    occupied: bool = False
    """Something of that name is there, which is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """The driver did not say how much is free."""

    why: str
    away: bool = False
    """It cannot be reached, so it could not create anything either."""
    perhaps: bool = False
    """It may have gone while it was asked; or it is there, and says so of something else."""


Outcome = Done | MaybeRunning | NeverSent | NoSpaceHere | Refused

_SAYS_NOTHING: Final = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})
_MAY_BE_RUNNING: Final = frozenset({Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED})


def of_failure(error: DriverError, *, may_reschedule: bool) -> MaybeRunning | NeverSent | NoSpaceHere | Refused:
    """`may_reschedule`: there is topology and a selected node, so giving the claim back can lead it elsewhere."""
    if isinstance(error, NotSent):
        return NeverSent(str(error))
    if error.code in _MAY_BE_RUNNING or isinstance(error, BadAnswer):
        return MaybeRunning(str(error))
    if error.code is Code.RESOURCE_EXHAUSTED and may_reschedule:
        return NoSpaceHere(str(error))
    return Refused(
        str(error),
        infeasible=error.code is Code.INVALID_ARGUMENT,
        doubtful=error.code in _SAYS_NOTHING,
        occupied=error.code is Code.ALREADY_EXISTS,
    )


async def measure(driver: Driver, query: CapacityQuery) -> CapacityAnswer | Unmeasured:
    """GetCapacity with its failure as a value: not knowing is something a rule decides about."""
    try:
        return await driver.get_capacity(query)
    except DriverError as error:
        return Unmeasured(str(error), away=isinstance(error, NotSent), perhaps=error.code is Code.UNAVAILABLE)
