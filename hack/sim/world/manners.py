"""How a driver lies: what it makes of the answer to a creation, or of its refusal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hack.sim.driver.local_driver import LocalDriver
from hack.sim.world.plan_hostile import (
    BOASTS,
    CRASHES,
    DOUBLES,
    ECHOES,
    EVERYWHERE,
    LIES,
    SUCCEEDS_LATE,
    TOO_LONG,
    WOBBLES,
)
from sidecar.csi import codec, secret_words
from sidecar.csi.api import CapacityAnswer, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, Unheard
from sidecar.model import names
from sidecar.model.topology import Segment

SOMEBODY_ELSE: Final = "somebody-else"
SECRET: Final = "keys"
"""The Secret of the classes that have one."""
CANARY: Final = "canary-that-nobody-may-read"
"""What the Secrets of worlds hold."""
_PLACES: Final = 1500
_WOBBLE, _WAVE = 4096, 5
_LARGEST: Final = 3 * 2**29


@dataclass(slots=True)
class Manners:
    """`way` is one of those of `plan_hostile`, or empty."""

    way: str = ""
    named: Callable[[str], bool] = lambda handle: False
    """Whether a PersistentVolume has that handle."""
    victim: str = ""
    """The one volume of which a driver that crashes dies each time."""

    lateness: float = 0.0
    """Seconds that a driver which succeeds late takes longer than it says."""
    made_late: Callable[[str], None] = lambda handle: None
    """Called with the handle of each volume that it has made so."""
    put_off: dict[str, bool] = field(default_factory=dict)
    """By volume, of what was given up: whether the driver is still at it."""

    measured: int = 0
    """How often it was asked for its free space while it wobbles."""

    def tells(self, answer: CapacityAnswer) -> CapacityAnswer:
        """What it answers to GetCapacity."""
        if self.way != WOBBLES:
            return answer
        self.measured += 1
        most = _LARGEST if answer.maximum is None else min(answer.maximum, _LARGEST)
        return replace(answer, available=answer.available + _WOBBLE * (self.measured % _WAVE), maximum=most)

    def denies(self, request: CreateRequest, driver: LocalDriver) -> None:
        """No driver may say so of a volume that it has made."""
        if self.way == LIES and not any(volume.name == request.name for volume in driver.volumes()):
            raise DriverError(Code.RESOURCE_EXHAUSTED, "no room, whatever was said")

    def puts_off(self, request: CreateRequest, driver: LocalDriver) -> bool:
        """Whether this call is given up, and goes on all the same. That befalls each volume once."""
        if self.put_off.get(request.name):
            raise DriverError(Code.RESOURCE_EXHAUSTED, "no room, for it is being used")
        if self.way != SUCCEEDS_LATE or request.name in self.put_off or any(volume.name == request.name for volume in driver.volumes()):
            return False
        self.put_off[request.name] = True
        return True

    def kills(self, method: str, name: str) -> bool:
        """Whether the driver dies of this call. The first one that it is asked for is the one."""
        if self.way != CRASHES.get(method):
            return False
        self.victim = self.victim or name
        return name == self.victim

    def before(self, request: CreateRequest, secrets: Mapping[str, str]) -> None:
        """May refuse. The text passes what takes secrets out of it, as it does behind a socket."""
        if self.way == ECHOES and secrets:
            text = f"mkfs --key={' '.join(secrets.values())} failed"
            raise DriverError(Code.INTERNAL, secret_words.without_secrets(text, codec.create_volume(request, secrets=secrets)))

    def instead(self, request: CreateRequest, driver: LocalDriver) -> CreatedVolume | None:
        """Another claim's volume. Not for one that the driver has made already: nobody could find that one any more."""
        volumes = driver.volumes()
        if self.way != DOUBLES or any(volume.name == request.name for volume in volumes):
            return None
        return next((driver.volume(volume.id) for volume in volumes if self.named(volume.id)), None)

    def after(self, made: CreatedVolume) -> CreatedVolume:
        """What arrives of the answer."""
        if self.way == TOO_LONG:
            raise Unheard(Code.RESOURCE_EXHAUSTED, "Received message larger than max")
        if self.way == BOASTS:
            return replace(made, context={**made.context, names.PROVISIONER_IDENTITY: SOMEBODY_ELSE})
        if self.way == EVERYWHERE:
            (own,) = made.topologies
            return replace(made, topologies=(own, *(Segment.of({**own.labels(), "rack": str(number)}) for number in range(_PLACES))))
        return made
