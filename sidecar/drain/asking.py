"""Asks the API server for what a running sidecar has to know of its node and does not watch; what it cannot learn it says.

Answers, refusals among them, are trusted for a while: a judgement is made at every change, and most changes are of other things.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Surroundings
from sidecar.drain.watched import Watched, unheard, unknown_claims
from sidecar.kube.api import CAPACITIES, CLAIMS, NAMESPACES, NODES, SNAPSHOT_CONTENTS, VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import CapacityRecord, Claim

R = TypeVar("R")

_TRUSTED: Final = 60.0
_LATE: Final = "are served since this process began, and it does not watch them: restart it"


@dataclass(frozen=True, slots=True)
class _Known:
    at: float
    answer: Any
    """None: there is no such object."""
    error: str


class Asker:
    """One per process. `ignorance` is what this look could not learn; `begin` starts the next one."""

    def __init__(self, kube: KubeApi, settings: Settings, watched: Watched, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._watched = watched
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self.ignorance: list[str] = []

    def begin(self) -> None:
        now = self._clock()
        self._known = {key: known for key, known in self._known.items() if now - known.at < _TRUSTED}
        self.ignorance = []

    async def claims(self) -> list[Claim]:
        """Those of volumes here that the watch did not keep."""
        found = []
        for namespace, name in unknown_claims(self._watched):
            answer = await self._ask(f"claim {namespace}/{name}", lambda: self._kube.get(CLAIMS, name, namespace=namespace))  # noqa: B023
            found += [Claim.of(answer)] if answer else []
        return found

    async def volumes(self) -> None:
        """Whether all that is bound here, as claims say, has been heard of. A volume that is gone does not count."""
        for claim in unheard(self._watched, self._settings.node):
            try:
                await self._kube.get(VOLUMES, claim.volume_name)
            except NotFound:
                continue
            except ApiError as error:
                self.ignorance.append(f"volume {claim.volume_name}: {error}")
            else:
                self.ignorance.append(f"volume {claim.volume_name} of claim {claim.full_name} has not been heard of yet")

    async def snapshots(self) -> None:
        """Where they are not watched because there were none to be had: whether there are by now."""
        if self._watched.without_contents():
            served = await self._ask(str(SNAPSHOT_CONTENTS), lambda: self._kube.list_page(SNAPSHOT_CONTENTS, limit=1))
            self.ignorance += [f"{SNAPSHOT_CONTENTS} {_LATE}"] if served else []

    async def policies(self) -> dict[str, str]:
        """The words of namespaces. Of one that is gone only volumes are left that were kept."""
        wanted = {volume.claim.namespace for volume in self._watched.volumes.values() if volume.claim is not None}
        found = {}
        for name in sorted(wanted):
            answer = await self._ask(f"namespace {name}", lambda: self._kube.get(NAMESPACES, name))  # noqa: B023
            found[name] = ((answer or {}).get("metadata", {}).get("annotations") or {}).get(names.DRAIN_POLICY, "")
        return {name: word for name, word in found.items() if word}

    async def surroundings(self) -> Surroundings | None:
        """Where volumes could go; None if that is not to be had."""
        found: Surroundings | None = await self._ask("where volumes could go", self._look_around)
        return found

    async def _look_around(self) -> Surroundings:
        others = [Node.of(obj) async for obj in every(self._kube, NODES, cached=True)]
        ours = f"{names.CAPACITY_DRIVER_LABEL}={self._settings.driver}"
        # Where sidecars of this driver publish them, and where their role lets them look.
        published = every(self._kube, CAPACITIES, namespace=self._settings.namespace, label_selector=ours, cached=True)
        records = [CapacityRecord.of(obj) async for obj in published]
        return Surroundings(tuple(other for other in others if other.name != self._settings.node), tuple(records))

    async def _ask(self, what: str, question: Callable[[], Awaitable[R]]) -> R | None:
        known = self._known.get(what)
        if known is None:
            known = self._known[what] = await self._answer(question)
        if known.error:
            self.ignorance.append(f"{what}: {known.error}")
        answer: R | None = known.answer
        return answer

    async def _answer(self, question: Callable[[], Awaitable[R]]) -> _Known:
        at = self._clock()
        try:
            return _Known(at, await question(), "")
        except NotFound:
            return _Known(at, None, "")
        except ApiError as error:
            return _Known(at, None, str(error))
