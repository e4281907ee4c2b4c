"""Supplies the facts of a running sidecar: what its watches hold, and what it asks the API server for besides.

Answers, refusals among them, are kept for a minute: the node is judged at every change, and most changes concern something else.
What could not be read becomes a sentence in `ignorance`, and no verdict is True on that ground.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from sidecar.drain.facts import unseen_volumes
from sidecar.drain.facts.assembly import Facts, is_unseen, namespace_notes, policy_namespaces
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, Surroundings, unread_key
from sidecar.drain.facts.watched import Watched, missing_claims, needs_other_nodes, with_driver_labels
from sidecar.drain.settings import Settings
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NAMESPACES, NODES, SNAPSHOT_CONTENTS, KubeApi, every
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import CapacityRecord, Claim, Class, Notes, Volume

R = TypeVar("R")

_TRUSTED: Final = 60.0
_LATE: Final = "have been installed since this sidecar started, and it does not watch them: restart it"


@dataclass(frozen=True, slots=True)
class _Known:
    at: float
    answer: Any
    """None: there is no such object."""
    error: str


class Lookups:
    """One per process. `begin` starts a look; `ignorance` and `unread` are what that look could not learn."""

    def __init__(self, kube: KubeApi, settings: Settings, watched: Watched, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._watched = watched
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self.ignorance: list[str] = []
        self.unread: set[str] = set()
        """What was asked for and refused or not answered, as `Snapshot.unread` wants it."""

    def begin(self) -> None:
        now = self._clock()
        self._known = {key: known for key, known in self._known.items() if now - known.at < _TRUSTED}
        self.ignorance, self.unread = [], set()

    async def facts(self, node: Node) -> Facts:
        """All but the surroundings: only volumes that are to move need them, and they are lists of the whole cluster."""
        self.begin()
        watched, locator = self._watched, await self._locator(node)
        held = tuple(volume for volume in watched.volumes.values() if locator.holds(volume))
        doubtful = tuple(volume.name for volume in watched.volumes.values() if locator.is_doubtful(volume))
        fetched, policies, classes = await self.claims(held), await self.policies(held), await self.classes(held)
        await self.unseen_volumes()
        await self.snapshots()
        # No await from here on, so that pods, claims and budgets are of one moment.
        return Facts(
            driver=self._settings.driver,
            node_name=node.name,
            node=node,
            volumes=held,
            doubtful=doubtful,
            claims=(*fetched, *watched.claims.values()),
            pods=tuple(watched.pods.values()),
            contents=tuple(watched.contents.values()),
            classes=(*classes, *watched.classes.values()),
            namespace_policies=MappingProxyType(policies),
            budgets=tuple(watched.budgets.values()),
            surroundings=None,
            unread=frozenset(self.unread),
            ignorance=(*watched.ignorance(), *self.ignorance),
        )

    async def _locator(self, node: Node) -> VolumeLocator:
        """Other nodes are listed only where the place of some volume depends on them: there may be thousands."""
        others = await self._others() if needs_other_nodes(self._watched, node) else ()
        return VolumeLocator(with_driver_labels(self._watched, node), others or ())

    async def classes(self, held: Iterable[Volume]) -> list[Class]:
        """Classes of volumes that people made. They name no driver, so the watch drops them; their policy counts all the same."""
        found = []
        for name in sorted({volume.class_name for volume in held} - {"", *(class_.name for class_ in self._watched.classes.values())}):
            answer = await self._ask(unread_key(CLASS, name), lambda: self._kube.get(CLASSES, name))  # noqa: B023
            found += [Class.of(answer)] if answer else []
        return found

    async def claims(self, held: Iterable[Volume]) -> list[Claim]:
        """Claims of volumes here that the watch dropped."""
        found = []
        for namespace, name in missing_claims(self._watched, held):
            what = unread_key(CLAIM, f"{namespace}/{name}")
            answer = await self._ask(what, lambda: self._kube.get(CLAIMS, name, namespace=namespace))  # noqa: B023
            found += [Claim.of(answer)] if answer else []
        return found

    async def unseen_volumes(self) -> None:
        """A claim may name a volume of this node before the watch of volumes has shown it; without the volume too little would block."""
        node, seen = self._settings.node, self._watched.volumes
        claims = [claim for claim in self._watched.claims.by_index("node", node) if is_unseen(claim, node_name=node, seen=seen)]
        self.ignorance += await unseen_volumes.ignorance_of(self._kube, claims)

    async def snapshots(self) -> None:
        """Snapshots that were installed later: a watch that found no such type is not started again."""
        if self._watched.without_contents():
            served = await self._ask(str(SNAPSHOT_CONTENTS), lambda: self._kube.list_page(SNAPSHOT_CONTENTS, limit=1))
            self.ignorance += [f"{SNAPSHOT_CONTENTS} {_LATE}"] if served and served.items else []

    async def policies(self, held: Iterable[Volume]) -> dict[str, Notes]:
        """The policies that namespaces ask for."""
        found = {}
        for name in policy_namespaces(held):
            answer = await self._ask(unread_key(NAMESPACE, name), lambda: self._kube.get(NAMESPACES, name))  # noqa: B023
            found[name] = namespace_notes(answer)
        return {name: notes for name, notes in found.items() if notes}

    async def surroundings(self) -> Surroundings | None:
        """Where volumes could move to; None if it could not be read."""
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
