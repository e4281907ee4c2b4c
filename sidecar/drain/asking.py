"""Asks the API server for what a running sidecar has to know of its node and does not watch; what it cannot learn it says.

Answers, refusals among them, are trusted for a while: a judgement is made at every change, and most changes are of other things.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sidecar.drain.place import Pinned, place_unknown
from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE, called
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Surroundings
from sidecar.drain.watched import Watched, at_home, undecided, unheard, unknown_claims
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NAMESPACES, NODES, SNAPSHOT_CONTENTS, VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import CapacityRecord, Claim, Class, Volume

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
        self.unread: set[str] = set()
        """What was asked for and not answered."""

    def begin(self) -> None:
        now = self._clock()
        self._known = {key: known for key, known in self._known.items() if now - known.at < _TRUSTED}
        self.ignorance, self.unread = [], set()

    async def held(self, node: Node) -> tuple[Volume, ...]:
        """The volumes that lie here and nowhere else. What other nodes there are is asked only where some volume's place depends on it."""
        others = await self._others() if undecided(self._watched, node) else ()
        pinned = Pinned(at_home(self._watched, node), others or ())
        volumes = self._watched.volumes.values()
        doubtful = sorted(volume.name for volume in volumes if pinned.is_doubtful(volume))
        if doubtful:
            self.ignorance.append(place_unknown(doubtful))
        return tuple(volume for volume in volumes if pinned.holds(volume))

    async def classes(self, held: Iterable[Volume]) -> list[Class]:
        """Those of volumes that people made, which no driver is behind: their word counts too."""
        found = []
        for name in sorted({volume.class_name for volume in held} - {"", *(class_.name for class_ in self._watched.classes.values())}):
            answer = await self._ask(called(CLASS, name), lambda: self._kube.get(CLASSES, name))  # noqa: B023
            found += [Class.of(answer)] if answer else []
        return found

    async def claims(self, held: Iterable[Volume]) -> list[Claim]:
        """Those of volumes here that the watch did not keep."""
        found = []
        for namespace, name in unknown_claims(self._watched, held):
            what = called(CLAIM, f"{namespace}/{name}")
            answer = await self._ask(what, lambda: self._kube.get(CLAIMS, name, namespace=namespace))  # noqa: B023
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
            self.ignorance += [f"{SNAPSHOT_CONTENTS} {_LATE}"] if served and served.items else []

    async def policies(self, held: Iterable[Volume]) -> dict[str, str]:
        """The words of namespaces. Of one that is gone only volumes are left that were kept."""
        found = {}
        for name in sorted({volume.claim.namespace for volume in held if volume.claim is not None}):
            answer = await self._ask(called(NAMESPACE, name), lambda: self._kube.get(NAMESPACES, name))  # noqa: B023
            found[name] = ((answer or {}).get("metadata", {}).get("annotations") or {}).get(names.DRAIN_POLICY)
        return {name: word for name, word in found.items() if word is not None}

    async def surroundings(self) -> Surroundings | None:
        """Where volumes could go; None if that is not to be had."""
        others = await self._others()
        records = await self._ask("where volumes could go", self._published)
        return None if others is None or records is None else Surroundings(others, records)

    async def _others(self) -> tuple[Node, ...] | None:
        return await self._ask("the other nodes", self._list_others)

    async def _list_others(self) -> tuple[Node, ...]:
        nodes = [Node.of(obj) async for obj in every(self._kube, NODES, cached=True)]
        return tuple(node for node in nodes if node.name != self._settings.node)

    async def _published(self) -> tuple[CapacityRecord, ...]:
        ours = f"{names.CAPACITY_DRIVER_LABEL}={self._settings.driver}"
        # Where sidecars of this driver publish them, and where their role lets them look.
        published = every(self._kube, CAPACITIES, namespace=self._settings.namespace, label_selector=ours, cached=True)
        return tuple([CapacityRecord.of(obj) async for obj in published])

    async def _ask(self, what: str, question: Callable[[], Awaitable[R]]) -> R | None:
        known = self._known.get(what)
        if known is None:
            known = self._known[what] = await self._answer(question)
        if known.error:
            self.ignorance.append(f"{what}: {known.error}")
            self.unread.add(what)
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
