"""What a running sidecar knows of its own node: its caches, and what is not watched. That is listed anew every minute while somebody
drains the node, every ten minutes in peace, and once more right before a True opens something.

The caches are read last and all at one moment: a creation that ends while lists are awaited must be seen either as one or as the other.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.drain.driver_list_io import DriverList
from sidecar.drain.policy import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Own, Raw, Snapshot, build
from sidecar.drain.use import MADE_AGAIN_WITHIN, RecentUse
from sidecar.drain.where import ELSEWHERE, Locator
from sidecar.kube.api import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    VOLUMES,
    KubeApi,
    find,
    records,
)
from sidecar.kube.errors import ApiError
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, CapacityRecord, Claim, Class, Json, Notes, Volume, notes_of
from sidecar.model.topology import Segment

DRAINING: Final = 60.0
IN_PEACE: Final = 600.0
LAST_GOOD: Final = 180.0
"""Seconds for which the last good answer counts while nothing newer is to be had: a pause of the API server must not turn the verdicts of
all nodes to Unknown and back, with all their writes, just when it has come back."""
_TOLD: Final = {"unseen": "volumes of claims that are bound here"}
_AGAIN: Final = 5.0
"""Seconds until what was not answered is asked again."""
_MOST_CLAIMS: Final = 200
"""Claims that are read one by one because the watch saw them before it knew of their volume. More than these are found in one list."""


@dataclass(frozen=True, slots=True)
class Cached:
    """The caches. Of claims, volumes and pods only those that may concern this node."""

    nodes: Store[Node]
    pods: Store[Pod]
    claims: Store[Claim]
    volumes: Store[Volume]
    classes: Store[Class]
    attachments: Store[Attachment]
    contents: Store[SnapshotContent]
    ignorance: Callable[[], tuple[str, ...]]
    """What is not known at the moment because a watch is not complete, in sentences."""
    segment: Segment = field(default_factory=Segment)
    begun: Callable[[], Collection[str]] = frozenset
    """Uids of claims for which something was begun in the driver."""


class Looks:
    """One per process."""

    def __init__(
        self,
        kube: KubeApi,
        cached: Cached,
        settings: Settings,
        recent: RecentUse,
        driver_list: DriverList,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._kube, self._cached, self._settings, self._recent, self._list = kube, cached, settings, recent, driver_list
        self._clock, self._wall = clock, wall
        self._known: dict[str, tuple[float, Any, frozenset[str]]] = {}
        """By question: when it was answered last, how, and what it was asked about."""
        self._tried: dict[str, tuple[float, str]] = {}
        """By question: when it failed last, and why."""
        self._waiting_since: dict[str, float] = {}
        """By uid of a claim without a volume: since when it waits for one here."""

    async def look(self, node: Node, *, observed: bool, anew: bool = False) -> Snapshot:
        """`observed`: somebody empties the node. `anew`: nothing counts that was read before."""
        every = 0.0 if anew else DRAINING if observed else IN_PEACE
        unread: dict[str, str] = {}
        asked = await self._ask_all(node, every, unread, observed=observed)
        found, missing = await self._ask_for_missing(every, unread)
        # From here on nothing is awaited.
        cached, driver = self._cached, self._settings.driver
        volumes = _by_name([*cached.volumes.values(), *asked["volumes"], *(volume for volume in asked["unseen"].values() if volume)])
        claims = {claim.uid: claim for claim in (*found, *cached.claims.values())}
        open_claims = [volume.claim_name for volume in volumes if volume.phase == "Bound" and volume.claim is not None]
        now_missing = self._missing_claims() - missing
        ignorance = [*cached.ignorance(), *(f"{_TOLD.get(what, what)}: {why}" for what, why in sorted(unread.items()))]
        ignorance += [f"claim {sorted(now_missing)[0]} has not been read yet"] if now_missing else []
        raw = Raw(
            at=self._wall(),
            nodes=(node, *(other for other in asked["nodes"] or () if other.name != node.name)),
            volumes=tuple(volumes),
            claims=tuple(claims.values()),
            pods=(*cached.pods.values(), *asked["pods without a node"]),
            classes=(*cached.classes.values(), *asked["classes"]),
            namespaces=asked["namespaces"],
            contents=tuple(cached.contents.values()),
            attachments=tuple(cached.attachments.values()),
            capacities=asked["capacities"],
            others_known=asked["nodes"] is not None,
            gone=frozenset(name for name, volume in asked["unseen"].items() if volume is None),
            unread=frozenset(unread),
            unlisted=frozenset(kind for kind, what in ((NAMESPACE, "namespaces"), (CLASS, "classes")) if what in unread),
            ignorance=tuple(ignorance),
        )
        listed_at = self._known["pods without a node"][0] if "pods without a node" in self._known else float("-inf")
        own = Own(
            segment=cached.segment,
            begun=frozenset(cached.begun()),
            waited=self._waited(node.name),
            lately_used=self._recent.among(open_claims, listed_at=listed_at),
            listed=self._list.handles,
            untracked=self._list.untracked,
            untracked_unknown=self._list.unknown,
            not_listed=self._list.not_listed,
            default_policy=self._settings.default_policy,
            reprovisions=self._settings.reprovisions,
        )
        return build(raw, node.name, driver, own)

    # --- what is not watched ----------------------------------------------------------------------------------------------

    async def _ask_all(self, node: Node, every: float, unread: dict[str, str], *, observed: bool) -> dict[str, Any]:
        """By question. Lists are of the whole cluster, and of each object only what counts is kept."""
        driver, volumes = self._settings.driver, list(self._cached.volumes.values())
        found: dict[str, Any] = {"nodes": (), "volumes": (), "namespaces": {}, "classes": (), "capacities": None, "pods without a node": ()}
        found["unseen"] = {}

        async def ask(
            what: str, question: Callable[[], Awaitable[Any]], default: Any, *, about: Collection[str] = (), every: float = every
        ) -> None:
            found[what] = await self._ask(what, question, every, unread, default, about=about)

        wanted = {volume.claim.namespace for volume in volumes if volume.claim is not None}
        if wanted:
            await ask("namespaces", lambda: self._namespaces(wanted, cached=every > 0), {}, about=wanted)
        named = {volume.claim_name for volume in volumes if volume.claim is not None}
        often = min(every, MADE_AGAIN_WITHIN) if self._recent.among(named) else every
        if named:
            await ask("pods without a node", lambda: self._waiting_pods(named), (), every=often)
        known = {class_.name for class_ in self._cached.classes.values()}
        if missing := sorted({volume.class_name for volume in volumes} - known - {""}):
            # A class of volumes that people made names no driver of ours, so the watch drops it; its policy counts all the same.
            await ask("classes", lambda: self._get_all(CLASSES, missing, Class.of), (), about=missing)
        locator = Locator(node, (), segment=self._cached.segment)
        unsure = [volume for volume in volumes if locator.needs_others(volume) and not self._names_only_this(volume, node)]
        # A watch that lags will show it. That of a claim whose volume is gone never will, and must not hold the node for ever.
        bound = (claim for claim in self._cached.claims.by_index("node", node.name) if claim.volume_name not in self._cached.volumes)
        if unseen := sorted({claim.volume_name for claim in bound} - {""})[:_MOST_CLAIMS]:
            await ask("unseen", lambda: self._volumes_by_name(unseen), {}, about=unseen)
        elsewhere, handles = self._list.elsewhere, {volume.handle for volume in volumes}
        if unsure or elsewhere:
            await ask("nodes", lambda: self._list_all(NODES, Node.of), None)
        sources = {content.source_handle for content in self._cached.contents.values() if not content.managed_by} - handles
        if sources or elsewhere:
            locator = Locator(node, found["nodes"] or (), segment=self._cached.segment)

            def counts(volume: Volume) -> bool:
                """A snapshot's, or one that the driver has here although its PersistentVolume says another node that is not there."""
                is_odd = volume.handle in elsewhere and locator.place(volume, listed=True) is not ELSEWHERE
                return is_odd or volume.handle in sources

            await ask("volumes", lambda: self._volumes_of(driver, counts), (), about=sources | elsewhere)
        if observed and self._settings.reprovisions:
            await ask("capacities", self._capacities, None)
            await ask("nodes", lambda: self._list_all(NODES, Node.of), None)
        return found

    async def _ask(
        self,
        what: str,
        question: Callable[[], Awaitable[Any]],
        every: float,
        unread: dict[str, str],
        default: Any,
        *,
        about: Collection[str] = (),
    ) -> Any:
        """`about`: what the answer is about, where it leaves out all else. One about less counts for nothing."""
        now = self._clock()
        known_at, answer, of = self._known.get(what, (float("-inf"), default, frozenset()))
        known_at = known_at if of.issuperset(about) else float("-inf")
        failed_at, why = self._tried.get(what, (float("-inf"), ""))
        if now - known_at < every:
            return answer
        if now - failed_at >= min(_AGAIN, every or _AGAIN) or every == 0.0:
            try:
                answer = await question()
                self._known[what] = now, answer, frozenset(about)
                self._tried.pop(what, None)
                return answer
            except ApiError as error:
                why = str(error)
                self._tried[what] = now, why
        if every > 0.0 and now - known_at < every + LAST_GOOD:
            return answer
        unread[what] = why
        return default

    async def _namespaces(self, wanted: Collection[str], *, cached: bool) -> Mapping[str, Notes]:
        """Not from the API server's cache where something would be opened by what they say."""

        def said(obj: Json) -> tuple[str, Notes] | None:
            name = obj["metadata"]["name"]
            return (name, notes_of(obj["metadata"].get("annotations"))) if name in wanted else None

        return dict([pair async for pair in records(self._kube, NAMESPACES, said, cached=cached)])

    async def _waiting_pods(self, named: Collection[str]) -> tuple[Pod, ...]:
        """Pods without a node that name one of these claims."""

        def waiting(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return pod if not pod.ended and not pod.node and any(claim in named for claim in pod.claim_names) else None

        found = tuple([pod async for pod in records(self._kube, PODS, waiting, field_selector="spec.nodeName=")])
        for pod in found:
            self._recent.named(pod)
        return found

    async def _volumes_of(self, driver: str, counts: Callable[[Volume], bool]) -> tuple[Volume, ...]:
        def ours(obj: Json) -> Volume | None:
            volume = Volume.of(obj) if ((obj.get("spec") or {}).get("csi") or {}).get("driver") == driver else None
            return volume if volume is not None and counts(volume) else None

        return await self._list_all(VOLUMES, ours)

    async def _volumes_by_name(self, wanted: Iterable[str]) -> Mapping[str, Volume | None]:
        found = {name: await find(self._kube, VOLUMES, name) for name in wanted}
        return {name: None if obj is None else Volume.of(obj) for name, obj in found.items()}

    async def _capacities(self) -> tuple[CapacityRecord, ...]:
        where = {"namespace": self._settings.namespace, "label_selector": f"{names.CAPACITY_DRIVER_LABEL}={self._settings.driver}"}
        return tuple([record async for record in records(self._kube, CAPACITIES, CapacityRecord.of, cached=True, **where)])

    async def _list_all(self, resource: Any, of: Callable[[Json], Any]) -> tuple[Any, ...]:
        return tuple([item async for item in records(self._kube, resource, of, cached=True)])

    async def _get_all(self, resource: Any, wanted: Iterable[str], of: Callable[[Json], Any]) -> tuple[Any, ...]:
        return tuple([of(obj) for name in wanted if (obj := await find(self._kube, resource, name)) is not None])

    def _names_only_this(self, volume: Volume, node: Node) -> bool:
        """It asks for a label that one node alone has, the driver's or the hostname: then no other node matters."""
        hostname = node.labels.get(names.HOSTNAME)
        places = (self._cached.segment, Segment(((names.HOSTNAME, hostname),) if hostname is not None else ()))
        return bool(volume.affinity) and all(term.names_only(node.name, places) for term in volume.affinity or ())

    # --- claims -----------------------------------------------------------------------------------------------------------

    def _missing_claims(self) -> frozenset[str]:
        """Full names of claims whose volume is here and that the watch dropped: it saw them before it knew of the volume."""
        known = {claim.full_name for claim in self._cached.claims.values()}
        bound = (volume for volume in self._cached.volumes.values() if volume.phase == "Bound" and volume.claim is not None)
        return frozenset(volume.claim_name for volume in bound) - known

    async def _ask_for_missing(self, every: float, unread: dict[str, str]) -> tuple[list[Claim], frozenset[str]]:
        found: list[Claim] = []
        missing = self._missing_claims()
        if len(missing) > _MOST_CLAIMS:
            found += await self._ask("claims", lambda: self._claims(missing), every, unread, (), about=missing)
            if why := unread.pop("claims", ""):
                unread |= {unread_key(CLAIM, name): why for name in missing}
            return found, missing
        for full_name in sorted(missing):
            namespace, _, name = full_name.partition("/")
            what = unread_key(CLAIM, full_name)
            obj = await self._ask(what, lambda: find(self._kube, CLAIMS, name, namespace=namespace), every, unread, None)  # noqa: B023
            found += [Claim.of(obj)] if obj is not None else []
        self._known = {what: item for what, item in self._known.items() if _is_of(what, missing)}
        self._tried = {what: item for what, item in self._tried.items() if _is_of(what, missing)}
        return found, missing

    async def _claims(self, wanted: Collection[str]) -> tuple[Claim, ...]:
        def named(obj: Json) -> Claim | None:
            claim = Claim.of(obj)
            return claim if claim.full_name in wanted else None

        return await self._list_all(CLAIMS, named)

    def _waited(self, node: str) -> dict[str, float]:
        now = self._clock()
        waiting = [claim.uid for claim in self._cached.claims.by_index("node", node) if not claim.volume_name]
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in waiting}
        return {uid: now - since for uid, since in self._waiting_since.items()}


def _by_name(volumes: Iterable[Volume]) -> list[Volume]:
    """The watch comes first, because it is the newest."""
    found: dict[str, Volume] = {}
    for volume in volumes:
        found.setdefault(volume.name, volume)
    return list(found.values())


def _is_of(what: str, missing: Collection[str]) -> bool:
    """The question is about no claim, or about one of these."""
    prefix = unread_key(CLAIM, "")
    return not what.startswith(prefix) or what.removeprefix(prefix) in missing
