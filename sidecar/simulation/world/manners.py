"""How a driver lies: what it makes of the answer to a creation, or of its refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sidecar.csi import codec, secret_words
from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, Unheard
from sidecar.model import names
from sidecar.simulation.world.plan_hostile import BOASTS, ECHOES, TOO_LONG

SOMEBODY_ELSE: Final = "somebody-else"
CANARY: Final = "canary-that-nobody-may-read"
"""What the Secrets of worlds hold."""


@dataclass(slots=True)
class Manners:
    """`way` is one of those of `plan_hostile`, or empty."""

    way: str = ""

    def before(self, request: CreateRequest, secrets: Mapping[str, str]) -> None:
        """May refuse. The text passes what takes secrets out of it, as it does behind a socket."""
        if self.way == ECHOES and secrets:
            text = f"mkfs --key={' '.join(secrets.values())} failed"
            raise DriverError(Code.INTERNAL, secret_words.without_secrets(text, codec.create_volume(request, secrets=secrets)))

    def after(self, made: CreatedVolume) -> CreatedVolume:
        """What arrives of the answer."""
        if self.way == TOO_LONG:
            raise Unheard(Code.RESOURCE_EXHAUSTED, "Received message larger than max")
        if self.way == BOASTS:
            return replace(made, context={**made.context, names.PROVISIONER_IDENTITY: SOMEBODY_ELSE})
        return made
