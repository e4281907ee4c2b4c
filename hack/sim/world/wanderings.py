"""How often nodes may take the same Immediate claim, whatever their drivers say of room."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from hack.sim.world.plan import IMMEDIATE_CLASS
from sidecar.kube.api import CLAIMS
from sidecar.model.objects import Json

Found = Callable[[str, str], None]

WANDERS: Final = "a claim wanders"
_SECONDS_EACH: Final = 5.0
"""The random race has a node come back after half a minute or so, the ranked order after all others and a pause of 20 seconds."""
_AT_ONCE: Final = 4


class Wanderings:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def taken(self, claim: Json, node: str) -> None:
        """A scheduler may choose a node for a claim that binds late as often as it likes."""
        if claim["spec"].get("storageClassName") == IMMEDIATE_CLASS:
            self._taken[claim["metadata"]["uid"], claim["metadata"]["name"], node].append(round(self._clock(), 3))

    def judge(self, transcript: Iterable[str], lives: Mapping[str, int], found: Found) -> None:
        """`lives`: of the nodes that are judged. Tenants may move a claim as often as they like, so only what the node itself has written
        counts. A process that starts does not know what it has tried in the random race."""
        wrote = set(_written(transcript))
        for (_, name, node), times in self._taken.items():
            at = [time for time in times if (time, node, name) in wrote]
            seconds = at[-1] - at[0] if at else 0.0
            if node in lives and len(at) > seconds / _SECONDS_EACH + _AT_ONCE + lives[node] - 1:
                found(WANDERS, f"{node} took claim {name} {len(at)} times in {seconds:.0f} s")


def _written(transcript: Iterable[str]) -> Iterator[tuple[float, str, str]]:
    """Time, node and claim of each update that the server accepted from a node."""
    for line in transcript:
        at, node, verb, *rest = line.split(maxsplit=5)
        if verb == "update" and rest[:1] == [str(CLAIMS)] and not rest[1].endswith(":"):
            yield float(at), node, rest[1]
