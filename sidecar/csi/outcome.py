"""What a gRPC status means: for CreateVolume whether a volume may exist, for GetCapacity why the free space is unknown.

The code decides, and no text. Where an answer is lost gRPC makes the status itself, with a code that says nothing of what the driver did.
Only for an HTTP server in the driver's place (401, 403, 404), and for a call that is reset as too much or as too insecure, its codes end a
call for certain, and no gRPC server does either.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.csi.api import CapacityAnswer, CapacityQuery, CreatedVolume, Driver
from sidecar.errors import SidecarError, shortened


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
    """The driver did not answer OK. The text is the one that upstream writes into Events for the same status."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = shortened(message)
        super().__init__(f"rpc error: code = {code.value} desc = {self.message}")


class BadAnswer(DriverError):
    """The driver answered OK with something that cannot be used. What it did is unknown, so this is never final."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message)


class Lost(DriverError):
    """The connection to the driver ended during the call. Perhaps the driver died of this very call."""


class NotSent(DriverError):
    """The call was not sent: the driver was away, or was lost in this very call before."""


class DriverFault(Enum):
    """What a driver does that no driver may. The values are metric labels."""

    DUPLICATE_HANDLE = "duplicate-handle"
    """It answers CreateVolume with a volume that is another claim's."""


@dataclass(frozen=True, slots=True)
class Done:
    """The volume exists."""

    volume: CreatedVolume


@dataclass(frozen=True, slots=True)
class MaybeRunning:
    """The driver may still be creating the volume, or may have created it."""

    why: str


@dataclass(frozen=True, slots=True)
class NeverSent:
    """This attempt was not sent. What an earlier attempt did is as unknown as before."""

    why: str


@dataclass(frozen=True, slots=True)
class NoSpaceHere:
    """Nothing was created because this node has not enough free space; another node may have."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This attempt is over: nothing was created, and the driver is not working on it."""

    why: str
    infeasible: bool = False
    """The same request would fail again for a long while."""
    doubtful: bool = False
    """The status does not rule out that there is a volume: drivers have answered it for volumes that they had created."""
    occupied: bool = False
    """A volume of that name exists, and it is not the one that was asked for."""
    not_found: bool = False
    """The driver does not know something that was asked for: of a clone, its source."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """The free space is unknown."""

    why: str
    away: bool = False
    """The driver cannot be reached, so it cannot create volumes either."""
    perhaps: bool = False
    """Unavailable: the driver may have gone away during the call, or something behind it is unavailable."""


Outcome = Done | MaybeRunning | NeverSent | NoSpaceHere | Refused

_SAYS_NOTHING: Final = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})
_MAY_BE_RUNNING: Final = frozenset({Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED})


def of_failure(error: DriverError, *, may_reschedule: bool) -> MaybeRunning | NeverSent | NoSpaceHere | Refused:
    """`may_reschedule`: there is topology and a selected node, so the scheduler can choose another node for the claim."""
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
        not_found=error.code is Code.NOT_FOUND,
    )


def is_over(error: DriverError) -> bool:
    """Whether the driver has ended the call for certain, so that nothing of it can still happen."""
    unknown = isinstance(error, BadAnswer | NotSent) or error.code in _MAY_BE_RUNNING | _SAYS_NOTHING
    return not unknown


async def measure(driver: Driver, query: CapacityQuery) -> CapacityAnswer | Unmeasured:
    """GetCapacity, with a failure as a value, since rules decide what unknown free space means."""
    try:
        return await driver.get_capacity(query)
    except DriverError as error:
        return Unmeasured(str(error), away=isinstance(error, NotSent), perhaps=error.code is Code.UNAVAILABLE)
