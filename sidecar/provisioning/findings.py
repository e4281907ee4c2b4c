"""What was learnt about a claim while this node was busy with it, apart from how far it has come."""

from dataclasses import dataclass
from typing import Final

from sidecar.provisioning.needs import Ref

_ENOUGH_FAILURES: Final = 3


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The driver is not asked again before that time, unless the class is replaced."""

    until: float
    class_uid: str


@dataclass(frozen=True, slots=True)
class SourceHold:
    """Our finalizer on the source of the volume. It is written before the first creation and needed until the volume is stored."""

    source: Ref | None = None
    """The source. Another claim that is done with the same source must not take our finalizer off it."""
    just_written: bool = False
    """The finalizer was put on a moment ago. If the next look does not find it, something else takes it off again."""
    forbidden: bool = False
    """The API server forbids to put the finalizer on."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was learnt about a claim. It is kept apart from the progress because it stays true when that changes: a claim that cannot
    be handed back still cannot be after the next creation has failed. When the claim is forgotten, only that it failed is remembered."""

    source: SourceHold = SourceHold()
    infeasible: Infeasible | None = None
    hand_back_refused: str = ""
    """Why the API server refused the write that hands the claim back; then the claim is provisioned here. Empty: it did not refuse."""
    hopeless: bool = False
    """The last attempt failed for a reason that another attempt will not change, so no space is reserved until something changes."""
    failures: int = 0
    """How many attempts have failed, of whatever kind, without the driver being away."""
    creating_since: float | None = None
    """When the driver was last asked for the claim's volume."""
    clash: str = ""
    """The handle of which the claim's user was told that it is another's."""
    release_turn: float | None = None
    """When this node may release the claim, a source of clones, in place of the node that has its volume."""

    @property
    def in_vain(self) -> bool:
        """What has failed a few times may fail for ever."""
        return self.hopeless or self.failures >= _ENOUGH_FAILURES

    @property
    def remembered(self) -> "Findings":
        """What is kept of it for the case that the claim comes back: somebody may move it away and back all the time."""
        return Findings(hopeless=self.hopeless, failures=self.failures)


NOTHING_FOUND: Final = Findings()
