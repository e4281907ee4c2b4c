"""Supplies the facts of a running sidecar: what its watches hold, and what it asks the API server for besides.

Answers, refusals among them, are kept for a minute: the node is judged at every change, and most changes concern something else.
What could not be read becomes a sentence in `ignorance`, and no verdict is True on that ground.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.assembly import Facts, content_lies_here, is_unseen, namespace_is_heeded, namespace_notes, policy_namespaces
from sidecar.drain.facts.claimants_io import Claimants
from sidecar.drain.facts.driver_list import DriverList
from sidecar.drain.facts.locations import VolumeLocator, maker_of
from sidecar.drain.facts.mounts_io import MountedVolumes, Mounts
from sidecar.drain.facts.mounts_unknown import has_mounted
from sidecar.drain.facts.other_nodes_io import OtherNodes
from sidecar.drain.facts.renamed_snapshots_io import RenamedSnapshots
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, Surroundings, unread_key
from sidecar.drain.facts.snapshot_sources_io import SnapshotSources
from sidecar.drain.facts.unseen_volumes import UnseenVolumes
from sidecar.drain.facts.waiting_claims import WaitingClaims
from sidecar.drain.facts.watched import (
    OpenClaims,
    Watched,
    bound_volumes,
    missing_claims,
    open_claims,
    other_nodes_needed,
    with_driver_labels,
)
from sidecar.drain.settings import Settings
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NAMESPACES, SNAPSHOT_CONTENTS, KubeApi, records
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Volume

# Seconds until more is asked, where one look may ask for some only.
_ASK_ON: Final = 5.0
# Claims of volumes without a place that are asked for. Of what comes after those it is not known whether it may be lost.
_MANY: Final = 100
_LATE: Final = "have been installed since this sidecar started, and it will watch them within six minutes"


@dataclass(frozen=True, slots=True)
class _Placed:
    """Which volumes are here, or may be."""

    mounts: Mounts
    locator: VolumeLocator
    held: tuple[Volume, ...]
    doubtful: tuple[Volume, ...]
    unplaced: tuple[Volume, ...]
    not_listed: str
    """As `Facts.not_listed`."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the API server was asked about them."""

    claims: tuple[Claim, ...]
    namespaces: Mapping[str, Json | None]
    classes: tuple[Class, ...]
    unplaced: tuple[SnapshotContent, ...]
    renamed: tuple[SnapshotContent, ...]
    """Of volumes that name another node."""
    without_place: tuple[tuple[Volume, Claim | None], ...]
    """As `Facts.unplaced`."""
    claimants: tuple[Pod, ...]


class Lookups:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, watched: Watched, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._watched = watched
        self._clock = clock
        self._asking = asking = Asking(clock=clock)
        self._mounted = MountedVolumes(kube, asking, settings.driver)
        self._claimants = Claimants(kube, asking, watched.recent)
        self._nodes = OtherNodes(kube, asking, settings.node)
        self._sources = SnapshotSources(kube, asking, settings.driver)
        self._renamed = RenamedSnapshots(kube, asking, driver=settings.driver, node=settings.node)
        self._waiting = WaitingClaims(clock=clock)
        self._unseen = UnseenVolumes(kube, concerns=self._may_be_here, clock=clock)
        self._me: Node | None = None
        """As its driver labels it."""
        self._elsewhere: tuple[Pod, ...] = ()
        """Pods of other nodes that the last look found."""
        self.changes_in: float | None = None
        """Seconds until the facts of the last look are others although nothing changes; None: they are not."""

    @property
    def ignorance(self) -> list[str]:
        """What this look could not learn, in sentences; `unread` as `Snapshot.unread` wants it."""
        return self._asking.ignorance

    @property
    def unread(self) -> set[str]:
        return self._asking.unread

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self._asking.forbidden

    def recall(self, volumes: Iterable[str], *, hidden: bool) -> None:
        """Names of volumes that an earlier process has found here. `hidden`: as `Snapshot.hidden`, and not in the list of the driver."""
        self._mounted.recall(volumes, hidden=hidden)

    def begin(self, *, anew: bool = False) -> None:
        self._asking.begin(anew=anew)

    async def facts(self, node: Node, *, observed: bool = False, anew: bool = False) -> Facts:
        """All but the surroundings: only volumes that are to move need them, and they are lists of the whole cluster.

        `observed`: somebody empties the node, and what is a minute old is not good enough where a verdict depends on it.

        `anew`: nor is any answer that was asked for before.
        """
        self.begin(anew=anew)
        bound = self._bound()
        placed = await self._place(node, observed=observed)
        asked = await self._ask_about(node, placed, observed=observed)
        # No await from here on, so that volumes, pods, claims and budgets are of one moment. What was asked is about the volumes that were
        # here before: of one that has come since, whose creation may have ended too, only that is known.
        came = self._came_since(placed, bound)
        self._asking.ignorance += [f"volume {name} came while this was looked at" for name in sorted(came)]
        found = open_claims(placed.held, self._watched.pods.values())
        until = self._until((*found.unused, *found.kept), observed=observed)
        self.changes_in = until if placed.mounts.complete and not came else _ASK_ON
        return self._together(node, placed, asked, found, observed=observed)

    def _bound(self) -> set[str]:
        """Volumes that claims of this node name, seen or not."""
        claims = self._watched.claims.by_index("node", self._settings.node)
        return {claim.volume_name for claim in claims if claim.volume_name and claim.provisioner == self._settings.driver}

    def _came_since(self, placed: _Placed, bound: set[str]) -> set[str]:
        before = {volume.name for volume in (*placed.held, *placed.doubtful)}
        seen = {each.name for each in self._watched.volumes.values() if placed.locator.holds(each)}
        return (seen | self._bound()) - before - bound

    async def _place(self, node: Node, *, observed: bool) -> _Placed:
        watched, listed = self._watched, self._watched.listed()
        mounts = await self._mounted.of(
            watched.pods.values(),
            bound_volumes(watched),
            attached=watched.attached(),
            elsewhere=self._elsewhere,
            is_placed=VolumeLocator(with_driver_labels(watched, node), ()).holds_by_label,
            observed=observed,
        )
        known = _distinct((*watched.volumes.values(), *listed.volumes, *mounts.ours))
        locator = await self._locator(node, known, mounts, listed, observed=observed)
        held = tuple(volume for volume in known if locator.holds(volume))
        doubtful = tuple(volume for volume in known if locator.is_doubtful(volume))
        unplaced = tuple(volume for volume in watched.volumes.values() if locator.is_unplaced(volume))
        return _Placed(mounts, locator, held, doubtful, unplaced, listed.not_asked)

    async def _ask_about(self, node: Node, placed: _Placed, *, observed: bool) -> _Asked:
        held = placed.held
        without_place = await self._run_nowhere_else(node, placed.unplaced) if observed else placed.unplaced
        of_unplaced = await self._claims_of_unplaced(without_place)
        fetched, namespaces, classes = await self.claims(held), await self.namespaces(held), await self.classes(held)
        await self.unseen_volumes(node)
        await self.snapshots()
        unplaced = await self._unplaced(node, (*held, *placed.doubtful))
        renamed = await self._renamed.of(volume for volume in held if placed.locator.is_renamed(volume))
        found = open_claims(held, self._watched.pods.values())
        # Only a reboot depends on those that pods keep, and it is asked about when somebody empties the node.
        claims = (*found.unused, *found.kept) if observed else found.unused
        self._elsewhere = await self._claimants.of(claims, observed=observed)
        without = tuple((volume, of_unplaced.get(volume.name)) for volume in without_place)
        return _Asked(tuple(fetched), namespaces, tuple(classes), unplaced, renamed, without, self._elsewhere)

    def _together(self, node: Node, placed: _Placed, asked: _Asked, found: OpenClaims, *, observed: bool) -> Facts:
        watched, recent, locator, held = self._watched, self._watched.recent, placed.locator, placed.held
        namespaces, outside = asked.namespaces, locator.from_outside(node)
        lately = recent.among(found.unused, observed=observed) | recent.evicted_among(found.kept, observed=observed)
        return Facts(
            driver=self._settings.driver,
            node_name=node.name,
            node=node,
            volumes=held,
            doubtful=tuple(volume.name for volume in placed.doubtful),
            claims=(*asked.claims, *watched.claims.values()),
            pods=tuple(watched.pods.values()),
            claimants=asked.claimants,
            attached=watched.attached(),
            lately_used=lately,
            lately_left=recent.seconds_left(lately, observed=observed),
            lately_named=recent.named_among(found.unused),
            shared_with=MappingProxyType({volume.name: others for volume in held if (others := locator.others_that_stay(volume))}),
            renamed=frozenset(volume.name for volume in held if locator.is_renamed(volume)),
            hidden=frozenset(volume.name for volume in held if locator.is_hidden(volume, outside)) | self._mounted.unconfirmed,
            foreign=placed.mounts.foreign,
            contents=(*watched.contents.values(), *asked.renamed),
            unplaced_contents=asked.unplaced,
            unplaced=asked.without_place,
            classes=(*asked.classes, *watched.classes.values()),
            namespace_policies=MappingProxyType({name: notes for name, obj in namespaces.items() if (notes := namespace_notes(obj))}),
            unheeded_namespaces=frozenset(name for name, obj in namespaces.items() if not self._is_heeded(name, obj)),
            budgets=tuple(watched.budgets.values()),
            surroundings=None,
            not_listed=placed.not_listed,
            begun=watched.begun(),
            waited=self._waiting.seconds(watched.claims.by_index("node", node.name)),
            unread=frozenset(self.unread),
            ignorance=(*watched.ignorance(), *self.ignorance),
        )

    def _until(self, unused: Iterable[str], *, observed: bool) -> float | None:
        ends = self._watched.recent.ends_at(unused, observed=observed)
        return None if ends is None else ends - self._clock()

    async def _locator(self, node: Node, known: Iterable[Volume], mounts: Mounts, listed: DriverList, *, observed: bool) -> VolumeLocator:
        """Other nodes are listed only where the place of some volume depends on them: there may be thousands."""
        me, names_of_mounted = with_driver_labels(self._watched, node), frozenset(volume.name for volume in mounts.ours)
        at_most = other_nodes_needed(self._watched, node, known, listed, observed=observed)
        others = () if at_most is None else await self._nodes.all(at_most=at_most)
        handles = listed.handles if others is not None else {handle: True for handle, alone in listed.handles.items() if alone}
        locator = VolumeLocator(me, others or (), mounted=names_of_mounted, listed=handles, place=self._watched.segment)
        if not others or not observed:
            return locator
        others = await self._nodes.confirmed(others, locator, known)
        return VolumeLocator(me, others, mounted=names_of_mounted, listed=handles, place=self._watched.segment)

    async def _unplaced(self, node: Node, told: Iterable[Volume]) -> tuple[SnapshotContent, ...]:
        """Snapshots of which nothing says where they are. `told`: volumes here, and those of whose doubtful place is told already."""
        handles = {(volume.driver, volume.handle) for volume in told}
        without = (content for content in self._watched.contents.values() if not content.managed_by)
        left = [content for content in without if not content_lies_here(content, node_name=node.name, handles=handles)]
        if not left:
            return ()
        others = await self._nodes.all()
        return await self._sources.unplaced(left, VolumeLocator(with_driver_labels(self._watched, node), others or ()))

    async def classes(self, held: Iterable[Volume]) -> list[Class]:
        """Classes of volumes that people made. They name no driver, so the watch drops them; their policy counts all the same."""
        found = []
        for name in sorted({volume.class_name for volume in held} - {"", *(class_.name for class_ in self._watched.classes.values())}):
            answer = await self._asking.ask(unread_key(CLASS, name), lambda: self._kube.get(CLASSES, name))  # noqa: B023
            found += [Class.of(answer)] if answer else []
        return found

    async def claims(self, held: Iterable[Volume]) -> list[Claim]:
        """Claims of volumes here that the watch dropped."""
        found = []
        for namespace, name in missing_claims(self._watched, held):
            what = unread_key(CLAIM, f"{namespace}/{name}")
            answer = await self._asking.ask(what, lambda: self._kube.get(CLAIMS, name, namespace=namespace))  # noqa: B023
            found += [Claim.of(answer)] if answer else []
        return found

    async def _run_nowhere_else(self, node: Node, unplaced: Iterable[Volume]) -> tuple[Volume, ...]:
        """A volume of which nothing else says where it is, is where a pod runs with it."""
        claims = {volume.name: volume.claim_name for volume in unplaced if volume.claim}
        pods = await self._claimants.of(claims.values(), observed=True)
        used = {claim for pod in pods if pod.node not in ("", node.name) and has_mounted(pod) for claim in pod.claim_names}
        return tuple(volume for volume in unplaced if claims.get(volume.name) not in used)

    async def _claims_of_unplaced(self, unplaced: Iterable[Volume]) -> dict[str, Claim]:
        """Only where something may say that the volume can be lost: they may be as many as the driver has in the whole cluster."""
        noted = {class_.name for class_ in self._watched.classes.values() if class_.notes}
        said = sorted((each for each in unplaced if each.notes or each.class_name in noted), key=lambda volume: volume.name)
        found: dict[str, Claim] = {}
        for volume in said[:_MANY]:
            known = self._watched.claims.get(volume.claim.uid) if volume.claim else None
            claim = known or next(iter(await self.claims((volume,))), None)
            found |= {volume.name: claim} if claim is not None else {}
        return found

    async def unseen_volumes(self, node: Node | None = None) -> None:
        """A claim may name a volume of this node before the watch of volumes has shown it; without the volume too little would block."""
        name, seen = self._settings.node, self._watched.volumes
        claims = [claim for claim in self._watched.claims.by_index("node", name) if is_unseen(claim, node_name=name, seen=seen)]
        self._me = with_driver_labels(self._watched, node) if node else None
        self._asking.ignorance += await self._unseen.ignorance_of(claims, forbidden=self._asking.forbidden)

    def _may_be_here(self, claim: Claim, volume: Volume) -> bool:
        """What its claim says of where it is proves nothing. A maker may have had another name, so labels that name this node count too."""
        if volume.driver != self._settings.driver or (volume.claim is not None and volume.claim.uid not in ("", claim.uid)):
            return False
        me, maker = self._me, maker_of(volume)
        if me is None or maker == me.name:
            return True
        terms = volume.affinity
        if maker:
            return terms is not None and any(term.matches(me.name, me.labels) for term in terms)
        # The node may have lost a label.
        return terms is None or any(term.may_match(me.name, me.labels) for term in terms)

    async def snapshots(self) -> None:
        """Snapshots that were installed later: a watch that found no such type is not started again."""
        if self._watched.without_contents():
            served = await self._asking.ask(str(SNAPSHOT_CONTENTS), lambda: self._kube.list_page(SNAPSHOT_CONTENTS, limit=1))
            self._asking.ignorance += [f"{SNAPSHOT_CONTENTS} {_LATE}"] if served and served.items else []

    async def namespaces(self, held: Iterable[Volume]) -> dict[str, Json | None]:
        """Those whose policy counts, by name. None: it is gone, or could not be read."""
        found = {}
        for name in policy_namespaces(held):
            found[name] = await self._asking.ask(unread_key(NAMESPACE, name), lambda: self._kube.get(NAMESPACES, name))  # noqa: B023
        return found

    def _is_heeded(self, name: str, obj: Json | None) -> bool:
        return unread_key(NAMESPACE, name) in self.unread or namespace_is_heeded(obj, self._settings.tenant_policies)

    async def surroundings(self) -> Surroundings | None:
        """Where volumes could move to; None if it could not be read."""
        others = await self._nodes.all()
        records = await self._asking.ask("where volumes could go", self._published)
        return None if others is None or records is None else Surroundings(others, records)

    async def _published(self) -> tuple[CapacityRecord, ...]:
        ours = f"{names.CAPACITY_DRIVER_LABEL}={self._settings.driver}"
        # Where sidecars of this driver publish them, and where their role lets them look.
        where = {"namespace": self._settings.namespace, "label_selector": ours}
        return tuple([record async for record in records(self._kube, CAPACITIES, CapacityRecord.of, cached=True, **where)])


def _distinct(volumes: Iterable[Volume]) -> tuple[Volume, ...]:
    """The watch comes first, because it is the newest."""
    found: dict[str, Volume] = {}
    for volume in volumes:
        found.setdefault(volume.name, volume)
    return tuple(found.values())
